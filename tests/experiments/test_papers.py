"""The README of each paper: nothing is missing in its coverage table, and its numbers are those of its commands."""

import csv
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, tee
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.binpack.live import NOT_MEASURED
from experiments.catalogue import EXPERIMENTS
from experiments.coverage import cells, coverage, readme
from experiments.paper import Cells, PaperTable, Rendering, Request
from experiments.papers import OF_PAPERS, PAPERS

ROOT = Path(__file__).resolve().parents[2]
READMES = {paper.name: readme(paper.name).read_text() for paper in OF_PAPERS}
MOST_NOT_MEASURED = 12
VERDICTS = ("equal", "near", "contradicts", "cannot be had", NOT_MEASURED)

with (Path(__file__).parent / "coverage.csv").open(encoding="utf-8", newline="") as file:
    ROWS = [(row["paper"], row["item"]) for row in csv.DictReader(file)]
    """Every table, figure, algorithm, claim and baseline of the papers."""


class Block(NamedTuple):
    """A table of a README with the command above it that makes it."""

    paper: str
    command: str
    section: str
    titles: Sequence[str]
    lines: Sequence[Sequence[str]]


def blocks(paper: str) -> Iterator[Block]:
    """``` `penstock paper NAME TABLE`: ``` or ``` …, `section`, what it is: ``` and a table below it."""
    pattern = re.compile(r"^`(penstock paper [^`]+)`(?:, `([^`]+)`)?[^`\n]*:\n\n((?:\|.*\n)+)", re.MULTILINE)
    for command, section, table in pattern.findall(READMES[paper]):
        titles, _, *lines = map(cells, table.splitlines())
        yield Block(paper, command, section, titles, lines)


# --- coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", READMES)
def test_no_item_of_a_paper_is_missing_in_its_coverage_table(paper: str) -> None:
    wanted = [item for name, item in ROWS if name == paper]
    assert len(wanted) == len(set(wanted)) > 10
    assert [row["item"] for row in coverage(paper)] == wanted


@pytest.mark.parametrize("paper", READMES)
def test_each_item_has_a_verdict_and_a_reason_where_it_needs_one(paper: str) -> None:
    for row in coverage(paper):
        verdict, _, reason = row["verdict"].partition(":")
        assert verdict in VERDICTS, row["item"]
        assert reason.strip() or verdict in ("equal", "near", NOT_MEASURED), row["item"]
        assert row["command"] != "–" or verdict in ("contradicts", "cannot be had") or reason, row["item"]


def test_at_most_twelve_live_cells_are_not_measured_yet() -> None:
    """Every cell of every README of a paper, coverage tables included."""
    waiting = {paper: text.count(NOT_MEASURED) for paper, text in READMES.items()}
    assert sum(waiting.values()) <= MOST_NOT_MEASURED, waiting


@pytest.mark.parametrize("paper", READMES)
def test_each_command_of_a_coverage_table_exists(paper: str) -> None:
    for row in coverage(paper):
        for command in re.findall(r"`(penstock [^`]+)`", row["command"]):
            _, verb, *words = shlex.split(command)
            if verb == "paper":
                name, *words = words
                assert PAPERS[name].select([word for word in words if PAPERS[name].is_table(word)]), command
            elif verb in ("run", "compare"):
                assert words[0] in EXPERIMENTS, command


def test_the_items_are_those_of_the_checklist() -> None:
    """Where the checklist is at hand, its rows are ours: as many of each paper, in our own words."""
    places = (parent / "shared" / "spec" / "coverage.md" for parent in ROOT.parents)
    checklist = next((place for place in places if place.exists()), None)
    if checklist is None:
        pytest.skip("the checklist is not on this machine")
    sections = checklist.read_text().split("\n## ")[1:]
    counts = [sum(line.startswith("|") for line in section.splitlines()) - 2 for section in sections]
    order = ("multiqueue", "elastic-faas", "amesos", "binpack", "pubsub")
    short = [
        (name, count) for name, count in zip(order, counts, strict=True) if sum(p == name for p, _ in ROWS) < count
    ]
    assert not short


# --- numbers ---------------------------------------------------------------------------------------------------------

QUICK: Mapping[str, Sequence[str]] = {
    "amesos": ("figure4",),
    "elastic-faas": ("table1", "thirty", "story-timeline"),
    "pubsub": ("figure4",),
}
"""Tables whose rows follow from formulas or from a run or two."""
SIMULATED: Mapping[str, Sequence[str]] = {
    "elastic-faas": ("story", "accuracy"),
    "multiqueue": ("table1", "table2", "accuracy", "containers"),
    "pubsub": ("figure8",),
}
"""Tables whose rows are simulated, each in less than a second: twenty seeds, or ten thousand jobs."""


def table_of(block: Block) -> PaperTable:
    """The table that the command names exactly."""
    word = shlex.split(block.command)[3]
    (table,) = (table for table in PAPERS[block.paper].tables if table.name == word)
    return table


def request_of(block: Block) -> Request:
    words = shlex.split(block.command)[4:]
    given = dict(word.split("=", 1) for option, word in pairwise(words) if option == "--set")
    return Request(settings=PAPERS[block.paper].set(given))


def made(block: Block, upto: Sequence[str], begun: dict[str, Iterator[Cells]]) -> dict[str, str]:
    """The row of the table that begins like this line; rows after it are not made. ``begun``: rows of each command from
    the first on; none is made twice.
    """
    table = table_of(block)
    begun[block.command], rows = tee(begun.get(block.command) or table.rows(request_of(block)))
    for row in rows:
        rendering = Rendering(table, [row])
        for section, titles, (line, *_) in rendering.sections():
            # The first seed is named in the section of a time line.
            if (
                section.startswith(block.section)
                and section.removeprefix(block.section)[:1] in ("", ",")
                and line[0] == upto[0]
            ):
                return dict(zip((title.replace("|", "") for title in titles), line, strict=True))
    raise AssertionError(f"{block.command}: no row {upto[0]}")


def test_every_command_above_a_table_has_its_columns() -> None:
    found = [block for paper in READMES for block in blocks(paper)]
    assert len(found) >= 15
    for block in found:
        assert table_of(block).source == "simulated", block.command
        assert block.lines, block.command


def assert_made_again(paper: str, names: Sequence[str]) -> None:
    begun: dict[str, Iterator[Cells]] = {}
    found = [block for block in blocks(paper) if table_of(block).name in names]
    assert {table_of(block).name for block in found} == set(names)
    for block in found:
        for line in block.lines:
            again = made(block, line, begun)
            here = dict(zip(block.titles, line, strict=True))
            shared = [title for title in here if title in again]
            assert len(shared) >= 2, (block.command, list(again))
            for title in shared:
                assert here[title] == again[title], f"{block.command}, {line[0]}, {title}"


@pytest.mark.parametrize("paper", QUICK)
def test_every_row_of_a_quick_table_is_made_again_by_the_command_above_it(paper: str) -> None:
    assert_made_again(paper, QUICK[paper])


@pytest.mark.long
@pytest.mark.parametrize("paper", SIMULATED)
def test_every_row_of_a_simulated_table_is_made_again_by_the_command_above_it(paper: str) -> None:
    assert_made_again(paper, SIMULATED[paper])


# --- pictures --------------------------------------------------------------------------------------------------------

PICTURES = sorted((ROOT / "experiments").glob("*/figures/*.svg"))


def shown(paper: str) -> list[Path]:
    """The pictures that a README shows."""
    return [readme(paper).parent / path for path in re.findall(r"!\[[^]]+\]\(([^)]+\.svg)\)", READMES[paper])]


def test_each_readme_shows_pictures_that_are_there_and_small() -> None:
    found = [path for paper in READMES for path in shown(paper)]
    assert sorted(found) == PICTURES
    assert all(shown(paper) for paper in READMES)
    assert max(path.stat().st_size for path in found) < 40_000


@pytest.mark.parametrize(
    ("paper", "name"),
    [("amesos", "figure4"), ("binpack", "figures2-3"), ("elastic-faas", "figures3a-3b"), ("pubsub", "figure4")],
)
def test_cheap_pictures_are_drawn_again_as_they_are(paper: str, name: str) -> None:
    (figure,) = (figure for figure in PAPERS[paper].figures if figure.name == name)
    (table,) = (table for table in PAPERS[paper].tables if table.name == figure.table)
    rows = Rendering(table, list(table.rows(Request(settings=PAPERS[paper].settings())))).cells
    assert figure.svg(rows) == (readme(paper).parent / "figures" / f"{name}.svg").read_text()


@pytest.mark.parametrize("paper", READMES)
def test_each_figure_is_drawn_from_a_table_that_needs_no_run(paper: str) -> None:
    sources = {table.name: table.source for table in PAPERS[paper].tables}
    names = [figure.name for figure in PAPERS[paper].figures]
    assert len(set(names)) == len(names) >= 3
    assert {sources[figure.table] for figure in PAPERS[paper].figures} == {"simulated"}
