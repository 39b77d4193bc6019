"""Figures: what the script draws is what the runs measured."""

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.runspec import Fault
from report import charts
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.groups import Group, group_runs
from report.series import MOST_POINTS, thinned
from tests.experiments.synthetic import Toy, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunData]:
    folder = tmp_path_factory.mktemp("runs")
    tail = Toy(scaler="binpack-tail", per_replica=72, seconds=40)
    faulty = Toy(scaler="rps", seconds=40, faults=(Fault("stop-broker", 5, 3), Fault("kill-worker", 9)))
    return [RunData(write_run(folder, toy)) for toy in (tail, Toy(seconds=40), faulty)]


@pytest.fixture(scope="module")
def groups(runs: list[RunData]) -> list[Group]:
    return group_runs([summary_of(run) for run in runs])


def placed(summary: RunSummary, *places: tuple[float, float]) -> list[Group]:
    """Groups at (replica-minutes, share)."""
    return group_runs(
        [
            msgspec.structs.replace(summary, scaler=f"s{i}", replica_minutes=minutes, slo_share=share)
            for i, (minutes, share) in enumerate(places)
        ]
    )


def test_points_are_at_their_cost_and_share(groups: list[Group]) -> None:
    figure = charts.cost_and_share(groups, 0.99)
    for group, point in zip(groups, figure["panels"][0]["marks"], strict=True):
        assert point["x"] == [group.first.replica_minutes]
        assert group.first.slo_share is not None
        assert point["y"] == [pytest.approx(1 - group.first.slo_share, abs=1e-4)]


def test_the_pareto_front_has_no_scaler_that_another_one_beats(groups: list[Group]) -> None:
    front = charts.cost_and_share(placed(groups[0].first, (9, 0.9), (10, 0.95), (11, 0.94), (12, 1.0)), 0.99)
    (line,) = front["panels"][0]["lines"]
    assert line["x"] == [9, 10, 12]
    assert all(later < earlier for earlier, later in pairwise(line["y"]))


def test_all_points_wanted_share_and_bound_are_within_the_axes(groups: list[Group]) -> None:
    for places in (((9.0, 0.5), (10.0, 1.0)), ((0.0, 1.0),), ((5.0, 0.99999),)):
        figure = charts.cost_and_share(placed(groups[0].first, *places), 0.99, bound_minutes=3.0)
        x, y = figure["x"], figure["panels"][0]["y"]
        marks = figure["panels"][0]["marks"]
        assert all(y["max"] <= mark["y"][0] <= y["min"] and x["min"] <= mark["x"][0] <= x["max"] for mark in marks)
        share, bound = figure["rules"]
        assert share["at"] == pytest.approx(0.01) and y["max"] <= share["at"] <= y["min"]
        assert bound["at"] == 3.0 and x["min"] <= 3.0 <= x["max"]


def test_repetitions_have_their_range(groups: list[Group]) -> None:
    first = groups[0].first
    repeated = [msgspec.structs.replace(first, seed=i, replica_minutes=m) for i, m in enumerate((4.0, 5.0, 9.0))]
    (mark,) = charts.cost_and_share(group_runs(repeated), 0.99)["panels"][0]["marks"]
    assert mark["x"] == [6.0] and mark["across"][0] == [4.0, 9.0]


def test_all_scalers_replicas_are_in_one_picture_with_those_that_were_needed(
    groups: list[Group], runs: list[RunData]
) -> None:
    (panel,) = charts.replicas_together(groups, runs)["panels"]
    assert [line["name"] for line in panel["lines"]] == ["needed", *(group.label for group in groups)]
    needed = panel["lines"][0]
    assert needed["y"][:-1] == runs[0].needed_replicas.tolist()
    assert len({(line.get("dash"), line["colour"]) for line in panel["lines"]}) == 4


def test_faults_are_shaded_in_every_picture_over_time(groups: list[Group], runs: list[RunData]) -> None:
    for draw in (charts.replicas_together, charts.replicas_over_time, charts.latency_over_time):
        assert draw(groups, runs)["bands"] == [(5, 8), (9, 9.5)]


def test_pictures_over_time_share_one_axis(groups: list[Group], runs: list[RunData]) -> None:
    lag, replicas = charts.lag_per_partition(groups, runs), charts.replicas_over_time(groups, runs)
    assert lag["x"] == replicas["x"]


def test_every_figure_is_small_plain_json_with_a_text_alternative(groups: list[Group], runs: list[RunData]) -> None:
    for figure in (
        charts.cost_and_share(groups, 0.99),
        charts.latency_cdf(groups, runs),
        charts.latency_over_time(groups, runs),
        charts.replicas_together(groups, runs),
        charts.replicas_over_time(groups, runs),
        charts.lag_per_partition(groups, runs),
    ):
        assert len(json.dumps(figure, allow_nan=False)) < 60_000
        assert figure["label"].endswith((".", "VALID"))


def test_a_long_curve_keeps_its_peaks() -> None:
    values = np.zeros(10_000)
    values[4321], values[:100] = 7.0, np.nan
    time_s, shown = thinned(np.arange(10_000.0), values)
    assert len(time_s) == len(shown) <= MOST_POINTS
    assert np.nanmax(shown) == 7.0 and np.isnan(shown[0])


def test_many_repetitions_do_not_make_the_figure_large(tmp_path: Path) -> None:
    run = RunData(write_run(tmp_path, Toy(seconds=20)))
    summaries = [msgspec.structs.replace(summary_of(run), seed=seed) for seed in range(200)]
    figure = charts.latency_cdf(group_runs(summaries), [run] * 200)
    assert len(figure["panels"][0]["lines"]) == charts.MOST_CURVES
