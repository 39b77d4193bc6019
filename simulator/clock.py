"""Virtual time: a clock that advances only when its user sleeps, actions by time, times as whole nanoseconds."""

import heapq
from collections.abc import Callable, Sequence
from math import inf

import numpy as np
import numpy.typing as npt

from penstock.clock import NANOS_PER_SECOND
from penstock.distributions import Floats

EPOCH_NS = 946_684_800 * NANOS_PER_SECOND
"""Wall clock of offset 0 in every simulated run (2000-01-01), so that one seed gives the same bytes."""


def nanos(time_s: float) -> int:
    """Whole nanoseconds of a time in seconds."""
    return round(time_s * NANOS_PER_SECOND)


def whole_nanos(durations_s: Floats) -> list[int]:
    """Durations as whole nanoseconds, so that simultaneous events are exactly simultaneous."""
    durations: list[int] = np.rint(durations_s * NANOS_PER_SECOND).astype(np.int64).tolist()
    return durations


def seconds(at_ns: Sequence[int], rows: npt.NDArray[np.int64]) -> Floats:
    """Those ``rows`` of a list of times in nanoseconds, in seconds."""
    return np.asarray(np.asarray(at_ns, dtype=np.int64)[rows] / NANOS_PER_SECOND)


class VirtualClock:
    """Seconds since the start of the run. ``sleep_until`` calls an engine's ``advance``, which processes all due
    events; a sleep ends at ``limit_s`` at the latest.
    """

    def __init__(self, advance: Callable[[float], None] = lambda _: None) -> None:
        self._advance = advance
        self._now_s = 0.0
        self.limit_s = inf

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._now_s

    def sleep_until(self, time_s: float) -> None:
        """Advance to ``time_s``; a time in the past changes nothing."""
        time_s = min(time_s, self.limit_s)
        if time_s > self._now_s:
            self._advance(time_s)
            self._now_s = time_s


class EventQueue:
    """Actions by time; simultaneous ones in the order of entry."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._entered = 0

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Enter an action."""
        heapq.heappush(self._entries, (time_s, self._entered, action))
        self._entered += 1

    @property
    def next_s(self) -> float:
        """When the next action is due; infinity for none."""
        return self._entries[0][0] if self._entries else inf

    def pop(self) -> Callable[[], None]:
        """Remove and return the next action."""
        return heapq.heappop(self._entries)[2]
