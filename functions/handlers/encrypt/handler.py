"""AES 1: cycles of encrypting and decrypting a text made from the request; hands on what the last one encrypted.

The key travels with the text: this is work to be measured, it keeps nothing secret. Environment: ``text_bytes``,
``cycles``.
"""

import base64
import hashlib
import os
from typing import Any

from claim_check import pack, setting
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TEXT_BYTES = 64 * 1024
CYCLES = 8


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """Any body → ``{"key", "nonce", "ciphertext": parcel, "sha256": of the text}``; the text is the body over and
    over.
    """
    size = setting("text_bytes", TEXT_BYTES)
    seed = event.body or b"\0"
    text = (seed * (size // len(seed) + 1))[:size]
    cipher = AESGCM(key := AESGCM.generate_key(bit_length=256))
    for _ in range(setting("cycles", CYCLES)):
        nonce = os.urandom(12)
        ciphertext = cipher.encrypt(nonce, text, None)
        text = cipher.decrypt(nonce, ciphertext, None)
    return {
        "body": {
            "key": base64.b64encode(key).decode(),
            "nonce": base64.b64encode(nonce).decode(),
            "ciphertext": pack(ciphertext),
            "sha256": hashlib.sha256(text).hexdigest(),
        }
    }
