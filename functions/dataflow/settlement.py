"""What became of each request, written down exactly once by event id, however often it is delivered.

One Lua script decides, so that no crash can come between the outcome, the ledger and the counts: the first outcome of
an event stays. Completed requests are in the run's ledger; what was given up is in the dead letters, with its event.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from functions.dataflow.flow import is_missed
from functions.dataflow.request import Request
from penstock.records import Event, Outcome

log = logging.getLogger(__name__)

UNAVAILABLE: Final = (RedisConnectionError, RedisTimeoutError, ReadOnlyError, OSError)
"""What is raised while Redis is away or starting: try again later."""

TIMEOUT_S: Final = 2.0
BACKOFF_S: Final = (0.05, 0.5)
AT_ONCE: Final = 100
"""Requests written down in one round trip at most."""
LETTER_BYTES: Final = 65_536
"""A larger payload is left out of a dead letter."""

_SETTLE = """
local told = {}
for i = 1, #ARGV, 4 do
  local id, outcome = ARGV[i], ARGV[i + 1]
  if redis.call('HSETNX', KEYS[1], id, outcome) == 1 then
    redis.call('HSET', outcome == 'completed' and KEYS[2] or KEYS[3], id, ARGV[i + 2])
    redis.call('HINCRBY', KEYS[4], 'finished', 1)
    redis.call('HINCRBY', KEYS[4], 'missed', tonumber(ARGV[i + 3]))
    told[#told + 1] = {1, outcome}
  else
    told[#told + 1] = {1 + redis.call('HINCRBY', KEYS[5], id, 1), redis.call('HGET', KEYS[1], id)}
  end
end
return told
"""


class Booking(msgspec.Struct, frozen=True):
    """One line of the ledger. Times in ns since the epoch."""

    id: int
    worker: str
    intended_ns: int
    finished_ns: int


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that was given up. ``event`` lacks its payload where that is larger than 64 KiB."""

    id: int
    outcome: Outcome
    stage: str
    attempts: int
    reason: str
    at_ns: int
    event: Event | None = None


class Counts(NamedTuple):
    """Requests that have left the pipeline, and those of them that missed their deadline."""

    finished: int
    missed: int


def letters_key(run: str) -> str:
    """Redis hash of a run's dead letters: event id → ``DeadLetter``, JSON."""
    return f"penstock:{run}:dead-letters"


class Settlement:
    """Writes down requests in the order in which they come, together where several wait. ``settled(request, attempt,
    outcome)`` is called for each: attempt 1 if it was written down now, else 2 or more with its first outcome. After an
    outage nobody knows whether what was tried before had been written: ``recount`` is told what the counts are.
    """

    def __init__(
        self,
        url: str,
        run: str,
        ledger_key: str,
        settled: Callable[[Request, int, Outcome], None],
        recount: Callable[[Counts], None],
    ) -> None:
        self._redis = redis.asyncio.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._script = self._redis.register_script(_SETTLE)
        self._outcomes_key, self._counts_key = f"{ledger_key}:outcomes", f"{ledger_key}:counts"
        self._keys = (self._outcomes_key, ledger_key, letters_key(run), self._counts_key, f"{ledger_key}:again")
        self._settled, self._recount = settled, recount
        self._waiting: asyncio.Queue[Request] = asyncio.Queue()
        self._trouble = ""

    @property
    def redis(self) -> redis.asyncio.Redis:
        """The connection, for others in the same event loop."""
        return self._redis

    def put(self, request: Request) -> None:
        """``request.final`` says what became of it."""
        self._waiting.put_nowait(request)

    async def counts(self) -> Counts:
        """As written down so far; waits while Redis is away."""
        delay_s = BACKOFF_S[0]
        while True:
            try:
                found = await self._redis.hgetall(self._counts_key)
            except UNAVAILABLE as error:
                self._note(f"{type(error).__name__}: {error}")
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S[1])
            else:
                self._note("")
                return Counts(int(found.get(b"finished", 0)), int(found.get(b"missed", 0)))

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < AT_ONCE and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            told, tries = await self._write(batch)
            for request, (attempt, outcome) in zip(batch, told, strict=True):
                self._settled(request, attempt, outcome)
                self._waiting.task_done()
            if tries > 1:
                self._recount(await self.counts())

    async def join(self) -> None:
        """Until all that was put is written down."""
        await self._waiting.join()

    async def _write(self, batch: list[Request]) -> tuple[list[tuple[int, Outcome]], int]:
        """What was told, after how many tries: again and again while Redis is away. A try whose answer was lost counts
        as one attempt.
        """
        arguments: list[str | int | bytes] = []
        for request in batch:
            arguments += _line(request)
        delay_s, tries = BACKOFF_S[0], 0
        while True:
            tries += 1
            try:
                told = await self._script(keys=self._keys, args=arguments)
            except UNAVAILABLE as error:
                self._note(f"{type(error).__name__}: {error}")
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, BACKOFF_S[1])
            else:
                self._note("")
                return [(int(attempt), outcome.decode()) for attempt, outcome in told], tries

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("Redis is away, outcomes wait: %s", trouble) if trouble else log.info("Redis is back")
        self._trouble = trouble

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()


def _line(request: Request) -> tuple[int, str, bytes, int]:
    final, event = request.final, request.event
    assert final is not None
    record: msgspec.Struct
    if final.outcome == "completed":
        record = Booking(event.id, final.worker, event.intended_ns, final.finished_ns)
    else:
        whole = len(event.payload) <= LETTER_BYTES
        kept = event if whole else msgspec.structs.replace(event, payload=msgspec.Raw(b"null"))
        record = DeadLetter(event.id, final.outcome, final.stage, final.attempt, final.reason, final.finished_ns, kept)
    return event.id, final.outcome, msgspec.json.encode(record), int(is_missed(final, request.deadline_ns))
