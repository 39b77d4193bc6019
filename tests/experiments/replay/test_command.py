"""A replay is what compare would have measured, on the arrivals that were recorded, and its advice follows from it."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from experiments.binpack.experiments import EXPERIMENTS
from experiments.compare import ComparisonDirectory, begin, carry_out_all
from experiments.experiment import Options
from experiments.progress import RunProgress
from experiments.replay.plan import (
    MADE_FOR_OTHER_FLEETS,
    default_scalers,
    duration_s,
    exact_schedule,
    make_plan,
)
from experiments.replay.request import ReplayRequest
from experiments.replay.table import Advice, Row, advise
from experiments.replay.trace import key_hash
from penstock.command import build
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.schedule import Schedule
from producers.workloads import parse_workload
from producers.workloads.contract import rates_per_s
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from simulator.world import SimWorld

Invoke = Callable[..., Result]
PENSTOCK = Path(sys.executable).with_name("penstock")
MEASURED = ("slo_share", "replica_minutes", "money", "rebalances", "scale", "completed_events", "latency", "mean")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("PENSTOCK_RUNS", str(folder))
    return folder


@pytest.fixture
def replay(runs: Path) -> Invoke:
    def invoke(*arguments: str | Path) -> Result:
        return CliRunner().invoke(build(), ["replay", *map(str, arguments)])

    return invoke


def rates_file(folder: Path, rates: "list[float] | np.ndarray[Any, Any]", name: str = "load.csv") -> Path:
    path = folder / name
    path.write_text("rate_per_s\n" + "".join(f"{float(rate)!r}\n" for rate in rates), encoding="utf-8")
    return path


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, f"{result.output} {result.exception!r}"
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def plan_of(trace: Path, folder: Path, **asked: Any) -> Any:
    return make_plan(ReplayRequest(trace=trace, slo="500ms", **asked), folder)


# --- the same as compare ---------------------------------------------------------------------------------------------


def test_workload_1_as_a_csv_file_comes_out_as_in_compare(tmp_path: Path, runs: Path, replay: Invoke) -> None:
    seconds = 120
    experiment = next(each for each in EXPERIMENTS if each.name == "binpack-workload-1")
    options = Options(world="sim", seconds=float(seconds), seed=7)
    directory = begin(experiment, ["binpack-tail", "linear"], options, 1, tmp_path / "compared", resume=False)
    with SimWorld() as world:
        carry_out_all(world, experiment, options, directory, RunProgress(Console(file=io.StringIO()), runs=2))
    compared = {summary.scaler: summary for summary in map(summary_of, map(RunData, directory.runs()))}

    path = rates_file(tmp_path, rates_per_s(parse_workload("binpack-workload-1"))[:seconds])
    conditions = "--slo 500ms --arrivals burst --initial-replicas 1 --seed 7 --jobs 2 --json"
    found = told(replay(path, *conditions.split(), "--scalers", "binpack-tail,linear"))
    replayed = {cell["scaler"]: summary_of(RunData(RunDirectory(runs / cell["run"]))) for cell in found["cells"]}
    assert replayed.keys() == compared.keys()
    for scaler, summary in replayed.items():
        assert summary.completed_events > 1000
        for measure in MEASURED:
            assert getattr(summary, measure) == getattr(compared[scaler], measure), (scaler, measure)


def test_its_directory_can_be_reported_again(tmp_path: Path, runs: Path, replay: Invoke) -> None:
    found = told(replay(rates_file(tmp_path, [100.0] * 8), "--slo", "500ms", "--scalers", "linear,hpa", "--json"))
    report = Path(found["report"])
    assert "linear" in report.read_text("utf-8")
    report.unlink()
    again = CliRunner().invoke(build(), ["report", found["directory"]])
    assert again.exit_code == 0, again.output
    assert report.is_file()
    assert json.loads((Path(found["directory"]) / "replay.json").read_text()) == found


def test_processes_and_one_after_the_other_measure_the_same(tmp_path: Path, replay: Invoke) -> None:
    path = rates_file(tmp_path, [150.0] * 10 + [420.0] * 10)
    asked = (path, "--slo", "500ms", "--scalers", "linear,binpack,kpa", "--json", "--jobs")
    alone, together = (told(replay(*asked, jobs))["cells"] for jobs in ("1", "3"))
    assert [{**cell, "run": ""} for cell in alone] == [{**cell, "run": ""} for cell in together]


@pytest.mark.live
def test_spark_and_local_processes_measure_the_same(tmp_path: Path, runs: Path) -> None:
    path = rates_file(tmp_path, [150.0] * 10 + [420.0] * 10)
    asked = (path, "--slo", "500ms", "--sweep", "linear.f_up=0.6,0.9", "--json", "--jobs", "2", "--engine")

    def cells(engine: str) -> list[dict[str, Any]]:
        # A process of its own: the pool forks, and what other tests left in this one does not outlive a fork.
        command = [str(PENSTOCK), "replay", *map(str, asked), engine]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout[done.stdout.index("{") :])["cells"]
        return found

    local, spark = cells("local"), cells("spark")
    assert len(local) == 2
    assert [{**cell, "run": ""} for cell in local] == [{**cell, "run": ""} for cell in spark]


# --- arrivals --------------------------------------------------------------------------------------------------------


def test_recorded_timestamps_are_the_arrivals_of_the_run(tmp_path: Path, runs: Path, replay: Invoke) -> None:
    times = np.sort(np.random.default_rng(5).uniform(0.0, 6.0, 700)).round(6)
    path = tmp_path / "events.csv"
    path.write_text("timestamp\n" + "".join(f"{time_s:.6f}\n" for time_s in times), encoding="utf-8")
    found = told(replay(path, "--slo", "500ms", "--scalers", "linear", "--json"))
    schedule = Schedule.read(RunDirectory(runs / found["cells"][0]["run"]).schedule_file)
    np.testing.assert_allclose(schedule.intended_offset_ns / 1e9, times, atol=2e-9)
    assert found["arrivals"] == "as recorded"
    assert set(schedule.partition.tolist()) == {0, 1, 2, 3, 4}


def test_timestamps_take_the_weights_of_partitions(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("timestamp\n" + "".join(f"{event / 1000}\n" for event in range(8000)), encoding="utf-8")
    schedule = exact_schedule(plan_of(path, tmp_path, skew="3,1"))
    assert schedule is not None
    assert np.bincount(schedule.partition) / 8000 == pytest.approx([0.75, 0.25], abs=0.02)


def test_recorded_partitions_are_those_of_the_run_and_more_may_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("timestamp,partition\n" + "".join(f"{i / 100},{i % 3}\n" for i in range(900)), encoding="utf-8")
    for partitions, expected in ((None, 3), (5, 5)):
        plan = plan_of(path, tmp_path, partitions=partitions)
        assert plan.experiment.partitions == expected
        schedule = exact_schedule(plan)
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
        schedule = exact_schedule(plan_of(path, tmp_path, partitions=partitions))
        assert schedule is not None
        held = [set(schedule.partition[keys == key].tolist()) for key in range(40)]
        assert all(len(each) == 1 for each in held)
        assert set.union(*held) == set(range(partitions))
    drawn = exact_schedule(plan_of(path, tmp_path, partitions=4, arrivals="uniform"))
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
    schedule = exact_schedule(plan_of(path, tmp_path, arrivals="uniform"))
    assert schedule is not None
    second = schedule.intended_offset_ns // 10**9
    first, middle, last = (np.bincount(schedule.partition[second == each], minlength=2) for each in range(3))
    assert first.tolist() == [2000, 0]
    assert middle.tolist() == [0, 500]
    assert last.sum() == 4000 and last[0] == pytest.approx(1000, abs=120)


def test_plain_rates_leave_the_arrivals_to_the_schedule_of_every_experiment(tmp_path: Path) -> None:
    assert exact_schedule(plan_of(rates_file(tmp_path, [5.0]), tmp_path)) is None


# --- what is run -----------------------------------------------------------------------------------------------------


def test_every_registered_scaler_of_a_consumer_group_is_tried_or_left_out_with_a_reason(tmp_path: Path) -> None:
    from penstock.contracts import StreamObservation
    from penstock.registry import clairvoyant_scalers, scaler_classes

    plan = plan_of(rates_file(tmp_path, [5.0]), tmp_path)
    fitting = {name for name, kind in scaler_classes().items() if issubclass(StreamObservation, kind.fleets)}
    fitting -= clairvoyant_scalers()  # nobody has one: they are there to compare with
    tried = {scaler for scaler, _ in plan.wanted}
    assert tried == set(default_scalers(plan.experiment)) == fitting - set(MADE_FOR_OTHER_FLEETS)
    assert tried >= {"binpack", "binpack-tail", "least-loaded", "linear", "binscale", "mwf-rscore", "hpa", "keda-kafka"}
    assert set(MADE_FOR_OTHER_FLEETS) <= fitting, "a reason for a scaler that is not there"


def test_sweeps_of_one_scaler_are_crossed_and_others_run_once(tmp_path: Path) -> None:
    swept = ("linear.f_up=0.7,0.9", "linear.f_down=0.3,0.4,0.5")
    plan = plan_of(rates_file(tmp_path, [5.0]), tmp_path, scalers="linear,binpack", sweep=swept)
    values = [
        (scaler, options.settings.get("linear", {}).get("f_up"), options.settings.get("linear", {}).get("f_down"))
        for scaler, options in plan.wanted
    ]
    assert values[:-1] == [("linear", up, down) for up in ("0.7", "0.9") for down in ("0.3", "0.4", "0.5")]
    assert values[-1] == ("binpack", None, None)


def test_a_combination_that_the_scaler_refuses_is_left_out_with_a_warning(tmp_path: Path) -> None:
    swept = ("linear.f_up=0.3,0.9", "linear.f_down=0.2,0.4")
    plan = plan_of(rates_file(tmp_path, [5.0]), tmp_path, sweep=swept)
    assert len(plan.wanted) == 3
    (warning,) = plan.warnings
    assert warning.startswith("left out: ") and "f_up=0.3, f_down=0.4: expected 0 < f_down < f_up < 1" in warning


def test_a_sweep_without_scalers_runs_what_is_swept(tmp_path: Path) -> None:
    plan = plan_of(rates_file(tmp_path, [5.0]), tmp_path, sweep=("kpa.target_concurrency=5,50",))
    assert [scaler for scaler, _ in plan.wanted] == ["kpa", "kpa"]


def test_swept_values_stand_in_the_cells_and_change_what_is_measured(tmp_path: Path, replay: Invoke) -> None:
    path = rates_file(tmp_path, [150.0] * 10 + [420.0] * 15)
    found = told(replay(path, "--slo", "500ms", "--sweep", "linear.f_up=0.5,0.9", "--json"))
    by_value = {cell["swept"]["linear.f_up"]: cell for cell in found["cells"]}
    assert by_value.keys() == {0.5, 0.9}
    assert by_value[0.5]["replica_minutes"] > by_value[0.9]["replica_minutes"]


def test_a_scaler_of_ones_own_runs_beside_another_that_is_set(tmp_path: Path, replay: Invoke) -> None:
    from controller.scalers import linear

    own = tmp_path / "own.py"
    source = Path(linear.__file__).read_text("utf-8")
    own.write_text(source.replace('name: ClassVar[str] = "linear"', 'name: ClassVar[str] = "own"'), encoding="utf-8")
    settings = ("--set", "own.f_up=0.5", "--set", "linear.f_up=0.8")
    path = rates_file(tmp_path, [100.0] * 5)
    found = told(replay(path, "--slo", "500ms", "--scalers", f"linear,{own}:Linear", *settings, "--json"))
    assert {cell["scaler"] for cell in found["cells"]} == {"linear", "own"}


def test_a_replica_costs_its_price(tmp_path: Path, replay: Invoke) -> None:
    path = rates_file(tmp_path, [100.0] * 20)
    found = told(replay(path, "--slo", "500ms", "--scalers", "binpack", "--price", "6", "--json"))
    (cell,) = found["cells"]
    assert cell["money"] == pytest.approx(cell["replica_minutes"] / 60 * 6)
    assert cell["replica_minutes"] > 0


def test_a_slower_start_up_costs_latency(tmp_path: Path, replay: Invoke) -> None:
    path = rates_file(tmp_path, [100.0] * 5 + [500.0] * 15)
    fast, slow = (
        told(replay(path, "--slo", "500ms", "--scalers", "binpack", "--start-up", start_up, "--json"))["cells"][0]
        for start_up in ("0s", "5s")
    )
    assert slow["slo_share"] < fast["slo_share"]


# --- advice ----------------------------------------------------------------------------------------------------------


def row(label: str, slo_share: float, money: float, *, eligible: bool = True) -> Row:
    return Row(
        label=label, scaler=label, meets=slo_share >= 0.99, eligible=eligible, verdict="VALID", slo_share=slo_share,
        p50_s=0.005, p95_s=0.05, p99_s=0.6, p99_9_s=0.7, replica_minutes=money * 100, money=money, rebalances=1, ups=1,
        downs=1, replicas_added=1, replicas_removed=1, run=label,
    )  # fmt: skip


def advice_on(*rows: Row) -> Advice:
    return advise(rows, slo_s=0.5, wanted_share=0.99)


def test_the_cheapest_that_meets_the_slo_is_advised_and_why() -> None:
    advice = advice_on(row("dear", 1.0, 2.0), row("good", 0.992, 1.0), row("cheap", 0.9, 0.5))
    assert (advice.met, advice.cell) == (True, "good")
    said = str(advice)
    assert said.startswith(
        "cheapest that meets the SLO: good, because it keeps 99.2\u00a0% of the events within 500\u00a0ms"
    )
    assert "the next, dear, costs 100.0\u00a0% more" in said
    assert "cheap costs 50.0\u00a0% less but keeps only 90.0\u00a0%" in said


def test_costs_that_hardly_differ_are_told_as_such() -> None:
    assert "another --seed may turn the two round" in str(advice_on(row("a", 1.0, 1.0), row("b", 1.0, 1.01)))


def test_where_none_meets_it_the_closest_is_named() -> None:
    advice = advice_on(row("far", 0.5, 0.1), row("near", 0.98, 3.0))
    assert (advice.met, advice.cell) == (False, "near")
    assert str(advice).startswith("none meets the SLO: closest is near, which keeps 98.0\u00a0%")


def test_what_knows_the_future_or_may_not_be_believed_is_not_advised() -> None:
    assert advice_on(row("optimal", 1.0, 0.1, eligible=False), row("real", 1.0, 1.0)).cell == "real"
    assert advice_on(row("broken", 1.0, 0.1, eligible=False)).cell is None


def test_optimal_is_shown_but_not_advised(tmp_path: Path, replay: Invoke) -> None:
    path = rates_file(tmp_path, [100.0] * 10 + [300.0] * 10)
    found = told(replay(path, "--slo", "500ms", "--scalers", "optimal,overprovision", "--json"))
    assert {cell["scaler"]: cell["eligible"] for cell in found["cells"]} == {"optimal": False, "overprovision": True}
    assert found["advice"]["cell"] == "overprovision"


def test_a_partition_hotter_than_a_replica_is_named_before_and_in_the_result(tmp_path: Path, replay: Invoke) -> None:
    path = rates_file(tmp_path, [400.0] * 20)
    asked = (path, "--slo", "100ms", "--skew", "0.1,0.8,0.1", "--scalers", "binpack")
    found = told(replay(*asked, "--json"))
    (hot,) = found["hot_partitions"]
    assert hot == {"partition": 1, "rate_per_s": pytest.approx(320.0), "service_rate_per_s": pytest.approx(200.0)}
    assert found["advice"]["met"] is False
    assert "partition 1 with up to 320 events/s is more than one replica serves (200 events/s)" in replay(*asked).output
    assert any("partition 1 gets 320 events/s" in warning for warning in found["warnings"])


def test_a_fleet_that_is_too_small_is_told(tmp_path: Path) -> None:
    trace = rates_file(tmp_path, [700.0] * 60)
    (warning,) = plan_of(trace, tmp_path, max_replicas=3).warnings
    assert "700 events/s, but 3 replicas serve 600 events/s at most" in warning
    assert plan_of(trace, tmp_path, max_replicas=4).warnings == ()


def test_a_hopeless_backlog_is_refused_before_anything_runs(tmp_path: Path) -> None:
    trace = rates_file(tmp_path, [1e6] * 5)
    with pytest.raises(PenstockError, match=r"4,995,000 events are left at its end: 5 replicas serve 1,000 events/s"):
        plan_of(trace, tmp_path)
    assert plan_of(rates_file(tmp_path, [1100.0] * 60), tmp_path).wanted, "a backlog that can be worked off"


def test_scalers_run_as_in_compare_and_the_line_above_the_table_says_how(tmp_path: Path, replay: Invoke) -> None:
    result = replay(
        rates_file(tmp_path, [100.0] * 20), "--slo", "500ms", "--scalers", "binpack,mwf-rscore", "--jobs", "1"
    )
    assert (
        "Parameters: binpack: hold_s 10, f_up 0.9, f_down 0.4, decision_interval_s 1; mwf-rscore: its own"
        in result.output
    )
    assert "start-up 1.2 s, rebalance 0.09 s" in result.output


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("0.5s", 0.5), ("2min", 120.0), ("250us", 250e-6)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert duration_s("--slo", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["500", "0.5", "half a second", "-5ms", "0ms", "", "5 parsecs"])
def test_a_duration_without_unit_or_sense_is_refused(text: str) -> None:
    with pytest.raises(PenstockError, match="--slo"):
        duration_s("--slo", text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--slo 500", "say 500ms or 0.5s"),
        ("--slo 2ms", "cannot be met by any number of replicas"),
        ("--slo 500ms --scalers multiqueue", "multiqueue scales queue fleets"),
        ("--slo 500ms --scalers binpak", "did you mean binpack"),
        ("--slo 500ms --scalers linear --set linear.f_upp=1", "unknown parameter 'linear.f_upp'"),
        ("--slo 500ms --sweep linear.f_up", "expected scaler.parameter=a,b,c"),
        ("--slo 500ms --scalers hpa --sweep linear.f_up=1,2", "it is not among --scalers hpa"),
        ("--slo 500ms --scalers hpa --set linear.f_up=0.8", "it is not among those that are run: hpa"),
        ("--slo 500ms --skew 0.5,x", "expected a share for each partition"),
        ("--slo 500ms --skew 0.5,0.5 --partitions 3", "there are 2 shares in --skew"),
        ("--slo 500ms --per hour", "choose second or minute"),
        ("--slo 500ms --share 99", "a share of the events above 0 and up to 1"),
        ("--slo 500ms --jobs 0", "has to be at least 1"),
        ("--slo 500ms --engine abacus", "choose local or spark"),
        ("--slo 500ms --partitions 0", "has to be at least 1"),
        ("--slo 500ms --partitions 100000000", "at most 32,767"),
        ("--slo 500ms --initial-replicas 9", "--initial-replicas 9: --max-replicas is 5"),
        ("--slo 500ms --price nan", "the price of a replica for an hour"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_leaves_nothing_behind(
    tmp_path: Path, runs: Path, replay: Invoke, arguments: str, said: str
) -> None:
    result = replay(rates_file(tmp_path, [10.0] * 3), *arguments.split())
    assert isinstance(result.exception, PenstockError), result.output
    assert said in str(result.exception)
    assert "\n" not in str(result.exception)
    assert list(runs.glob("*")) == []


def test_ctrl_c_ends_every_process_and_keeps_finished_cells_only(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = rates_file(tmp_path, [400.0] * 1200)
    command = [str(PENSTOCK), "replay", str(path), "--slo", "500ms", "--jobs", "2"]
    environment = {**os.environ, "PENSTOCK_RUNS": str(runs)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline_s = time.monotonic() + 60
        while not list(runs.glob("*/decisions.jsonl")):
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.05)
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cells finished, all is stopped" in said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    (comparison,) = runs.glob("*-compare")
    left = {path.name for path in runs.iterdir()} - {comparison.name}
    assert left == {directory.name for directory in ComparisonDirectory(comparison).runs()}


def test_summaries_of_replays_are_those_of_any_run(tmp_path: Path, runs: Path, replay: Invoke) -> None:
    found = told(replay(rates_file(tmp_path, [100.0] * 5), "--slo", "500ms", "--scalers", "linear", "--json"))
    summary = msgspec.json.decode(
        RunDirectory(runs / found["cells"][0]["run"]).summary_file.read_bytes(), type=RunSummary
    )
    assert summary.verdict == "VALID"
    assert summary.conservation.exact and summary.completed_events == summary.scheduled_events
