"""Decision timelines of the stream scalers: observations in, decisions out; what is unknown makes them hold."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.binpack import Binpack, BinpackParameters
from controller.scalers.binpack_tail import BinpackTail, BinpackTailParameters
from controller.scalers.least_loaded import LeastLoaded, LeastLoadedParameters
from controller.scalers.linear import Linear, LinearParameters
from controller.scalers.optimal import Optimal, OptimalParameters
from controller.scalers.overprovision import Overprovision, OverprovisionParameters
from experiments.experiment import at_speed
from penstock.contracts import (
    Decision,
    Groups,
    PartitionObservation,
    ReplicaCounts,
    Scaler,
    StreamObservation,
)
from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from penstock.plan import range_groups
from report.explain import explain

AnyScaler = Scaler[Any, Any]
FLEET = "payments"
RATED = [Binpack, BinpackTail, LeastLoaded, Linear]
LAG_AWARE = [Binpack, BinpackTail, LeastLoaded]


def make(kind: type[Any], **parameters: Any) -> AnyScaler:
    scaler: AnyScaler = kind(make_parameters(kind.name, kind.Parameters, parameters))
    return scaler


def observe(
    time_s: float,
    ends: Sequence[int | None],
    lags: Sequence[int | None],
    replicas: int = 1,
    plan: Groups = (),
    last_scale_s: float | None = None,
    first: int = 0,
    **unknown: str,
) -> StreamObservation:
    return StreamObservation(
        time_s=time_s,
        fleet=FLEET,
        replicas=ReplicaCounts(joined=replicas),
        partitions=tuple(
            PartitionObservation(first + p, end, None if end is None or lag is None else end - lag)
            for p, (end, lag) in enumerate(zip(ends, lags, strict=True))
        ),
        plan=plan,
        last_scale_s=last_scale_s,
        unknown=unknown,
    )


def decide(
    scaler: AnyScaler,
    rates: Sequence[float],
    lags: Sequence[int],
    replicas: int = 1,
    plan: Groups = (),
    last_scale_s: float | None = None,
) -> Decision:
    """The decision of the second of two ticks, one second apart."""
    start = [1000] * len(rates)
    ends = [1000 + round(rate) for rate in rates]
    _, state = scaler.decide(observe(19.1, start, [0] * len(rates), replicas, plan), scaler.start(1))
    decision, _ = scaler.decide(observe(20.1, ends, lags, replicas, plan, last_scale_s), state)
    return decision


class Group:
    """A consumer group that does at once what it is told."""

    def __init__(self, scaler: AnyScaler, partitions: int) -> None:
        self.scaler, self.state = scaler, scaler.start(1)
        self.ends = [1000] * partitions
        self.replicas, self.plan, self.last_scale_s = 1, (), None  # type: tuple[int, Groups, float | None]

    def tick(self, time_s: float, rates: Sequence[float], lags: Sequence[int]) -> Decision:
        self.ends = [end + round(rate) for end, rate in zip(self.ends, rates, strict=True)]
        seen = observe(time_s, self.ends, lags, self.replicas, self.plan, self.last_scale_s)
        decision, self.state = self.scaler.decide(seen, self.state)
        if decision.action in ("up", "down"):
            self.replicas, self.last_scale_s = decision.targets[FLEET], time_s
        self.plan = decision.assignment or self.plan
        return decision

    def play(self, timeline: Iterable[tuple[float, Sequence[float], Sequence[int]]]) -> list[tuple[str, int]]:
        return [(self.tick(*row).action, self.replicas) for row in timeline]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Binpack, [("hold", 1), ("none", 1), ("up", 2), ("none", 2), ("none", 2), ("up", 5), ("none", 5), ("down", 1)]),
        (
            BinpackTail,
            [("hold", 1), ("none", 1), ("up", 2), ("none", 2), ("none", 2), ("up", 5), ("none", 5), ("down", 1)],
        ),
        (
            LeastLoaded,
            [("hold", 1), ("none", 1), ("up", 2), ("down", 1), ("none", 1), ("up", 5), ("down", 3), ("down", 1)],
        ),
        (
            Linear,
            [("hold", 1), ("up", 2), ("up", 3), ("down", 2), ("down", 1), ("up", 4), ("none", 4), ("down", 1)],
        ),
    ],
)
def test_a_rise_and_fall_of_the_rate(kind: type[Any], expected: list[tuple[str, int]]) -> None:
    timeline: list[tuple[float, Sequence[float], Sequence[int]]] = [
        (1.1, [0] * 5, [0] * 5),
        (2.1, [36] * 5, [0] * 5),  # fills one bin exactly: 180/s
        (3.1, [40] * 5, [0] * 5),
        (4.1, [30] * 5, [0] * 5),  # fits one at f_up but not at f_down
        (5.1, [17] * 5, [0] * 5),
        (6.1, [70] * 5, [70] * 5),
        (7.1, [70] * 5, [20] * 5),
        (8.1, [10] * 5, [0] * 5),
    ]
    assert Group(make(kind), 5).play(timeline) == expected


def test_hysteresis_scales_in_only_when_f_down_asks_for_fewer() -> None:
    timeline = [(t + 0.1, [rate] * 5, [0] * 5) for t, rate in enumerate([0, 60, 40, 30, 20, 10, 5])]
    plain = [replicas for _, replicas in Group(make(Linear), 5).play(timeline)]
    slow = [replicas for _, replicas in Group(make(Linear, hysteresis=True), 5).play(timeline)]
    assert plain == [1, 4, 3, 2, 2, 1, 1]
    assert slow == [1, 4, 4, 4, 3, 2, 1]


@pytest.mark.parametrize("kind", RATED)
def test_the_first_reading_gives_no_rate_and_the_second_does(kind: type[Any]) -> None:
    scaler = make(kind)
    decision, state = scaler.decide(observe(1.1, [500] * 5, [0] * 5), scaler.start(1))
    assert decision.action == "hold"
    assert "no rate yet" in str(decision.why[FLEET]["reason"])
    decision, _ = scaler.decide(observe(2.1, [590] * 5, [0] * 5), state)
    assert decision.action == "up"


@pytest.mark.parametrize("kind", RATED)
def test_a_missed_tick_makes_a_rate_over_two_seconds(kind: type[Any]) -> None:
    scaler = make(kind)
    _, state = scaler.decide(observe(1.1, [0] * 5, [0] * 5), scaler.start(1))
    _, state = scaler.decide(observe(2.1, [None] * 5, [None] * 5, end_offsets="broker away"), state)
    decision, _ = scaler.decide(observe(3.1, [72] * 5, [0] * 5), state)
    assert decision.why[FLEET]["rate_per_s"] == [36.0] * 5


def test_a_late_tick_still_counts_whole_seconds_of_a_burst() -> None:
    scaler = make(Binpack)
    _, state = scaler.decide(observe(1.1, [0] * 5, [0] * 5), scaler.start(1))
    decision, state = scaler.decide(observe(2.16, [36] * 5, [0] * 5), state)
    assert decision.why[FLEET]["rate_per_s"] == [36.0] * 5
    decision, _ = scaler.decide(observe(2.3, [36] * 5, [0] * 5), state)
    assert decision.action == "hold"


@pytest.mark.parametrize("kind", LAG_AWARE)
@pytest.mark.parametrize(
    ("ends", "lags", "said"),
    [
        ([600, None, 600], [0, 0, 0], "partition 1 is unknown: no end offset (partitions: broker away)"),
        ([600, 600, 600], [0, 0, None], "partition 2 is unknown: no committed offset (partitions: broker away)"),
        ([600, 400, 600], [0, 0, 0], "partition 1 is unknown: its end offset fell from 500 to 400"),
        ([], [], "no partitions known (partitions: broker away)"),
    ],
)
def test_unknown_holds_loudly(kind: type[Any], ends: list[int | None], lags: list[int | None], said: str) -> None:
    scaler = make(kind)
    _, state = scaler.decide(observe(1.1, [500] * 3, [0] * 3), scaler.start(1))
    decision, _ = scaler.decide(observe(2.1, ends, lags, partitions="broker away"), state)
    assert decision.action == "hold"
    assert not decision.targets
    assert said in str(decision.why[FLEET]["reason"])


def test_linear_does_not_need_commits_and_binpack_not_those_of_a_partition_without_events() -> None:
    for kind, lags in ((Linear, [None, None]), (Binpack, [0, None])):
        scaler = make(kind)
        _, state = scaler.decide(observe(1.1, [500, 0], lags), scaler.start(1))
        decision, _ = scaler.decide(observe(2.1, [550, 0], lags), state)
        assert decision.action == "none"


def test_a_new_partition_and_a_new_topic_hold_once() -> None:
    scaler = make(Binpack)
    _, state = scaler.decide(observe(1.1, [500, 500], [0, 0]), scaler.start(1))
    decision, state = scaler.decide(observe(2.1, [510, 510, 5], [0, 0, 0]), state)
    assert "partition 2 is new" in str(decision.why[FLEET]["reason"])
    decision, state = scaler.decide(observe(3.1, [1, 1, 1], [0, 0, 0]), state)
    assert "was the topic made anew?" in str(decision.why[FLEET]["reason"])
    decision, _ = scaler.decide(observe(4.1, [9, 9, 9], [0, 0, 0]), state)
    assert decision.action == "none"


@pytest.mark.parametrize("kind", RATED)
@pytest.mark.parametrize(("last_scale_s", "action"), [(10.1, "hold"), (11.1, "hold"), (9.1, "up"), (None, "up")])
def test_strictly_more_than_the_hold_time_must_pass(kind: type[Any], last_scale_s: float | None, action: str) -> None:
    decision = decide(make(kind, hold_s=10), [90] * 5, [0] * 5, last_scale_s=last_scale_s)
    assert decision.action == action
    if action == "hold":
        assert str(decision.why[FLEET]["reason"]).startswith("hold time")


def test_a_reassignment_is_made_within_the_same_replicas() -> None:
    plan = ((0, 1, 2), (3, 4))
    decision = decide(make(Binpack), [80, 80, 40, 20, 20], [0] * 5, replicas=2, plan=plan)
    assert decision.action == "reassign"
    assert decision.targets == {FLEET: 2}
    assert decision.assignment is not None
    assert {frozenset(group) for group in decision.assignment} == {frozenset({0, 2}), frozenset({1, 3, 4})}
    assert decision.why[FLEET]["violating"] == [[0, 0, 200.0]]


def test_a_hot_partition_does_not_rebalance_every_second() -> None:
    group = Group(make(Binpack), 5)
    rates, lags = [10] * 5, [120, 0, 0, 0, 0]
    assert group.play([(t + 0.1, rates, lags) for t in range(4)]) == [("hold", 1), *[("none", 1)] * 3]
    assert group.state.skipped == 3
    decision = group.tick(4.1, rates, lags)
    assert decision.why[FLEET]["flag"] == "REASS"
    assert "B18" in str(decision.why[FLEET]["reason"])


def test_the_tail_aware_one_drops_a_scale_in_that_the_rebalance_would_undo() -> None:
    group = Group(make(BinpackTail), 5)
    rates, lags = [10] * 5, [120, 0, 0, 0, 0]
    assert group.play([(t + 0.1, rates, lags) for t in range(3)]) == [("hold", 1), ("up", 2), ("none", 2)]
    decision = group.tick(3.1, rates, lags)
    assert decision.action == "none"
    assert decision.why[FLEET]["flag"] == "DOWN"
    assert decision.why[FLEET]["LL_total_down"] == 2


def test_the_tail_aware_one_plans_for_what_gathers_during_the_rebalance() -> None:
    rates, lags = [60, 60, 60, 10, 10], [25, 25, 25, 10, 10]
    first = decide(make(Binpack), rates, lags)
    tail = decide(make(BinpackTail, rebalance_time_s=0.5), rates, lags)
    assert (first.targets[FLEET], tail.targets[FLEET]) == (2, 3)
    assert tail.why[FLEET]["total_lag"] == [55.0, 55.0, 55.0, 15.0, 15.0]


@pytest.mark.parametrize("kind", RATED)
def test_a_cap_and_the_number_of_partitions_bound_every_target(kind: type[Any]) -> None:
    assert decide(make(kind, max_replicas=3), [300] * 5, [500] * 5).targets == {FLEET: 3}
    assert decide(make(kind), [300] * 5, [500] * 5).targets == {FLEET: 5}
    assert decide(make(kind), [0] * 5, [0] * 5, replicas=7).targets == {FLEET: 1}
    assert decide(make(kind), [0] * 5, [0] * 5, replicas=0).targets == {FLEET: 1}


def test_partitions_may_have_any_numbers() -> None:
    scaler = make(BinpackTail)
    _, state = scaler.decide(observe(1.1, [0] * 3, [0] * 3, first=7), scaler.start(1))
    decision, _ = scaler.decide(observe(2.1, [100] * 3, [0] * 3, first=7, plan=((7, 8, 9),)), state)
    assert decision.assignment is not None
    assert sorted(p for group in decision.assignment for p in group) == [7, 8, 9]
    assert decision.why[FLEET]["current"] == [(7, 8, 9)]


def test_a_plan_of_other_partitions_is_not_believed() -> None:
    decision = decide(make(Binpack), [10] * 5, [0] * 5, replicas=2, plan=((0, 1), (2, 3)))
    assert decision.why[FLEET]["current_from"] == "range: the plan is of other partitions"
    assert decision.why[FLEET]["current"] == [(0, 1, 2), (3, 4)]


def test_linear_assigns_as_kafkas_range_assignor() -> None:
    assert decide(make(Linear), [50] * 5, [0] * 5).assignment == ((0, 1), (2, 3), (4,))


def test_linear_compares_one_second_of_arrivals_whatever_its_interval() -> None:
    group = Group(make(Linear, decision_interval_s=5), 5)
    group.tick(0.1, [0] * 5, [0] * 5)
    decision = group.tick(5.1, [60] * 5, [0] * 5)  # 60/s in all
    assert (decision.action, decision.why[FLEET]["needed_up"]) == ("none", 1)  # ⌈60 · 1 s / 90⌉ (B14)
    assert at_speed({"lag_s": LinearParameters().lag_s}, 10) == {"lag_s": 0.1}


def test_overprovisioning_is_five_replicas_for_the_papers_peak_and_three_without_lag() -> None:
    assert decide(make(Overprovision), [0] * 5, [0] * 5).targets == {FLEET: 5}
    assert decide(make(Overprovision, peak_rate_per_s=368), [0] * 5, [0] * 5).targets == {FLEET: 5}
    assert decide(make(Overprovision, lag_s=0), [0] * 5, [0] * 5).targets == {FLEET: 3}
    assert decide(make(Overprovision), [0] * 5, [0] * 5, replicas=5).action == "none"


def test_optimal_knows_the_second_that_begins() -> None:
    scaler = make(Optimal, rates_per_s=(10.0, 350.0, 10.0))
    targets = [scaler.decide(observe(t, [0] * 5, [0] * 5, 9), None)[0].targets[FLEET] for t in (0.1, 1.1, 2.1, 9.1)]
    assert targets == [1, 5, 1, 1]


def test_optimal_finds_its_interval_whatever_the_doubles_say() -> None:
    scaler = make(Optimal, rates_per_s=tuple(85.0 * k for k in range(100)), decision_interval_s=0.1)
    seen = [scaler.decide(observe(k * 0.1, [0] * 5, [0] * 5), None)[0].why[FLEET] for k in range(100)]
    assert [why["total_rate_per_s"] for why in seen] == [85.0 * k for k in range(100)]


partition = st.tuples(st.integers(0, 400), st.none() | st.integers(0, 300))
second = st.tuples(st.lists(partition, min_size=5, max_size=5), st.booleans())


@given(st.sampled_from(RATED), st.lists(second, min_size=1, max_size=12), st.none() | st.integers(1, 6))
def test_every_decision_is_within_bounds_repeatable_and_survives_a_restart(
    kind: type[Any], timeline: list[Any], max_replicas: int | None
) -> None:
    scaler = make(kind, max_replicas=max_replicas, hold_s=2)
    state, ends = scaler.start(1), [100] * 5
    replicas, plan, last_scale_s = 1, (), None  # type: tuple[int, Groups, float | None]
    for time_s, (parts, restarted) in enumerate(timeline):
        ends = [end + rate for end, (rate, _) in zip(ends, parts, strict=True)]
        seen = observe(time_s + 0.1, ends, [lag for _, lag in parts], replicas, plan, last_scale_s)
        if restarted:
            state = msgspec.json.decode(msgspec.json.encode(state), type=scaler.State)
        decision, following = scaler.decide(seen, state)
        assert scaler.decide(seen, state) == (decision, following)
        assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision).why.keys() == {FLEET}
        assert explain(scaler.name, decision)
        if decision.assignment is not None:
            assert sorted(p for group in decision.assignment for p in group) == list(range(5))
            plan = decision.assignment
        for target in decision.targets.values():
            assert 1 <= target <= min(5, max_replicas or 5)
            last_scale_s = seen.time_s if target != replicas else last_scale_s
            replicas = target
        state = following


@given(st.sampled_from([Binpack, BinpackTail]), st.lists(partition, min_size=1, max_size=9), st.integers(1, 9))
def test_the_same_load_right_after_a_scaling_asks_for_no_second_one(
    kind: type[Any], parts: list[tuple[int, int | None]], replicas: int
) -> None:
    rates, lags = [float(rate) for rate, _ in parts], [lag or 0 for _, lag in parts]
    decision = decide(make(kind), rates, lags, replicas, range_groups(range(len(parts)), replicas))
    if decision.action in ("up", "down") and decision.assignment is not None and kind is Binpack:
        again = decide(make(kind), rates, lags, decision.targets[FLEET], decision.assignment)
        assert again.action in ("none", "reassign")
    if decision.action == "up":
        assert decision.targets[FLEET] > replicas
    if decision.action == "down":
        assert decision.targets[FLEET] < replicas


@pytest.mark.parametrize(
    ("kind", "parameters", "said"),
    [
        (Binpack, {"f_up": "0.3"}, "binpack.f_up=0.3, f_down=0.4: expected 0 < f_down < f_up < 1"),
        (Binpack, {"f_up": "1"}, "expected 0 < f_down < f_up < 1"),
        (BinpackTail, {"rebalance_time_s": "-1"}, "rebalance_time_s=-1: expected a number of at least 0"),
        (Linear, {"slo_s": "nan"}, "slo_s=nan: expected a number above 0"),
        (Linear, {"reading": "cpu"}, "reading"),
        (LeastLoaded, {"max_replicas": "0"}, "max_replicas=0: expected at least 1"),
        (LeastLoaded, {"mode": "open", "max_replicas": "3"}, "mode open packs without a limit"),
        (Overprovision, {"f_up": "0"}, "f_up=0: expected a number between 0 and 1"),
        (Optimal, {}, "rates_per_s is empty"),
        (Optimal, {"rates_per_s": [1.0, -2.0]}, r"rates_per_s[1]=-2"),
    ],
)
def test_an_impossible_parameter_is_told_in_one_line(kind: type[Any], parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(PenstockError) as error:
        make(kind, **parameters)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (Binpack, BinpackParameters()),
        (BinpackTail, BinpackTailParameters()),
        (LeastLoaded, LeastLoadedParameters()),
        (Linear, LinearParameters()),
        (Overprovision, OverprovisionParameters()),
        (Optimal, OptimalParameters(rates_per_s=(1.0,))),
    ],
)
def test_every_scaler_meets_the_contract(kind: type[Any], parameters: Any) -> None:
    scaler = kind(parameters)
    assert dataclasses.is_dataclass(kind.Parameters)
    assert scaler.period_s == 1.0
    assert isinstance(scaler.start(1), kind.State)
    assert kind.fleets is StreamObservation


def test_explain_reads_like_the_paper() -> None:
    text = explain("binpack-tail", decide(make(BinpackTail), [40] * 5, [10, 0, 0, 0, 0]))
    assert text.splitlines() == [
        "binpack-tail on payments: scale up to 2 replicas",
        "  partition                 0   1   2   3   4",
        "  lag (events)             10   0   0   0   0",
        "  λ (events/s)             40  40  40  40  40",
        "  total lag = lag + λ·t_r  12   2   2   2   2",
        "  assigned now (range: no plan yet): {0, 1, 2, 3, 4}",
        "  bin at f_up: lag ≤ μ·w·f = 90, rate ≤ μ·f = 180/s",
        "  bin at f_down: lag ≤ μ·w·f = 40, rate ≤ μ·f = 80/s",
        "  t_r = 0.05 s",
        "  |G| = 1",
        "  |Least-Loaded(lag, f_up)| = 2 > 1? yes: {0, 2, 4} {1, 3}",
        "  flag: UP",
        "  |Least-Loaded(total lag, f_up)| = 2 > 1? yes: {0, 2, 4} {1, 3}",
        "  assignment: {0, 2, 4} {1, 3}",
    ]
