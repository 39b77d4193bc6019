"""Arrivals of the last interval in equal slots, from end offsets that a thread reads once per slot.

Rates over a whole interval hide at which time of the interval events arrive. A lookup by record timestamp would answer
the same question, but makes the broker search its log once per slot and partition; the end offset is in its memory.
"""

import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from itertools import pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from penstock.clock import Clock
from penstock.contracts import ARRIVAL_SLOTS

LONGEST_GAP_SLOTS: Final = 3
"""With no reading for longer than this, it is unknown in which slot the events arrived."""
KEPT_INTERVALS: Final = 2
_time = attrgetter("at_s")


class EndReading(NamedTuple):
    """End offsets by partition at one instant."""

    at_s: float
    end: Mapping[int, int]


class ArrivalSlots:
    """End offsets over the last intervals of ``interval_s``, and the arrivals by slot that follow from them."""

    def __init__(self, interval_s: float) -> None:
        self.slot_s = interval_s / ARRIVAL_SLOTS
        self._readings: list[EndReading] = []

    def add(self, at_s: float, end: Mapping[int, int]) -> None:
        """Take in a reading; an empty one is none. A clock that was set back makes all before it useless."""
        if self._readings and at_s < self._readings[-1].at_s - self.slot_s:
            self._readings.clear()
        if end:
            insort(self._readings, EndReading(at_s, end), key=_time)
        oldest_s = at_s - KEPT_INTERVALS * ARRIVAL_SLOTS * self.slot_s
        del self._readings[: bisect_right(self._readings, oldest_s, key=_time)]

    def until(self, at_s: float) -> dict[int, tuple[int, ...]]:
        """Arrivals by partition in each slot of the interval that ends at ``at_s``, oldest first. A partition that was
        not read for longer than ``LONGEST_GAP_SLOTS`` around one of its slots is missing.
        """
        ends = [self._end_at(at_s - slot * self.slot_s) for slot in range(ARRIVAL_SLOTS, -1, -1)]
        return {
            partition: tuple(max(0, after[partition] - before[partition]) for before, after in pairwise(ends))
            for partition in sorted(set(ends[0]).intersection(*ends[1:]))
        }

    def _end_at(self, bound_s: float) -> Mapping[int, int]:
        """The last reading up to then, if it is recent enough."""
        place = bisect_right(self._readings, bound_s, key=_time)
        if not place or bound_s - self._readings[place - 1].at_s > LONGEST_GAP_SLOTS * self.slot_s:
            return {}
        return self._readings[place - 1].end


class ArrivalSampler:
    """Reads end offsets once per slot in a thread. ``read`` asks the broker, ``close_reader`` ends its connections."""

    def __init__(
        self,
        read: Callable[[], Mapping[int, int]],
        close_reader: Callable[[], None],
        clock: Clock,
        interval_s: float = 1.0,
    ) -> None:
        self._read, self._close_reader, self._clock = read, close_reader, clock
        self._slots = ArrivalSlots(interval_s)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="arrivals", daemon=True)

    def start(self) -> None:
        """Read from now on."""
        self._thread.start()

    def until(self, at_s: float, end: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
        """See ``ArrivalSlots.until``. ``end``: a reading of the caller at that time."""
        with self._lock:
            self._slots.add(at_s, end)
            return self._slots.until(at_s)

    def close(self) -> None:
        """End the thread, then the connections."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close_reader()

    def _sample(self) -> None:
        due_s = time.monotonic()
        while not self._closing.wait(max(0.0, due_s - time.monotonic())):
            at_s = self._clock.now()
            end = self._read()
            with self._lock:
                self._slots.add(at_s, end)
            due_s = max(due_s + self._slots.slot_s, time.monotonic())
