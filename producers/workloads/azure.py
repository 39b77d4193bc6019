"""Workloads from Azure Functions: the two public trace formats, and the curves that AMESoS made of such traces.

2019: a file a day, a row a function, a column a minute (``HashOwner,HashApp,HashFunction,Trigger,1,2,…,1440``, counts
of invocations). 2021: a row an invocation (``app,func,end_timestamp,duration``, seconds), which arrived at its end
minus its duration. Tsenos et al. (DEBS 2022, section 6.1) scaled such rates and drew Poisson arrivals in each window.
"""

import csv
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
from producers.workloads.contract import Floats, not_negative, positive

HEADER_2019: Final = ("HashOwner", "HashApp", "HashFunction", "Trigger")
HEADER_2021: Final = ("app", "func", "end_timestamp", "duration")

MINUTE_S: Final = 60.0


@dataclass(frozen=True)
class Azure2019:
    """Invocations a minute of the 2019 file ``path``, of one function (the beginning of its hash is enough) or of all.

    A minute's rate, times ``scale``, holds for ``minute_s`` seconds: below 60 a day passes faster at the same rates.
    Raises PenstockError that names file, line and value for whatever cannot be played.
    """

    path: str
    function: str = ""
    scale: float = 1.0
    minute_s: float = MINUTE_S

    name: ClassVar[str] = "azure-2019"
    summary: ClassVar[str] = "Azure Functions 2019: invocations a minute, a file a day"
    arrivals: ClassVar[Arrivals] = "poisson"
    arrivals_fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        not_negative(scale=self.scale)
        positive(minute_s=self.minute_s)
        # Reading now tells about a broken file where the workload is named, not in the middle of preparing a run.
        assert len(self.rates_per_s) > 0

    @property
    def duration_s(self) -> float:
        """All minutes of the file."""
        return len(self.rates_per_s) * self.minute_s

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate of the minute in which each time lies."""
        minute = np.asarray(time_s, dtype=np.float64) // self.minute_s
        return np.asarray(self.rates_per_s[np.minimum(minute.astype(np.int64), len(self.rates_per_s) - 1)])

    @cached_property
    def rates_per_s(self) -> Floats:
        """Events per second of each minute, shape (minutes,)."""
        counts = read_2019(Path(self.path))
        chosen = _chosen(self.path, "function", self.function, {name: float(c.sum()) for name, c in counts.items()})
        total = np.sum([counts[name] for name in chosen], axis=0)
        return np.asarray(total / MINUTE_S * self.scale)


@dataclass(frozen=True)
class Azure2021:
    """Arrivals of the 2021 file ``path``, of one function of one app (the beginnings of their hashes are enough) or of
    all, as rates over windows of ``window_s``; time 0 is the first of these arrivals.

    A window's rate is multiplied by ``scale``. Raises PenstockError as ``Azure2019`` does.
    """

    path: str
    app: str = ""
    func: str = ""
    scale: float = 1.0
    window_s: float = 10.0

    name: ClassVar[str] = "azure-2021"
    summary: ClassVar[str] = "Azure Functions 2021: a row an invocation"
    arrivals: ClassVar[Arrivals] = "poisson"
    arrivals_fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        not_negative(scale=self.scale)
        positive(window_s=self.window_s)
        assert len(self.rates_per_s) > 0

    @property
    def duration_s(self) -> float:
        """Whole windows up to the last arrival."""
        return len(self.rates_per_s) * self.window_s

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate of the window in which each time lies."""
        window = np.asarray(time_s, dtype=np.float64) // self.window_s
        return np.asarray(self.rates_per_s[np.minimum(window.astype(np.int64), len(self.rates_per_s) - 1)])

    @cached_property
    def rates_per_s(self) -> Floats:
        """Events per second of each window, shape (windows,)."""
        all_of_them = read_2021(Path(self.path))
        app = np.asarray([_begins(name, self.app) for name in all_of_them.app], dtype=bool)
        func = np.asarray([_begins(name, self.func) for name in all_of_them.func], dtype=bool)
        for option, wanted, there in (("app", self.app, app), ("func", self.func, app & func)):
            if not there.any():
                raise PenstockError(f"{self.path}: no invocation with {option}={wanted}; look into the file for others")
        arrival_s = all_of_them.arrival_s[app & func]
        window = np.floor((arrival_s - arrival_s.min()) / self.window_s).astype(np.int64)
        return np.asarray(np.bincount(window) / self.window_s * self.scale)


class Invocations(NamedTuple):
    """A 2021 trace in order of arrival: ``arrival_s`` and ``duration_s`` in seconds, all of one length."""

    app: Sequence[str]
    func: Sequence[str]
    arrival_s: Floats
    duration_s: Floats


def read_2019(path: Path) -> dict[str, Floats]:
    """Invocations of each function in each minute, shape (minutes,); rows of one function are added up."""
    lines = _lines(path, HEADER_2019, "the 2019 trace: HashOwner,HashApp,HashFunction,Trigger,1,2,…,1440")
    _, header = next(lines)
    minutes = [name.strip() for name in header[len(HEADER_2019) :]]
    if not minutes or minutes != [str(minute) for minute in range(1, len(minutes) + 1)]:
        raise PenstockError(f"{path}: line 1: after Trigger come the minutes 1, 2, … of the day, not {minutes[:3]}")
    counts: dict[str, Floats] = {}
    for line, row in lines:
        if len(row) != len(header):
            raise PenstockError(f"{path}: line {line}: {len(row)} of {len(header)} columns; complete the row")
        values = np.asarray([_number(path, line, cell) for cell in row[len(HEADER_2019) :]])
        if values.min() < 0:
            raise PenstockError(f"{path}: line {line}: {values.min():g} invocations; a count is at least 0")
        name = row[2].strip()
        counts[name] = counts[name] + values if name in counts else values
    if not counts:
        raise PenstockError(f"{path}: no functions below the column names")
    return counts


def read_2021(path: Path) -> Invocations:
    """All invocations of the file, in order of arrival."""
    lines = _lines(path, HEADER_2021, "the 2021 trace: app,func,end_timestamp,duration")
    next(lines)
    app, func, end_s, duration_s = list[str](), list[str](), list[float](), list[float]()
    for line, row in lines:
        if len(row) < len(HEADER_2021):
            raise PenstockError(f"{path}: line {line}: {len(row)} of {len(HEADER_2021)} columns; complete the row")
        app.append(row[0].strip())
        func.append(row[1].strip())
        end_s.append(_number(path, line, row[2]))
        duration_s.append(_number(path, line, row[3]))
        if duration_s[-1] < 0:
            raise PenstockError(f"{path}: line {line}: duration {row[3].strip()!r} is negative")
    if not app:
        raise PenstockError(f"{path}: no invocations below the column names")
    arrival_s = np.asarray(end_s) - np.asarray(duration_s)
    order = np.argsort(arrival_s, kind="stable")
    return Invocations(
        [app[i] for i in order], [func[i] for i in order], arrival_s[order], np.asarray(duration_s)[order]
    )


def _lines(path: Path, header: Sequence[str], what: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells), the header first, without blank lines."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            names = next(rows, [])
            if [name.strip() for name in names[: len(header)]] != list(header):
                raise PenstockError(f"{path}: line 1: not {what}; it begins with {','.join(names[:4])!r}")
            yield 1, names
            for row in rows:
                if any(cell.strip() for cell in row):
                    yield rows.line_num, row
    except FileNotFoundError:
        raise PenstockError(f"{path}: no such trace file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise PenstockError(f"{path}: not a CSV text file ({error}); save it as CSV in UTF-8") from None
    except OSError as error:
        raise PenstockError(f"{path}: cannot be read ({error.strerror}); name a CSV file") from None


def _number(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise PenstockError(f"{path}: line {line}: {text.strip()!r} is not a finite number")
    return value


def _begins(name: str, wanted: str) -> bool:
    return name.startswith(wanted)


def _chosen(path: str, option: str, wanted: str, weights: Mapping[str, float]) -> list[str]:
    """The names that begin with what is wanted. PenstockError with the busiest if there is none."""
    names = [name for name in weights if _begins(name, wanted)]
    if not names:
        busiest = sorted(weights, key=lambda name: (-weights[name], name))[:3]
        raise PenstockError(f"{path}: no {option} begins with {wanted!r}; the busiest are {', '.join(busiest)}")
    return names


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
class Amesos:
    """The request rate of one of AMESoS' three pipelines, times ``scale``: 480 s, two peaks, linear between knots."""

    pipeline: Pipeline = "document"
    scale: float = 1.0

    name: ClassVar[str] = "amesos"
    summary: ClassVar[str] = "AMESoS: 480 s with two peaks, 150/s (document) or 25/s (synthetic, matrix)"
    arrivals: ClassVar[Arrivals] = "poisson"
    arrivals_fixed: ClassVar[bool] = False

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
