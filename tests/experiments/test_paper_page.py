"""The page of a paper: coverage, pictures and tables in one file that loads nothing."""

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from experiments.coverage import coverage
from experiments.paper_page import parts
from penstock.command import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    done = CliRunner().invoke(build(), ["paper", "elastic-faas", "table1", "thirty", "--out", str(out)])
    assert done.exception is None, done.exception
    return out


def test_tables_pictures_and_page_are_written(folder: Path) -> None:
    found = {path.name for path in folder.iterdir()}
    assert found == {"table1.csv", "thirty.csv", "figures3a-3b.svg", "figure3c.svg", "index.html"}
    for picture in folder.glob("*.svg"):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_page_has_each_claim_each_picture_and_each_row(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    rows = coverage("elastic-faas")
    assert page.count("<svg") == 2
    assert page.count('<td class="') == len(rows)
    assert f"{sum(row['verdict'].startswith('equal') for row in rows)} equal" in page
    with (folder / "table1.csv").open(encoding="utf-8") as file:
        assert "15 / 15 / 15" in page and len(list(csv.reader(file))) == 16


def test_the_page_loads_nothing(folder: Path) -> None:
    page = (folder / "index.html").read_text().replace("http://www.w3.org/2000/svg", "")
    assert not any(word in page for word in ("http", "src=", "<script", "@import"))


def test_of_markdown_the_code_is_marked_and_links_are_text() -> None:
    assert list(parts("see [this](a.md), `x < y` too")) == [(False, "see this, "), (True, "x < y"), (False, " too")]
