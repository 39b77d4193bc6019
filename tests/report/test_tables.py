"""Tables and the sentence on top: every figure is one of summary.json, and the sentence names who meets the SLO."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.contracts import Term
from penstock.rundir import RunDirectory, Verdict
from penstock.runspec import Fault
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.groups import Group, group_runs
from report.page import write_report
from report.tables import MEASURES, Number, comparison, decisions, differences, facts_of, headline, why
from tests.experiments.synthetic import Toy, write_run


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunSummary:
    return summary_of(RunData(write_run(tmp_path_factory.mktemp("runs"), Toy(seconds=5))))


def groups_of(summary: RunSummary, **figures: tuple[float, float, Verdict]) -> list[Group]:
    """A group for each scaler: share, replica-minutes, verdict."""
    return group_runs(
        [
            msgspec.structs.replace(summary, scaler=name, slo_share=kept, replica_minutes=minutes, verdict=verdict)
            for name, (kept, minutes, verdict) in figures.items()
        ]
    )


def said(groups: list[Group], wanted: float = 0.99) -> str:
    return headline(groups, wanted).replace("\u00a0", " ")


def test_the_cheapest_scaler_that_meets_the_share_is_named_with_its_verdict(measured: RunSummary) -> None:
    groups = groups_of(
        measured,
        best=(1.0, 46.7, "VALID"),
        frugal=(0.993, 30.9, "DEGRADED"),
        short=(0.964, 25.2, "VALID"),
        shorter=(0.5, 25.2, "VALID"),
    )
    assert said(groups) == (
        "frugal is the cheapest that kept 99 % of events within 500 ms: 99.3 % with 30.9 replica-minutes (DEGRADED). "
        "Next: best, 100.0 % with 46.7 replica-minutes (VALID). "
        "Missed: short, 96.4 % with 25.2 replica-minutes (VALID); 1 more missed it."
    )
    assert "best is the cheapest" in said(groups, 0.9999)


def test_that_no_scaler_meets_the_share_is_said(measured: RunSummary) -> None:
    groups = groups_of(measured, one=(0.98996, 10.0, "VALID"), other=(0.7, 9.0, "DEGRADED"))
    nearest = "Nearest: one, 98.996 % with 10.0 replica-minutes (VALID)."
    assert said(groups) == f"None of 2 scalers kept 99 % of events within 500 ms. {nearest}"


def test_a_mean_of_exactly_the_wanted_share_keeps_it(measured: RunSummary) -> None:
    repeated = group_runs([msgspec.structs.replace(measured, slo_share=0.99, seed=seed) for seed in range(3)])
    assert len(repeated) == 1
    assert said(repeated).startswith("linear kept 99 % of events within 500 ms: 99.0 %"), said(repeated)


def test_an_invalid_run_is_never_the_answer(measured: RunSummary) -> None:
    groups = groups_of(measured, wrong=(1.0, 1.0, "INVALID"), right=(0.995, 20.0, "VALID"))
    sentence = said(groups)
    assert sentence.startswith("right is the cheapest that kept 99 %")
    assert sentence.endswith("Not to be believed: wrong (INVALID); see why below.")
    assert "Not to be believed" in said(groups_of(measured, wrong=(1.0, 1.0, "INVALID")))


def test_one_scaler_kept_the_share_or_did_not(measured: RunSummary) -> None:
    kept, missed = (said(groups_of(measured, one=(each, 10.0, "VALID"))) for each in (0.99, 0.9))
    assert kept == "one kept 99 % of events within 500 ms: 99.0 % with 10.0 replica-minutes (VALID)."
    assert missed.startswith("one did not keep 99 %")


def test_best_values_are_those_of_valid_runs(measured: RunSummary) -> None:
    groups = groups_of(measured, degraded=(1.0, 1.0, "DEGRADED"), one=(0.9, 9.0, "VALID"), other=(0.8, 10.0, "VALID"))
    rows = comparison(groups, {}).rows
    assert ['class="best"' in str(row[2]) for row in rows] == [False, True, False]


def test_rejected_events_have_a_column_where_there_are_any(measured: RunSummary) -> None:
    assert "rejected" not in comparison(groups_of(measured, one=(1.0, 1.0, "VALID")), {}).headers
    balance = msgspec.structs.replace(measured.conservation, rejected=measured.acknowledged_events // 4)
    table = comparison(group_runs([msgspec.structs.replace(measured, conservation=balance)]), {})
    cell = table.rows[0][table.headers.index("rejected")]
    assert isinstance(cell, Number) and cell.value == pytest.approx(0.25, abs=0.01)


class Cells(HTMLParser):
    """Tables of a page: by data-name rows of {column: (text, data-value)}."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[dict[str, tuple[str, str | None]]]] = {}
        self._columns: list[str] = []
        self._rows: list[dict[str, tuple[str, str | None]]] = []
        self._value: str | None = None
        self._text = ""
        self._cell = self._head = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "table":
            self._columns, self._rows = [], []
            self.tables.setdefault(given["data-name"] or "", self._rows)
        elif tag == "thead":
            self._head = True
        elif tag == "th" and self._head:
            assert given["scope"] == "col"
            self._columns.append(given["data-name"] or "")
        elif tag == "tr" and not self._head:
            self._rows.append({})
        elif tag in ("td", "th"):
            self._cell, self._text, self._value = True, "", given.get("data-value")
            assert tag == "td" or given["scope"] == "row"

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":
            self._head = False
        elif tag in ("td", "th") and self._cell:
            row = self._rows[-1]
            row[self._columns[len(row)]] = (self._text, self._value)
            self._cell = False


SUMMARY_OF = {
    "p50_s": ("latency", "p50_s"), "p95_s": ("latency", "p95_s"), "p99_s": ("latency", "p99_s"),
    "max_s": ("latency", "max_s"), "up_actions": ("scale", "up_actions"), "down_actions": ("scale", "down_actions"),
}  # fmt: skip
"""Where summary.json has a column of the result, if not under its name."""


def test_every_figure_of_the_result_equals_summary_json(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, Toy(scaler=name, seconds=40)) for name in ("linear", "rps")]
    page = tmp_path / "report.html"
    write_report(list(map(RunData, runs)), page)
    tables = Cells(page.read_text("utf-8")).tables
    for position, run in enumerate(runs):
        summary: dict[str, Any] = json.loads(run.summary_file.read_text("utf-8"))

        def figure(name: str, of: dict[str, Any] = summary) -> Any:
            path = SUMMARY_OF.get(name, (name,))
            return of[path[0]] if len(path) == 1 else of[path[0]][path[1]]

        row = tables["result-by-scaler"][position]
        known = {measure.name for measure in MEASURES}
        shown = {name: value for name, (_, value) in row.items() if name in known}
        assert shown.keys() >= {"slo_share", "p50_s", "p95_s", "p99_s", "max_s", "replica_minutes", "money"}
        assert {name: float(value or "nan") for name, value in shown.items()} == pytest.approx(
            {name: figure(name) for name in shown}, nan_ok=True
        )
        assert row["verdict"][0] == summary["verdict"]
        balance = tables["conservation-of-events"][position]
        for column, name in (
            ("scheduled", "scheduled"),
            ("in flight", "in_flight"),
            ("dead-lettered", "dead_lettered"),
        ):
            assert float(balance[column][1] or "nan") == summary["conservation"][name]
        cost, late = tables["costs"][position], tables["recovery"][position]
        assert float(cost["needed"][1] or "nan") == pytest.approx(summary["needed_replica_minutes"])
        assert float(late["seconds that missed the SLO"][1] or "nan") == summary["missed_seconds"]
        assert float(late["late periods"][1] or "nan") == summary["late_periods"]
        mean = tables["mean-time-by-part"][position]
        assert float(mean["in all"][1] or "nan") == pytest.approx(summary["latency"]["mean_s"])


def test_the_page_shows_only_settings_that_are_set(tmp_path: Path) -> None:
    run = RunData(write_run(tmp_path, Toy(seconds=5)))
    facts = facts_of(run, summary_of(run))
    assert "scaler.file" not in facts and "" not in facts.values()
    spec = msgspec.structs.replace(run.spec, world="sim")
    run.directory.write(run.directory.spec_file, spec)
    assert not any("started_at" in name for name in facts_of(RunData(run.directory), summary_of(run)))


def test_only_settings_that_differ_are_in_the_table_of_differences(tmp_path: Path) -> None:
    directories = [write_run(tmp_path, Toy(seconds=5, name=name)) for name in ("one", "other")]
    assert differing(directories) is None
    spec = msgspec.structs.replace(directories[1].spec(), slo_s=0.25)
    directories[1].write(directories[1].spec_file, spec)
    assert differing(directories) == [["slo_s", "0.5", "0.25"]]


def differing(directories: list[RunDirectory]) -> list[list[str]] | None:
    for directory in directories:
        directory.manifest_file.unlink(missing_ok=True)
        directory.summary_file.unlink(missing_ok=True)
    runs = [RunData(directory) for directory in directories]
    table = differences(group_runs([summary_of(run) for run in runs], apart=True), runs)
    return None if table is None else [list(map(str, row)) for row in table.rows]


def test_decisions_have_a_column_of_shadows_only_if_there_were_some(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for shadows, shown in (((), False), (("binpack-tail",), True)):
        write_report([RunData(write_run(tmp_path, Toy(seconds=20, shadows=shadows, name=f"run{shown}")))], page)
        assert ("shadows advised" in page.read_text("utf-8")) is shown


def test_a_fault_s_recovery_is_a_figure_that_can_be_sorted(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report([RunData(write_run(tmp_path, Toy(seconds=20, faults=(Fault("kill-worker", 9),))))], page)
    (row,) = Cells(page.read_text("utf-8")).tables["faults"]
    assert row["second"] == ("9.0", "9.0") and row["fault"][0] == "kill-worker"


def test_a_long_explanation_loses_its_middle_and_keeps_its_conclusion(tmp_path: Path) -> None:
    run = RunData(write_run(tmp_path, Toy(seconds=20)))
    (group,) = group_runs([summary_of(run)])
    long = {f"term_{i}": float(i) for i in range(100)} | {"wanted": 7}
    step = run.steps[0]
    decision = msgspec.structs.replace(step.decision, why={step.record.observation.fleet: long})
    run.steps[:] = [dataclasses.replace(step, decision=decision)]
    (cells,) = [row for row in decisions(group, run, 1).table.rows if "up" in str(row[1])]
    assert str(cells[3]).startswith("term 0: 0") and " … " in str(cells[3])
    assert str(cells[3]).endswith("wanted = 7")


def test_no_column_heading_is_without_a_name(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report([RunData(write_run(tmp_path, Toy(seconds=5)))], page)
    assert not re.search(r'<th scope="col" data-name=""', page.read_text("utf-8"))


def test_why_is_worded_as_explain_words_it_in_the_order_of_the_arithmetic_without_groupings() -> None:
    terms: dict[str, Term] = {
        "total_rate_per_s": 320.0,
        "bin_up": [90.0, 180.0],
        "groups": [[0, 1], [2]],
        "LL_up": 4,
        "replicas": 3,
    }
    assert why("binpack", terms) == [
        "total rate: 320/s",
        "bin at f_up: lag ≤ μ·w·f = 90, rate ≤ μ·f = 180/s",
        "|Least-Loaded(lag, f_up)| = 4 > 3? yes",
    ]
