"""A paper's tables and figures as data, and their rendering: terminal, Markdown, CSV and JSON.

A paper declares its tables (name, title, a function that yields rows) and the settings that its tables take;
``penstock paper`` makes and renders them. A row is a mapping from the titles of its columns to values.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Column
from rich.table import Table as TerminalTable

from experiments.picture import Panel, draw
from penstock.errors import PenstockError
from penstock.parameters import unknown

UNKNOWN: Final = "–"
Item = TypeVar("Item")
Cells = Mapping[str, Any]
"""A row by titles of columns. A value with several parts is a mapping too: one cell for people, in CSV and JSON a field
for each part.
"""
Source = Literal["simulated", "run", "recorded", "committed"]
"""Simulated on demand; from runs that the table makes, if they are missing; from run directories that are given; from
values that are kept beside the code.
"""


def printed_values(module: str, name: str = "printed.csv") -> list[dict[str, Any]]:
    """What a paper printed: the rows of this file beside its module. Numbers where a cell is one; empty ones are left
    out.
    """
    with Path(module).with_name(name).open(encoding="utf-8", newline="") as file:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def spread(values: Sequence[float | None], digits: int, centre: Callable[[Any], Any] = np.mean) -> str:
    """The mean (or another centre), and in brackets the range where it shows; – if nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return UNKNOWN
    low, high, middle = (f"{value:.{digits}f}" for value in (min(known), max(known), centre(known)))
    return middle if low == high else f"{middle} ({low}–{high})"


median_range: Final = partial(spread, centre=np.median)
"""The median, and in brackets the range where it shows."""


def read_spread(text: str) -> tuple[float, float, float]:
    """Centre, lowest and highest value of a text of ``spread``; NaN for –."""
    known = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]
    return (known[0], min(known), max(known)) if known else (nan, nan, nan)


def medians(rows: Sequence[Cells], digits: Mapping[str, int]) -> dict[str, str]:
    """Of each of these columns the median over the rows, and its range."""
    return {name: median_range([row[name] for row in rows], places) for name, places in digits.items()}


TWENTY: Final = tuple(range(1, 21))
"""Seeds of a figure: one run tells no story."""


def half_width(values: Any, quantile: float = 1.96) -> Any:
    """Half of a 95 % interval of the mean over the first axis, NaN left out; 0 for a single value."""
    values = np.asarray(values)
    if len(values) < 2:
        return np.zeros(values.shape[1:])
    return quantile * np.nanstd(values, axis=0, ddof=1) / len(values) ** 0.5


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A paper's settings with their defaults."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for: settings, selected tables, run directories; and where progress is reported."""

    settings: Any
    tables: Sequence["PaperTable"] = ()
    runs: Sequence[Path] = ()
    progress: Callable[[str], None] = lambda _: None
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def each(self, items: Iterable[Item], label: Callable[[Item], str] = str) -> Iterator[Item]:
        """The items one by one, each reported."""
        known = list(items)
        for number, item in enumerate(known, 1):
            self.progress(f"{number} of {len(known)}: {label(item)}")
            yield item


@dataclass(frozen=True)
class PaperTable:
    """One table or figure.

    ``rows`` yields the rows, or objects that ``cells`` makes rows of. ``formats``: format strings by column (of all
    parts of its values); other floats have four digits. ``section`` is the first column, where the rendering is split
    by it into tables. ``shown`` selects the rows that people see; CSV and JSON have all. ``note`` is a paragraph below.
    """

    name: str
    title: str
    rows: Callable[[Request], Iterable[Any]]
    cells: Callable[[Any], Cells] = dict
    formats: Mapping[str, str] = field(default_factory=dict)
    section: str = ""
    shown: Callable[[Cells], bool] = lambda _: True
    note: Callable[[Sequence[Any]], str] = lambda _: ""
    source: Source = "simulated"


@dataclass(frozen=True)
class PaperFigure:
    """A picture of one or more of the paper's figures, drawn from the rows of a table."""

    name: str
    title: str
    table: str
    panels: Callable[[Sequence[Cells]], Sequence[Panel]]
    columns: int = 2

    def svg(self, rows: Sequence[Cells]) -> str:
        """As an SVG document."""
        return draw(self.panels(rows), self.columns)


@dataclass(frozen=True)
class Paper:
    """A paper (or another subject) with its tables and pictures."""

    name: str
    title: str
    tables: Sequence[PaperTable]
    settings: type[Settings] = Settings
    figures: Sequence[PaperFigure] = ()

    def select(self, names: Sequence[str]) -> list[PaperTable]:
        """Tables by name, in the paper's order. A name also selects those that extend it: ``live``, ``live-claims``;
        ``all`` is every table that needs no run. PenstockError with the nearest names.
        """
        known = [table.name for table in self.tables]
        for name in names:
            if not self.is_table(name):
                raise unknown("table", name, known, f"{self.name} has {', '.join(known)}")
        return [table for table in self.tables if any(_selects(name, table) for name in names)]

    def is_table(self, name: str) -> bool:
        """Whether ``name`` selects a table."""
        return name == "all" or any(_selects(name, table) for table in self.tables)

    def set(self, given: dict[str, Any]) -> Settings:
        """The settings with what is given. PenstockError for a name or a value that is not possible."""
        known = self.settings.__struct_fields__
        for name in given:
            if name not in known:
                raise unknown("setting", name, known, f"{self.name} has {', '.join(known) or 'none'}")
        try:
            return msgspec.convert(given, self.settings, strict=False)
        except msgspec.ValidationError as error:
            raise PenstockError(f"{self.name}: {error}; see penstock paper {self.name}") from None


def _selects(name: str, table: PaperTable) -> bool:
    return f"{table.name}-".startswith(f"{name}-") or (name == "all" and table.source in ("simulated", "committed"))


# --- rendering -------------------------------------------------------------------------------------------------------


class Rendering:
    """A table with its rows."""

    def __init__(self, table: PaperTable, rows: Sequence[Any]) -> None:
        self.table = table
        self.cells = [table.cells(row) for row in rows]
        self._note = table.note(rows)

    def print(self, console: Console) -> None:
        """On the terminal."""
        for section, titles, lines in self.sections():
            shown = TerminalTable(
                *(Column(escape(title.replace("_", " ")), overflow="fold") for title in titles),
                title=escape(f"{self.table.title}: {section}" if section else self.table.title),
                title_justify="left",
            )
            for line in lines:
                shown.add_row(*map(escape, line))
            console.print(shown)
        for text in self.below():
            console.print(text, markup=False, highlight=False)

    def markdown(self) -> str:
        """As Markdown."""
        parts = [f"## {self.table.title}\n"]
        for section, titles, lines in self.sections():
            if section:
                parts.append(f"### {section}\n")
            parts += [f"| {' | '.join(line)} |" for line in (titles, ["---"] * len(titles), *lines)]
            parts.append("")
        return "\n".join([*parts, *(f"{line}\n" for line in self.below())])

    def write(self, folder: Path) -> None:
        """As CSV, all rows."""
        rows = list(self._fields())
        with (folder / f"{self.table.name}.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0] if rows else (), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)

    def as_data(self) -> dict[str, Any]:
        """For JSON, all rows; a value that is no finite number is null."""
        return {
            "table": self.table.name,
            "title": self.table.title,
            "rows": list(self._fields()),
            "note": self._note,
        }

    def _fields(self) -> Iterator[dict[str, Any]]:
        """Rows for programs, a field for each part of a value."""
        for cells in self.cells:
            fields: dict[str, Any] = {}
            for title, value in cells.items():
                if isinstance(value, Mapping):
                    fields |= {f"{title} {part}": each for part, each in value.items()}
                else:
                    fields[title] = float(value) if isinstance(value, float) else value  # NumPy's are no plain floats
            yield fields

    def _text(self, title: str, value: Any) -> str:
        """A value as people read it."""
        if form := self.table.formats.get(title):
            return form.format(*value.values()) if isinstance(value, Mapping) else form.format(value)
        if value is None or value != value:
            return UNKNOWN
        if isinstance(value, float):
            return f"{value:.0f}" if 1000 <= abs(value) < inf else f"{value:.4g}"
        return str(value)

    def sections(self) -> Iterator[tuple[str, list[str], list[list[str]]]]:
        """Title, titles of the columns and lines of each table that people see."""
        sections: dict[str, list[list[str]]] = {}
        titles: list[str] = []
        for cells in filter(self.table.shown, self.cells):
            texts = {title: self._text(title, value) for title, value in cells.items()}
            section = texts.pop(self.table.section, "")
            titles = list(texts)
            sections.setdefault(section, []).append(list(texts.values()))
        for section, lines in sections.items():
            yield section, titles, lines

    def below(self) -> Iterator[str]:
        """The paragraphs below the table."""
        hidden = len(self.cells) - sum(map(self.table.shown, self.cells))
        if hidden:
            yield f"{hidden:,} more rows: --out FOLDER writes them as {self.table.name}.csv"
        if self._note:
            yield self._note
