"""Signing many events of one run: the same HMAC as ``penstock.records.sign``, some three times as fast.

HMAC (RFC 2104) hashes the padded key twice for every message; here both hash states are computed once and copied.
"""

import hashlib

_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


class Signer:
    """Signs events of ``run`` with ``signing_key``."""

    def __init__(self, signing_key: bytes, run: str) -> None:
        short = signing_key if len(signing_key) <= _BLOCK_BYTES else hashlib.sha256(signing_key).digest()
        block = short.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER_PAD) + run.encode() + b"/")
        self._outer = hashlib.sha256(block.translate(_OUTER_PAD))

    def sign(self, event_id: int, payload: bytes) -> str:
        """HMAC-SHA256 (hex) over run, id and payload, equal to that of ``penstock.records.sign``."""
        inner = self._inner.copy()
        inner.update(b"%d/%b" % (event_id, payload))
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest()
