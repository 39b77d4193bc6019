"""Pacing of a worker: a service floor kept by absolute deadlines, so that late wake-ups never add up.

All work on an event (poll, ledger, result, commit) happens within its floor; otherwise μ would be below 1/floor.
"""

import random
import time
from typing import NamedTuple

from penstock.runspec import WorkerServiceDistribution

BACK_TO_BACK_NS = 2_000_000
"""An event received within this time after the previous deadline had been waiting: it starts at that deadline."""


class Slot(NamedTuple):
    """One event's time on the worker, on the monotonic clock in ns."""

    start_ns: int
    deadline_ns: int


class Pacer:
    """Gives each event its slot. ``floor_s``: mean service time, 0 for none. Exponential draws are seeded with ``seed``
    and the replica's name: every replica has its own reproducible draws. ``back_to_back_ns``: an event received within
    this time after a deadline had been waiting.
    """

    def __init__(
        self,
        floor_s: float,
        law: WorkerServiceDistribution,
        *,
        seed: int,
        replica: str,
        back_to_back_ns: int = BACK_TO_BACK_NS,
    ) -> None:
        self._floor_ns = round(floor_s * 1e9)
        self._law = law
        self._random = random.Random(f"{seed}/{replica}")  # noqa: S311 - a service law, not a secret
        self._back_to_back_ns = back_to_back_ns
        self._free_ns = 0

    def next(self, received_ns: int, earliest_ns: int = 0, floor_ns: int | None = None) -> Slot:
        """The slot of an event received at ``received_ns`` and sent not before ``earliest_ns``. It starts when the
        worker became free if the event was waiting then, else when it was received. ``floor_ns``: its own service time,
        in place of a draw.
        """
        waiting = received_ns - self._free_ns <= self._back_to_back_ns
        start_ns = min(received_ns, max(self._free_ns, earliest_ns)) if waiting else received_ns
        return self._slot(start_ns) if floor_ns is None else Slot(start_ns, start_ns + floor_ns)

    @property
    def free_ns(self) -> int:
        """When the worker became free of the last event; 0 before the first one."""
        return self._free_ns

    def following(self) -> Slot:
        """The slot right after the last one: for the next event of the same chunk."""
        return self._slot(self._free_ns)

    @staticmethod
    def waits(slot: Slot) -> bool:
        """Whether the slot's deadline is still to come."""
        return time.monotonic_ns() < slot.deadline_ns

    def wait(self, slot: Slot, ready_ns: int | None = None) -> int:
        """Return at the slot's deadline, with the time then. If the work took longer, the worker becomes free now.
        ``ready_ns``: when the work was done, for a caller that comes when the slot is about to end: its lateness is not
        the work's and does not add up either.
        """
        now_ns = time.monotonic_ns()
        if (now_ns if ready_ns is None else ready_ns) >= slot.deadline_ns:
            self._free_ns = now_ns
            return now_ns
        if now_ns < slot.deadline_ns:
            time.sleep((slot.deadline_ns - now_ns) / 1e9)
        self._free_ns = slot.deadline_ns
        return time.monotonic_ns()

    def _slot(self, start_ns: int) -> Slot:
        floor_ns = self._floor_ns
        if floor_ns and self._law == "exponential":
            floor_ns = round(self._random.expovariate(1 / floor_ns))
        return Slot(start_ns, start_ns + floor_ns)
