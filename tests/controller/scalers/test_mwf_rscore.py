"""Modified Worst Fit: who keeps what, what moves, what it costs, and when the partitions are packed anew."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.mwf_rscore import MwfRscore, modified_worst_fit, r_score
from penstock.contracts import Decision, Groups, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.errors import PenstockError
from penstock.plan import range_groups
from tests.controller.scalers.one_fleet import make

GROUP = "payments"


def test_what_fits_stays_and_nothing_stands_still() -> None:
    current = ((0, 1), (2, 3))
    packed = modified_worst_fit([50.0, 40.0, 60.0, 30.0], current, 100.0)
    # The consumer of 60 comes first and keeps its two; of the other not even 40 fits beside those 90.
    assert packed.groups == current
    assert r_score([50.0, 40.0, 60.0, 30.0], current, packed.groups, 100.0) == 0


def test_an_overloaded_consumer_keeps_its_heaviest_and_gives_the_rest_away() -> None:
    rates = [70.0, 50.0, 20.0, 30.0]
    packed = modified_worst_fit(rates, ((0, 1, 2), (3,)), 100.0)
    # By heaviest: consumer 0 keeps 70; 50 does not fit, so 50 and 20 are loose. Consumer 1: its 30 fits beside 70 and
    # goes there, so that it is not opened. Then 50 fits nowhere and opens a new one, where 20 goes too.
    assert packed.groups == ((0, 3), (), (1, 2))
    assert packed.used == ((0, 3), (1, 2))
    assert r_score(rates, ((0, 1, 2), (3,)), packed.groups, 100.0) == 1.0  # (50 + 20 + 30) / 100


def test_light_partitions_of_later_consumers_fill_the_ones_that_are_open() -> None:
    rates = [60.0, 10.0, 50.0, 15.0]
    packed = modified_worst_fit(rates, ((0, 1), (2, 3)), 100.0)
    # Consumer 0 holds 70. Of consumer 1 the 15 fits there, the 50 does not and stays.
    assert packed.groups == ((0, 1, 3), (2,))
    assert r_score(rates, ((0, 1), (2, 3)), packed.groups, 100.0) == 0.15


def test_worst_fit_takes_the_open_consumer_with_most_room() -> None:
    rates = [80.0, 70.0, 60.0, 15.0]
    packed = modified_worst_fit(rates, ((0,), (1,), (2, 3)), 100.0)
    # 80 and 70 are open when the third consumer's 15 is placed: room 20 against 30.
    assert packed.groups == ((0,), (1, 3), (2,))


def test_the_order_is_by_heaviest_partition_or_by_total() -> None:
    rates = [40.0, 40.0, 55.0, 5.0]  # consumer 0 has 80 in all, consumer 1 the heaviest one
    current = ((0, 1), (2, 3))
    by_heaviest = modified_worst_fit(rates, current, 100.0)
    by_total = modified_worst_fit(rates, current, 100.0, order="total")
    assert by_heaviest.groups == ((0,), (1, 2, 3))  # 60 is open first, and one of the 40 goes there
    assert by_total.groups == ((0, 1, 3), (2,))  # 80 is open first, and the 5 goes there


def test_what_its_own_consumer_cannot_keep_opens_a_new_one_and_the_heaviest_stays() -> None:
    assert modified_worst_fit([90.0, 95.0], ((0, 1),), 100.0).groups == ((1,), (0,))


def test_a_partition_heavier_than_a_consumer_fills_one_alone() -> None:
    assert modified_worst_fit([500.0, 10.0], ((0, 1),), 100.0).groups == ((0,), (1,))


def test_at_the_limit_the_emptiest_consumer_takes_what_is_left() -> None:
    packed = modified_worst_fit([90.0, 80.0, 70.0], ((0, 1, 2),), 100.0, most=2)
    assert packed.overfull
    assert packed.groups == ((0,), (1, 2))


def test_the_score_counts_moved_rate_in_capacities() -> None:
    current, following = ((0, 1), (2,)), ((0,), (1, 2))
    assert r_score([10.0, 30.0, 5.0], current, following, 60.0) == 0.5
    assert r_score([10.0, 30.0, 5.0], current, (*current, ()), 60.0) == 0


def observe(
    time_s: float, ends: Sequence[int | None], replicas: int, plan: Groups = (), unknown: dict[str, str] | None = None
) -> StreamObservation:
    return StreamObservation(
        time_s=time_s,
        fleet=GROUP,
        replicas=ReplicaCounts(joined=replicas),
        partitions=tuple(PartitionObservation(p, end, None) for p, end in enumerate(ends)),
        plan=plan,
        unknown=unknown or {},
    )


class Group:
    """A consumer group that does at once what it is told."""

    def __init__(self, partitions: int, replicas: int = 1, plan: Groups = (), **parameters: Any) -> None:
        self.scaler = make(MwfRscore, **parameters)
        self.state, self.replicas, self.plan = self.scaler.start(1), replicas, plan
        self.ends, self.time_s = [0] * partitions, 0.0
        self.tick([0] * partitions)

    def tick(self, rates: Sequence[int]) -> Decision:
        self.ends = [end + rate for end, rate in zip(self.ends, rates, strict=True)]
        seen = observe(self.time_s, self.ends, self.replicas, self.plan)
        decision, self.state = self.scaler.decide(seen, self.state)
        self.replicas = decision.targets.get(GROUP, self.replicas)
        self.plan = decision.assignment or self.plan
        self.time_s += 1.0
        return decision


def test_it_scales_to_the_consumers_that_the_rates_need_and_back() -> None:
    group = Group(5)
    # Of 180 each: 100 stays, the other 100 opens a second; 50 and 50 by most room; the last 50 opens a third.
    assert group.tick([100, 100, 50, 50, 50]).targets == {GROUP: 3}
    assert {frozenset(held) for held in group.plan} == {frozenset({0, 2}), frozenset({1, 3}), frozenset({4})}
    assert group.tick([10] * 5).action == "none"  # nothing is over its capacity and 30 s have not passed
    for _ in range(28):
        assert group.tick([10] * 5).action == "none"
    decision = group.tick([10] * 5)
    assert decision.targets == {GROUP: 1}
    assert decision.why[GROUP]["trigger"] == "refresh"


def test_a_consumer_over_its_capacity_is_a_reason_to_pack_at_once() -> None:
    group = Group(4, 2, ((0, 1), (2, 3)), refresh_s=3600)
    assert group.tick([100, 60, 100, 60]).action == "none"
    decision = group.tick([100, 90, 60, 30])
    assert decision.why[GROUP]["trigger"] == "consumer 0 is over its capacity"
    assert decision.action == "reassign"
    # 100 stays, 90 is loose; 30 fits beside 100 and goes there; 60 stays; the 90 goes to the 60.
    assert decision.why[GROUP]["MWF_groups"] == [(0, 3), (1, 2)]
    assert decision.why[GROUP]["r_score"] == pytest.approx((90 + 30) / 180)


def test_one_partition_hotter_than_a_consumer_is_no_reason_to_pack_every_second() -> None:
    group = Group(3, 2, ((0,), (1, 2)), refresh_s=3600)
    group.tick([500, 10, 10])
    later = [group.tick([500, 10, 10]) for _ in range(5)]
    assert [decision.action for decision in later] == ["none"] * 5
    assert [decision.why[GROUP]["trigger"] for decision in later] == [None] * 5


def test_a_plan_that_does_not_match_the_replicas_is_packed_anew() -> None:
    group = Group(4, 2, ((0, 1), (2, 3)), refresh_s=3600)
    group.tick([100, 60, 100, 60])
    group.replicas = 3
    decision = group.tick([100, 60, 100, 60])
    assert decision.why[GROUP]["trigger"] == "replicas and plan do not agree"
    assert decision.targets == {GROUP: 2}


def test_rates_that_cannot_be_known_hold() -> None:
    scaler = make(MwfRscore)
    decision, state = scaler.decide(observe(0.0, [5, 5], 1), scaler.start(1))
    assert "first reading" in str(decision.why[GROUP]["reason"])
    decision, _ = scaler.decide(observe(1.0, [5, None], 1, unknown={"partitions.1.end_offset": "away"}), state)
    assert decision.action == "hold"
    assert "away" in str(decision.why[GROUP]["reason"])


def test_impossible_parameters_are_told() -> None:
    with pytest.raises(PenstockError, match=r"capacity_share=1\.5: expected at most 1"):
        make(MwfRscore, capacity_share=1.5)


@given(
    st.lists(st.integers(0, 250), min_size=1, max_size=14),
    st.integers(1, 6),
    st.sampled_from(["heaviest", "total"]),
    st.none() | st.integers(1, 8),
)
def test_each_partition_once_within_capacity_and_only_what_was_opened(
    rates: list[int], replicas: int, order: Any, most: int | None
) -> None:
    loads = [float(rate) for rate in rates]
    current = range_groups(range(len(rates)), replicas)
    packed = modified_worst_fit(loads, current, 100.0, order=order, most=most)
    assert sorted(p for group in packed.groups for p in group) == list(range(len(rates)))
    assert len(packed.used) <= min(most or len(rates), len(rates))
    sums = [sum(min(loads[p], 100.0) for p in group) for group in packed.used]
    if not packed.overfull:
        assert all(total <= 100.0 + 1e-6 for total in sums)
    assert r_score(loads, current, packed.groups, 100.0) <= sum(loads) / 100.0 + 1e-9
    assert modified_worst_fit(loads, current, 100.0, order=order, most=most) == packed


@given(st.lists(st.integers(1, 99), min_size=1, max_size=12))
def test_consumers_too_full_to_share_are_left_alone(rates: list[int]) -> None:
    loads = [100.0 + rate for rate in rates]  # each more than half of the capacity
    current = tuple((p,) for p in range(len(rates)))
    packed = modified_worst_fit(loads, current, 200.0)
    assert packed.groups == current
    assert r_score(loads, current, packed.groups, 200.0) == 0
