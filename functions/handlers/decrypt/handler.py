"""AES 2: cycles of decrypting what came and encrypting it again; hands on the text and the last ciphertext's own key.

Environment: ``cycles``.
"""

import base64
import os
from typing import Any

from claim_check import FunctionError, field, pack, read_json, setting, unpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CYCLES = 8


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """``{"key", "nonce", "ciphertext", "sha256"}`` → ``{"key", "text": parcel, "sha256"}``."""
    request = read_json(event)
    try:
        cipher = AESGCM(base64.b64decode(field(request, "key")))
        nonce = base64.b64decode(field(request, "nonce"))
        ciphertext = unpack(field(request, "ciphertext"))
        for _ in range(setting("cycles", CYCLES)):
            text = cipher.decrypt(nonce, ciphertext, None)
            nonce = os.urandom(12)
            ciphertext = cipher.encrypt(nonce, text, None)
    except (InvalidTag, ValueError, TypeError) as error:
        raise FunctionError(400, f"cannot be decrypted: {type(error).__name__}") from None
    return {"body": {"key": request["key"], "text": pack(text), "sha256": field(request, "sha256")}}
