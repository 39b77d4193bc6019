"""AES 3: cycles of encrypting and decrypting the text; tells whether it is still the one of the beginning.

Environment: ``cycles``.
"""

import base64
import hashlib
import os
from typing import Any

from claim_check import FunctionError, field, read_json, setting, unpack
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CYCLES = 8


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """``{"key", "text", "sha256"}`` → ``{"verified": whether the text has that digest, "bytes": its length}``."""
    request = read_json(event)
    try:
        cipher = AESGCM(base64.b64decode(field(request, "key")))
    except (ValueError, TypeError) as error:
        raise FunctionError(400, f"no AES key: {error}") from None
    text = unpack(field(request, "text"))
    for _ in range(setting("cycles", CYCLES)):
        nonce = os.urandom(12)
        text = cipher.decrypt(nonce, cipher.encrypt(nonce, text, None), None)
    return {"body": {"verified": hashlib.sha256(text).hexdigest() == field(request, "sha256"), "bytes": len(text)}}
