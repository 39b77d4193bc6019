"""Counters of the replicas of one function, in memory that a warm parent shares with the replicas that it forks.

Each replica writes its own row and nobody else's; the parent reads them at any time, also after a replica was killed.
"""

import mmap
from typing import Final, Protocol

FIELDS: Final = ("invocations", "failed", "busy_ns", "violations", "busy", "first_ns")
WIDTH: Final = 8
"""64-bit numbers a row: a cache line."""


class Counters(Protocol):
    """One replica's, by ``FIELDS``. ``busy`` is 1 while a request is in it; ``first_ns`` when its first one began."""

    def __getitem__(self, field: str, /) -> int: ...

    def __setitem__(self, field: str, value: int, /) -> None: ...


class Row:
    """``Counters`` in shared memory."""

    def __init__(self, memory: memoryview, number: int) -> None:
        self._memory = memory
        self._start = number * WIDTH
        self.number = number

    def __getitem__(self, field: str) -> int:
        return int(self._memory[self._start + FIELDS.index(field)])

    def __setitem__(self, field: str, value: int) -> None:
        self._memory[self._start + FIELDS.index(field)] = value


class Tally:
    """Rows for up to ``rows`` replicas at a time; what a row held when it is freed stays in ``total``."""

    def __init__(self, rows: int) -> None:
        self._memory = memoryview(mmap.mmap(-1, rows * WIDTH * 8)).cast("q")
        self._free = list(range(rows - 1, -1, -1))
        self._used: dict[int, Row] = {}
        self._gone = dict.fromkeys(FIELDS, 0)

    def take(self) -> Row | None:
        """An empty row, None if all are taken."""
        if not self._free:
            return None
        row = Row(self._memory, self._free.pop())
        for field in FIELDS:
            row[field] = 0
        self._used[row.number] = row
        return row

    def free(self, row: Row) -> None:
        """The replica is gone."""
        for field in FIELDS:
            self._gone[field] += row[field]
        del self._used[row.number]
        self._free.append(row.number)

    def total(self, field: str) -> int:
        """Over all replicas that there are and were."""
        return self._gone[field] + sum(row[field] for row in self._used.values())
