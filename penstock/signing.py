"""Signatures of events: HMAC-SHA256 over run, id and payload, so that a payment can neither be altered nor replayed
under another id.

HMAC (RFC 2104) hashes the padded key twice for every message; here both hash states are computed once for a run and
copied for each event.
"""

import hashlib
import hmac

import msgspec

from penstock.records import Event

_BLOCK_BYTES = 64
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


class Signer:
    """Signs and verifies the events of ``run`` with ``signing_key``. Safe to use from several threads."""

    def __init__(self, signing_key: bytes, run: str) -> None:
        self.run = run
        short = signing_key if len(signing_key) <= _BLOCK_BYTES else hashlib.sha256(signing_key).digest()
        block = short.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER_PAD) + run.encode() + b"/")
        self._outer = hashlib.sha256(block.translate(_OUTER_PAD))

    def sign(self, event_id: int, payload: bytes | msgspec.Raw) -> str:
        """The signature in hexadecimal, 64 digits."""
        inner = self._inner.copy()
        inner.update(b"%d/%b" % (event_id, payload))
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest()

    def verify(self, event: Event) -> bool:
        """Whether ``event`` is of this run and ``event.mac`` is what the holder of the key would have written.
        Constant time in the MAC, whatever text that is.
        """
        expected = self.sign(event.id, event.payload).encode()
        # As bytes, for of two texts compare_digest takes ASCII only and raises at anything else.
        return event.run == self.run and hmac.compare_digest(expected, event.mac.encode())
