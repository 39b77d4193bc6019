"""MinTime against Random in pairs, in virtual time; and how likely Random's draws are to be of no use."""

from math import sqrt
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.compare import ComparisonRequest, run_comparisons
from experiments.experiment import Options
from experiments.pubsub import paired
from experiments.pubsub.experiments import BUDGET
from penstock.command import build
from penstock.rundir import RunDirectory


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    """Ten pairs in virtual time."""
    folder = tmp_path_factory.mktemp("runs")
    options = Options(world="sim", analytics=False, compared=paired.SCALERS)
    request = ComparisonRequest(paired.EXPERIMENT, paired.SCALERS, 10)
    (comparison,) = run_comparisons(Console(quiet=True), [request], options, folder, resume=True)
    return comparison.runs()


def test_min_time_has_the_lower_mean_response_in_at_least_nine_of_ten_pairs(runs: list[RunDirectory]) -> None:
    found = list(paired.pairs(runs))
    assert [pair.seed for pair in found] == list(range(1, 11))
    assert sum(pair.lower for pair in found) >= 9
    for pair in found:
        assert all(sum(m) == 4 + BUDGET for m in (*pair.mintime.allocations, *pair.random.allocations))
        assert pair.mintime.allocations[-1] == (2, 2, 1, 4), "the published one, from what was measured"
        assert pair.mintime.unstable == 0


def test_both_runs_of_a_pair_play_the_same_jobs(runs: list[RunDirectory]) -> None:
    schedules: dict[int, set[bytes]] = {}
    for run in runs:
        schedules.setdefault(run.spec().seed, set()).add(run.schedule_file.read_bytes())
    assert len(schedules) == 10
    assert all(len(same) == 1 for same in schedules.values())


def test_random_draws_anew_each_time_and_mostly_in_vain(runs: list[RunDirectory]) -> None:
    randoms = [pair.random for pair in paired.pairs(runs)]
    draws, unstable = sum(len(one.allocations) for one in randoms), sum(one.unstable for one in randoms)
    assert draws >= 40
    assert unstable > draws / 2


def test_as_many_of_randoms_draws_are_unstable_as_there_should_be() -> None:
    """Within three standard errors of a share of 1000."""
    exact = paired.unstable_share()
    assert paired.drawn_share(1000) == pytest.approx(exact, abs=3 * sqrt(exact * (1 - exact) / 1000))


def test_three_of_four_draws_of_five_leave_a_topic_overloaded() -> None:
    """By hand: A needs one of the five draws, D two; P = 1 - (P(D ≥ 2) - P(D ≥ 2, A = 0))."""
    d_twice = 1 - 0.75**5 - 5 * 0.25 * 0.75**4
    d_twice_a_never = 0.75**5 - 0.5**5 - 5 * 0.25 * 0.5**4
    assert paired.unstable_share() == pytest.approx(1 - (d_twice - d_twice_a_never))
    assert paired.unstable_share() == pytest.approx(0.761, abs=0.0005)
    assert paired.unstable_share(budget=0) == 1.0


def test_the_program_keeps_its_runs_and_prints_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    first, again = (
        CliRunner().invoke(build(), ["paper", "pubsub", "paired", "--seeds", "1-2", "--seconds", "1200"])
        for _ in range(2)
    )
    assert first.exit_code == 0, first.output
    assert "pairs (claimed: 90%" in first.stdout and "(exact: 0.761;" in first.stdout
    assert again.stdout == first.stdout
    assert len(list(tmp_path.glob("*-compare"))) == 1
    assert len(list(tmp_path.glob("*/manifest.json"))) == 4
