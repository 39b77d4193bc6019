"""Time as a port: the wall clock of live worlds; the simulator brings its own."""

import time
from typing import Protocol

NANOS_PER_SECOND = 1_000_000_000


class Clock(Protocol):
    """Seconds since the Unix epoch (live) or since the start of the run (simulated)."""

    def now(self) -> float:
        """Seconds."""

    def sleep_until(self, time_s: float) -> None:
        """Return at ``time_s`` or at once if it has passed."""


class WallClock:
    """The machine's clock. Deadlines are absolute, so that a late wake-up never adds to the next one."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def sleep_until(self, time_s: float) -> None:
        """Sleep in one piece; ``time.sleep`` overshoots by some 75 µs (median) on Linux."""
        remaining_s = time_s - time.time()
        if remaining_s > 0:
            time.sleep(remaining_s)
