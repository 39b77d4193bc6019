"""A workload from measured rates: any CSV file with a named column of rates.

Each row's rate holds until the next row's time, as monitoring systems record it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from producers.workloads.contract import Floats, Workload, positive
from producers.workloads.csv_rows import number_in, rows_of, time_in

TIMES: Final = ("time_s", "timestamp")
"""Columns of times, by name."""


class Rows(NamedTuple):
    """A trace as read: ``start_s`` ascending from 0, ``rate_per_s``, both shape (rows,), and when its last row ends."""

    start_s: Floats
    rate_per_s: Floats
    end_s: float


class FromFile(Workload):
    """A workload whose rates hold from row to row of a file.

    Raises PenstockError that names file, line and value for an invalid file.
    """

    @cached_property
    def rows(self) -> Rows:
        """The file's content, read once."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        # An invalid file is reported where the workload is named, not while a run is prepared.
        assert self.rows.end_s > 0

    @property
    def duration_s(self) -> float:
        """From the first row to the end of the last."""
        return self.rows.end_s

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate of the row in which each time lies."""
        row = np.searchsorted(self.rows.start_s, np.asarray(time_s, dtype=np.float64), side="right") - 1
        return np.asarray(self.rows.rate_per_s[np.maximum(row, 0)])


@dataclass(frozen=True)
class Trace(FromFile):
    """Rates from ``column`` of the CSV file ``path``, whose first line names the columns.

    Without a column of times each row lasts ``row_s`` seconds. With one (``time_column``, else ``time_s`` or
    ``timestamp`` if there is one; seconds, or ISO 8601 date and time, in UTC unless it has an offset; ascending) the
    first row is time 0, and the last row lasts as long as the one before it, or ``row_s`` where it is the only one.
    """

    path: str
    column: str = "rate_per_s"
    time_column: str = ""
    row_s: float = 1.0

    name: ClassVar[str] = "trace"
    summary: ClassVar[str] = "a column of rates in a CSV file"

    def __post_init__(self) -> None:
        positive(row_s=self.row_s)
        super().__post_init__()

    @cached_property
    def rows(self) -> Rows:
        """The file's content, read once."""
        lines = rows_of(Path(self.path), remedy="; give its path as trace:path=FILE.csv")
        _, names = next(lines)
        rate_at = self._position(names, self.column)
        times = self.time_column or next((each for each in TIMES if each in names), "")
        time_at = self._position(names, times) if times else rate_at
        times_s: list[float] = []
        rates: list[float] = []
        for line, row in lines:
            if len(row) <= max(rate_at, time_at):
                self._fail(line, f"only {len(row)} of {len(names)} columns", "complete the row")
            rates.append(self._rate(line, row[rate_at]))
            times_s.append(self._time_s(line, times, row[time_at]) if times else self.row_s * len(times_s))
            if len(times_s) > 1 and times_s[-1] <= times_s[-2]:
                self._fail(line, f"time {row[time_at]!r} is not after the one before", "sort the rows, one row a time")
        if not rates:
            raise PenstockError(f"{self.path}: no rows below the column names; a trace needs at least one rate")
        start_s = np.asarray(times_s) - times_s[0]
        last_s = float(start_s[-1] - start_s[-2]) if times and len(start_s) > 1 else self.row_s
        return Rows(start_s, np.asarray(rates), float(start_s[-1]) + last_s)

    def _position(self, names: list[str], wanted: str) -> int:
        if wanted in names:
            return names.index(wanted)
        if not any(names):
            raise PenstockError(f"{self.path}: empty trace file; its first line names the columns, rates follow")
        shown = ", ".join(repr(name) for name in names)
        if not all(math.isnan(number_in(name)) for name in names):
            remedy = f"it holds values ({shown}): put a line such as time_s,{self.column} above them"
        else:
            option = "time_column" if wanted == self.time_column else "column"
            remedy = f"the columns are {shown}; choose one, as in trace:path={self.path},{option}=NAME"
        raise PenstockError(f"{self.path}: line 1: no column {wanted!r}; {remedy}")

    def _rate(self, line: int, text: str) -> float:
        try:
            rate = float(text)
        except ValueError:
            self._fail(line, f"{self.column} {text!r} is not a number", "write events per second as in 12.5")
        if not math.isfinite(rate):
            self._fail(line, f"{self.column} {text!r} is not a finite number", "remove the row or fill the gap")
        if rate < 0:
            self._fail(line, f"{self.column} {text!r} is negative", "a rate is at least 0")
        return rate

    def _time_s(self, line: int, column: str, text: str) -> float:
        time_s = time_in(text)
        if not math.isfinite(time_s):
            self._fail(line, f"{column} {text!r} is not a time", "write seconds or ISO 8601 date and time")
        return time_s

    def _fail(self, line: int, what: str, remedy: str) -> NoReturn:
        raise PenstockError(f"{self.path}: line {line}: {what}; {remedy}")
