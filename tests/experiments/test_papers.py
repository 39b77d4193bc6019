"""The README of each paper: nothing is missing in its coverage table, and its numbers are those of its commands."""

import csv
import random
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.catalogue import EXPERIMENTS
from experiments.paper import PaperTable, Rendering, Request
from experiments.papers import PAPERS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {name: name.replace("-", "_") for name in PAPERS if name not in ("any", "newsvendor")}
READMES = {name: (ROOT / "experiments" / folder / "README.md").read_text() for name, folder in FOLDERS.items()}
VERDICTS = ("equal", "near", "contradicts", "cannot be had", "not measured yet")

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


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def blocks(paper: str) -> Iterator[Block]:
    """``` `penstock paper NAME TABLE`: ``` or ``` …, `section`, what it is: ``` and a table below it."""
    pattern = re.compile(r"^`(penstock paper [^`]+)`(?:, `([^`]+)`)?[^`\n]*:\n\n((?:\|.*\n)+)", re.MULTILINE)
    for command, section, table in pattern.findall(READMES[paper]):
        titles, _, *lines = map(cells, table.splitlines())
        yield Block(paper, command, section, titles, lines)


def coverage(paper: str) -> list[dict[str, str]]:
    table = READMES[paper].partition("## Coverage\n")[2].partition("\n## ")[0]
    titles, _, *lines = (cells(line) for line in table.splitlines() if line.startswith("|"))
    assert titles == ["item", "command", "printed", "simulated", "live", "verdict"]
    assert {len(line) for line in lines} == {len(titles)}, [line for line in lines if len(line) != len(titles)]
    return [dict(zip(titles, line, strict=True)) for line in lines]


# --- coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", FOLDERS)
def test_no_item_of_a_paper_is_missing_in_its_coverage_table(paper: str) -> None:
    wanted = [item for name, item in ROWS if name == paper]
    assert len(wanted) == len(set(wanted)) > 10
    assert [row["item"] for row in coverage(paper)] == wanted


@pytest.mark.parametrize("paper", FOLDERS)
def test_each_item_has_a_verdict_and_a_reason_where_it_needs_one(paper: str) -> None:
    for row in coverage(paper):
        verdict, _, reason = row["verdict"].partition(":")
        assert verdict in VERDICTS, row["item"]
        assert reason.strip() or verdict in ("equal", "near", "not measured yet"), row["item"]
        assert row["command"] != "–" or verdict in ("contradicts", "cannot be had") or reason, row["item"]


@pytest.mark.parametrize("paper", FOLDERS)
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

CHEAP: Mapping[str, Sequence[str]] = {
    "amesos": ("figure4",),
    "elastic-faas": ("table1", "thirty", "story", "story-timeline"),
    "multiqueue": ("table1", "table2"),
    "pubsub": ("figure4", "figure8"),
}
"""Tables of which a row takes a second at most."""
CHOSEN = 12


def table_of(block: Block) -> PaperTable:
    """The table that the command names exactly."""
    word = shlex.split(block.command)[3]
    (table,) = (table for table in PAPERS[block.paper].tables if table.name == word)
    return table


def request_of(block: Block) -> Request:
    words = shlex.split(block.command)[4:]
    given = dict(word.split("=", 1) for option, word in pairwise(words) if option == "--set")
    return Request(settings=PAPERS[block.paper].set(given))


def made(block: Block, upto: Sequence[str]) -> dict[str, str]:
    """The row of the table that begins like this line; rows after it are not made."""
    table = table_of(block)
    for row in table.rows(request_of(block)):
        rendering = Rendering(table, [row])
        for section, titles, (line, *_) in rendering._sections():
            # The first seed is named in the section of a time line.
            if (
                section.startswith(block.section)
                and section.removeprefix(block.section)[:1] in ("", ",")
                and line[0] == upto[0]
            ):
                return dict(zip((title.replace("|", "") for title in titles), line, strict=True))
    raise AssertionError(f"{block.command}: no row {upto[0]}")


def test_every_command_above_a_table_has_its_columns() -> None:
    found = [block for paper in FOLDERS for block in blocks(paper)]
    assert len(found) >= 15
    for block in found:
        assert table_of(block).source == "simulated", block.command
        assert block.lines, block.command


def test_a_dozen_rows_chosen_at_random_are_made_again_by_the_command_above_them() -> None:
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    chosen = random.Random(seed)
    rows = [
        (block, line)
        for paper, names in CHEAP.items()
        for block in blocks(paper)
        if table_of(block).name in names
        for line in block.lines
    ]
    assert {table_of(block).name for block, _ in rows} == {name for names in CHEAP.values() for name in names}
    compared = 0
    for block, line in chosen.sample(rows, CHOSEN):
        again = made(block, line)
        here = dict(zip(block.titles, line, strict=True))
        shared = [title for title in here if title in again]
        assert len(shared) >= 2, (block.command, list(again))
        for title in shared:
            assert here[title] == again[title], f"seed {seed}: {block.command}, {line[0]}, {title}"
        compared += len(shared)
    assert compared >= 2 * CHOSEN
