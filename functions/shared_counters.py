"""Counters of a replica: in memory that a fork server shares with the replicas that it forks, or of a pod by itself.

Each replica writes only its own; the fork server reads them at any time, also after a replica was killed.
"""

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any, Final

import msgspec

SUMMED: Final = ("invocations", "failed", "busy_ns", "violations")


class Counters(msgspec.Struct):
    """Counters of a replica in a pod. ``busy``: a request is in it; ``first_ns``: when its first one began; ``broken``:
    its handler hangs, it takes no more requests.
    """

    invocations: int = 0
    failed: int = 0
    busy_ns: int = 0
    violations: int = 0
    busy: bool = False
    first_ns: int = 0
    broken: bool = False


class SharedRow(ctypes.Structure):
    """``Counters`` of a forked replica, a cache line long."""

    _fields_ = tuple((field, ctypes.c_int64) for field in (*SUMMED, "busy", "first_ns", "_6", "_7"))


def add(total: Counters, gone: Counters | SharedRow) -> None:
    """Add what a replica that is gone has counted."""
    for field in SUMMED:
        setattr(total, field, getattr(total, field) + getattr(gone, field))


def totals(rows: Sequence[Counters | SharedRow]) -> dict[str, Any]:
    """Sums as a ``BackendState`` has them."""
    sums: dict[str, Any] = {field: sum(getattr(row, field) for row in rows) for field in SUMMED}
    sums["busy_s"] = sums.pop("busy_ns") / 1e9
    return sums


class SharedCounters:
    """Rows for up to ``rows`` replicas at a time; what a row held when it is freed stays in the totals."""

    def __init__(self, rows: int) -> None:
        memory = mmap.mmap(-1, rows * ctypes.sizeof(SharedRow))
        self._free = list((SharedRow * rows).from_buffer(memory))
        self._used: list[SharedRow] = []
        self._gone = Counters()

    def take(self) -> SharedRow | None:
        """An empty row, None if all are taken."""
        if not self._free:
            return None
        row: SharedRow = self._free.pop()
        ctypes.memset(ctypes.addressof(row), 0, ctypes.sizeof(row))
        self._used.append(row)
        return row

    def free(self, row: SharedRow) -> None:
        """The replica is gone."""
        add(self._gone, row)
        self._used.remove(row)
        self._free.append(row)

    def totals(self) -> dict[str, Any]:
        """Over all replicas that there are and were."""
        return totals((self._gone, *self._used))
