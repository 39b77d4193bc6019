"""Virtual time: a clock that goes on only when somebody sleeps."""

from collections.abc import Callable

from penstock.clock import NANOS_PER_SECOND

EPOCH_NS = 946_684_800 * NANOS_PER_SECOND
"""Wall clock of offset 0 in every simulated run (the first second of the year 2000): the same in all of them, so that
one seed gives the same bytes.
"""


def nanos(time_s: float) -> int:
    """Whole nanoseconds of a time in seconds."""
    return round(time_s * NANOS_PER_SECOND)


class VirtualClock:
    """Seconds since the start of the run. ``sleep_until`` lets ``advance`` (an engine's) make everything happen that is
    due by then, and returns at once on the wall clock.
    """

    def __init__(self, advance: Callable[[float], None] = lambda _: None) -> None:
        self._advance = advance
        self._now_s = 0.0

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self._now_s

    def sleep_until(self, time_s: float) -> None:
        """Go on to ``time_s``; a time that has passed changes nothing."""
        if time_s > self._now_s:
            self._advance(time_s)
            self._now_s = time_s
