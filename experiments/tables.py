"""Tables of a paper's figures: as CSV files, as Markdown, and on the terminal."""

import csv
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def spread(values: Sequence[float | None], digits: int) -> str:
    """The mean, and in brackets the range where it shows; – if nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    low, high, mean = (f"{value:.{digits}f}" for value in (min(known), max(known), np.mean(known)))
    return mean if low == high else f"{mean} ({low}–{high})"


def show(console: Console, title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on the terminal; numbers to four digits."""
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    console.print(table)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1000 <= value < inf else f"{value:.4g}"
