"""Somebody's own trace, in whatever form it was recorded: rates, counts a minute, timestamps, or a column a partition.

Every form becomes one value a second, as workloads are played; timestamps keep their exact times besides, and the
partition of each event where the file has that or its key; columns of partitions the share of each in each second.
Whatever cannot be read raises PenstockError with file, line, value and the way out.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final, Literal, NoReturn

import numpy as np
import numpy.typing as npt
from kafka.partitioner.default import murmur2

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Per = Literal["second", "minute"]

PER_S: Final[dict[Per, float]] = {"second": 1.0, "minute": 60.0}
RATE_COLUMNS: Final[dict[str, Per]] = {
    "rate_per_s": "second",
    "events_per_s": "second",
    "events_per_second": "second",
    "rate_per_minute": "minute",
    "events_per_minute": "minute",
}
TIME_COLUMNS: Final = ("time_s", "timestamp", "time")
TIMESTAMP: Final = "timestamp"
EVENT_PARTITION: Final = "partition"
EVENT_KEY: Final = "key"
MOST_PARTITIONS: Final = np.iinfo(np.int16).max
PARTITION: Final = re.compile(r"p(\d+)")

MILLISECONDS_FROM: Final = 1e11
"""As seconds since 1970 this is the year 5138, as milliseconds 1973."""
MILLISECOND_STEPS: Final = (1000.0, 60_000.0)
GAP: Final = 1.5
"""A row that comes later than so many usual steps after the one before leaves a gap."""
MOST_SECONDS: Final = 366 * 86_400


@dataclass(frozen=True, slots=True, eq=False)
class OwnTrace:
    """A trace as it will be played.

    ``rate_per_s`` has one value for each second, shape (seconds,). ``partition_share`` is each partition's part of a
    second's rate, shape (seconds, partitions), None where the file does not tell partitions. ``offset_ns``: exact times
    of the events from the first whole second on, ascending; None where only rates were recorded. ``placed``: modulo the
    number of partitions, the partition of each of these events; None where the file tells none. ``highest_partition``
    is the highest that an event was recorded on. ``form`` says in words what was read.
    """

    path: Path
    form: str
    rate_per_s: Floats
    partition_share: Floats | None = None
    offset_ns: Ints | None = None
    placed: Ints | None = None
    highest_partition: int | None = None

    @property
    def seconds(self) -> int:
        """Length in whole seconds."""
        return len(self.rate_per_s)

    @property
    def partitions(self) -> int | None:
        """Partitions that the file names."""
        if self.highest_partition is not None:
            return self.highest_partition + 1
        return None if self.partition_share is None else self.partition_share.shape[1]

    def share_of(self, partitions: int) -> Floats | None:
        """Each partition's part of a second's rate, shape (seconds, partitions); None where the file does not tell."""
        if self.placed is None or self.offset_ns is None:
            return self.partition_share
        cell = self.offset_ns // NANOS_PER_SECOND * partitions + self.placed % partitions
        counts = np.bincount(cell, minlength=self.seconds * partitions).reshape(self.seconds, partitions)
        return _shares(counts.astype(np.float64))

    def write(self, path: Path) -> None:
        """As CSV with one ``rate_per_s`` a row, a row a second: what the workload ``trace`` plays."""
        path.write_text("rate_per_s\n" + "\n".join(map(repr, self.rate_per_s.tolist())) + "\n", encoding="utf-8")


def read_trace(
    path: Path,
    *,
    column: str = "",
    per: Per | None = None,
    timestamps: bool = False,
    partition_columns: Sequence[str] = (),
) -> OwnTrace:
    """The trace in ``path``, its form told by the options, else by the names in its first line."""
    reader = _Reader(path)
    names = reader.names()
    if timestamps and (partition_columns or per):
        other = "--partition-columns" if partition_columns else "--per"
        raise PenstockError(f"--timestamps with {other}: every row is an event then; leave one of them out")
    if partition_columns and column:
        raise PenstockError("--column with --partition-columns: name the columns in one of them only")
    by_name = not (column or partition_columns)
    numbered = _numbered(names)
    rates = [name for name in names if name in RATE_COLUMNS]
    if timestamps or (by_name and TIMESTAMP in names and not numbered and not rates):
        return reader.timestamps(column or TIMESTAMP)
    if partition_columns or (by_name and numbered and not rates):
        return reader.rates(partition_columns or numbered, per, partitions=True)
    if not column and len(rates) != 1:
        reader.no_rate_column(rates)
    return reader.rates((column or rates[0],), per, partitions=False)


def _numbered(names: Sequence[str]) -> list[str]:
    """p0, p1 … in order, if the file has them all."""
    numbers = sorted(int(found[1]) for name in names if (found := PARTITION.fullmatch(name)))
    return [f"p{number}" for number in numbers] if numbers and numbers == list(range(len(numbers))) else []


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The first line. PenstockError where there is none, or where it holds values already."""
        _, names = next(self._lines(), (0, []))
        if not any(names):
            raise PenstockError(f"{self.path}: empty file; its first line names the columns (rate_per_s), rates follow")
        if all(_is_number(name) for name in names if name):
            raise PenstockError(
                f"{self.path}: line 1: {', '.join(names)!r} are values, not names of columns; "
                "put a line such as rate_per_s above them"
            )
        return names

    def no_rate_column(self, rates: Sequence[str]) -> NoReturn:
        """More than one column of rates, or none."""
        names = ", ".join(self.names())
        if rates:
            raise PenstockError(
                f"{self.path}: line 1: {' and '.join(rates)} are both rates; say which with --column {rates[0]}"
            )
        raise PenstockError(
            f"{self.path}: line 1: no column rate_per_s, events_per_minute, timestamp or p0,p1,… among {names!r}; "
            "name one with --column NAME (events per second; --per minute, or --timestamps), "
            "or several with --partition-columns"
        )

    def rates(self, columns: Sequence[str], per: Per | None, *, partitions: bool) -> OwnTrace:
        """A row a time, a column a partition or one for all."""
        per = self._per(columns, per)
        names = self.names()
        time_column = next((name for name in TIME_COLUMNS if name in names and name not in columns), "")
        positions = [self._position(names, name) for name in columns]
        time_at = names.index(time_column) if time_column else None
        lines: list[int] = []
        values: list[list[float]] = []
        times: list[float] = []
        for line, row in self._rows(max([*positions, time_at or 0]), len(names)):
            lines.append(line)
            values.append(
                [self._rate(line, name, row[at], per) for name, at in zip(columns, positions, strict=True)],
            )
            if time_at is not None:
                times.append(self._time_s(line, time_column, row[time_at]))
                self._check_order(line, time_column, row[time_at], times)
        if not values:
            raise PenstockError(f"{self.path}: no rows below the names of the columns; a trace needs at least one rate")
        rate_per_s: Floats = (np.asarray(values) / PER_S[per]).astype(np.float64)
        if not rate_per_s.any():
            raise PenstockError(f"{self.path}: every {' and '.join(columns)} is 0; a trace needs events to be replayed")
        usual_s = self._usual_step(lines, times, time_column) if len(times) > 1 else PER_S[per]
        starts_s = np.arange(len(values), dtype=np.float64) * usual_s
        if times:
            starts_s = np.asarray(times, dtype=np.float64) - times[0]
        by_second = self._by_second(starts_s, rate_per_s, usual_s)
        total = by_second.sum(axis=1)
        what = f"columns {', '.join(columns)}" if partitions else f"column {columns[0]}"
        form = f"events per {per} ({what}), {len(values):,} rows of {usual_s:g} s"
        if not partitions:
            return OwnTrace(self.path, form, total)
        return OwnTrace(self.path, form, total, partition_share=_shares(by_second))

    def timestamps(self, column: str) -> OwnTrace:
        """A row an event, with its partition or its key where there is such a column."""
        names = self.names()
        at = self._position(names, column)
        where = next((name for name in (EVENT_PARTITION, EVENT_KEY) if name in names and name != column), "")
        place = {EVENT_PARTITION: self._partition, EVENT_KEY: self._hash}.get(where)
        place_at = names.index(where) if where else at
        times: list[float] = []
        placed: list[int] = []
        for line, row in self._rows(max(at, place_at), len(names)):
            times.append(self._time_s(line, column, row[at]))
            self._check_order(line, column, row[at], times, strictly=False)
            if place is not None:
                placed.append(place(line, row[place_at]))
        if not times:
            raise PenstockError(
                f"{self.path}: no rows below the names of the columns; a trace needs at least one event"
            )
        first_s = math.floor(times[0])
        self._check_length(times[-1] - first_s)
        offset_ns = np.floor((np.asarray(times) - first_s) * NANOS_PER_SECOND).astype(np.int64)
        rate_per_s = np.bincount(offset_ns // NANOS_PER_SECOND).astype(np.float64)
        told = {EVENT_PARTITION: f", partitions (column {where})", EVENT_KEY: f", partitions by hash of column {where}"}
        return OwnTrace(
            self.path,
            f"{len(times):,} timestamps (column {column}){told.get(where, '')}",
            rate_per_s,
            offset_ns=offset_ns,
            placed=np.asarray(placed, dtype=np.int64) if where else None,
            highest_partition=max(placed) if where == EVENT_PARTITION else None,
        )

    # --- the file ----------------------------------------------------------------------------------------------------

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, cells) of every line that is not blank."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                rows = csv.reader(file)
                for row in rows:
                    cells = [cell.strip() for cell in row]
                    if any(cells):
                        yield rows.line_num, cells
        except FileNotFoundError:
            raise PenstockError(f"{self.path}: no such file; name a CSV file with a column of rates") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise PenstockError(f"{self.path}: not a CSV text file ({error}); save it as CSV in UTF-8") from None
        except OSError as error:
            raise PenstockError(f"{self.path}: cannot be read ({error.strerror}); name a CSV file") from None

    def _rows(self, last: int, columns: int) -> Iterator[tuple[int, list[str]]]:
        rows = self._lines()
        next(rows, None)
        for line, row in rows:
            if len(row) <= last:
                self._fail(line, f"only {len(row)} of {columns} columns", "complete the row")
            yield line, row

    def _position(self, names: Sequence[str], wanted: str) -> int:
        if wanted not in names:
            raise PenstockError(f"{self.path}: line 1: no column {wanted!r}; the columns are {', '.join(names)}")
        return names.index(wanted)

    def _per(self, columns: Sequence[str], per: Per | None) -> Per:
        """As told, else as the name of the column says; PenstockError where the two disagree."""
        named = {RATE_COLUMNS[name] for name in columns if name in RATE_COLUMNS}
        if per is not None and named - {per}:
            raise PenstockError(
                f"--per {per}: column {columns[0]} of {self.path} says per {min(named)}; "
                "leave --per out or rename the column"
            )
        return per or (min(named) if named else "second")

    # --- values ------------------------------------------------------------------------------------------------------

    def _rate(self, line: int, column: str, text: str, per: Per) -> float:
        if not text:
            self._fail(line, f"{column} is empty", "write 0 where nothing came, or fill the gap")
        try:
            rate = float(text)
        except ValueError:
            self._fail(line, f"{column} {text!r} is not a number", f"write events per {per} as in 12.5, without unit")
        if not math.isfinite(rate):
            self._fail(line, f"{column} {text!r} is not a finite number", "write 0 where nothing came, or fill the gap")
        if rate < 0:
            self._fail(line, f"{column} {text!r} is negative", "a rate is at least 0")
        return rate

    def _time_s(self, line: int, column: str, text: str) -> float:
        try:
            time_s = float(text)
        except ValueError:
            try:
                time_s = datetime.fromisoformat(text).timestamp()
            except ValueError:
                time_s = math.nan
        if not math.isfinite(time_s):
            self._fail(line, f"{column} {text!r} is not a time", "write seconds, or ISO 8601 as 2026-01-02T03:04:05Z")
        if abs(time_s) > MILLISECONDS_FROM:
            self._fail(
                line, f"{column} {text} looks like milliseconds since 1970", "divide by 1000: it has to be seconds"
            )
        return time_s

    def _partition(self, line: int, text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            self._fail(line, f"{EVENT_PARTITION} {text!r} is not a partition", "write its number, from 0")
        if int(text) > MOST_PARTITIONS:
            self._fail(
                line, f"{EVENT_PARTITION} {text} is too high a number", f"name the column {EVENT_KEY} if it is one"
            )
        return int(text)

    def _hash(self, line: int, text: str) -> int:
        if not text:
            self._fail(line, f"{EVENT_KEY} is empty", "give every event its key, or leave the column out")
        return key_hash(text)

    def _check_order(self, line: int, column: str, text: str, times: list[float], *, strictly: bool = True) -> None:
        if len(times) > 1 and (times[-1] < times[-2] or (strictly and times[-1] == times[-2])):
            way_out = "sort the rows by time" + (", one row a time" if strictly else "")
            self._fail(line, f"{column} {text!r} is not after the row before", way_out)

    def _usual_step(self, lines: Sequence[int], times: Sequence[float], column: str) -> float:
        """The step that occurs most often; PenstockError at the first row that comes later than that."""
        steps = np.round(np.diff(times), 6)
        usual_s = float(Counter(steps.tolist()).most_common(1)[0][0])
        if usual_s in MILLISECOND_STEPS and column != "timestamp":
            self._fail(
                lines[1], f"{column} goes up by {usual_s:g}, as milliseconds do", "divide by 1000: it has to be seconds"
            )
        late = np.flatnonzero(steps > GAP * usual_s)
        if len(late):
            row = int(late[0]) + 1
            self._fail(
                lines[row],
                f"{column} jumps by {steps[row - 1]:g} s, the rows before are {usual_s:g} s apart",
                "put the missing rows in (0 where nothing came)",
            )
        return usual_s

    def _by_second(self, starts_s: Floats, rate_per_s: Floats, last_s: float) -> Floats:
        """Events in each second from the first row to the end of the last, shape (seconds, columns)."""
        edges_s = np.append(starts_s, starts_s[-1] + last_s)
        self._check_length(float(edges_s[-1]))
        if (edges_s == np.round(edges_s)).all():
            return np.repeat(rate_per_s, np.diff(edges_s).astype(np.int64), axis=0)
        seconds = np.arange(math.ceil(edges_s[-1] - 1e-9) + 1.0)
        area = np.concatenate(
            [np.zeros((1, rate_per_s.shape[1])), np.cumsum(rate_per_s * np.diff(edges_s)[:, None], axis=0)]
        )
        columns = [np.diff(np.interp(seconds, edges_s, column)) for column in area.T]
        return np.asarray(np.stack(columns, axis=1))

    def _check_length(self, seconds: float) -> None:
        if seconds > MOST_SECONDS:
            raise PenstockError(
                f"{self.path}: {seconds:,.0f} s from the first row to the last, more than a year; "
                "are the times in seconds? Otherwise cut a part out"
            )

    def _fail(self, line: int, what: str, way_out: str) -> NoReturn:
        raise PenstockError(f"{self.path}: line {line}: {what}; {way_out}")


@cache
def key_hash(key: str) -> int:
    """As Kafka's producers take it of a key's bytes; modulo the number of partitions it is the partition."""
    hashed: int = murmur2(key.encode())
    return hashed & 0x7FFFFFFF


def _shares(by_second: Floats) -> Floats:
    """Each column's part of its row; equal parts of a row of nothing."""
    total = by_second.sum(axis=1, keepdims=True)
    equal = np.full(by_second.shape, 1 / by_second.shape[1])
    return np.asarray(np.divide(by_second, total, out=equal, where=total > 0))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
