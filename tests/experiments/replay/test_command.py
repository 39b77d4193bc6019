"""A replay is what compare would have measured, on the arrivals that were recorded."""

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from controller.scalers import linear
from experiments.binpack.experiments import EXPERIMENTS
from experiments.compare import begin, carry_out_all
from experiments.experiment import Options
from experiments.progress import RunProgress
from experiments.replay.plan import (
    MADE_FOR_OTHER_FLEETS,
    default_scalers,
    exact_schedule,
    make_plan,
)
from experiments.replay.request import TraceRequest
from experiments.replay.trace import key_hash
from penstock.command import build
from penstock.errors import EXIT_MISSED, PenstockError
from penstock.rundir import RunDirectory
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from producers.workloads import parse_workload
from producers.workloads.contract import rates_per_s
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from simulator.world import SimWorld

Invoke = Callable[..., Result]
RatesFile = Callable[[Iterable[float]], Path]
MEASURED = ("slo_share", "replica_minutes", "money", "rebalances", "scale", "completed_events", "latency", "mean")


@pytest.fixture
def replay(runs: Path) -> Invoke:
    def invoke(*arguments: str | Path) -> Result:
        return CliRunner().invoke(build(), ["replay", *map(str, arguments)])

    return invoke


def run_of(result: Result, runs: Path) -> RunDirectory:
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    (run,) = json.loads(result.stdout)["runs"]
    return RunDirectory.open(runs / run["run"])


def plan_of(trace: Path, folder: Path, **asked: Any) -> Any:
    return make_plan(TraceRequest(trace=trace, slo=0.5, **asked), folder)


# --- the same as compare ---------------------------------------------------------------------------------------------


def test_workload_1_as_a_csv_file_comes_out_as_in_compare(
    tmp_path: Path, runs: Path, replay: Invoke, rates_file: RatesFile
) -> None:
    seconds = 60
    experiment = next(each for each in EXPERIMENTS if each.name == "binpack-workload-1")
    options = Options(world="sim", seconds=float(seconds), seed=7)
    directory = begin(experiment, ["binpack-tail"], options, 1, tmp_path / "compared", resume=False)
    with SimWorld() as world:
        carry_out_all(world, experiment, options, directory, RunProgress(Console(file=io.StringIO()), runs=2))
    (compared,) = map(summary_of, map(RunData, directory.runs()))

    path = rates_file(rates_per_s(parse_workload("binpack-workload-1"))[:seconds])
    conditions = "--slo 500ms --arrivals burst --initial-replicas 1 --seed 7 --scaler binpack-tail --json"
    replayed = summary_of(RunData(run_of(replay(path, *conditions.split()), runs)))
    assert replayed.completed_events > 1000
    for measure in MEASURED:
        assert getattr(replayed, measure) == getattr(compared, measure), measure


def test_its_directory_can_be_reported_again(runs: Path, replay: Invoke, rates_file: RatesFile) -> None:
    run = run_of(replay(rates_file([100.0] * 8), "--slo", "500ms", "--scaler", "linear", "--json"), runs)
    assert "linear" in run.report_file.read_text("utf-8")
    run.report_file.unlink()
    again = CliRunner().invoke(build(), ["report", str(run.path)])
    assert again.exit_code == 0, again.output
    assert run.report_file.is_file()


@pytest.mark.parametrize(("kept", "code"), [("0.01", 0), ("1", EXIT_MISSED)])
def test_a_replay_below_the_threshold_ends_with_99(
    runs: Path, replay: Invoke, rates_file: RatesFile, kept: str, code: int
) -> None:
    few = ("--scaler", "linear", "--initial-replicas", "1", "--max-replicas", "1")
    done = replay(rates_file([50.0] * 8 + [320.0] * 4), "--slo", "100ms", *few, "--fail-under", kept, "--json")
    assert done.exit_code == code, done.output
    assert json.loads(done.stdout)["exit_code"] == code
    (run,) = runs.glob("*/verdict.json")
    assert json.loads(run.read_text())["fail_under"] == float(kept)


# --- arrivals --------------------------------------------------------------------------------------------------------


def test_recorded_timestamps_are_the_arrivals_of_the_run(tmp_path: Path, runs: Path, replay: Invoke) -> None:
    times = np.sort(np.random.default_rng(5).uniform(0.0, 6.0, 700)).round(6)
    path = tmp_path / "events.csv"
    path.write_text("timestamp\n" + "".join(f"{time_s:.6f}\n" for time_s in times), encoding="utf-8")
    run = run_of(replay(path, "--slo", "500ms", "--scaler", "linear", "--json"), runs)
    schedule = Schedule.read(run.schedule_file)
    np.testing.assert_allclose(schedule.intended_offset_ns / 1e9, times, atol=2e-9)
    assert run.spec().workload["arrivals"] == "as recorded"
    assert set(schedule.partition.tolist()) == {0, 1, 2, 3, 4}


def test_timestamps_take_the_weights_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("timestamp\n" + "".join(f"{event / 1000}\n" for event in range(8000)), encoding="utf-8")
    schedule = exact_schedule(plan_of(path, tmp_path, skew="3,1"), 1)
    assert schedule is not None
    assert np.bincount(schedule.partition) / 8000 == pytest.approx([0.75, 0.25], abs=0.02)


def test_recorded_partitions_are_those_of_the_run_and_more_may_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("timestamp,partition\n" + "".join(f"{i / 100},{i % 3}\n" for i in range(900)), encoding="utf-8")
    for partitions, expected in ((None, 3), (5, 5)):
        plan = plan_of(path, tmp_path, partitions=partitions)
        assert plan.experiment.partitions == expected
        schedule = exact_schedule(plan, 1)
        assert schedule is not None
        assert schedule.partition.tolist() == [i % 3 for i in range(900)]
    for options, said in (({"partitions": 2}, "events on partition 2; say 3"), ({"skew": "1"}, "tells what comes")):
        with pytest.raises(PenstockError, match=said):
            plan_of(path, tmp_path, **options)


def test_events_of_a_key_stay_together_on_any_number_of_partitions(tmp_path: Path) -> None:
    keys = np.random.default_rng(3).integers(0, 40, 2000)
    path = tmp_path / "events.csv"
    path.write_text(
        "timestamp,key\n" + "".join(f"{i / 500},account-{key}\n" for i, key in enumerate(keys)), encoding="utf-8"
    )
    for partitions in (4, 9):
        schedule = exact_schedule(plan_of(path, tmp_path, partitions=partitions), 1)
        assert schedule is not None
        held = [set(schedule.partition[keys == key].tolist()) for key in range(40)]
        assert all(len(each) == 1 for each in held)
        assert set.union(*held) == set(range(partitions))
    drawn = exact_schedule(plan_of(path, tmp_path, partitions=4, arrivals="uniform"), 1)
    assert drawn is not None
    recorded = np.bincount([key_hash(f"account-{key}") % 4 for key in keys], minlength=4)
    assert np.bincount(drawn.partition, minlength=4) == pytest.approx(recorded, rel=0.15)


def test_one_key_that_is_too_much_for_a_replica_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("timestamp,key\n" + "".join(f"{i / 400},hot\n" for i in range(4000)), encoding="utf-8")
    (hot,) = plan_of(path, tmp_path, partitions=4).hot
    assert (hot.partition, hot.rate_per_s) == (key_hash("hot") % 4, pytest.approx(400.0))


def test_columns_of_partitions_shape_each_second_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "parts.csv"
    path.write_text("p0,p1\n" + "2000,0\n0,500\n1000,3000\n", encoding="utf-8")
    schedule = exact_schedule(plan_of(path, tmp_path, arrivals="uniform"), 1)
    assert schedule is not None
    second = schedule.intended_offset_ns // 10**9
    first, middle, last = (np.bincount(schedule.partition[second == each], minlength=2) for each in range(3))
    assert first.tolist() == [2000, 0]
    assert middle.tolist() == [0, 500]
    assert last.sum() == 4000 and last[0] == pytest.approx(1000, abs=120)


def test_plain_rates_leave_the_arrivals_to_the_schedule_of_every_experiment(
    tmp_path: Path, rates_file: RatesFile
) -> None:
    assert exact_schedule(plan_of(rates_file([5.0]), tmp_path), 1) is None


# --- what is run -----------------------------------------------------------------------------------------------------


def test_every_registered_scaler_of_a_consumer_group_is_tried_or_left_out_with_a_reason(
    tmp_path: Path, rates_file: RatesFile
) -> None:
    from penstock.contracts import StreamObservation
    from penstock.registry import is_clairvoyant, scaler_classes

    plan = plan_of(rates_file([5.0]), tmp_path)
    fitting = {name for name, kind in scaler_classes().items() if issubclass(StreamObservation, kind.fleets)}
    fitting -= {name for name in fitting if is_clairvoyant(scaler_classes()[name])}  # to compare with only
    tried = set(default_scalers(plan.experiment))
    assert tried == fitting - set(MADE_FOR_OTHER_FLEETS)
    assert tried >= {"binpack", "binpack-tail", "least-loaded", "linear", "binscale", "mwf-rscore", "hpa", "keda-kafka"}
    assert set(MADE_FOR_OTHER_FLEETS) <= fitting, "a reason for a scaler that is not there"


def test_a_scaler_of_ones_own_is_run_and_set(tmp_path: Path, runs: Path, replay: Invoke, rates_file: RatesFile) -> None:
    own = tmp_path / "own.py"
    source = Path(linear.__file__).read_text("utf-8")
    own.write_text(source.replace('name: ClassVar[str] = "linear"', 'name: ClassVar[str] = "own"'), encoding="utf-8")
    asked = ("--slo", "500ms", "--scaler", f"{own}:Linear", "--set", "own.f_up=0.5", "--json")
    spec = run_of(replay(rates_file([100.0] * 5), *asked), runs).spec()
    assert (spec.scaler.name, spec.scaler.parameters["f_up"]) == ("own", 0.5)


def test_a_replica_costs_its_price(runs: Path, replay: Invoke, rates_file: RatesFile) -> None:
    path = rates_file([100.0] * 20)
    run = run_of(replay(path, "--slo", "500ms", "--scaler", "binpack", "--price", "6", "--json"), runs)
    summary = summary_of(RunData(run))
    assert summary.money == pytest.approx(summary.replica_minutes / 60 * 6)
    assert summary.replica_minutes > 0


def test_a_slower_start_up_costs_latency(runs: Path, replay: Invoke, rates_file: RatesFile) -> None:
    path = rates_file([100.0] * 5 + [500.0] * 15)
    fast, slow = (
        summary_of(
            RunData(run_of(replay(path, "--slo", "500ms", "--scaler", "binpack", "--start-up", s, "--json"), runs))
        ).slo_share
        for s in ("0s", "5s")
    )
    assert fast is not None and slow is not None and slow < fast


def test_a_partition_hotter_than_a_replica_is_named(tmp_path: Path, rates_file: RatesFile) -> None:
    plan = plan_of(rates_file([400.0] * 20), tmp_path, skew="0.1,0.8,0.1")
    (hot,) = plan.hot
    assert (hot.partition, hot.rate_per_s, hot.service_rate_per_s) == (1, pytest.approx(320.0), pytest.approx(200.0))
    assert any("partition 1 gets 320 events/s" in warning for warning in plan.warnings)


def test_shares_that_do_not_add_up_to_one_are_told(tmp_path: Path, rates_file: RatesFile) -> None:
    trace = rates_file([100.0] * 20)
    (warning,) = plan_of(trace, tmp_path, skew="0.5,0.6").warnings
    assert warning == "--skew adds up to 1.1: each is taken as its part of that"
    assert plan_of(trace, tmp_path, skew="0.5,0.5").warnings == ()


def test_a_fleet_that_is_too_small_is_told(tmp_path: Path, rates_file: RatesFile) -> None:
    trace = rates_file([700.0] * 60)
    (warning,) = plan_of(trace, tmp_path, max_replicas=3).warnings
    assert "700 events/s, but 3 replicas serve 600 events/s at most" in warning
    assert plan_of(trace, tmp_path, max_replicas=4).warnings == ()


def test_a_hopeless_backlog_is_refused_before_anything_runs(
    tmp_path: Path, runs: Path, replay: Invoke, rates_file: RatesFile
) -> None:
    result = replay(rates_file([1e6] * 5), "--slo", "500ms", "--scaler", "linear")
    assert "4,995,000 events are left at its end: 5 replicas serve 1,000 events/s" in str(result.exception)
    assert list(runs.iterdir()) == []
    assert plan_of(rates_file([1100.0] * 60), tmp_path).hopeless == "", "a backlog that can be worked off"


def test_scalers_run_as_in_compare_and_the_line_above_the_table_says_how(replay: Invoke, rates_file: RatesFile) -> None:
    result = replay(rates_file([100.0] * 20), "--slo", "500ms", "--scaler", "binpack")
    assert "Parameters: binpack: hold_s 10, f_up 0.9, f_down 0.4, decision_interval_s 1" in result.output
    assert "start-up 1.2 s, rebalance 0.03 s" in result.output


def test_what_is_set_of_the_fleet_is_what_is_planned_told_and_run(
    tmp_path: Path, runs: Path, replay: Invoke, rates_file: RatesFile
) -> None:
    settings = ["worker.service_time_s=0.012", "worker.rebalance_pause_s=0.5", "system.start_up_s=3"]
    trace = rates_file([300.0] * 60)
    plan = plan_of(trace, tmp_path, settings=settings)
    assert plan.experiment.initial_replicas == 5, "83 events/s a replica"
    (hot, *_) = plan_of(rates_file([500.0] * 60), tmp_path, settings=settings).hot
    assert hot.service_rate_per_s == pytest.approx(1 / 0.012)
    words = [word for each in settings for word in ("--set", each)]
    result = replay(rates_file([300.0] * 20), "--slo", "500ms", "--scaler", "rps", *words, "--json")
    spec = run_of(result, runs).spec()
    assert "12 ms an event (83.3333 events/s a replica), 5 to start with" in result.stderr
    assert "start-up 3 s, rebalance 0.53 s" in result.stderr
    assert (spec.worker.service_time_s, spec.worker.rebalance_pause_s) == (0.012, 0.5)
    assert isinstance(spec.system, StreamSystem) and spec.system.start_up_s == 3.0
    assert spec.scaler.parameters["service_rate_per_s"] == pytest.approx(1 / 0.012)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--slo 0", "--slo 0: has to be more than 0"),
        ("--slo 2ms", "cannot be met by any number of replicas"),
        ("--slo 500ms --scaler multiqueue", "multiqueue scales queue fleets"),
        ("--slo 500ms --scaler binpak", "did you mean binpack"),
        ("--slo 500ms --scaler linear --set linear.f_upp=1", "unknown parameter 'linear.f_upp'"),
        ("--slo 500ms --scaler hpa --set linear.f_up=0.8", "it is not among those that are run: hpa"),
        ("--slo 500ms --skew 0.5,x", "expected a share for each partition"),
        ("--slo 500ms --skew 0.5,0.5 --partitions 3", "there are 2 shares in --skew"),
        ("--slo 500ms --per hour", "choose second or minute"),
        ("--slo 500ms --share 99", "a share of the events between 0 and 1"),
        ("--slo 500ms --share 1", "--share 1: a share of the events between 0 and 1"),
        ("--slo 20ms --set worker.service_time_s=0.03", "below the service time of 30ms"),
        ("--slo 500ms --set worker.service_time_s=0", "--set worker.service_time_s=0: has to be more than 0"),
        ("--slo 500ms --partitions 0", "has to be at least 1"),
        ("--slo 500ms --partitions 100000000", "at most 32,767"),
        ("--slo 500ms --initial-replicas 9", "--initial-replicas 9: --max-replicas is 5"),
        ("--slo 500ms --price nan", "the price of a replica for an hour"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_leaves_nothing_behind(
    runs: Path, replay: Invoke, arguments: str, said: str, rates_file: RatesFile
) -> None:
    scaler = () if "--scaler" in arguments else ("--scaler", "linear")
    result = replay(rates_file([10.0] * 3), *arguments.split(), *scaler)
    assert isinstance(result.exception, PenstockError), result.output
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert list(runs.glob("*")) == []


def test_the_summary_of_a_replay_is_that_of_any_run(runs: Path, replay: Invoke, rates_file: RatesFile) -> None:
    run = run_of(replay(rates_file([100.0] * 5), "--slo", "500ms", "--scaler", "linear", "--json"), runs)
    summary = msgspec.json.decode(run.summary_file.read_bytes(), type=RunSummary)
    assert summary.verdict == "VALID"
    assert summary.conservation.exact and summary.completed_events == summary.scheduled_events
