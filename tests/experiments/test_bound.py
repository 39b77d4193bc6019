"""The clairvoyant bound: exact on small loads, never above what a run paid, and nearly met by a plan."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from experiments.binpack.experiments import WORKLOAD_1
from experiments.bound import Bursts, best_groups, bound, least, least_minutes, most_in_time
from experiments.catalogue import EXPERIMENTS
from experiments.experiment import Options
from experiments.newsvendor.tables import INSTANT
from experiments.run_result import simulate
from penstock.command import build
from penstock.errors import PenstockError
from penstock.systems import StreamSystem

LOADS = st.lists(st.integers(0, 60), min_size=1, max_size=5)


def by_hand(loads: list[int], capacity: int, groups: int) -> int:
    """The most events in time over every way to label the partitions."""
    ways = product(range(groups), repeat=len(loads))
    return max(
        sum(min(capacity, sum(load for load, own in zip(loads, way, strict=True) if own == g)) for g in range(groups))
        for way in ways
    )


@given(loads=LOADS, capacity=st.integers(1, 80))
def test_the_most_events_in_time_are_those_of_the_best_of_all_groupings(loads: list[int], capacity: int) -> None:
    found = most_in_time(np.array([loads]), capacity, len(loads), 10)[0]
    pooled = most_in_time(np.array([loads]), capacity, len(loads), 0)[0]
    for n in range(1, len(loads) + 1):
        assert found[n - 1] == by_hand(loads, capacity, n) <= pooled[n - 1]
        groups = best_groups(loads, capacity, n)
        assert len(groups) == n
        assert sorted(p for group in groups for p in group) == list(range(len(loads)))
        assert sum(min(capacity, sum(loads[p] for p in group)) for group in groups) == found[n - 1]


def bursts(counts: list[list[int]], **system: float) -> Bursts:
    """10 events a second per replica and a limit of one half: five events each."""
    return Bursts(np.array(counts), 10.0, 0.5, 0.5, StreamSystem(rebalance_s=0.0, **system), 0.0, len(counts[0]))  # type: ignore[arg-type]


def exhaustive(load: Bursts, share: float) -> float:
    """The least replica-seconds over all plans, by trying them."""
    late, transitions = load.late(), load.transitions()
    allowed = (1 - share) * load.counts.sum() + 1e-9
    costs = []
    for plan in product(range(load.most), repeat=len(load.counts) - 1):
        steps = list(zip((0, *plan), plan, strict=False))
        missed = late[0, 0, 0] + sum(late[t, a, b] for t, (a, b) in enumerate(steps, 1))
        if missed <= allowed:
            costs.append(sum(b + 1 + transitions[a, b] for a, b in steps))
    return float(min(costs)) + load.phase + (1 - load.phase)


@given(
    counts=st.lists(st.lists(st.integers(0, 8), min_size=3, max_size=3), min_size=3, max_size=6),
    start_up_s=st.sampled_from([0.0, 2.0]),
    stop_s=st.sampled_from([0.0, 0.7]),
    late=st.floats(0.0, 0.4),
)
def test_no_plan_is_cheaper_than_the_bound(
    counts: list[list[int]], start_up_s: float, stop_s: float, late: float
) -> None:
    load = bursts([[0, 0, 0], *counts], start_up_s=start_up_s, stop_s=stop_s)
    fewest = load.late().min(axis=(1, 2)).sum()
    share = 1 - max(late, (fewest + 1e-6) / max(1, load.counts.sum()))
    if share > 0:
        assert least(load, 1, share) <= exhaustive(load, share) + 1e-6


def test_a_single_burst_pays_the_replicas_that_it_needs_for_one_second() -> None:
    load = bursts([[1, 1, 1], [5, 5, 5], [1, 1, 1]], start_up_s=0.0, stop_s=0.0)
    assert least(load, 1, 0.999999) == pytest.approx(3 + 1 + 1, abs=0.01)
    slow = bursts([[1, 1, 1], [5, 5, 5], [1, 1, 1]], start_up_s=3.0, stop_s=0.0)
    assert least(slow, 1, 0.999999) == pytest.approx(3 + 2 * slow.paid_early() + 1 + 1, abs=0.01)
    assert slow.paid_early() == 2


SLICE = Options(
    world="sim", from_s=420, seconds=60, tick_phase_s=0.62, system=INSTANT, worker={"commit_interval_s": "0"}
)


@pytest.mark.parametrize("scaler", ["linear", "binpack-tail", "newsvendor", "overprovision"])
def test_no_scaler_pays_less_than_the_bound_of_the_share_that_it_kept(scaler: str) -> None:
    run = simulate(WORKLOAD_1, scaler, SLICE)
    _, response_s = run.responses()
    kept = float((np.round(response_s, 9) <= WORKLOAD_1.slo_s).mean())
    assert least_minutes(WORKLOAD_1, SLICE, kept) <= run.replica_minutes() + 1e-9


def test_a_plan_that_knows_the_load_comes_near_the_bound() -> None:
    found = bound(WORKLOAD_1, SLICE, 0.99)
    assert found.plan_minutes is not None and found.plan_share is not None
    assert found.plan_share >= 0.99
    assert found.least_minutes <= found.plan_minutes <= 1.05 * found.least_minutes


def test_with_a_long_start_up_too_as_those_that_have_joined_are_regrouped_meanwhile() -> None:
    slow = replace(SLICE, system={**INSTANT, "start_up_s": "10"}, worker={"commit_interval_s": "0"})
    found = bound(WORKLOAD_1, slow, 0.99)
    assert found.plan_minutes is not None
    assert found.least_minutes <= found.plan_minutes <= 1.02 * found.least_minutes


@pytest.mark.parametrize(
    ("experiment", "options", "share", "reason"),
    [
        ("multiqueue", Options(world="sim"), 0.99, "consumer groups only"),
        ("binpack-workload-1", Options(world="sim", max_replicas=1), 0.999, "are late with 1 replicas"),
        ("binpack-workload-1", Options(world="sim", worker={"service_time_s": "0"}), 0.9, "service time"),
    ],
)
def test_where_no_bound_is_known_the_reason_is_told(
    experiment: str, options: Options, share: float, reason: str
) -> None:
    with pytest.raises(PenstockError, match=reason):
        bound(EXPERIMENTS[experiment], options, share)


# --- the command -----------------------------------------------------------------------------------------------------

ASKED = ("bound", "binpack-workload-1", "--seconds", "20s", "--share", "0.5", "--tick-phase", "0.71")


def test_the_bound_is_of_virtual_time_and_says_what_is_assumed_there() -> None:
    done = CliRunner().invoke(build(), [*ASKED, "--start-up", "5s"])
    assert done.exit_code == 0, done.output or done.exception
    assert "Assumed in virtual time: start-up of a replica 5 s, rebalance 0.03 s (eager)" in done.stdout
    assert CliRunner().invoke(build(), [*ASKED, "--set", "system.start_up_s=5"]).stdout == done.stdout


def test_it_has_no_option_that_would_have_no_effect() -> None:
    command = typer.main.get_command(build()).commands["bound"]  # type: ignore[attr-defined]
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert not options & {"--world", "--guard", "--shadows", "--spark", "--no-spark", "--fault", "--price"}
    assert {"--from", "--seconds", "--slo", "--partitions", "--start-up", "--max-replicas", "--set"} <= options
    refused = CliRunner().invoke(build(), [*ASKED, "--set", "linear.f_up=1"])
    assert isinstance(refused.exception, PenstockError)
    assert str(refused.exception) == "--set linear.…: a bound has no scaler"
