"""Run directories can be listed, compared and deleted; nothing else is ever deleted."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from penstock.command import build
from penstock.errors import PenstockError
from tests.experiments.synthetic import Toy, write_run

Invoke = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "runs"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pages that the browser was told to open."""
    pages: list[str] = []
    monkeypatch.setattr("typer.launch", pages.append)
    return pages


def penstock(*arguments: object, typed: str = "") -> Result:
    return CliRunner().invoke(build(), list(map(str, arguments)), input=typed)


def run_in_sim(folder: Path, *options: str) -> Path:
    before = set(folder.glob("*-linear*"))
    asked = ("binpack-workload-1", "--scaler", "linear", "--world", "sim", "--seconds", "10s", *options)
    done = penstock("run", *asked, "--quiet")
    assert done.exit_code == 0 and done.stdout == "", done.output
    (made,) = set(folder.glob("*-linear*")) - before
    return made


def test_runs_are_listed_compared_and_deleted(folder: Path) -> None:
    one, other = run_in_sim(folder), run_in_sim(folder, "--slo", "250ms", "--price", "3")
    rows = {row["run"]: row for row in json.loads(penstock("runs", "list", "--json").stdout)}
    assert len(rows) == 4, "two runs, and the comparison that each of them is"
    assert rows[one.name]["verdict"] == "VALID" and rows[one.name]["bytes"] > 1000
    assert one.name in penstock("runs", "list").stdout

    changed = json.loads(penstock("runs", "diff", one, other, "--json").stdout)
    assert changed["slo_s"] == [0.5, 0.25]
    assert "run" not in changed and "seed" not in changed
    assert "slo_s" in penstock("runs", "diff", one, other).stdout
    assert "nothing differs" in penstock("runs", "diff", one, one).stdout

    assert penstock("runs", "delete", one, typed="n\n").exit_code == 1
    assert one.is_dir()
    assert penstock("runs", "delete", one, typed="y\n").exit_code == 0
    assert not one.exists() and other.is_dir()
    old = 1_000_000_000
    for path in (other, *other.iterdir()):
        os.utime(path, (old, old))
    assert penstock("runs", "delete", "--older-than", "7d", "--yes").exit_code == 0
    assert not other.exists() and len(list(folder.iterdir())) == 2


def test_a_condition_hides_no_measure_of_its_name(folder: Path) -> None:
    asked = ("--from", "7m", "--fault", "kill-worker@5", "--start-up")
    one, other = (run_in_sim(folder, *asked, start_up) for start_up in ("1s", "3s"))
    measures = [msgspec.json.decode((each / "summary.json").read_bytes()) for each in (one, other)]
    assert measures[0]["slo_share"] != measures[1]["slo_share"] and measures[0]["faults"] != measures[1]["faults"]

    changed = json.loads(penstock("runs", "diff", one, other, "--json").stdout)
    for name in ("slo_share", "faults"):
        assert changed[name] == [each[name] for each in measures]
    assert "wanted_slo_share" not in changed and "planned_faults" not in changed, "both runs had the same ones"
    assert "slo_share" in penstock("runs", "diff", one, other).stdout

    later = run_in_sim(folder, "--from", "7m", "--fault", "kill-worker@6", "--start-up", "1s")
    assert "planned_faults" in json.loads(penstock("runs", "diff", one, later, "--json").stdout)


def test_nothing_but_runs_is_deleted(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    for arguments in ([precious, "--yes"], [], [precious, "--older-than", "1s"]):
        assert isinstance(penstock("runs", "delete", *arguments).exception, PenstockError)
    assert precious.is_dir()


def test_a_run_without_a_report_is_not_opened(folder: Path) -> None:
    directory = write_run(folder, Toy())
    result = penstock("runs", "open", directory.path)
    assert isinstance(result.exception, PenstockError) and "no report.html" in str(result.exception)


def test_an_index_links_the_report_of_each_run(folder: Path, opened: list[str]) -> None:
    one = run_in_sim(folder)
    assert penstock("runs", "open").exit_code == 0
    page = (folder / "index.html").read_text("utf-8")
    assert opened == [str(folder / "index.html")]
    assert f'<a href="{one.name}/report.html">{one.name}</a>' in page and (folder / one.name / "report.html").is_file()
    assert penstock("runs", "open", one).exit_code == 0
    assert opened[-1] == str(one / "report.html")
    names = [row["run"] for row in json.loads(penstock("runs", "list", "--json").stdout)]
    assert len(names) == 2, "the index is no run"


def test_two_runs_are_put_side_by_side_on_a_page(folder: Path, opened: list[str]) -> None:
    one, other = run_in_sim(folder), run_in_sim(folder, "--slo", "250ms")
    assert penstock("runs", "diff", one, other, "--open").exit_code == 0
    page = Path(opened[0]).read_text("utf-8")
    assert "linear (slo_s 0.25" in page and "linear (slo_s 0.5" in page
    assert all(f'href="{run.name}/report.html"' in page for run in (one, other))


def test_a_report_has_the_lower_bound_where_it_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = run_in_sim(folder)
    assert "lower bound for 99 %" in (stream / "report.html").read_text("utf-8")
    faulty = run_in_sim(folder, "--fault", "kill-worker@5")
    assert "lower bound for 99 %" not in (faulty / "report.html").read_text("utf-8")
    monkeypatch.setattr("penstock.compiled.COMPILED", False)
    interpreted = run_in_sim(folder)
    assert "lower bound for 99 %" not in (interpreted / "report.html").read_text("utf-8")


@pytest.mark.parametrize("command", ["report", "explain --at 5", "watch --once", "measures", "runs diff {}"])
def test_every_command_takes_the_name_that_the_list_prints(folder: Path, command: str) -> None:
    name = write_run(folder, Toy(seconds=10)).name
    assert name in penstock("runs", "list").stdout
    done = penstock(*command.format(name).split(), name)
    assert done.exit_code == 0, done.output or done.exception


def test_a_report_takes_the_name_of_a_comparison(folder: Path) -> None:
    run_in_sim(folder)
    (comparison,) = folder.glob("*-compare")
    assert penstock("report", comparison.name).exit_code == 0


def test_a_run_is_named_as_it_is_listed(folder: Path) -> None:
    one = write_run(folder, Toy(seconds=10))
    assert "nothing differs" in penstock("runs", "diff", one.path.name, one.path).stdout
    assert penstock("runs", "delete", one.path.name, "--yes").exit_code == 0
    assert not one.path.exists()


def test_an_advice_is_listed_with_its_share_and_not_as_unfinished(folder: Path, opened: list[str]) -> None:
    for name, best in (("20260101T000000Z-advise-a", {"rest_share": 0.994}), ("20260101T000000Z-advise-b", None)):
        (folder / name).mkdir(parents=True)
        (folder / name / "request.json").write_text("{}")
        (folder / name / "advice.json").write_text(json.dumps({"best": best}))
    (folder / "20260101T000000Z-advise-c").mkdir()
    (folder / "20260101T000000Z-advise-c" / "request.json").write_text("{}")
    lines = penstock("runs", "list").stdout.splitlines()[1:]
    assert [("advice" in line, "99.4" in line, "unfinished" in line) for line in lines] == [
        (False, False, True),
        (True, False, False),
        (True, True, False),
    ]
    assert penstock("runs", "open").exit_code == 0
    page = Path(opened[0]).read_text("utf-8")
    assert page.count(">advice<") == 2 and page.count(">unfinished<") == 1 and "In a chart" not in page
