"""A workload from somebody's own measurements: any CSV file with a named column of rates.

Each row's rate holds until the next row's time, as monitoring systems record it.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.runspec import Arrivals
from producers.workloads.contract import Floats, positive


class Rows(NamedTuple):
    """A trace as read: ``start_s`` ascending from 0, ``rate_per_s``, both shape (rows,), and when its last row ends."""

    start_s: Floats
    rate_per_s: Floats
    end_s: float


@dataclass(frozen=True)
class Trace:
    """Rates from ``column`` of the CSV file ``path``, whose first line names the columns.

    Without ``time_column`` each row lasts ``row_s`` seconds. With it (seconds, or ISO 8601 date and time; ascending)
    the first row is time 0, and the last row lasts as long as the one before it, or ``row_s`` where it is the only one.
    Raises PenstockError that names file, line and value for whatever cannot be played.
    """

    path: str
    column: str = "rate_per_s"
    time_column: str = ""
    row_s: float = 1.0

    name: ClassVar[str] = "trace"
    summary: ClassVar[str] = "a column of rates in a CSV file"
    arrivals: ClassVar[Arrivals] = "uniform"
    arrivals_fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive(row_s=self.row_s)
        # Reading now tells about a broken file where the workload is named, not in the middle of preparing a run.
        assert self.rows.end_s > 0

    @property
    def duration_s(self) -> float:
        """From the first row to the end of the last."""
        return self.rows.end_s

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate of the row in which each time lies."""
        row = np.searchsorted(self.rows.start_s, np.asarray(time_s, dtype=np.float64), side="right") - 1
        return np.asarray(self.rows.rate_per_s[np.maximum(row, 0)])

    @cached_property
    def rows(self) -> Rows:
        """The file's content, read once."""
        return _Reader(Path(self.path), self.column, self.time_column).read(self.row_s)


class _Reader:
    def __init__(self, path: Path, column: str, time_column: str) -> None:
        self.path = path
        self.column = column
        self.time_column = time_column

    def read(self, row_s: float) -> Rows:
        times_s: list[float] = []
        rates: list[float] = []
        for line, time_text, rate_text in self._cells():
            rates.append(self._rate(line, rate_text))
            if self.time_column:
                times_s.append(self._time_s(line, time_text))
                if len(times_s) > 1 and times_s[-1] <= times_s[-2]:
                    self._fail(line, f"time {time_text!r} is not after the one before", "sort the rows, one row a time")
        if not rates:
            raise PenstockError(f"{self.path}: no rows below the column names; a trace needs at least one rate")
        if not self.time_column:
            return Rows(np.arange(len(rates), dtype=np.float64) * row_s, np.asarray(rates), row_s * len(rates))
        start_s = np.asarray(times_s) - times_s[0]
        last_s = float(start_s[-1] - start_s[-2]) if len(start_s) > 1 else row_s
        return Rows(start_s, np.asarray(rates), float(start_s[-1]) + last_s)

    def _cells(self) -> Iterator[tuple[int, str, str]]:
        """(line, time text, rate text) of each row that is not blank."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                rows = csv.reader(file)
                names = [name.strip() for name in next(rows, [])]
                rate_at = self._position(names, self.column)
                time_at = self._position(names, self.time_column) if self.time_column else rate_at
                for row in rows:
                    if any(cell.strip() for cell in row):
                        if len(row) <= max(rate_at, time_at):
                            self._fail(rows.line_num, f"only {len(row)} of {len(names)} columns", "complete the row")
                        yield rows.line_num, row[time_at].strip(), row[rate_at].strip()
        except FileNotFoundError:
            raise PenstockError(f"{self.path}: no such trace file; give its path as trace:path=FILE.csv") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise PenstockError(f"{self.path}: not a CSV text file ({error}); save it as CSV in UTF-8") from None
        except OSError as error:
            raise PenstockError(f"{self.path}: cannot be read ({error.strerror}); name a CSV file") from None

    def _position(self, names: list[str], wanted: str) -> int:
        if wanted in names:
            return names.index(wanted)
        if not any(names):
            raise PenstockError(f"{self.path}: empty trace file; its first line names the columns, rates follow")
        shown = ", ".join(repr(name) for name in names)
        if any(_is_number(name) for name in names):
            way_out = f"it holds values ({shown}): put a line such as time_s,{self.column} above them"
        else:
            option = "time_column" if wanted == self.time_column else "column"
            way_out = f"the columns are {shown}; choose one with {option}=NAME"
        raise PenstockError(f"{self.path}: line 1: no column {wanted!r}; {way_out}")

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

    def _time_s(self, line: int, text: str) -> float:
        try:
            time_s = float(text)
        except ValueError:
            try:
                time_s = datetime.fromisoformat(text).timestamp()
            except ValueError:
                time_s = math.nan
        if not math.isfinite(time_s):
            self._fail(line, f"{self.time_column} {text!r} is not a time", "write seconds or ISO 8601 date and time")
        return time_s

    def _fail(self, line: int, what: str, way_out: str) -> NoReturn:
        raise PenstockError(f"{self.path}: line {line}: {what}; {way_out}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
