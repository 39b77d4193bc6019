"""What is due at which virtual time."""

import heapq
from collections.abc import Callable
from math import inf


class Agenda:
    """Actions by time; those of one time in the order in which they were entered."""

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
        """Take out the next action."""
        return heapq.heappop(self._entries)[2]
