"""The pub/sub experiments can be described, and their figures made."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.scalers.shared.allocation import min_time
from experiments.experiment import Experiment, Options, run_spec
from experiments.paper import Request
from experiments.pubsub import figures
from experiments.pubsub.experiments import (
    BUDGET,
    DYNAMIC_CHANGE_S,
    DYNAMIC_S,
    EXPERIMENTS,
    HIGH_PER_MIN,
    MIDDLE_PER_MIN,
)
from penstock.command import build
from penstock.systems import NetworkSystem

SHORT = Request(settings=figures.PubsubSettings(seeds=(1, 2), hours=2.0))
ROOT = Path(__file__).resolve().parents[3]
MIN_TIME = "min-time"
GOLDEN = json.loads((ROOT / "tests" / "golden" / "pubsub.json").read_text())["given"]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_a_run_is_described_with_its_network_also_at_another_speed(experiment: Experiment) -> None:
    spec = run_spec(experiment, MIN_TIME, Options(world="sim"), run="r")
    fast = run_spec(experiment, MIN_TIME, Options(world="sim", speed=10), run="r")
    assert isinstance(spec.system, NetworkSystem) and isinstance(fast.system, NetworkSystem)
    assert spec.system == experiment.system
    assert fast.system.topics[0].service_rate_per_s == pytest.approx(10 * spec.system.topics[0].service_rate_per_s)
    for slow_job, fast_job in zip(spec.system.jobs, fast.system.jobs, strict=True):
        assert fast_job.arrival_rate_per_s == pytest.approx(10 * slow_job.arrival_rate_per_s)
        assert fast_job.phases == tuple((at_s / 10, rate * 10) for at_s, rate in slow_job.phases)
    known, faster = (each.scaler.parameters["service_rates_per_s"] for each in (spec, fast))
    assert faster == pytest.approx({topic: 10 * rate for topic, rate in known.items()})
    assert spec.scaler.parameters["service_scvs"] == fast.scaler.parameters["service_scvs"]
    assert spec.scaler.parameters["budget"] == 5


def test_the_change_of_rates_comes_after_a_fifth_of_the_requests() -> None:
    dynamic = next(e for e in EXPERIMENTS if e.name == "pubsub-dynamic").system
    assert isinstance(dynamic, NetworkSystem)
    low = sum(job.arrival_rate_per_s for job in dynamic.jobs) * DYNAMIC_CHANGE_S
    high = sum(job.phases[0][1] for job in dynamic.jobs) * (DYNAMIC_S - DYNAMIC_CHANGE_S)
    assert low == pytest.approx(60)
    assert low + high == pytest.approx(300, rel=0.01)


def test_figure_4_follows_the_published_path_and_random_is_never_better() -> None:
    rows = list(figures.figure_4(draws=50))
    assert rows[5]["mintime_m"] == " ".join(map(str, GOLDEN["section_VI_F"]["published_m"]))
    assert rows[10]["mintime_m"] == " ".join(map(str, GOLDEN["section_VI_B"]["ours"]))
    assert all(row["random_wip_best"] >= row["mintime_wip"] - 1e-9 for row in rows)
    assert [row["random_overloaded_share"] for row in rows] == sorted(
        (r["random_overloaded_share"] for r in rows), reverse=True
    )


def test_job_3_is_the_least_affected_by_growing_rates() -> None:
    rows = [row for row in figures.figure_5(SHORT) if row["rate_per_min"] <= 1.0]
    for row in rows:
        assert row["simulated_3_s"] < min(row["simulated_1_s"], row["simulated_2_s"])
        assert row["simulated_1_s"] == pytest.approx(row["model_1_s"], rel=0.2)


def test_iterations_of_min_cost_keep_the_limit_after_five_by_the_model() -> None:
    path = min_time(figures.model(HIGH_PER_MIN), 6)
    steps = list(figures.iterations(SHORT, HIGH_PER_MIN, path))
    assert figures.first_within(steps, "model_s") == GOLDEN["section_VI_E"]["published_iterations"]
    assert figures.first_within(steps, "simulated_s") in (4, 5)
    assert figures.first_within(steps[:2], "simulated_s") is None
    assert steps[0]["simulated_s"] > steps[5]["simulated_s"]
    assert steps[5]["within_limit"] == "2 of 2" and steps[1]["within_limit"] == "0 of 2"
    for step in steps:
        # Greedy is the least of all allocations with as many consumers, so that no draw is better by the formulas.
        assert step["random_best_model_s"] >= step["model_s"] - 1e-9


def test_min_time_has_relieved_the_network_after_five_iterations() -> None:
    path = min_time(figures.model(MIDDLE_PER_MIN), 5)
    last = list(figures.iterations(SHORT, MIDDLE_PER_MIN, path))[-1]
    assert last["m"] == " ".join(map(str, GOLDEN["section_VI_D"]["ours"]))
    assert last["simulated_s"] == pytest.approx(last["model_s"], rel=0.1)


def test_after_the_change_of_rates_the_network_is_rescheduled() -> None:
    for seed in (1, 2):
        run, requests = figures.figure_8(seed, limit_s=100.0, window_s=600.0)
        assert DYNAMIC_CHANGE_S < run["first_reschedule_s"] < DYNAMIC_S
        assert sum(map(int, run["first_m"].split())) == 4 + BUDGET
        assert 0 < run["affected_share"] == run["beyond_100_s_share"] < 0.5
        assert run["requests"] == sum(each["seed"] == run["seed"] == seed for each in requests)


def test_the_figures_are_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        build(), ["paper", "pubsub", "all", "--out", str(tmp_path), "--seeds", "1", "--set", "hours=0.2"]
    )
    assert done.exit_code == 0, done.output
    assert "MinCost stops after 5 iterations by the model" in done.output
    rows = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in tmp_path.glob("*.csv")}
    assert sorted(rows) == [
        "figure4", "figure5", "figure6", "figure7", "figure8", "figure8-requests",
    ]  # fmt: skip
    assert [len(rows[name]) for name in ("figure4", "figure5", "figure6", "figure7")] == [11, 7, 6, 11]
    assert len(rows["figure8-requests"]) == int(rows["figure8"][0]["requests"])
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"figure4", "figure5", "figure6", "figure7", "figure8"}
