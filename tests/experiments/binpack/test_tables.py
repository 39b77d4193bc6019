"""The bin-pack paper's tables as the sim world has them at its defaults, against print and against the formulas.

The acceptance bands were fixed in advance: Optimal and Linear cost what their
formulas say to 0.5 %, Algorithm 2 what was published to 10 %, 15 % with skew, at the phase fixed beforehand; the
policies keep their order. One band does not hold: on the skewed taxi curve Algorithm 2 is cheaper than published by
15.3 % (mean of three seeds; experiments/binpack/README.md says why).

The burst model with instant replicas, all phases of workload 1 and its long rebalances are in
``tests/simulator/test_stream_vectors.py``, the formulas on workload 1 in
``tests/controller/scalers/test_workload_costs.py``.
"""

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.binpack.experiments import printed
from experiments.binpack.tables import (
    BY_NAME,
    CASES,
    INTERVALS,
    JITTER_PER_S,
    NYC,
    PAPER_SYSTEM,
    PERCENTILES,
    TABLES,
    WORKLOAD_1,
    BinpackResult,
    Case,
    CaseResults,
    by_formula,
    curves,
    experiment_of,
    longest_by_consumer,
    options_of,
    over_time,
    replay,
    simulate,
)
from experiments.driver import carry_out, describe
from experiments.experiment import run_spec
from experiments.papers import PAPERS
from experiments.progress import RunProgress
from penstock.command import build
from penstock.errors import PenstockError
from simulator.world import SimWorld


def outcome(experiment: str, scaler: str, rebalance_time_s: float | None = None) -> BinpackResult:
    return simulate(Case(experiment=experiment, scaler=scaler, rebalance_time_s=rebalance_time_s), 1)


REBALANCES = [("binpack", 0.5), ("binpack", 2.0), ("binpack-tail", 0.5), ("binpack-tail", 2.0)]
"""Section 5: algorithm and t_r."""


def printed_cost(experiment: str, scaler: str) -> float:
    return BY_NAME[experiment].printed[scaler]["replica_minutes"]


# --- formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scaler", "cost", "ups", "downs"),
    [("optimal", 413.9, 17, 14), ("linear", 301.5, 17, 15), ("overprovision", 600.6, 1, 0)],
)
def test_formulas_on_the_taxi_curve_cost_what_the_specification_says(
    scaler: str, cost: float, ups: int, downs: int
) -> None:
    formula = by_formula(BY_NAME[NYC], scaler)
    assert formula.replica_minutes == pytest.approx(cost, rel=0.0005)
    assert (formula.up_actions, formula.down_actions) == (ups, downs)


@pytest.mark.parametrize(
    ("experiment", "lag_s", "cost"),
    [(WORKLOAD_1, 0.0, 19.37), (WORKLOAD_1, 1.0, 36.35), (NYC, 0.0, 231.5), (NYC, 1.0, 471.5)],
)
def test_the_lag_that_is_seen_brackets_what_the_packing_costs(experiment: str, lag_s: float, cost: float) -> None:
    formula = by_formula(BY_NAME[experiment], "binpack", lag_s)
    assert formula.replica_minutes == pytest.approx(cost, rel=0.005)


def test_linear_looks_at_the_total_only_so_that_skew_costs_nothing() -> None:
    assert by_formula(BY_NAME[f"{NYC}-skewed"], "linear") == by_formula(BY_NAME[NYC], "linear")


def test_the_taxi_series_own_jitter_makes_linear_move_as_often_as_printed() -> None:
    smooth = by_formula(BY_NAME[NYC], "linear")
    rough = by_formula(experiment_of(Case(experiment=NYC, scaler="linear", jitter_per_s=JITTER_PER_S)), "linear")
    printed = BY_NAME[NYC].printed["linear"]
    assert smooth.up_actions < printed["ups"] <= rough.up_actions
    assert smooth.down_actions < printed["downs"] <= rough.down_actions
    assert rough.replica_minutes == pytest.approx(smooth.replica_minutes, rel=0.005)


def test_a_hold_of_ten_seconds_lets_the_eleventh_change() -> None:
    formula = replay(lambda _, replicas: 3 - replicas, [0.0] * 23, hold_s=10.0)
    assert (formula.up_actions, formula.down_actions) == (2, 1)  # at seconds 0, 11 and 22
    assert formula.replica_minutes == (11 * 2 + 11 * 1 + 2) / 60
    assert replay(lambda _, replicas: 3 - replicas, [0.0] * 22, hold_s=10.0).up_actions == 1


# --- simulated -------------------------------------------------------------------------------------------------------


TAXI = pytest.mark.long
"""The taxi curve lasts two hours with a decision each second: a second of CPU time per run."""


@pytest.mark.parametrize("experiment", [WORKLOAD_1, pytest.param(NYC, marks=TAXI)])
@pytest.mark.parametrize("scaler", ["linear", "optimal"])
def test_linear_and_optimal_cost_what_their_formulas_cost(experiment: str, scaler: str) -> None:
    run, formula = outcome(experiment, scaler), by_formula(BY_NAME[experiment], scaler)
    assert run.replica_minutes == pytest.approx(formula.replica_minutes, rel=0.005)
    assert (run.added, run.removed, run.up_actions, run.down_actions) == formula[1:]


@pytest.mark.parametrize(
    ("experiment", "band"),
    [
        (WORKLOAD_1, 0.10),
        pytest.param(NYC, 0.10, marks=TAXI),
        (f"{WORKLOAD_1}-skewed", 0.15),
        pytest.param(f"{NYC}-skewed", 0.15, marks=TAXI),
    ],
)
def test_algorithm_2_costs_what_was_published_within_the_band(experiment: str, band: float) -> None:
    case = Case(experiment=experiment, scaler="binpack-tail")
    mean = np.mean([simulate(case, seed).replica_minutes for seed in (1, 2, 3)])
    assert mean == pytest.approx(printed_cost(experiment, "binpack-tail"), rel=band)


@pytest.mark.parametrize("experiment", [WORKLOAD_1, pytest.param(f"{NYC}-skewed", marks=TAXI)])
def test_in_order_of_arrival_less_is_seen_to_wait_and_algorithm_2_is_cheaper(experiment: str) -> None:
    in_turns = simulate(Case(experiment=experiment, scaler="binpack-tail"), 2)
    by_arrival = simulate(Case(experiment=experiment, scaler="binpack-tail", by_arrival=True), 2)
    assert by_arrival.replica_minutes < in_turns.replica_minutes
    if experiment == f"{NYC}-skewed":
        assert 0.80 < by_arrival.replica_minutes / printed_cost(experiment, "binpack-tail") < 0.85


def order(experiment: str, scalers: Sequence[str]) -> None:
    runs = [outcome(experiment, scaler) for scaler in scalers]
    costs, shares = ([getattr(run, name) for run in runs] for name in ("replica_minutes", "slo_share"))
    assert costs == sorted(costs) and len(set(costs)) == len(runs)
    assert shares == sorted(shares) and shares[1] > shares[0] + 0.01
    assert [round(100 * share, 1) for share in shares[2:]] == [100.0] * (len(runs) - 2)


def test_policies_are_in_the_published_order() -> None:
    order(WORKLOAD_1, ("linear", "binpack-tail", "optimal", "overprovision"))


@TAXI
def test_policies_are_in_the_published_order_on_the_taxi_curve() -> None:
    order(NYC, ("linear", "binpack-tail", "optimal"))


def test_with_skew_linear_loses_a_tenth_of_the_events_more_and_algorithm_2_none() -> None:
    for scaler, lost in (("linear", 0.1), ("binpack-tail", 0.0)):
        even, skewed = (outcome(experiment, scaler).slo_share for experiment in (WORKLOAD_1, f"{WORKLOAD_1}-skewed"))
        assert even - skewed == pytest.approx(lost, abs=0.02)


def test_whoever_hears_of_a_rebalance_late_has_the_longer_tail() -> None:
    cases = [Case(experiment=WORKLOAD_1, scaler="binpack-tail", heartbeat_s=heartbeat_s) for heartbeat_s in (0.5, 3.0)]
    told, soon, late = (outcome(WORKLOAD_1, "binpack-tail"), *(simulate(case, 1) for case in cases))
    assert told.longest_s < 0.7 < soon.longest_s < 1.1
    assert 3.0 < late.longest_s < 3.5


def test_the_peaks_of_a_run_are_those_of_its_decisions() -> None:
    """Section 5.2: with a heartbeat of 3 s members wait for each other; notified at once they do not."""
    told, late = (
        simulate(Case(experiment=WORKLOAD_1, scaler="linear", heartbeat_s=heartbeat_s), 1)
        for heartbeat_s in (None, 3.0)
    )
    for run in (told, late):
        assert {action: len(peaks) for action, peaks in run.peaks_s.items()} == {
            "up": run.up_actions, "down": run.down_actions, "reassign": run.reassignments,
        }  # fmt: skip
        assert max(max(peaks, default=0.0) for peaks in run.peaks_s.values()) <= run.longest_s
    assert max(told.peaks_s["down"]) < 1.0 < max(late.peaks_s["down"])


def test_slow_pods_cost_more_only_where_they_leave_slowly() -> None:
    plain = Case(experiment=WORKLOAD_1, scaler="linear")
    slow = (plain, dataclasses.replace(plain, start_up_s=5.0), dataclasses.replace(plain, stop_s=5.0))
    plainly, starting, leaving = (simulate(case, 1).replica_minutes for case in slow)
    assert starting == pytest.approx(plainly, rel=1e-3)
    assert leaving > plainly + 0.3


@pytest.mark.parametrize("case", REBALANCES)
def test_long_rebalances_cost_what_was_published_within_a_tenth(case: tuple[str, float]) -> None:
    scaler, t_r_s = case
    cost = printed(WORKLOAD_1, rebalance_time_s=t_r_s)[scaler]["replica_minutes"]
    assert outcome(WORKLOAD_1, scaler, rebalance_time_s=t_r_s).replica_minutes == pytest.approx(cost, rel=0.10)


def test_three_seeds_differ_in_what_the_partitions_of_the_events_decide_only() -> None:
    runs = [simulate(Case(experiment=WORKLOAD_1, scaler="linear"), seed) for seed in (1, 2)]
    assert runs[0][1:7] == runs[1][1:7]
    assert runs[0].slo_share != runs[1].slo_share


def test_a_run_is_the_one_that_compare_makes(tmp_path: Path) -> None:
    case = Case(experiment=WORKLOAD_1, scaler="linear")
    experiment, options = experiment_of(case), options_of(case, 1)
    directory, _ = describe(experiment, case.scaler, options, tmp_path)
    with RunProgress(Console(quiet=True), runs=1) as progress, SimWorld() as world:
        summary = carry_out(world, experiment, options, directory, progress)
    run = outcome(WORKLOAD_1, "linear")
    assert (run.slo_share, run.replica_minutes) == (summary.slo_share, summary.replica_minutes)
    assert (run.added, run.removed) == (summary.scale.replicas_added, summary.scale.replicas_removed)
    assert run.longest_s == summary.latency.max_s


# --- cases and output ------------------------------------------------------------------------------------------------


def test_a_case_changes_what_it_names_and_nothing_else() -> None:
    def spec_of(case: Case) -> dict[str, object]:
        spec = run_spec(experiment_of(case), case.scaler, options_of(case, 1), run="r")
        return {"phase": spec.tick_phase_s, "worker": spec.worker, "scaler": dict(spec.scaler.parameters)}

    plain = Case(experiment=WORKLOAD_1, scaler="binpack-tail")
    before = spec_of(plain)
    assert before["phase"] == 0.10

    long = spec_of(dataclasses.replace(plain, rebalance_time_s=2.0))
    assert long["scaler"] == {**before["scaler"], "rebalance_time_s": 2.0}  # type: ignore[dict-item]
    assert long["worker"].rebalance_pause_s == 2.0  # type: ignore[attr-defined]

    slow = spec_of(dataclasses.replace(plain, heartbeat_s=3.0))
    assert slow["scaler"] == before["scaler"]
    worker = slow["worker"]
    assert (worker.directed_rebalance, worker.heartbeat_s, worker.session_timeout_s) == (False, 3.0, 10.0)  # type: ignore[attr-defined]

    later = spec_of(dataclasses.replace(plain, phase_s=0.2))
    assert later == {**before, "phase": 0.2}


def test_every_case_of_every_table_can_be_described() -> None:
    assert set(CASES) == {table.name for table in TABLES} - {"cdf-curves", "consumers", "runs", "workloads"}
    assert all(CASES.values())
    for case in {case for cases in CASES.values() for case in cases}:
        run_spec(experiment_of(case), case.scaler, options_of(case, 1), run="r")


def test_the_longest_latency_is_told_by_consumer_and_part_of_the_run() -> None:
    found = longest_by_consumer(
        np.array([4, 4, 9, 9]), np.array([0.0, 0.2, 1.0, 599.9]), np.array([0.3, 0.1, 0.2, 0.7]), seconds=600.0
    )
    assert found.shape == (2, INTERVALS)
    assert (found[0, 0], found[1, 1], found[1, -1]) == (0.3, 0.2, 0.7)
    assert np.count_nonzero(~np.isnan(found)) == 3


def test_over_time_and_by_consumer_the_longest_latency_is_that_of_the_run() -> None:
    case = Case(experiment=WORKLOAD_1, scaler="linear")
    run = outcome(WORKLOAD_1, "linear")
    rows = list(over_time([CaseResults(case, [run])]))
    assert len(rows) == INTERVALS and rows[1]["time s"] == 1.0
    assert max(row["longest s"] for row in rows) == pytest.approx(run.longest_s, abs=0.001)
    assert len(run.longest_by_consumer_s) >= 1 + run.added


def test_distributions_rise_and_agree_with_the_slo_share() -> None:
    cases = [Case(experiment=WORKLOAD_1, scaler=scaler) for scaler in ("linear", "optimal")]
    runs = [CaseResults(case, [outcome(WORKLOAD_1, case.scaler)]) for case in cases]
    rows = np.asarray([list(row.values()) for row in curves(runs)])
    assert rows[:, 0].tolist() == list(PERCENTILES)
    assert (np.diff(rows, axis=0) >= 0).all()
    for column, found in enumerate(runs, 1):
        share = 100 * found.runs[0].slo_share
        within = rows[rows[:, column] <= 0.5, 0].max()
        above = rows[rows[:, column] > 0.5, 0].min()
        assert within <= share < above


def test_the_command_prints_a_table_and_writes_it_with_its_runs(tmp_path: Path) -> None:
    out = tmp_path / "below" / "binpack"
    command = ["paper", "binpack", "rebalance", "runs", "--seeds", "1", "--out", str(out)]
    result = CliRunner().invoke(build(), command)
    assert result.exit_code == 0, result.output
    assert (
        "## Rebalance time, workload 1" in result.stdout and "| binpack-tail | 0.5 | at once | 98.2 %" in result.stdout
    )
    assert {file.name for file in out.iterdir()} == {"rebalance.csv", "runs.csv", "index.html"}
    with (out / "runs.csv").open(encoding="utf-8", newline="") as file:
        runs = list(csv.DictReader(file))
    assert [(run["scaler"], float(run["rebalance_time_s"]), run["heartbeat_s"]) for run in runs] == [
        (*case, heartbeat_s) for case in REBALANCES for heartbeat_s in ("", "0.5", "3.0")
    ]
    for run in runs[::3]:
        again = outcome(WORKLOAD_1, run["scaler"], rebalance_time_s=float(run["rebalance_time_s"]))
        assert float(run["replica_minutes"]) == again.replica_minutes


def test_an_unknown_table_is_named_with_the_known_ones() -> None:
    paper = PAPERS["binpack"]
    with pytest.raises(
        PenstockError, match=r"unknown table 'tabel2' \(did you mean table2.*binpack has workloads, table2, table3"
    ):
        paper.select(["tabel2"])
    assert [table.name for table in paper.select(["phase", "table2"])] == ["table2", "phase"]
    recorded = [table.name for table in paper.tables if table.source == "recorded"]
    assert [table.name for table in paper.select(["all"])] + recorded == [table.name for table in paper.tables]


def test_an_output_folder_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = CliRunner().invoke(build(), ["paper", "binpack", "table2", "--out", str(tmp_path / "taken")])
    assert isinstance(result.exception, PenstockError)
    assert str(result.exception).startswith(f"--out {tmp_path / 'taken'}: cannot be made (File exists)")


def test_the_tables_state_every_delay_of_the_simulated_group() -> None:
    """The papers' conditions do not follow the sim world's defaults, which are those of the live world."""
    plain = Case(experiment=WORKLOAD_1, scaler="binpack-tail")
    spec = run_spec(experiment_of(plain), plain.scaler, options_of(plain, 1), "r")
    stated = {"start_up_s": 0.0, "rebalance_s": 0.09, "stop_s": 0.2, "staleness_s": 0.0, "service_scv": 0.0}
    assert {name: getattr(spec.system, name) for name in stated} == stated
    assert stated.keys() == PAPER_SYSTEM.keys()
    assert spec.scaler.parameters["rebalance_time_s"] == 0.05
