"""Workloads from Azure Functions: the two public trace formats, and the curves that AMESoS made of such traces.

2019: a file a day, a row a function, a column a minute (``HashOwner,HashApp,HashFunction,Trigger,1,2,…,1440``, counts
of invocations). 2021: a row an invocation (``app,func,end_timestamp,duration``, seconds), which arrived at its end
minus its duration. Tsenos et al. (DEBS 2022, section 6.1) scaled such rates and drew Poisson arrivals in each window.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.runspec import Arrivals
from producers.workloads.contract import Floats, Workload, not_negative, positive
from producers.workloads.csv_rows import number_in, rows_of
from producers.workloads.trace import FromFile, Rows

HEADER_2019: Final = ("HashOwner", "HashApp", "HashFunction", "Trigger")
HEADER_2021: Final = ("app", "func", "end_timestamp", "duration")

MINUTE_S: Final = 60.0


@dataclass(frozen=True)
class Azure2019(FromFile):
    """Invocations a minute of the 2019 file ``path``, of one function (the beginning of its hash is enough) or of all.

    A minute's rate, times ``scale``, holds for ``minute_s`` seconds: below 60 a day passes faster at the same rates.
    """

    path: str
    function: str = ""
    scale: float = 1.0
    minute_s: float = MINUTE_S

    name: ClassVar[str] = "azure-2019"
    summary: ClassVar[str] = "Azure Functions 2019: invocations a minute, a file a day"
    arrivals: ClassVar[Arrivals] = "poisson"

    def __post_init__(self) -> None:
        not_negative(scale=self.scale)
        positive(minute_s=self.minute_s)
        super().__post_init__()

    @cached_property
    def rows(self) -> Rows:
        """The rate of each minute."""
        counts = read_2019(Path(self.path))
        chosen = [counts[name] for name in counts if name.startswith(self.function)]
        if not chosen:
            busiest = sorted(counts, key=lambda name: (-counts[name].sum(), name))[:3]
            begins = f"no function begins with {self.function!r}; the busiest are {', '.join(busiest)}"
            raise PenstockError(f"{self.path}: {begins}")
        return _windows(np.sum(chosen, axis=0) / MINUTE_S * self.scale, self.minute_s)


@dataclass(frozen=True)
class Azure2021(FromFile):
    """Arrivals of the 2021 file ``path``, of one function of one app (the beginnings of their hashes are enough) or of
    all, as rates over windows of ``window_s``, times ``scale``; time 0 is the first of these arrivals.
    """

    path: str
    app: str = ""
    func: str = ""
    scale: float = 1.0
    window_s: float = 10.0

    name: ClassVar[str] = "azure-2021"
    summary: ClassVar[str] = "Azure Functions 2021: a row an invocation"
    arrivals: ClassVar[Arrivals] = "poisson"

    def __post_init__(self) -> None:
        not_negative(scale=self.scale)
        positive(window_s=self.window_s)
        super().__post_init__()

    @cached_property
    def rows(self) -> Rows:
        """The rate of each whole window up to the last arrival."""
        of_app = [each for each in read_2021(Path(self.path)) if each.app.startswith(self.app)]
        chosen = [each for each in of_app if each.func.startswith(self.func)]
        if not chosen:
            option = f"func={self.func}" if of_app else f"app={self.app}"
            raise PenstockError(f"{self.path}: no invocation with {option}; look into the file for others")
        arrival_s = np.asarray([each.arrival_s for each in chosen])
        window = np.floor((arrival_s - arrival_s[0]) / self.window_s).astype(np.int64)
        return _windows(np.bincount(window) / self.window_s * self.scale, self.window_s)


def _windows(rate_per_s: npt.ArrayLike, window_s: float) -> Rows:
    rates = np.asarray(rate_per_s, dtype=np.float64)
    return Rows(np.arange(len(rates), dtype=np.float64) * window_s, rates, len(rates) * window_s)


class Invocation(NamedTuple):
    """A row of a 2021 trace; ``arrival_s`` in seconds."""

    app: str
    func: str
    arrival_s: float


def read_2019(path: Path) -> dict[str, Floats]:
    """Invocations of each function in each minute, shape (minutes,); rows of one function are added up."""
    lines = _lines(path, HEADER_2019, "the 2019 trace: HashOwner,HashApp,HashFunction,Trigger,1,2,…,1440")
    _, header = next(lines)
    minutes = header[len(HEADER_2019) :]
    if not minutes or minutes != [str(minute) for minute in range(1, len(minutes) + 1)]:
        raise PenstockError(f"{path}: line 1: after Trigger come the minutes 1, 2, … of the day, not {minutes[:3]}")
    counts: dict[str, Floats] = {}
    for line, row in lines:
        if len(row) != len(header):
            raise PenstockError(f"{path}: line {line}: {len(row)} of {len(header)} columns; complete the row")
        values = np.asarray([_number(path, line, cell) for cell in row[len(HEADER_2019) :]])
        if values.min() < 0:
            raise PenstockError(f"{path}: line {line}: {values.min():g} invocations; a count is at least 0")
        counts[row[2]] = counts.get(row[2], 0.0) + values
    if not counts:
        raise PenstockError(f"{path}: no functions below the column names")
    return counts


def read_2021(path: Path) -> list[Invocation]:
    """All invocations of the file, in order of arrival; there is at least one."""
    lines = _lines(path, HEADER_2021, "the 2021 trace: app,func,end_timestamp,duration")
    next(lines)
    found: list[Invocation] = []
    for line, row in lines:
        if len(row) < len(HEADER_2021):
            raise PenstockError(f"{path}: line {line}: {len(row)} of {len(HEADER_2021)} columns; complete the row")
        end_s, duration_s = _number(path, line, row[2]), _number(path, line, row[3])
        if duration_s < 0:
            raise PenstockError(f"{path}: line {line}: duration {row[3]!r} is negative")
        found.append(Invocation(row[0], row[1], end_s - duration_s))
    if not found:
        raise PenstockError(f"{path}: no invocations below the column names")
    return sorted(found, key=lambda each: each.arrival_s)


def _lines(path: Path, header: Sequence[str], what: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells), the header first. Raises PenstockError for another header."""
    lines = rows_of(path)
    line, names = next(lines)
    if names[: len(header)] != list(header):
        raise PenstockError(f"{path}: line 1: not {what}; it begins with {','.join(names[:4])!r}")
    yield line, names
    yield from lines


def _number(path: Path, line: int, text: str) -> float:
    value = number_in(text)
    if not math.isfinite(value):
        raise PenstockError(f"{path}: line {line}: {text!r} is not a finite number")
    return value


# --- AMESoS ----------------------------------------------------------------------------------------------------------

Pipeline = Literal["document", "synthetic", "matrix"]

KNOT_S: Final = 30.0
HIGH_RATES: Final = (20, 35, 60, 90, 120, 150, 140, 110, 70, 40, 30, 60, 110, 145, 120, 60, 25)
LOW_RATES: Final = (3, 5, 8, 12, 18, 24, 25, 20, 12, 8, 5, 10, 18, 24, 18, 9, 4)
KNOTS_PER_S: Final[Mapping[Pipeline, tuple[int, ...]]] = {
    "document": HIGH_RATES,
    "synthetic": LOW_RATES,
    "matrix": LOW_RATES,
}
"""Our reading of AMESoS' figure 4, whose axes cannot be read: events per second every 30 s over 480 s."""


@dataclass(frozen=True)
class AmesosWorkload(Workload):
    """The request rate of one of AMESoS' three pipelines, times ``scale``: 480 s, two peaks, linear between knots."""

    pipeline: Pipeline = "document"
    scale: float = 1.0

    name: ClassVar[str] = "amesos"
    summary: ClassVar[str] = "AMESoS: 480 s with two peaks, 150/s (document) or 25/s (synthetic, matrix)"
    arrivals: ClassVar[Arrivals] = "poisson"

    def __post_init__(self) -> None:
        if self.pipeline not in KNOTS_PER_S:
            raise ValueError(f"pipeline {self.pipeline!r}: there are {', '.join(KNOTS_PER_S)}")
        positive(scale=self.scale)

    @property
    def duration_s(self) -> float:
        """480 s."""
        return KNOT_S * (len(KNOTS_PER_S[self.pipeline]) - 1)

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Linear between the knots."""
        knots = KNOTS_PER_S[self.pipeline]
        return np.asarray(self.scale * np.interp(np.asarray(time_s), KNOT_S * np.arange(len(knots)), knots))
