"""Writes the manager's snapshot to Redis, a moment before each instant at which the controller may look."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Final

import msgspec
import redis.asyncio

from functions.dataflow.settlement import UNAVAILABLE
from penstock.clock import NANOS_PER_SECOND
from penstock.functions import PipelineSnapshot, snapshot_key

log = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
"""At speed 1. Every scaler's period is a multiple of it."""
SHORTEST_S: Final = 0.02
LEAD_S: Final = 0.01
"""How long before a tick its snapshot is taken: always the same, so that rates between two ticks are exact."""


def interval_at(speed: float) -> float:
    """Seconds between two snapshots of a run at that speed."""
    return max(SHORTEST_S, INTERVAL_S / speed)


class SnapshotPublisher:
    """``take(epoch, at_ns)`` makes a snapshot. Epochs count intervals since the epoch of the wall clock, so that they
    grow also over a restart. ``phase_s``: of the controller's ticks.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        run: str,
        take: Callable[[int, int], PipelineSnapshot],
        *,
        interval_s: float,
        phase_s: float,
    ) -> None:
        self._redis, self._key, self._take = client, snapshot_key(run), take
        self._interval_s, self._phase_s = interval_s, phase_s - LEAD_S
        self._last = 0
        self._trouble = ""

    async def predecessor(self) -> PipelineSnapshot | None:
        """What another manager of this run wrote last. Redis has to be there."""
        found = await self._redis.get(self._key)
        return msgspec.json.decode(found, type=PipelineSnapshot) if found else None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due_s = (self._epoch(time.time()) + 1) * self._interval_s + self._phase_s
            await asyncio.sleep(max(0.0, due_s - time.time()))
            await self.publish()

    def _epoch(self, time_s: float) -> int:
        return math.floor((time_s - self._phase_s) / self._interval_s)

    async def publish(self) -> None:
        """Write one now."""
        now_ns = time.time_ns()
        # A sleep that ended a moment early has still slept until its epoch.
        self._last = epoch = max(self._last + 1, self._epoch(now_ns / NANOS_PER_SECOND))
        try:
            await self._redis.set(self._key, msgspec.json.encode(self._take(epoch, now_ns)))
        except UNAVAILABLE as error:
            if not self._trouble:
                log.warning("snapshot not written: %s", error)
            self._trouble = str(error)
        else:
            self._trouble = ""
