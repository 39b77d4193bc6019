"""Live runs of the bin-pack experiments: the committed record, the twins, and the README's live cells."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from rich.console import Console

from experiments.binpack import live
from experiments.binpack.live import LIVE, Conditions, Measures, cell, live_run, options_of, read, runs_of, twin
from experiments.binpack.tables import CASES, NYC, WORKLOAD_1, Case, live_cell, notified
from experiments.coverage import cells, readme
from experiments.driver import carry_out, describe
from experiments.experiment import Options
from experiments.progress import RunProgress
from penstock.rundir import RunDirectory
from report.analysis.run_data import RunData
from simulator.world import SimWorld

README = readme("binpack").read_text()


def played(options: Options, scaler: str, folder: Path) -> RunData:
    directory, _ = describe(live.BY_NAME[WORKLOAD_1], scaler, options, folder)
    with RunProgress(Console(quiet=True), runs=1) as progress, SimWorld() as world:
        carry_out(world, live.BY_NAME[WORKLOAD_1], options, directory, progress)
    return RunData(RunDirectory(directory.path))


# --- the record ------------------------------------------------------------------------------------------------------


def test_every_live_run_that_is_told_is_valid_and_of_a_known_experiment() -> None:
    assert LIVE
    assert {run.verdict for run in LIVE} == {"VALID"}
    assert {run.conditions.experiment for run in LIVE} <= set(live.BY_NAME)
    keys = [(run.conditions, run.seed) for run in LIVE]
    assert len(keys) == len(set(keys))


def test_a_row_of_the_record_reads_back_as_it_was_written() -> None:
    for run in LIVE:
        row = {name: value for name, value in run.row().items() if value != ""}
        assert read(row) == run


def test_the_record_of_a_run_directory_has_its_conditions_and_measures(tmp_path: Path) -> None:
    """Of a simulated run, whose directory has the same files; its twin at the same service time is the run again."""
    conditions = Conditions(
        experiment=WORKLOAD_1, scaler="binpack-tail", world="sim", from_s=420.0, seconds=30.0, rebalance_time_s=0.5,
        heartbeat_s=3.0, session_timeout_s=10.0, told_s=0.5,
    )  # fmt: skip
    run = live_run(played(options_of(conditions, 5.4, seed=2), "binpack-tail", tmp_path))
    assert (run.conditions, run.seed, run.verdict) == (conditions, 2, "VALID")
    assert run.service_ms == pytest.approx(5.4, rel=0.02)
    again = twin(conditions, 5.4, 2)
    assert again._asdict() == pytest.approx(run.measures._asdict())
    assert read({name: value for name, value in run.row().items() if value != ""}).conditions == conditions


def test_a_twin_begins_with_as_many_replicas_as_the_live_run() -> None:
    """A longer service time would make a slice begin with one more."""
    conditions = Conditions(experiment=WORKLOAD_1, scaler="linear", from_s=420.0, seconds=110.0)
    assert {options_of(conditions, ms, 1).initial_replicas for ms in (5.0, 6.0)} == {3}


# --- cells -----------------------------------------------------------------------------------------------------------


def live_at(**changes: object) -> list[live.LiveRun]:
    measures = Measures(slo_share=0.98, replica_minutes=31.0, added=6, removed=5, up_actions=4, down_actions=3)
    conditions = Conditions(**{"experiment": WORKLOAD_1, "scaler": "linear", **changes})  # type: ignore[arg-type]
    return [live.LiveRun(conditions, 1, "VALID", 0.01, 5.3, measures)]


def test_a_live_cell_tells_its_slice_unless_it_is_the_whole_workload() -> None:
    assert cell(live_at(), "slo_share") == "98.00 %"
    assert cell(live_at(seconds=420.0), "replica_minutes") == "31.00 in seconds 0–420"
    assert (cell(live_at(), "added"), cell(live_at(), "up_actions")) == ("6 / 5", "4 / 3")
    assert cell(live_at(), "slo_share", "replica_minutes") == "98.00 %, 31.00"


def test_runs_of_the_whole_workload_go_before_those_of_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    piece, whole, on_pods = live_at(seconds=110.0), live_at(), live_at(world="kubernetes")
    monkeypatch.setattr(live, "LIVE", [*piece, *on_pods])
    assert runs_of(WORKLOAD_1, "linear") == piece
    monkeypatch.setattr(live, "LIVE", [*piece, *whole, *on_pods])
    assert runs_of(WORKLOAD_1, "linear") == whole
    assert runs_of(WORKLOAD_1, "linear", heartbeat_s=3.0) == runs_of(NYC, "linear") == []


def test_only_what_the_paper_prints_is_missing_when_it_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIVE", [])
    printed = Case(experiment=WORKLOAD_1, scaler="binpack", rebalance_time_s=2.0, heartbeat_s=3.0)
    assert live_cell(printed, "slo_share") == live.NOT_MEASURED
    assert live_cell(Case(experiment=WORKLOAD_1, scaler="linear", heartbeat_s=0.5), "slo_share") == "–"
    assert live_cell(Case(experiment=WORKLOAD_1, scaler="linear", by_arrival=True), "slo_share") == "–"
    assert live_cell(Case(experiment=WORKLOAD_1, scaler="optimal"), "slo_share") == "sim only"


# --- README ----------------------------------------------------------------------------------------------------------

FIELDS = {
    "SLO share": "slo_share", "replica-minutes": "replica_minutes", "replicas added / removed": "added",
    "up / down actions": "up_actions",
}  # fmt: skip


def rows(table: str) -> Iterator[Mapping[str, str]]:
    """Of the README's table below its command."""
    (text,) = re.findall(rf"^`penstock paper binpack {table}`:\n\n((?:\|.*\n)+)", README, re.MULTILINE)
    titles, _, *lines = map(cells, text.splitlines())
    return (dict(zip(titles, line, strict=True)) for line in lines)


def fits(case: Case, row: Mapping[str, str]) -> bool:
    """Whether this is the row of the case, in any of the tables."""
    by_place = row.get("experiment", case.experiment) == case.experiment
    told = row.get("notified of a rebalance", row.get("notified"))
    if told is None:
        return by_place and row["scaler"] == case.label
    order = ", in order of arrival" if case.by_arrival else ""
    t_r = "" if case.rebalance_time_s is None else f"{case.rebalance_time_s:g}"
    return by_place and (case.scaler + order, notified(case), t_r) == (row["scaler"], told, row.get("t_r s", ""))


@pytest.mark.parametrize("table", ["table2", "table3", "skew", "rebalance", "heartbeat"])
def test_the_live_cells_of_the_readme_are_those_of_the_record(table: str) -> None:
    found = list(rows(table))
    assert len(found) >= 12
    for row in found:
        (case,) = (case for case in CASES[table] if fits(case, row))
        told = {"rebalance": ("slo_share", "replica_minutes"), "heartbeat": ("slo_share",)}
        fields = told.get(table) or (FIELDS[row["measure"]],)
        assert row["live"] == live_cell(case, *fields), row["scaler"]


def test_the_readme_tells_every_live_run_with_its_verdict_and_the_host() -> None:
    found = list(rows("live"))
    assert len(found) == len(LIVE)
    for row, run in zip(found, LIVE, strict=True):
        assert row["live run"].startswith(f"{run.conditions.label}: {run.conditions.scaler}")
        assert row["verdict"] == run.verdict
        assert row["share within the SLO, %"].startswith(f"{100 * run.measures.slo_share:.2f}")
        assert run.cpu_stolen is None or row["taken by the host"] == f"{100 * run.cpu_stolen:.1f} %"
