"""A user's trace in any recorded form: rates, counts per minute, timestamps, or one column per partition.

Every form becomes one rate per second, as workloads are played; timestamps keep their exact times besides, and the
partition of each event if the file has it or its key; columns of partitions keep each one's share per second. Errors
are PenstockErrors with file, line, value and remedy.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from producers.workloads.csv_rows import number_in, rows_of, time_in

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
PLACES: Final = {
    EVENT_PARTITION: f", partitions (column {EVENT_PARTITION})",
    EVENT_KEY: f", partitions by hash of column {EVENT_KEY}",
}
"""Columns of an event's place, and how they are described."""
MOST_PARTITIONS: Final = np.iinfo(np.int16).max
PARTITION: Final = re.compile(r"p(\d+)")

MILLISECONDS_FROM: Final = 1e11
"""The year 5138 in seconds since 1970, 1973 in milliseconds."""
MILLISECOND_STEPS: Final = (1000.0, 60_000.0)
DIVIDE: Final = "divide by 1000: it has to be seconds"
FILL: Final = "write 0 where nothing came, or fill the gap"
GAP: Final = 1.5
"""More usual steps than this between two rows are a gap."""
MOST_SECONDS: Final = 366 * 86_400
MOST_BYTES: Final = 500_000_000
"""Some 25 million timestamps, or more than a year of rates per second; read within a minute."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnTrace:
    """A trace to be run.

    ``rate_per_s``: one value per second, shape (seconds,). ``partition_share``: each partition's share of a second's
    rate, shape (seconds, partitions); None without partitions in the file. ``offset_ns``: exact times of the events
    after the first whole second, ascending; None for recorded rates. ``placed``: modulo the number of partitions, the
    partition of each of these events; None if unknown. ``highest_partition``: of all recorded events. ``form``
    describes what was read.
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
        """Number of partitions in the file."""
        if self.highest_partition is not None:
            return self.highest_partition + 1
        return None if self.partition_share is None else self.partition_share.shape[1]

    def share_of(self, partitions: int) -> Floats | None:
        """Each partition's share of a second's rate, shape (seconds, partitions); None if unknown."""
        if self.placed is None or self.offset_ns is None:
            return self.partition_share
        cell = self.offset_ns // NANOS_PER_SECOND * partitions + self.placed % partitions
        counts = np.bincount(cell, minlength=self.seconds * partitions).reshape(self.seconds, partitions)
        return _shares(counts.astype(np.float64))

    def write(self, path: Path) -> None:
        """As CSV with one ``rate_per_s`` per row and second: the form of the workload ``trace``."""
        path.write_text("rate_per_s\n" + "\n".join(map(repr, self.rate_per_s.tolist())) + "\n", encoding="utf-8")


def read_trace(
    path: Path,
    *,
    column: str = "",
    per: Per | None = None,
    timestamps: bool = False,
    partition_columns: Sequence[str] = (),
) -> OwnTrace:
    """The trace in ``path``; its form is given by the options, else by the names in its first line."""
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise PenstockError(
            f"{path}: {path.stat().st_size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB can be read: "
            "cut it, or count its events per second into a column rate_per_s"
        )
    reader = _Reader(path)
    names = reader.names
    if timestamps and (partition_columns or per):
        other = "--partition-columns" if partition_columns else "--per"
        raise PenstockError(f"--timestamps with {other}: every row is an event then; leave one of them out")
    if partition_columns and column:
        raise PenstockError("--column with --partition-columns: name the columns in one of them only")
    by_name = not (column or partition_columns)
    # p0, p1 … in order, if the file has them all.
    numbered = [f"p{number}" for number in range(sum(PARTITION.fullmatch(name) is not None for name in names))]
    numbered = numbered if set(numbered) <= set(names) else []
    rates = [name for name in names if name in RATE_COLUMNS]
    if timestamps or (by_name and TIMESTAMP in names and not numbered and not rates):
        return reader.timestamps(column or TIMESTAMP)
    if partition_columns or (by_name and numbered and not rates):
        return reader.rates(partition_columns or numbered, per, partitions=True)
    if not column and len(rates) > 1:
        reader.fail(1, f"{' and '.join(rates)} are both rates", f"say which with --column {rates[0]}")
    if not column and not rates:
        reader.fail(
            1,
            f"no column rate_per_s, events_per_minute, timestamp or p0,p1,… among {', '.join(names)!r}",
            "name one with --column NAME (events per second; --per minute, or --timestamps), or several with "
            "--partition-columns",
        )
    return reader.rates((column or rates[0],), per, partitions=False)


class _Reader:
    """A CSV file whose first line names its columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = rows_of(path, "; name a CSV file with a column of rates")
        self.names = next((names for _, names in self._lines if any(names)), [])
        if not self.names:
            raise PenstockError(f"{path}: empty file; its first line names the columns (rate_per_s), rates follow")
        if not any(math.isnan(number_in(name)) for name in self.names if name):
            values = f"{', '.join(self.names)!r} are values, not names of columns"
            self.fail(1, values, "put a line such as rate_per_s above them")

    def rates(self, columns: Sequence[str], per: Per | None, *, partitions: bool) -> OwnTrace:
        """One row per time, one column per partition or one for all."""
        per = self._per(columns, per)
        time_column = next((name for name in TIME_COLUMNS if name in self.names and name not in columns), "")
        lines: list[int] = []
        values: list[list[float]] = []
        times: list[float] = []
        for line, cells in self._rows([*columns, time_column] if time_column else columns):
            lines.append(line)
            values.append([self._rate(line, name, cell, per) for name, cell in zip(columns, cells, strict=False)])
            if time_column:
                self._add_time(times, line, time_column, cells[-1], strictly=True)
        if not values:
            raise PenstockError(f"{self.path}: no rows below the names of the columns; a trace needs at least one rate")
        rate_per_s: Floats = (np.asarray(values) / PER_S[per]).astype(np.float64)
        if not rate_per_s.any():
            raise PenstockError(f"{self.path}: every {' and '.join(columns)} is 0; a trace needs events to be replayed")
        usual_s = self._usual_step(lines, times, time_column) if len(times) > 1 else PER_S[per]
        starts_s: Floats = np.asarray(times) - times[0] if times else np.arange(float(len(values))) * usual_s
        by_second = self._by_second(starts_s, rate_per_s, usual_s)
        what = f"columns {', '.join(columns)}" if partitions else f"column {columns[0]}"
        return OwnTrace(
            self.path,
            f"events per {per} ({what}), {len(values):,} rows of {usual_s:g} s",
            by_second.sum(axis=1),
            partition_share=_shares(by_second) if partitions else None,
        )

    def timestamps(self, column: str) -> OwnTrace:
        """One row per event, with its partition or key if there is such a column."""
        where = next((name for name in PLACES if name in self.names and name != column), "")
        times: list[float] = []
        placed: list[int] = []
        for line, cells in self._rows([column, where] if where else [column]):
            self._add_time(times, line, column, cells[0], strictly=False)
            if where:
                placed.append(self._place(line, where, cells[1]))
        if not times:
            raise PenstockError(
                f"{self.path}: no rows below the names of the columns; a trace needs at least one event"
            )
        first_s = math.floor(times[0])
        self._check_length(times[-1] - first_s)
        offset_ns = np.floor((np.asarray(times) - first_s) * NANOS_PER_SECOND).astype(np.int64)
        return OwnTrace(
            self.path,
            f"{len(times):,} timestamps (column {column}){PLACES.get(where, '')}",
            np.bincount(offset_ns // NANOS_PER_SECOND).astype(np.float64),
            offset_ns=offset_ns,
            placed=np.asarray(placed, dtype=np.int64) if where else None,
            highest_partition=max(placed) if where == EVENT_PARTITION else None,
        )

    def fail(self, line: int, what: str, remedy: str) -> NoReturn:
        """Raise the PenstockError of a line."""
        raise PenstockError(f"{self.path}: line {line}: {what}; {remedy}")

    def _rows(self, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """(line number, cells of these columns) of each row."""
        for name in columns:
            if name not in self.names:
                self.fail(1, f"no column {name!r}", f"the columns are {', '.join(self.names)}")
        positions = [self.names.index(name) for name in columns]
        for line, row in self._lines:
            if len(row) <= max(positions):
                self.fail(line, f"only {len(row)} of {len(self.names)} columns", "complete the row")
            yield line, [row[position] for position in positions]

    def _per(self, columns: Sequence[str], per: Per | None) -> Per:
        """As given, else by the name of the column; PenstockError if both disagree."""
        named = {RATE_COLUMNS[name] for name in columns if name in RATE_COLUMNS}
        if per is not None and named - {per}:
            raise PenstockError(
                f"--per {per}: column {columns[0]} of {self.path} says per {min(named)}; "
                "leave --per out or rename the column"
            )
        return per or (min(named) if named else "second")

    def _rate(self, line: int, column: str, text: str, per: Per) -> float:
        if not text:
            self.fail(line, f"{column} is empty", FILL)
        try:
            rate = float(text)
        except ValueError:
            self.fail(line, f"{column} {text!r} is not a number", f"write events per {per} as in 12.5, without unit")
        if not math.isfinite(rate):
            self.fail(line, f"{column} {text!r} is not a finite number", FILL)
        if rate < 0:
            self.fail(line, f"{column} {text!r} is negative", "a rate is at least 0")
        return rate

    def _add_time(self, times: list[float], line: int, column: str, text: str, *, strictly: bool) -> None:
        """Seconds from a number or ISO 8601, at least those before, or with ``strictly`` more."""
        time_s = time_in(text)
        if not math.isfinite(time_s):
            self.fail(line, f"{column} {text!r} is not a time", "write seconds, or ISO 8601 as 2026-01-02T03:04:05Z")
        if abs(time_s) > MILLISECONDS_FROM:
            self.fail(line, f"{column} {text} looks like milliseconds since 1970", DIVIDE)
        if times and (time_s < times[-1] or (strictly and time_s == times[-1])):
            remedy = "sort the rows by time" + (", one row a time" if strictly else "")
            self.fail(line, f"{column} {text!r} is not after the row before", remedy)
        times.append(time_s)

    def _place(self, line: int, column: str, text: str) -> int:
        """A partition, or the hash of a key."""
        if column == EVENT_KEY:
            if not text:
                self.fail(line, f"{EVENT_KEY} is empty", "give every event its key, or leave the column out")
            return key_hash(text)
        if not (text.isascii() and text.isdigit()):
            self.fail(line, f"{column} {text!r} is not a partition", "write its number, from 0")
        if int(text) > MOST_PARTITIONS:
            self.fail(line, f"{column} {text} is too high a number", f"name the column {EVENT_KEY} if it is one")
        return int(text)

    def _usual_step(self, lines: Sequence[int], times: Sequence[float], column: str) -> float:
        """The most frequent step; PenstockError at the first row after a gap."""
        steps = np.round(np.diff(times), 6)
        usual_s = float(Counter(steps.tolist()).most_common(1)[0][0])
        if usual_s in MILLISECOND_STEPS and column != TIMESTAMP:
            self.fail(lines[1], f"{column} goes up by {usual_s:g}, as milliseconds do", DIVIDE)
        if len(late := np.flatnonzero(steps > GAP * usual_s)):
            gap = f"{column} jumps by {steps[late[0]]:g} s, the rows before are {usual_s:g} s apart"
            self.fail(lines[int(late[0]) + 1], gap, "put the missing rows in (0 where nothing came)")
        return usual_s

    def _by_second(self, starts_s: Floats, rate_per_s: Floats, last_s: float) -> Floats:
        """Events in each second from the first row to the end of the last, shape (seconds, columns)."""
        edges_s = np.append(starts_s, starts_s[-1] + last_s)
        self._check_length(float(edges_s[-1]))
        if (edges_s == np.round(edges_s)).all():
            return np.repeat(rate_per_s, np.diff(edges_s).astype(np.int64), axis=0)
        seconds = np.arange(math.ceil(edges_s[-1] - 1e-9) + 1.0)
        area = np.cumsum(rate_per_s * np.diff(edges_s)[:, None], axis=0)
        columns = [np.diff(np.interp(seconds, edges_s, np.append(0.0, column))) for column in area.T]
        return np.asarray(np.stack(columns, axis=1))

    def _check_length(self, seconds: float) -> None:
        if seconds > MOST_SECONDS:
            raise PenstockError(
                f"{self.path}: {seconds:,.0f} s from the first row to the last, more than a year; "
                "are the times in seconds? Otherwise cut a part out"
            )


@cache
def key_hash(key: str) -> int:
    """Hash of a key as in Kafka's producers; modulo the number of partitions it is the partition."""
    from kafka.partitioner.default import murmur2

    hashed: int = murmur2(key.encode())
    return hashed & 0x7FFFFFFF


def _shares(by_second: Floats) -> Floats:
    """Each column's share of its row; equal shares for a row of zeros."""
    total = by_second.sum(axis=1, keepdims=True)
    equal = np.full(by_second.shape, 1 / by_second.shape[1])
    return np.asarray(np.divide(by_second, total, out=equal, where=total > 0))
