"""A shard of a schedule, for one of several senders."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import PenstockError
from penstock.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Shard:
    """The events ``number``, ``number + of``, ``number + 2 of`` … of a schedule: each has an even part of every burst.
    Raises PenstockError for a number that is not from 0 to ``of`` - 1.
    """

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise PenstockError(f"shard {self}: expected one of 0/{self.of} to {self.of - 1}/{self.of}, such as 0/2")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """``0/2`` is the first of two. Raises PenstockError."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and int(of)):
            raise PenstockError(f"shard {text}: expected number/of, such as 0/2 for the first of two")
        return cls(int(number), int(of))

    def part(self, schedule: Schedule) -> Schedule:
        """The schedule of these events alone; row i is event ``ids(…)[i]``."""
        if self.of == 1:
            return schedule
        own = slice(self.number, None, self.of)
        offsets_ns = np.ascontiguousarray(schedule.intended_offset_ns[own])
        return Schedule(
            offsets_ns, np.ascontiguousarray(schedule.partition[own]), schedule.duration_s, schedule.description
        )

    def ids(self, count: int) -> range:
        """Ids of the first ``count`` of its events."""
        return range(self.number, self.number + count * self.of, self.of)


WHOLE: Final = Shard()
