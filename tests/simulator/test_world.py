"""Whole runs in virtual time through the driver: directory, measures, verdict, report; one seed, the same bytes."""

import dataclasses
import math
import re
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from controller.journal import read_replica_events, read_ticks
from controller.scalers.linear import Linear
from experiments.catalogue import EXPERIMENTS, find_experiment
from experiments.compare import ComparisonDirectory, begin, carry_out_all
from experiments.driver import carry_out, describe, schedule_of
from experiments.experiment import Experiment, Options, fitting_scalers, parse_faults, run_spec, system_at_speed
from experiments.progress import RunProgress
from experiments.worlds import make_world
from infra.runs.kinds import known_faults
from penstock.errors import PenstockError
from penstock.fleet_kinds import fleet_kinds, kind_of
from penstock.measured import RESTART_S, START_UP_S
from penstock.results import RESULT_SCHEMA
from penstock.rundir import RunDirectory, read_lines
from penstock.runspec import Fault, FaultKind, FaultRecord, WorkerSpec
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem, System
from report.analysis.measurement import analyse, summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.page import write_report
from simulator.clock import EPOCH_NS
from simulator.engine import NOT_SIMULATED, OUTCOMES, EventTable
from simulator.world import SimWorld, check_faults, simulated_faults
from tests.experiments.steady import STEADY as STEADY_60
from tests.simulator.playing import spec_of
from tests.support.eventually import eventually

STEADY = dataclasses.replace(STEADY_60, workload="constant:rate_per_s=300,duration_s=60")
SAME_BYTES = ("schedule.parquet", "decisions.jsonl", "replicas.jsonl", "faults.jsonl", "results/part-0.parquet")


def compare(
    folder: Path, experiment: Experiment, scalers: list[str], options: Options, **more: bool
) -> ComparisonDirectory:
    directory = begin(experiment, scalers, options, 1, folder, resume=more.get("resume", False))
    with RunProgress(Console(quiet=True), runs=len(scalers)) as progress, make_world("sim", lambda _: None) as world:
        carry_out_all(world, experiment, options, directory, progress)
    return directory


def play(
    folder: Path, scaler: str, options: Options, experiment: Experiment = STEADY
) -> tuple[RunDirectory, RunSummary]:
    (finished,) = compare(folder, experiment, [scaler], options).runs()
    return finished, summary_of(RunData(finished))


def test_a_simulated_run_is_valid_without_sender_and_ledger(tmp_path: Path) -> None:
    directory, summary = play(tmp_path, "binpack-tail", Options(world="sim", seconds=30))
    assert (summary.verdict, summary.reasons) == ("VALID", ())
    assert summary.conservation.exact
    assert summary.completed_events == summary.acknowledged_events == summary.scheduled_events == 9000
    assert summary.cpu_saturation is None and summary.tick_phase_error_p99_s == 0
    assert [tick.tick for tick in read_ticks(directory) if tick.time_s < 30] == list(range(30))
    assert directory.spec().start_ns == EPOCH_NS and not directory.spec().analytics
    assert directory.manifest().machine["world"] == "sim"
    write_report([RunData(directory)], directory.report_file)
    assert "binpack-tail" in directory.report_file.read_text()
    assert msgspec.json.encode(analyse(RunData(directory))) == msgspec.json.encode(summary)


def test_a_scaler_that_decides_for_long_is_told_by_name_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.world.LONG_DECISION_S", 0.05)
    told: list[str] = []
    decide: Any = Linear.decide

    def slow(self: Any, observation: Any, state: Any) -> Any:
        if observation.time_s > 2 and not told:
            eventually(lambda: bool(told), lambda: "no line about the long decision", within_s=20)
            time.sleep(0.3)
        return decide(self, observation, state)

    monkeypatch.setattr(Linear, "decide", slow)
    directory, _ = describe(STEADY, "linear", Options(world="sim", seconds=5), tmp_path)
    with RunProgress(Console(quiet=True), runs=1) as progress:
        carry_out(SimWorld(told.append), STEADY, Options(world="sim", seconds=5), directory, progress)
    assert told == ["linear has decided on the tick at 2.1 s for more than 0.05 s"]


def test_one_seed_gives_the_same_bytes_and_another_seed_other_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A run's name tells when it was made, and its name is in every result.
    create, noon = RunDirectory.create, datetime(2026, 1, 1, 12, tzinfo=UTC)
    monkeypatch.setattr(RunDirectory, "create", lambda *run: create(*run, now=noon))

    def written(name: str, seed: int) -> list[bytes]:
        options = Options(
            world="sim",
            seconds=40,
            seed=seed,
            worker={"service_law": "exponential", "directed_rebalance": "false"},
            faults=parse_faults(["kill-worker@10", "freeze-workers@20+5", "blind-monitor@30+3"]),
        )
        directory, _ = play(tmp_path / name, "binpack-tail", options)
        return [(directory.path / file).read_bytes() for file in SAME_BYTES]

    first = written("a", 1)
    assert first == written("b", 1)
    assert first != written("c", 2)


def test_wall_clock_leaves_no_trace_in_decisions(tmp_path: Path) -> None:
    directory, _ = play(tmp_path, "linear", Options(world="sim", seconds=5))
    for tick in read_ticks(directory):
        assert (tick.observe_us, tick.decide_us, tick.act_us, tick.skipped) == (0, 0, 0, 0)
        assert tick.at_ns - EPOCH_NS == pytest.approx(tick.time_s * 1e9, abs=1)
    assert min(event.at_ns for event in read_replica_events(directory)) == EPOCH_NS


def test_speed_divides_every_duration(tmp_path: Path) -> None:
    _, slow = play(tmp_path, "linear", Options(world="sim", seconds=40))
    _, fast = play(tmp_path, "linear", Options(world="sim", seconds=40, speed=4.0))
    assert fast.scheduled_events == slow.scheduled_events
    assert fast.replica_minutes == pytest.approx(slow.replica_minutes / 4, rel=1e-6)
    assert fast.latency.p99_s == pytest.approx(slow.latency.p99_s / 4, rel=1e-3)  # type: ignore[operator]
    assert fast.slo_share == pytest.approx(slow.slo_share, abs=1e-3)


def test_faults_are_written_down_and_nothing_is_lost(tmp_path: Path) -> None:
    faults = parse_faults(["kill-worker@6", "freeze-workers@15+5"])
    directory, summary = play(tmp_path, "overprovision", Options(world="sim", seconds=30, faults=faults))
    records = list(read_lines(directory.faults_file, FaultRecord))
    assert [(record.kind, record.at_ns - EPOCH_NS) for record in records] == [
        ("kill-worker", 6_000_000_000), ("freeze-workers", 15_000_000_000)
    ]  # fmt: skip
    assert summary.conservation.exact and summary.conservation.lost == 0
    assert summary.latency.max_s is not None and summary.latency.max_s > 4.9


def test_a_fault_that_cannot_be_simulated_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(
        PenstockError, match=r"stop-gateway@3\+2: .* knows blind-monitor, .*; its gateway has no process"
    ):
        play(
            tmp_path,
            "linear",
            Options(world="sim", seconds=10, faults=parse_faults(["kill-worker@1", "stop-gateway@3+2"])),
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [StreamSystem, QueueSystem, FunctionSystem, NetworkSystem])
def test_what_is_refused_beforehand_is_what_the_engine_would_refuse(kind: type[msgspec.Struct], tmp_path: Path) -> None:
    experiment = next(each for each in EXPERIMENTS.values() if type(each.system) is kind)
    options = Options(world="sim", seconds=experiment.seconds / 20)
    scaler = fitting_scalers(experiment)[0]
    beforehand, when_due = set(), set()
    for fault in [Fault(name, 1.0, 1.0) for name in get_args(FaultKind)]:
        directory, spec = describe(experiment, scaler, options, tmp_path)
        schedule_of(experiment, options, spec).write(directory.schedule_file)
        try:
            check_faults(experiment.system, [fault])
        except PenstockError:
            beforehand.add(fault.kind)
        with SimWorld() as world:
            world.prepare(spec, directory)
            world.run.start()
            world.run.wait_until(1.0)
            try:
                world.run.inject(fault)
            except PenstockError:
                when_due.add(fault.kind)
    assert beforehand == when_due
    assert set(get_args(FaultKind)) > beforehand >= {"kill-gateway", "stop-gateway"}


@pytest.mark.parametrize("kind", [StreamSystem, QueueSystem, FunctionSystem, NetworkSystem])
def test_each_fault_of_a_live_run_is_simulated_or_refused_with_its_reason(kind: type[System]) -> None:
    for system in {each.name: each.system for each in EXPERIMENTS.values() if type(each.system) is kind}.values():
        live, simulated = set(known_faults(system, "local")), simulated_faults(system)
        assert simulated <= live
        for name in live - simulated:
            with pytest.raises(PenstockError, match=re.escape(NOT_SIMULATED[name])):
                check_faults(system, [Fault(name, 1.0)])
        assert {"kill-worker", "freeze-workers", "stop-broker", "kill-controller", "blind-monitor"} <= simulated
        if kind is not FunctionSystem:
            assert live == simulated


@pytest.mark.parametrize("faults_of", [simulated_faults, lambda system: known_faults(system, "local")])
def test_a_part_that_a_system_lacks_has_no_faults(faults_of: Callable[[System], Collection[str]]) -> None:
    pulling, pushing = QueueSystem(service_rate_per_s=1, forwarding="pull"), QueueSystem(service_rate_per_s=1)
    assert set(faults_of(pushing)) - set(faults_of(pulling)) == {"kill-forwarder"}


# --- a killed controller ---------------------------------------------------------------------------------------------


def test_a_killed_controller_continues_from_its_snapshot_with_the_ticks_missed(tmp_path: Path) -> None:
    plain, _ = play(tmp_path / "plain", "linear", Options(world="sim", seconds=40))
    options = Options(world="sim", seconds=40, faults=parse_faults(["kill-controller@20.5", "kill-controller@20.6"]))
    directory, summary = play(tmp_path / "killed", "linear", options)
    ticks = list(read_ticks(directory))
    assert [tick.decisions for tick in ticks if tick.tick <= 20] == [
        tick.decisions for tick in read_ticks(plain) if tick.tick <= 20
    ]
    (after,) = [tick for tick in ticks if tick.skipped]
    assert after.tick == math.floor(20.5 + RESTART_S - 0.1)
    assert after.skipped == after.tick - 21
    assert after.observation.last_scale_s is not None, "the run had scaled before"
    assert summary.conservation.exact
    hits = [record.hit for record in read_lines(directory.faults_file, FaultRecord)]
    assert hits == [True, False], "the second meets a controller that does not run"


def test_decisions_wait_for_space_on_a_full_disk_and_none_is_missing(tmp_path: Path) -> None:
    plain, _ = play(tmp_path / "plain", "linear", Options(world="sim", seconds=40))
    options = Options(world="sim", seconds=40, faults=parse_faults(["fill-disk@10.5+5"]))
    directory, summary = play(tmp_path / "full", "linear", options)
    assert [tick.decisions for tick in read_ticks(directory)] == [tick.decisions for tick in read_ticks(plain)]
    assert summary.faults[0].hit and summary.conservation.exact


def test_a_controller_that_is_killed_on_a_full_disk_goes_on_from_before_it_and_counts_what_is_lost(
    tmp_path: Path,
) -> None:
    options = Options(world="sim", seconds=40, faults=parse_faults(["fill-disk@10.5+8", "kill-controller@15.5"]))
    directory, summary = play(tmp_path, "linear", options)
    ticks = list(read_ticks(directory))
    (after,) = [tick for tick in ticks if tick.skipped]
    assert [tick.tick for tick in ticks if tick.time_s < 15.5] == list(range(11))
    assert after.skipped == after.tick - 11, "the decisions that were never written count as missed"
    assert summary.missed_ticks == after.skipped
    assert summary.conservation.exact


def test_the_disk_of_a_controller_that_does_not_run_cannot_be_full(tmp_path: Path) -> None:
    options = Options(world="sim", seconds=20, faults=parse_faults(["kill-controller@10.5", "fill-disk@10.6+2"]))
    directory, _ = play(tmp_path, "linear", options)
    assert [record.hit for record in read_lines(directory.faults_file, FaultRecord)] == [True, False]


@pytest.mark.parametrize("kind", [StreamSystem, QueueSystem, FunctionSystem, NetworkSystem])
@pytest.mark.parametrize(
    "fault", ["stop-broker@10+4", "restart-redis@10+4", "cut-workers@10+4", "kill-forwarder@10", "kill-controller@10"]
)
def test_nothing_is_lost_in_a_simulated_fault(kind: type[System], fault: str, tmp_path: Path) -> None:
    experiment = next(each for each in EXPERIMENTS.values() if type(each.system) is kind)
    (parsed,) = parse_faults([fault])
    if parsed.kind not in simulated_faults(experiment.system):
        pytest.skip("refused")
    scaler = fitting_scalers(experiment)[0]
    speed = 60.0 if kind is NetworkSystem else 1.0  # its jobs take minutes
    fault_of_speed = Fault(parsed.kind, parsed.at_s * speed, parsed.seconds * speed)
    options = Options(world="sim", seconds=25 * speed, speed=speed, faults=(fault_of_speed,))
    directory, summary = play(tmp_path, scaler, options, experiment)
    assert summary.conservation.exact and summary.conservation.in_flight == 0
    if parsed.kind == "restart-redis":
        finished_s = (RunData(directory).completions().finished_ns - EPOCH_NS) / 1e9
        assert not np.any((finished_s > 10) & (finished_s < 14)), "nothing is finished while it cannot be booked"
        assert summary.faults[0].hit


def test_a_consumer_group_gets_nothing_from_a_broker_that_is_away(tmp_path: Path) -> None:
    options = Options(world="sim", seconds=30, faults=parse_faults(["stop-broker@10+5", "kill-worker@12"]))
    directory, summary = play(tmp_path, "overprovision", options)
    assert summary.conservation.exact
    finished_s = (RunData(directory).completions().finished_ns - EPOCH_NS) / 1e9
    assert not np.any((finished_s > 10) & (finished_s < 15))
    away = [tick.observation for tick in read_ticks(directory) if 10 < tick.time_s < 15]
    assert len(away) == 5
    assert all(seen.backlog is None and "stopped" in " ".join(seen.unknown.values()) for seen in away)


def test_a_workload_that_cannot_be_played_ends_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    missing = tmp_path / "missing.csv"
    experiment = replace(STEADY, workload=f"trace:path={missing}")
    with pytest.raises(PenstockError, match=f"^{missing}: no such trace file"):
        compare(tmp_path, experiment, ["linear"], Options(world="sim", seconds=10))
    assert not list(tmp_path.iterdir())


def test_events_that_cannot_be_finished_are_in_flight_and_said_so(tmp_path: Path) -> None:
    experiment = Experiment(
        name="frozen", title="Too slow for ever", paper="none", workload="constant:rate_per_s=10,duration_s=20",
        seconds=20, partitions=1, max_replicas=1, worker=WorkerSpec(service_time_s=45.0),
    )  # fmt: skip
    _, summary = play(tmp_path, "overprovision", Options(world="sim"), experiment)
    assert summary.verdict == "DEGRADED"
    assert summary.conservation.in_flight == summary.scheduled_events - summary.completed_events > 0
    assert summary.conservation.exact


def test_optimal_knows_the_future_in_the_sim_world_only(tmp_path: Path) -> None:
    experiment = find_experiment("binpack-workload-1")
    _, summary = play(tmp_path, "optimal", Options(world="sim"), experiment)
    assert summary.replica_minutes == pytest.approx(32.65, abs=0.1)  # the formula alone, specification 4.10
    assert (summary.scale.replicas_added, summary.scale.replicas_removed) == (6, 6)
    assert summary.slo_share is not None and summary.slo_share > 0.999
    assert summary.conditions["scaler.parameters.rates_per_s"] == "600 values"
    with pytest.raises(PenstockError, match="--world sim"):
        run_spec(experiment, "optimal", Options(), run="none")


def test_optimal_plays_a_slice_at_speed(tmp_path: Path) -> None:
    experiment = find_experiment("binpack-workload-1")
    _, slow = play(tmp_path, "optimal", Options(world="sim", from_s=100, seconds=200), experiment)
    _, fast = play(tmp_path, "optimal", Options(world="sim", from_s=100, seconds=200, speed=2.0), experiment)
    assert fast.replica_minutes == pytest.approx(slow.replica_minutes / 2, rel=0.01)
    assert slow.scale.replicas_added > 0


def test_a_comparison_plays_one_schedule_and_resumes(tmp_path: Path) -> None:
    options = Options(world="sim", seconds=20)
    first = compare(tmp_path, STEADY, ["binpack-tail", "linear"], options)
    schedules = {(run.path / "schedule.parquet").read_bytes() for run in first.runs()}
    assert len(first.runs()) == 2 and len(schedules) == 1
    again = compare(tmp_path, STEADY, ["binpack-tail", "linear"], options, resume=True)
    assert again.path == first.path
    assert [run.path for run in again.runs()] == [run.path for run in first.runs()]
    write_report(list(map(RunData, first.runs())), first.report_file)
    assert "linear" in first.report_file.read_text()


def test_a_world_without_a_run_says_so() -> None:
    with SimWorld() as world, pytest.raises(PenstockError, match="prepare one first"):
        world.run.start()


@pytest.mark.parametrize("scaler", ["keda-kafka", "linear", "binpack-tail", "kpa"])
def test_a_consumer_group_scales_from_zero(tmp_path: Path, scaler: str) -> None:
    options = Options(world="sim", from_s=420, seconds=40, initial_replicas=0)
    directory, summary = play(tmp_path, scaler, options, find_experiment("binpack-workload-1"))
    first = next(event for event in read_replica_events(directory) if event.phase == "joined")
    assert first.at_ns - EPOCH_NS > START_UP_S * 1e9, "nobody is there before the first decision and a start-up"
    assert (summary.conservation.lost, summary.conservation.in_flight) == (0, 0)
    assert summary.completed_events == summary.scheduled_events > 5000


def test_jobs_that_a_scaler_lets_wait_for_minutes_are_waited_for_after_the_load(tmp_path: Path) -> None:
    settings = {"newsvendor-network": {"min_replicas": "0", "slo_share": "0.99"}}
    options = Options(world="sim", seconds=600, settings=settings)
    _, summary = play(tmp_path, "newsvendor-network", options, find_experiment("pubsub-growing"))
    assert (summary.verdict, summary.reasons) == ("VALID", ())
    assert summary.completed_events == summary.scheduled_events > 20


def test_a_simulated_replica_can_be_given_a_start_up(tmp_path: Path) -> None:
    experiment = find_experiment("binpack-workload-1")
    options = Options(world="sim", from_s=420, seconds=110, speed=2.0, system={"start_up_s": "1.2"})
    directory, summary = play(tmp_path, "linear", options, experiment)
    assert directory.spec().system == system_at_speed(StreamSystem(start_up_s=1.2), 2.0)
    life = {(event.replica, event.phase): event.at_ns for event in read_replica_events(directory)}
    newcomer = f"payments-{directory.spec().initial_replicas + 1}"
    assert summary.scale.replicas_added > 0
    assert life[newcomer, "joined"] - life[newcomer, "requested"] == 600_000_000
    with pytest.raises(PenstockError, match=r"system\.startup"):
        run_spec(experiment, "linear", Options(world="sim", system={"startup": "1"}), run="none")


def test_what_a_monitor_reads_and_the_turns_of_partitions_can_be_set(tmp_path: Path) -> None:
    experiment = find_experiment("binpack-workload-1")
    given = {"batch": "50", "staleness_s": "0.5", "staleness_sd_s": "0.1"}
    options = Options(world="sim", from_s=420, seconds=20, speed=2.0, system=given)
    directory, stale = play(tmp_path, "binpack-tail", options, experiment)
    assert directory.spec().system == system_at_speed(StreamSystem(batch=50, staleness_s=0.5, staleness_sd_s=0.1), 2.0)
    _, fresh = play(tmp_path, "binpack-tail", Options(world="sim", from_s=420, seconds=20, speed=2.0), experiment)
    assert stale.conservation == fresh.conservation
    assert stale.latency != fresh.latency


@pytest.mark.parametrize(("name", "value"), [("batch", "-1"), ("batch", "2.5"), ("staleness_s", "-1")])
def test_an_impossible_setting_of_a_system_is_one_line(name: str, value: str) -> None:
    options = Options(world="sim", system={name: value})
    with pytest.raises(PenstockError, match=rf"^--set system\.{name}={value}: [Ee]xpected"):
        run_spec(find_experiment("binpack-workload-1"), "linear", options, run="none")


def test_every_kind_of_fleet_has_an_engine() -> None:
    systems = {kind.load("system") for kind in fleet_kinds().values()}
    assert systems == {StreamSystem, QueueSystem, FunctionSystem, NetworkSystem}
    assert all(callable(kind.load("engine")) for kind in fleet_kinds().values())
    assert kind_of(FunctionSystem(functions=(), deadline_s=1.0)).name == "function"


# --- raw results -----------------------------------------------------------------------------------------------------


def test_a_table_of_events_is_written_as_results(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(spec_of(seconds=5), start_ns=EPOCH_NS)
    table = EventTable(
        id=np.array([0, 1]),
        intended_s=np.array([0.25, 1.0]),
        sent_s=np.array([0.25, 1.0]),
        received_s=np.array([0.5, 1.0]),
        started_s=np.array([0.5, 1.0]),
        finished_s=np.array([0.75, 1.0]),
        worker=np.array([1, -1], np.int32),
        queue=np.array([0, 0], np.int32),
        outcome=np.array([0, 2], np.int8),
        stage=np.array([0, 0], np.int32),
        attempt=np.array([1, 1], np.int32),
        workers=("a", "b"),
        queues=("q",),
        stages=("work",),
        deadline_s=np.array([2.0, 2.0]),
        reason=np.array([-1, 0], np.int32),
        reasons=("full",),
    )
    table.write(tmp_path, spec)
    written = pq.read_table(tmp_path / "part-0.parquet")
    assert written.schema.equals(RESULT_SCHEMA)
    first, second = written.to_pylist()
    assert first["finished_ns"] - first["intended_ns"] == 500_000_000
    assert first["deadline_ns"] == EPOCH_NS + 2_000_000_000
    assert (first["worker"], first["queue"], first["outcome"], first["reason"]) == ("b", "q", OUTCOMES[0], "")
    assert (second["worker"], second["outcome"], second["reason"]) == ("", "rejected", "full")
    assert (first["run"], first["stage"], first["terminal"], first["broker_ns"]) == ("simulated", "work", True, None)


FAILS_LATER = """
from controller.scalers.linear import Linear


class FailsLater(Linear):
    name = "fails-later"

    def decide(self, observation, state):
        if observation.time_s > 10:
            raise RuntimeError("out of ideas")
        return super().decide(observation, state)
"""


def test_a_scaler_that_fails_in_mid_run_makes_the_run_invalid(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FAILS_LATER)
    _, summary = play(tmp_path, f"{tmp_path / 'own.py'}:FailsLater", Options(world="sim", seconds=20))
    assert summary.verdict == "INVALID"
    assert summary.scaler_failures == 10
    assert "fails-later failed on 10 of 20 ticks and held instead" in summary.reasons[0]
