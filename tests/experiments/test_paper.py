"""``penstock paper``: declared tables and their renderings."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.paper import PaperTable, Rendering, half_width, median_range, medians, printed_values, spread
from experiments.papers import PAPERS
from penstock.command import build
from penstock.errors import PenstockError

TABLE = PaperTable(
    "example",
    "An example",
    lambda _: [("a", "x", 12345.678, (1.0, 2.0)), ("b", "y", None, (3.0, 4.0)), ("b", "z", 0.5, (5.0, 6.0))],
    section="group",
    formats={"share": "{:.1f} / {:.2f} %"},
    cells=lambda row: {
        "group": row[0],
        "name": row[1],
        "cost": row[2],
        "share": dict(zip(("printed", "simulated"), row[3], strict=True)),
    },
    shown=lambda row: row["name"] != "z",
    note=lambda rows: f"{len(rows)} rows",
)


@pytest.fixture
def rendering() -> Rendering:
    return Rendering(TABLE, list(TABLE.rows(None)))  # type: ignore[arg-type]


def paper(*arguments: str) -> str:
    done = CliRunner().invoke(build(), ["paper", *arguments])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_markdown_has_sections_and_the_shown_rows(rendering: Rendering) -> None:
    assert rendering.markdown().split("\n\n") == [
        "## An example",
        "### a",
        "| name | cost | share |\n| --- | --- | --- |\n| x | 12346 | 1.0 / 2.00 % |",
        "### b",
        "| name | cost | share |\n| --- | --- | --- |\n| y | – | 3.0 / 4.00 % |",
        "1 more rows: --out FOLDER writes them as example.csv",
        "3 rows\n",
    ]


def test_the_terminal_shows_the_same_cells(rendering: Rendering) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    rendering.print(console)
    text = console.export_text()
    assert all(cell in text for cell in ("An example: a", "12346", "1.0 / 2.00 %", "3 rows"))


def test_csv_and_json_have_all_rows_and_plain_values(rendering: Rendering, tmp_path: Path) -> None:
    rendering.write(tmp_path)
    with (tmp_path / "example.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    first = {"group": "a", "name": "x", "cost": "12345.678", "share printed": "1.0", "share simulated": "2.0"}
    assert (len(rows), rows[0]) == (3, first)
    data: dict[str, Any] = rendering.as_data()
    assert data["rows"][2] == {"group": "b", "name": "z", "cost": 0.5, "share printed": 5.0, "share simulated": 6.0}
    assert data["note"] == "3 rows"


def test_printed_values_are_numbers_where_they_are_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "printed.csv").write_text("what,P_K,s\nλ = 1,0.50,7\n< 1,,2.0\n", encoding="utf-8")
    read = printed_values(str(tmp_path / "tables.py"))
    assert read == [{"what": "λ = 1", "P_K": 0.5, "s": 7}, {"what": "< 1", "s": 2.0}]
    assert [type(row["s"]) for row in read] == [int, float]


def test_means_have_their_range_if_it_is_visible() -> None:
    assert spread([1.0, 1.001], 2) == "1.00"
    assert spread([1.0, 2.0], 1) == "1.5 (1.0–2.0)"
    assert spread([None], 1) == "–"


def test_an_interval_of_one_value_has_no_width() -> None:
    assert half_width([3.0]) == 0
    assert half_width([1.0, 3.0]) == pytest.approx(1.96)


def test_papers_and_their_tables_are_listed() -> None:
    assert all(name in paper() for name in PAPERS)
    listed = paper("multiqueue")
    assert all(table.name in listed for table in PAPERS["multiqueue"].tables)
    assert "points" in listed and "makes runs" in listed


@pytest.mark.parametrize("name", PAPERS)
def test_tables_have_names_of_their_own_and_settings_have_defaults(name: str) -> None:
    names = [table.name for table in PAPERS[name].tables]
    assert len(set(names)) == len(names)
    assert PAPERS[name].set({}) == PAPERS[name].settings()


def test_json_has_settings_and_rows() -> None:
    data = json.loads(paper("elastic-faas", "table1", "thirty", "--format", "json"))
    assert (data["paper"], [table["table"] for table in data["tables"]]) == ("elastic-faas", ["table1", "thirty"])
    assert data["tables"][0]["rows"][0]["FaaS 1 simulated"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["amesso"], r"unknown paper 'amesso' \(did you mean amesos"),
        (["amesos", "claim"], r"unknown table 'claim' \(did you mean claims"),
        (["amesos", "live"], "live: needs run directories"),
        (["amesos", "claims", "."], "none of these tables is made from run directories"),
        (["amesos", "claims", "--set", "lax=1"], r"unknown setting 'lax' \(did you mean law"),
        (["amesos", "claims", "--set", "law"], "expected setting=value"),
        (["binpack", "table2", "--seeds", "3-1"], "expected a range such as 1-20"),
        (["any", "measured", ".", "--seeds", "3"], "unknown setting 'seeds': any has none"),
        (["elastic-faas", "table1", "--format", "html"], "choose table, markdown or json"),
        (["any", "measured", "."], "no finished run among these folders"),
    ],
)
def test_what_is_not_possible_is_an_error_of_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        paper(*arguments)


def test_a_median_is_shown_with_its_range_where_it_has_one() -> None:
    assert [median_range(values, 1) for values in ([1.0, 9.0, 2.0], [3.0, 3.0], [None, 4.0], [])] == [
        "2.0 (1.0–9.0)", "3.0", "4.0", "–",
    ]  # fmt: skip
    assert medians([{"a": 1, "b": 2.0}, {"a": 3, "b": 2.0}], {"a": 0, "b": 1}) == {"a": "2 (1–3)", "b": "2.0"}
