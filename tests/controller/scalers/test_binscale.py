"""BinScale: its bins, its tail pass, its tick of half a second, and the rates of a graph of consumer groups."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.scalers.binpack_tail import BinpackTail
from controller.scalers.binscale import Binscale, BinscaleParameters, gathered_lag
from controller.scalers.shared.packing import Load
from penstock.contracts import Decision, Groups, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.plan import range_groups
from tests.controller.scalers.one_fleet import make

GROUP = "payments"


def observe(
    time_s: float, ends: Sequence[int], lags: Sequence[int], replicas: int, plan: Groups = ()
) -> StreamObservation:
    return StreamObservation(
        time_s=time_s,
        fleet=GROUP,
        replicas=ReplicaCounts(joined=replicas),
        partitions=tuple(
            PartitionObservation(p, end, end - lag) for p, (end, lag) in enumerate(zip(ends, lags, strict=True))
        ),
        plan=plan,
    )


def decide(
    rates: Sequence[int],
    lags: Sequence[int],
    replicas: int = 1,
    plan: Groups = (),
    kind: type[Any] = Binscale,
    **p: Any,
) -> Decision:
    """The second of two decisions, half a second apart; rates are even numbers per second."""
    scaler = make(kind, decision_interval_s=0.5, **p)
    _, state = scaler.decide(observe(0.0, [1000] * len(rates), [0] * len(rates), replicas, plan), scaler.start(1))
    ends = [1000 + rate // 2 for rate in rates]
    decision: Decision = scaler.decide(observe(0.5, ends, lags, replicas, plan), state)[0]
    return decision


def test_its_constants_are_those_of_the_published_controller() -> None:
    p = BinscaleParameters()
    assert (p.service_rate_per_s, p.slo_s, p.f_up, p.f_down) == (200.0, 0.5, 0.8, 0.3)
    assert (p.rebalance_time_s, make(Binscale).period_s) == (0.05, 0.5)
    up, down = p.bins()
    assert up == pytest.approx((80.0, 160.0))
    assert down == pytest.approx((30.0, 60.0))


def test_a_bin_at_f_up_holds_160_events_a_second_and_a_lag_of_80() -> None:
    assert decide([8] * 20, [0] * 20).action == "none"
    assert decide([8] * 19 + [10], [0] * 20).targets == {GROUP: 2}
    assert decide([4] * 20, [4] * 20).action == "none"  # 80 in one bin; what gathers is reckoned when scaling only
    assert decide([4] * 20, [4] * 19 + [5]).targets == {GROUP: 2}


def test_scale_in_needs_a_bin_of_f_down() -> None:
    assert decide([3 * 2] * 20, [0] * 20, replicas=2).action == "none"  # 120/s: two bins of 60
    assert decide([2] * 20, [0] * 20, replicas=2).targets == {GROUP: 1}


def test_heaviest_first_into_the_bin_with_most_remaining_rate() -> None:
    decision = decide([100, 80, 60, 40, 20], [0] * 5)
    assert decision.targets == {GROUP: 2}
    # 100 | 80, then 60 to the second, 40 to the first, 20 by most room (20 against 20): the first of equals.
    assert decision.assignment == ((0, 3, 4), (1, 2))


def test_what_no_bin_holds_fills_one() -> None:
    decision = decide([600, 10, 10], [0, 500, 0])
    assert decision.targets == {GROUP: 3}  # rate cut to 160, lag to 80; the third has no room beside the first
    assert decision.assignment is not None
    assert {frozenset(group) for group in decision.assignment} == {frozenset({0}), frozenset({1}), frozenset({2})}


def test_the_tail_pass_gives_every_partition_the_same_share_of_what_gathers() -> None:
    # (300 + 100 + 0 + 0) · 0.05 / 4 = 5
    assert gathered_lag(Load([1.0, 2.0, 3.0, 4.0], [300.0, 100.0, 0.0, 0.0]), 0.05) == [6.0, 7.0, 8.0, 9.0]


def test_it_differs_from_the_paper_where_the_lag_that_gathers_is_shared_out() -> None:
    # At t_r = 0.5 s the two cold partitions get 20 events each by the equal share, and none by their own rates.
    rates, lags = [80, 80, 0, 0], [20, 20, 30, 30]
    equal = decide(rates, lags, rebalance_time_s=0.5)
    own = decide(rates, lags, kind=BinpackTail, f_up=0.8, f_down=0.3, rebalance_time_s=0.5)
    assert equal.why[GROUP]["total_lag"] == [40.0, 40.0, 50.0, 50.0]
    assert own.why[GROUP]["total_lag"] == [60.0, 60.0, 30.0, 30.0]
    # 50 has no room beside 40 or 50 in a bin of 80; 30 and 30 share one.
    assert (equal.targets, own.targets) == ({GROUP: 4}, {GROUP: 3})


def test_unknown_lag_holds() -> None:
    scaler = make(Binscale)
    blind = StreamObservation(
        time_s=0.5,
        fleet=GROUP,
        replicas=ReplicaCounts(joined=1),
        partitions=(PartitionObservation(0, 10, None),),
        unknown={"partitions.0.committed_offset": "away"},
    )
    decision, _ = scaler.decide(blind, scaler.start(1))
    assert decision.action == "hold"
    assert "away" in str(decision.why[GROUP]["reason"])


partition = st.tuples(st.integers(0, 150), st.integers(0, 120))


@given(st.lists(partition, min_size=1, max_size=12), st.integers(1, 9), st.none() | st.integers(1, 6))
@example(parts=[(0, 7), (0, 74), (1, 6)], replicas=1, most=2)  # enough for the lag as it is, not as it will be
def test_a_packing_respects_both_limits_and_the_number_allowed(
    parts: list[tuple[int, int]], replicas: int, most: int | None
) -> None:
    rates, lags = [2 * rate for rate, _ in parts], [lag for _, lag in parts]
    plan = range_groups(range(len(parts)), replicas)
    decision = decide(rates, lags, replicas, plan, max_replicas=most)
    if decision.action == "up" and "capped" not in decision.why[GROUP]:
        assert decision.assignment is not None
        for group in decision.assignment:
            assert sum(min(rates[p], 160) for p in group) <= 160 + 1e-6
            assert sum(min(lags[p], 80) for p in group) <= 80 + 1e-6
    for target in decision.targets.values():
        assert 1 <= target <= min(len(parts), most or len(parts))
