"""The ledger of one run in Redis: every payment is booked exactly once by event id, however often it is delivered.

Booking and account balance change in one Lua script, so that no crash can come between them.
"""

from collections.abc import Sequence

import msgspec

from penstock.adapters.redis import redis_client

_BOOK = """
local attempts = {}
for i = 1, #ARGV, 4 do
  if redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('HINCRBY', KEYS[2], ARGV[i + 2], -tonumber(ARGV[i + 3]))
    attempts[#attempts + 1] = 1
  else
    attempts[#attempts + 1] = 1 + redis.call('HINCRBY', KEYS[3], ARGV[i], 1)
  end
end
return attempts
"""


class Booking(msgspec.Struct, frozen=True):
    """One line of the ledger. Amount in cents of ``currency``; ``at_ns`` since the epoch."""

    id: int
    account: str
    amount_cents: int
    currency: str
    risk: int
    review: bool
    worker: str
    at_ns: int


def keys(ledger_key: str) -> tuple[str, str, str]:
    """Its Redis hashes: bookings by event id, balances in cents by account, repeated deliveries by event id."""
    return ledger_key, f"{ledger_key}:balances", f"{ledger_key}:again"


class Ledger:
    """``url`` as redis://:secret@host:port/0. An absent Redis raises one of ``REDIS_AWAY``; the caller retries."""

    def __init__(self, url: str, ledger_key: str, timeout_s: float = 2.0) -> None:
        self._redis = redis_client(url, timeout_s)
        self._book = self._redis.register_script(_BOOK)
        self._keys = keys(ledger_key)
        self._encoder = msgspec.json.Encoder()

    def book(self, bookings: Sequence[Booking]) -> list[int]:
        """Book each payment unless it is booked already, in one round trip. Returns the attempt of each: 1 booked now,
        2 or more known before. All of them or (on an error) none or all: ask again.
        """
        if not bookings:
            return []
        arguments: list[str | int | bytes] = []
        for booking in bookings:
            arguments += (booking.id, self._encoder.encode(booking), booking.account, booking.amount_cents)
        return [int(attempt) for attempt in self._book(keys=self._keys, args=arguments)]

    def booked_ids(self) -> list[int]:
        """Ids of everything booked, ascending."""
        return sorted(int(field) for field in self._redis.hkeys(self._keys[0]))

    def erase(self) -> None:
        """Remove the run's ledger."""
        self._redis.delete(*self._keys)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
