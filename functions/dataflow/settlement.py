"""Records the outcome of each request in Redis, exactly once by event id, however often it is delivered.

One Lua script decides, so that no crash can come between the outcome, the ledger and the counts: the first outcome of
an event stays. Completed requests are in the run's ledger, the others in its dead letters, with their events.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from functions.dataflow.flow import Flow
from functions.dataflow.request import Request
from penstock.adapters.redis import REDIS_AWAY, async_redis_client
from penstock.log_once import LogOnce
from penstock.records import Event, Outcome

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0
BACKOFF_S: Final = (0.05, 0.5)
AT_ONCE: Final = 100
"""Requests recorded in one round trip at most."""
LETTER_BYTES: Final = 65_536
"""A larger payload is left out of a dead letter."""

_SETTLE = """
local outcomes = {}
for i = 1, #ARGV, 4 do
  local id, outcome = ARGV[i], ARGV[i + 1]
  if redis.call('HSETNX', KEYS[1], id, outcome) == 1 then
    redis.call('HSET', outcome == 'completed' and KEYS[2] or KEYS[3], id, ARGV[i + 2])
    redis.call('HINCRBY', KEYS[4], 'finished', 1)
    redis.call('HINCRBY', KEYS[4], 'missed', tonumber(ARGV[i + 3]))
    outcomes[#outcomes + 1] = {1, outcome}
  else
    outcomes[#outcomes + 1] = {1 + redis.call('HINCRBY', KEYS[5], id, 1), redis.call('HGET', KEYS[1], id)}
  end
end
return outcomes
"""


class SettlementOutcome(msgspec.Struct, frozen=True):
    """One line of the ledger. Times in ns since the epoch."""

    id: int
    worker: str
    intended_ns: int
    finished_ns: int


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that was abandoned. ``event`` lacks its payload where that is larger than 64 KiB."""

    id: int
    outcome: Outcome
    stage: str
    attempts: int
    reason: str
    at_ns: int
    event: Event | None = None


def letters_key(run: str) -> str:
    """Redis hash of a run's dead letters: event id → ``DeadLetter``, JSON."""
    return f"penstock:{run}:dead-letters"


class Settlement:
    """Records requests in order, several waiting ones together."""

    def __init__(self, url: str, run: str, ledger_key: str) -> None:
        self.redis = async_redis_client(url, TIMEOUT_S)
        """Also for other users in the same event loop."""
        self._script = self.redis.register_script(_SETTLE)
        self._outcomes_key, self._counts_key = f"{ledger_key}:outcomes", f"{ledger_key}:counts"
        self._keys = (self._outcomes_key, ledger_key, letters_key(run), self._counts_key, f"{ledger_key}:again")
        self._waiting: asyncio.Queue[Request] = asyncio.Queue()
        self.put, self.join, self.close = self._waiting.put_nowait, self._waiting.join, self.redis.aclose
        """Record a request, whose outcome is in ``request.final``; wait until all are recorded; close the client."""
        self._trouble = LogOnce(log, "Redis is away, outcomes wait: %s", recovered="Redis is back")

    async def counts(self) -> tuple[int, int]:
        """Requests that have left the pipeline, and those of them that missed their deadline, as recorded so far; waits
        while Redis is away.
        """
        found, _ = await self.retried(lambda: self.redis.hgetall(self._counts_key))
        return int(found.get(b"finished", 0)), int(found.get(b"missed", 0))

    async def run(self, flow: Flow) -> None:
        """Work until cancelled. ``flow.settled`` is called for each request: attempt 1 if it was recorded now, else 2
        or more with its first outcome. A try whose answer was lost counts as an attempt: after an outage it is unknown
        whether it had been recorded, and the flow's counts are read anew.
        """
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < AT_ONCE and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            arguments = [argument for request in batch for argument in _line(request)]
            outcomes, tries = await self.retried(partial(self._script, keys=self._keys, args=arguments))
            for request, (attempt, outcome) in zip(batch, outcomes, strict=True):
                flow.settled(request, int(attempt), outcome.decode())
                self._waiting.task_done()
            if tries > 1:
                flow.finished, flow.missed = await self.counts()

    async def retried(self, ask: Callable[[], Awaitable[Any]]) -> tuple[Any, int]:
        """The answer of Redis and the number of tries, until there is one."""
        delay_s, tries = BACKOFF_S[0], 0
        while True:
            tries += 1
            try:
                answer = await ask()
            except (*REDIS_AWAY, OSError) as error:
                self._trouble.note(f"{type(error).__name__}: {error}")
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S[1])
            else:
                self._trouble.clear()
                return answer, tries


def _line(request: Request) -> tuple[int, str, bytes, int]:
    final, event = request.outcome, request.event
    record: msgspec.Struct
    if final.outcome == "completed":
        record = SettlementOutcome(event.id, final.worker, event.intended_ns, final.finished_ns)
    else:
        whole = len(event.payload) <= LETTER_BYTES
        kept = event if whole else msgspec.structs.replace(event, payload=msgspec.Raw(b"null"))
        record = DeadLetter(event.id, final.outcome, final.stage, final.attempt, final.reason, final.finished_ns, kept)
    return event.id, final.outcome, msgspec.json.encode(record), int(request.missed)
