"""Time to recover from a fault and its cost, on runs whose disturbance is known."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from controller.journal import ReplicasFile
from penstock.contracts import Phase, ReplicaEvent
from penstock.rundir import JsonLines, RunDirectory
from penstock.runspec import FaultKind, FaultRecord
from report.analysis.measurement import analyse
from report.analysis.run_data import RunData
from report.analysis.summary import FaultEffect
from report.page import write_report
from tests.experiments.synthetic import FLEET, START_NS, Toy, write_results, write_run

SECONDS = 40
CALM = Toy(scaler="linear", per_replica=1000.0, seconds=SECONDS)


def nanos(second: float) -> int:
    return START_NS + round(second * 1e9)


def run_with(
    tmp_path: Path,
    *faults: tuple[FaultKind, float, float, bool],
    late: tuple[float, float] = (0, 0),
    share: float = 1.0,
    replicas: tuple[tuple[Phase, float], ...] = (),
) -> RunData:
    """A calm run in which each event takes 10 ms, but a ``share`` of those intended in ``late`` is a second late."""
    directory = write_run(tmp_path, CALM)
    table = pq.read_table(directory.results_folder / "part-0.parquet", columns=["id", "intended_ns"])
    ids, intended = (np.asarray(table[name].to_numpy(), dtype=np.int64) for name in table.column_names)
    offset_s = (intended - START_NS) / 1e9
    slow = (offset_s >= late[0]) & (offset_s < late[1]) & (np.arange(len(ids)) % round(1 / share) == 0)
    finished = intended + np.where(slow, 1_000_000_000, 10_000_000)
    write_results(directory, ids, intended, intended, finished - 5_000_000, finished)
    lines = JsonLines(directory.faults_file)
    for kind, at_s, seconds, hit in faults:
        lines.append(FaultRecord(kind=kind, at_ns=nanos(at_s), seconds=seconds, detail="it", hit=hit))
    lines.close()
    directory.replicas_file.unlink()
    events = [ReplicaEvent(FLEET, "payments-0", phase, nanos(-3)) for phase in ("requested", "joined")]
    file = ReplicasFile(directory)
    file.append([*events, *(ReplicaEvent(FLEET, "payments-0", phase, nanos(at_s)) for phase, at_s in replicas)])
    file.close()
    return RunData(RunDirectory(directory.path))


def effects(run: RunData) -> tuple[FaultEffect, ...]:
    return analyse(run).faults


def test_a_run_without_faults_has_no_effects(tmp_path: Path) -> None:
    assert effects(run_with(tmp_path)) == ()


def test_a_fault_that_disturbs_nothing_costs_nothing(tmp_path: Path) -> None:
    (effect,) = effects(run_with(tmp_path, ("kill-worker", 10.0, 0.0, True)))
    assert (effect.slo_recovery_s, effect.replicas_recovery_s) == (0.0, 0.0)
    assert (effect.late_events, effect.missing_replica_s) == (0, 0.0)


def test_recovery_ends_with_the_last_late_event_of_the_disturbance(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("stop-broker", 10.0, 4.0, True), late=(10, 16))
    (effect,) = effects(run)
    arrivals = run.arrivals_per_s
    assert effect.slo_recovery_s == pytest.approx(5.0, abs=1e-3)  # events come in bursts at whole seconds: 10 … 15
    assert effect.late_events == int(arrivals[10:16].sum())


def test_one_event_in_a_hundred_is_no_disturbance(tmp_path: Path) -> None:
    (few,) = effects(run_with(tmp_path / "few", ("kill-worker", 10.0, 0.0, True), late=(10, 14), share=0.005))
    (more,) = effects(run_with(tmp_path / "more", ("kill-worker", 10.0, 0.0, True), late=(10, 14), share=0.1))
    assert few.slo_recovery_s == 0.0
    assert more.slo_recovery_s is not None and more.slo_recovery_s > 2.5


@pytest.mark.parametrize(("begins_s", "belongs"), [(12.0, True), (15.0, False)])
def test_what_begins_later_than_three_seconds_after_a_fault_is_not_of_it(
    tmp_path: Path, begins_s: float, belongs: bool
) -> None:
    run = run_with(tmp_path, ("kill-worker", 10.0, 0.0, True), late=(begins_s, begins_s + 2))
    (effect,) = effects(run)
    assert (effect.slo_recovery_s == begins_s + 1 - 10.0) is belongs
    assert (effect.late_events > 0) is belongs


def test_the_end_of_a_lasting_fault_counts_and_not_its_beginning(tmp_path: Path) -> None:
    (effect,) = effects(run_with(tmp_path, ("blind-monitor", 10.0, 6.0, True), late=(18, 20)))
    assert effect.slo_recovery_s == pytest.approx(9.0)


def test_a_fault_from_which_the_run_does_not_recover(tmp_path: Path) -> None:
    (effect,) = effects(run_with(tmp_path, ("kill-worker", 30.0, 0.0, True), late=(30, SECONDS)))
    assert effect.slo_recovery_s is None
    assert effect.late_events > 0


def test_replicas_are_missing_from_the_respawn_to_the_join(tmp_path: Path) -> None:
    lost: tuple[tuple[Phase, float], ...] = (("gone", 10.2), ("requested", 10.2), ("started", 10.3), ("joined", 12.7))
    (effect,) = effects(run_with(tmp_path, ("kill-worker", 10.0, 0.0, True), replicas=lost))
    assert effect.replicas_recovery_s == pytest.approx(2.7)
    assert effect.missing_replica_s == pytest.approx(2.5)


def test_events_of_two_faults_are_counted_once(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("kill-worker", 10.0, 0.0, True), ("stop-broker", 13.0, 1.0, True), late=(10, 16))
    first, second = effects(run)
    assert first.slo_recovery_s == pytest.approx(5.0)
    assert second.slo_recovery_s == pytest.approx(2.0)
    # The burst at second 13 lies within one SLO before the second fault and at it: both had a hand in it.
    arrivals = run.arrivals_per_s
    assert first.late_events == int(arrivals[10:14].sum())
    assert second.late_events == int(arrivals[13:16].sum())


def test_a_fault_without_an_effect_has_no_recovery_and_bounds_no_other(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("kill-worker", 10.0, 0.0, True), ("kill-worker", 10.1, 0.0, False), late=(10, 13))
    hit, missed = effects(run)
    assert hit.late_events == int(run.arrivals_per_s[10:13].sum())
    assert not missed.hit
    assert (missed.slo_recovery_s, missed.late_events) == (None, 0)


def test_the_report_shows_time_to_recover_and_cost(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("kill-worker", 10.0, 0.0, True), ("kill-controller", 20.0, 0.0, False), late=(10, 13))
    late = analyse(run).faults[0].late_events
    page = tmp_path / "report.html"
    write_report([RunData(run.directory)], page)
    text = page.read_text()
    assert "within SLO again" in text
    assert "no effect" in text
    assert f">{late:,}<" in text


def test_an_older_summary_has_no_faults(tmp_path: Path) -> None:
    summary: dict[str, Any] = msgspec.to_builtins(analyse(run_with(tmp_path)))
    del summary["faults"]
    assert msgspec.convert(summary, type=type(analyse(run_with(tmp_path)))).faults == ()
