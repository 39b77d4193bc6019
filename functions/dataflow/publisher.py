"""Writes the manager's snapshot to Redis, shortly before each possible tick of the controller."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.adapters.redis import REDIS_AWAY, AsyncRedis
from penstock.clock import NANOS_PER_SECOND
from penstock.function_messages import PipelineSnapshot, snapshot_key
from penstock.log_once import LogOnce
from penstock.runspec import RunSpec

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
"""At speed 1. Every scaler's period is a multiple of it."""
SHORTEST_S: Final = 0.02
LEAD_S: Final = 0.01
"""Lead of a snapshot before its tick: constant, so that rates between two ticks are exact."""


class SnapshotPublisher:
    """``take(epoch, at_ns)`` makes a snapshot of the run. Epochs count intervals since the epoch of the wall clock, so
    that they grow also over a restart.
    """

    def __init__(self, client: AsyncRedis, spec: RunSpec, take: Callable[[int, int], PipelineSnapshot]) -> None:
        self._redis, self._key, self._take = client, snapshot_key(spec.run), take
        self._interval_s = max(SHORTEST_S, INTERVAL_S / spec.speed)
        self._phase_s = spec.tick_phase_s - LEAD_S
        self._last = 0
        self._trouble = LogOnce(log, "snapshot not written: %s")

    async def predecessor(self) -> PipelineSnapshot | None:
        """The last snapshot of an earlier manager of this run. Raises an error of ``REDIS_AWAY`` or OSError."""
        found = await self._redis.get(self._key)
        return msgspec.json.decode(found, type=PipelineSnapshot) if found else None

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            due_s = (self._epoch(time.time()) + 1) * self._interval_s + self._phase_s
            await asyncio.sleep(max(0.0, due_s - time.time()))
            await self.publish()

    def _epoch(self, time_s: float) -> int:
        return math.floor((time_s - self._phase_s) / self._interval_s)

    async def publish(self) -> None:
        """Publish one now."""
        now_ns = time.time_ns()
        # A sleep that ended a moment early has still slept until its epoch.
        self._last = epoch = max(self._last + 1, self._epoch(now_ns / NANOS_PER_SECOND))
        try:
            await self._redis.set(self._key, msgspec.json.encode(self._take(epoch, now_ns)))
        except (*REDIS_AWAY, OSError) as error:
            self._trouble.note(error)
        else:
            self._trouble.clear()
