"""The coverage table of a paper: each of its tables, figures, algorithms and claims with a verdict, from its README."""

from pathlib import Path
from typing import Final

from penstock.errors import PenstockError

TITLES: Final = ("item", "command", "printed", "simulated", "live", "verdict")


def readme(paper: str) -> Path:
    """The README of a paper, beside its experiments."""
    return Path(__file__).with_name(paper.replace("-", "_")) / "README.md"


def coverage(paper: str) -> list[dict[str, str]]:
    """The rows of the section "Coverage". PenstockError for a table with other columns."""
    section = readme(paper).read_text(encoding="utf-8").partition("## Coverage\n")[2].partition("\n## ")[0]
    lines = [cells(line) for line in section.splitlines() if line.startswith("|")]
    titles, _, *rows = lines or [[], []]
    if tuple(titles) != TITLES or any(len(row) != len(TITLES) for row in rows):
        raise PenstockError(f"{readme(paper)}: the table below Coverage needs the columns {', '.join(TITLES)}")
    return [dict(zip(titles, row, strict=True)) for row in rows]


def cells(line: str) -> list[str]:
    """The cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]
