"""newsvendor: what its answers promise, whatever the load, and the numbers that follow from the method."""

from collections.abc import Sequence
from math import exp, log
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.newsvendor import (
    LEAST_EXPECTED,
    LEAST_RATIO,
    MOST_RATIO,
    LateEvents,
    LateRatios,
    Newsvendor,
    NewsvendorParameters,
    NewsvendorState,
    age_of_oldest,
    late_at_any_time,
    moved,
    requests,
)
from controller.scalers.shared.jumps import STEADY_TICKS
from controller.scalers.shared.newsvendor import (
    LARGEST_PART,
    MOST_RAISED,
    PRICE_GAIN,
    CumulativePrice,
    Price,
    first_price,
    part_to_use,
)
from penstock.contracts import ARRIVAL_SLOTS, Decision, Groups, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.plan import range_groups
from report.explain import explain
from report.explanations.wording import as_list

PARTITIONS = 5
BURST = (0, 0, *(0,) * 15, 0, 1, 0)
"""All arrivals 0.1 s before the tick."""
EARLIER = (*(0,) * 9, 1, *(0,) * 10)
"""All arrivals half a second before the tick, when no answer helps them any more."""


class Group:
    """A consumer group that carries out every decision at once and finishes everything within the second."""

    def __init__(self, scaler: Newsvendor, start_up: int = 0) -> None:
        self.scaler, self.state, self.start_up = scaler, scaler.start(1), start_up
        self.time_s, self.ends, self.replicas = 0.0, [1000] * PARTITIONS, 1
        self.plan: Groups = ((0, 1, 2, 3, 4),)
        self.finished = self.late = 0
        self.measured: dict[str, Any] = {}

    def observe(
        self, arrivals: Sequence[int], *, lags: Sequence[int] = (0,) * PARTITIONS, late: int = 0, profile: Any = BURST
    ) -> StreamObservation:
        self.time_s += 1.0
        self.ends = [end + new for end, new in zip(self.ends, arrivals, strict=True)]
        self.finished, self.late = self.finished + sum(arrivals), self.late + late
        starting = min(self.start_up, self.replicas - 1)
        return StreamObservation(
            time_s=self.time_s,
            fleet="payments",
            replicas=ReplicaCounts(started=starting, joined=self.replicas - starting),
            partitions=tuple(
                PartitionObservation(p, self.ends[p], self.ends[p] - lags[p], None, tuple(new * k for k in profile))
                for p, new in enumerate(arrivals)
            ),
            plan=self.plan,
            finished=self.finished,
            late=self.late,
            **self.measured,
        )

    def tick(self, observation: StreamObservation) -> Decision:
        decision, self.state = self.scaler.decide(observation, self.state)
        self.replicas = decision.targets.get("payments", self.replicas)
        self.plan = decision.assignment or self.plan
        return decision


def make(**parameters: Any) -> Newsvendor:
    return Newsvendor(NewsvendorParameters(**{"start_up_s": 0.0, "rebalance_time_s": 0.05, **parameters}))


def evenly(events: int) -> list[int]:
    return [events // PARTITIONS + (p < events % PARTITIONS) for p in range(PARTITIONS)]


# --- the trade -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "price_s", "replicas"),
    [(0, 0.3, 1), (60, 0.08, 1), (60, 1.0, 1), (166, 0.08, 2), (250, 0.08, 3), (250, 1.0, 5), (350, 0.3, 5)],
)
def test_constant_bursts_need_the_replicas_that_the_price_is_worth(events: int, price_s: float, replicas: int) -> None:
    group = Group(make(price_s=price_s))
    for _ in range(60):
        group.tick(group.observe(evenly(events), profile=EARLIER))
    assert group.replicas == replicas


def bursts_answered(group: Group, loads: Sequence[Sequence[int]]) -> tuple[float, float]:
    """(Replicas, late events) per burst: 200 events/s a replica, decisions 0.075 s after each burst, of which 15 are
    finished then, and a rebalance of 0.05 s, so that 75 more are in time, or 85 without one.
    """
    replicas, late = 0, 0.0
    for burst in loads:
        lags = list(burst)
        for of_replica in group.plan:
            served = 15
            for p in of_replica:
                lags[p], served = max(0, lags[p] - served), max(0, served - lags[p])
        in_time = 85 if group.tick(group.observe(burst, lags=lags)).action == "none" else 75
        late += sum(max(0, sum(lags[p] for p in of_replica) - in_time) for of_replica in group.plan)
        replicas += group.replicas
    return replicas / len(loads), late / len(loads)


def test_bursts_that_can_be_answered_cost_less() -> None:
    draw = np.random.default_rng(3)
    loads = [draw.multinomial(280, [0.2] * PARTITIONS).tolist() for _ in range(200)]
    answers, fixed = Group(make(price_s=0.3)), Group(make(price_s=0.3))
    replicas, late = bursts_answered(answers, loads)
    for burst in loads:
        fixed.tick(fixed.observe(burst, profile=EARLIER))
    assert replicas + 0.3 * late < 0.95 * fixed.replicas


def test_a_burst_that_can_be_grouped_anew_needs_fewer_replicas_though_none_can_start_in_time() -> None:
    regrouped, kept = (Group(make(price_s=0.1, start_up_s=10.0, rebalance_time_s=pause)) for pause in (0.05, 0.45))
    why = []
    for group in (regrouped, kept):
        for _ in range(30):
            decision = group.tick(group.observe(evenly(250)))
        why.append(decision.why["payments"])
    by_load = [dict(zip(as_list(each["candidates"]), as_list(each["late_by_load"]), strict=True)) for each in why]
    assert by_load[0][3] < 0.7 * by_load[1][3]
    assert "next_replicas" not in why[0]


def test_the_answer_to_the_next_burst_is_part_of_the_cost_and_told() -> None:
    group = Group(make(price_s=0.1))
    for _ in range(30):
        decision = group.tick(group.observe(evenly(250), lags=(40,) * PARTITIONS))
    why = decision.why["payments"]
    terms = ("candidates", "next_replicas", "late_by_load", "late_by_jump", "late_waiting", "late_by_pause", "cost")
    for n, following, by_load, by_jump, waiting, paused, cost in zip(*(as_list(why[t]) for t in terms), strict=True):
        assert cost == pytest.approx(n + following + 0.1 * (by_load + by_jump + waiting + paused))
    text = explain("newsvendor", decision)
    assert "replicas that answer the next burst" in text
    assert "a decision sees a burst 0.075 s after it came" in text


ARRIVALS = st.lists(st.lists(st.integers(0, 150), min_size=PARTITIONS, max_size=PARTITIONS), min_size=2, max_size=15)
LAGS = st.lists(st.integers(0, 80), min_size=PARTITIONS, max_size=PARTITIONS)


@given(
    arrivals=ARRIVALS,
    lags=LAGS,
    price_s=st.floats(0.01, 3.0),
    pause_s=st.sampled_from([0.0, 0.09, 0.5]),
    start_up_s=st.sampled_from([0.0, 1.2, 10.0]),
    starting=st.integers(0, 2),
    cooperative=st.booleans(),
)
def test_a_doubled_price_never_lowers_the_number(
    arrivals: list[list[int]],
    lags: list[int],
    price_s: float,
    pause_s: float,
    start_up_s: float,
    starting: int,
    cooperative: bool,
) -> None:
    given_ = {"start_up_s": start_up_s, "rebalance_time_s": pause_s, "cooperative": cooperative}
    cheap, dear = make(price_s=price_s, **given_), make(price_s=2 * price_s, **given_)
    group = Group(cheap, starting)
    for each in arrivals[:-1]:
        group.tick(group.observe(each))
    last, state = group.observe(arrivals[-1], lags=lags), group.state
    now = last.replicas.current
    less, more = (scaler.decide(last, state)[0].targets.get("payments", now) for scaler in (cheap, dear))
    assert less <= more


# --- what is unknown -------------------------------------------------------------------------------------------------


def forgotten(observation: StreamObservation, field: str, partition: int) -> StreamObservation:
    """The observation without one of its fields."""
    if field in ("finished", "late"):
        return msgspec.structs.replace(observation, **{field: None})
    parts = list(observation.partitions)
    parts[partition] = msgspec.structs.replace(parts[partition], **{field: None})
    return msgspec.structs.replace(observation, partitions=tuple(parts))


@given(
    high=st.integers(100, 600),
    low=st.integers(0, 100),
    field=st.sampled_from(["arrivals_by_slot", "end_offset", "committed_offset"]),
    partition=st.integers(0, PARTITIONS - 1),
)
def test_what_is_unknown_never_lowers_the_number(high: int, low: int, field: str, partition: int) -> None:
    group = Group(make())
    for _ in range(10):
        group.tick(group.observe(evenly(high)))
    before, plan, state = group.replicas, group.plan, group.state
    for _ in range(5):
        decision = group.tick(forgotten(group.observe(evenly(low)), field, partition))
        assert decision.action == "hold"
        assert decision.why["payments"]["reason"]
    assert (group.replicas, group.plan) == (before, plan)
    assert isinstance(state, NewsvendorState)
    assert group.state.estimates == state.estimates  # nothing was learned from it


@pytest.mark.parametrize("field", ["finished", "late"])
def test_without_counts_of_late_events_the_price_stays_and_decisions_go_on(field: str) -> None:
    group = Group(make())
    for _ in range(5):
        group.tick(group.observe(evenly(200), late=50))
    value = group.state.price.value
    for _ in range(5):
        decision = group.tick(forgotten(group.observe(evenly(200), late=50), field, 0))
        assert decision.action != "hold"
    assert group.state.price.value == value


# --- repeatable, restartable, bounded --------------------------------------------------------------------------------


@given(arrivals=ARRIVALS, lags=LAGS, most=st.integers(1, 7), start_up=st.integers(0, 2))
def test_answers_are_repeatable_survive_json_and_keep_the_bounds(
    arrivals: list[list[int]], lags: list[int], most: int, start_up: int
) -> None:
    scaler = make(max_replicas=most, start_up_s=float(start_up))
    group = Group(scaler, start_up)
    for each in arrivals:
        observation, state = group.observe(each, lags=lags, late=sum(each) // 20), group.state
        decision = group.tick(observation)
        written = msgspec.json.decode(msgspec.json.encode(state), type=NewsvendorState)
        assert scaler.decide(observation, written) == (decision, group.state)
        assert 1 <= group.replicas <= min(most, PARTITIONS)
        assert sorted(p for members in group.plan for p in members) == list(range(PARTITIONS))


def test_more_replicas_than_allowed_are_given_back() -> None:
    group = Group(make(max_replicas=2))
    group.replicas, group.plan = 4, ((0,), (1,), (2,), (3, 4))
    for _ in range(5):
        group.tick(group.observe(evenly(350)))
    assert group.replicas == 2


def test_fewer_replicas_wait_for_a_fifth_of_the_start_up() -> None:
    group = Group(make(start_up_s=10.0, price_s=0.1))
    group.replicas, group.plan = 2, ((0, 1, 2), (3, 4))
    actions = [group.tick(group.observe(evenly(20))).action for _ in range(6)]
    assert actions[1:4] == ["none", "none", "down"]


# --- what is learned -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Price, CumulativePrice])
@pytest.mark.parametrize(("late", "dearer"), [(0, False), (40, True)])
def test_the_price_rises_while_the_contract_is_missed_and_falls_while_it_is_kept(
    late: int, dearer: bool, kind: type[Price] | type[CumulativePrice]
) -> None:
    price = kind().updated(0, 0, 0.99)
    first = price.value
    for second in range(1, 60):
        price = price.updated(200 * second, late * second, 0.99)
    assert first is not None and price.value is not None
    assert (price.value > first) == dearer


@pytest.mark.parametrize(
    ("kind", "seconds", "given"), [(Price, 200, {}), (CumulativePrice, 150, {"part": 0.75, "noise": False})]
)
def test_a_clump_of_late_events_raises_the_price_as_much_as_single_ones(
    kind: type[Price] | type[CumulativePrice], seconds: int, given: dict[str, Any]
) -> None:
    """A cumulative contract of which nothing may be left over for this price: single ones could be among those. A clump
    is no noise, as after a jump.
    """
    clump, single = kind().updated(0, 0, 0.999), kind().updated(0, 0, 0.999)
    for second in range(1, seconds):
        clump = clump.updated(200 * second, 25 if second >= 100 else 0, 0.999, **given)
        single = single.updated(200 * second, max(0, min(25, second - 99)), 0.999, **given)
    assert clump.value == pytest.approx(single.value, rel=0.05)


def test_what_the_largest_price_could_not_answer_is_repaid_before_it_falls() -> None:
    price = CumulativePrice().updated(0, 0, 0.99)
    most = LARGEST_PART * (price.value or 0.0)
    finished = late = 0
    values = list[float]()
    for second in range(500):
        finished, late = finished + 200, late + (200 if second < 4 else 0)
        price = price.updated(finished, late, 0.99, noise=False)
        values.append(price.value or 0.0)
    largest = [second for second, value in enumerate(values) if value == most]
    assert most == pytest.approx(1.711, abs=0.001)
    assert largest == list(range(largest[0], largest[-1] + 1))
    assert largest[0] < 15 and largest[-1] > 200  # 800 late events are 1 % of 400 seconds
    assert values[-1] < 1.0


def test_a_clump_of_late_events_raises_the_price_of_a_load_without_jumps_by_a_limit_and_then_holds_it() -> None:
    """40 late events of 200 a second owe 40,000 events at 99.9 %, more than 200 seconds."""
    price = jumped = CumulativePrice().updated(0, 0, 0.999)
    values = list[float]()
    for second in range(1, 501):
        counts = 200 * second, 40 if second >= 200 else 0
        price, jumped = price.updated(*counts, 0.999), jumped.updated(*counts, 0.999, noise=False)
        values.append(price.value or 0.0)
        assert msgspec.json.decode(msgspec.json.encode(price), type=CumulativePrice) == price
        if second == 210:
            assert (jumped.value or 0.0) > 2 * values[-1]
    before, after = values[198], values[199:]
    highest = max(after)
    held = [second for second, value in enumerate(after) if value > 0.99 * highest]
    assert highest == pytest.approx(before * exp(PRICE_GAIN * MOST_RAISED), rel=0.03)
    assert held == list(range(held[0], held[-1] + 1)) and 100 < len(held) < 250
    assert values[-1] < 0.5 * highest


def test_more_late_events_than_a_quarter_of_an_hour_allows_raise_the_price_without_a_limit() -> None:
    few = many = CumulativePrice(value=0.1)
    for second in range(1, 30):
        few = few.updated(200 * second, 170 if second > 10 else 0, 0.999)
        many = many.updated(200 * second, 190 if second > 10 else 0, 0.999)
    assert few.value is not None and many.value is not None
    assert few.value < 0.4
    assert many.value == 5.0


def test_a_long_start_up_keeps_the_price_from_falling_far() -> None:
    quick, slow = CumulativePrice(), CumulativePrice()
    for second in range(400):
        quick, slow = quick.updated(100 * second, 0, 0.99), slow.updated(100 * second, 0, 0.99, 10.0)
    assert quick.value is not None and slow.value is not None
    assert slow.value > 1.05 * quick.value
    assert msgspec.json.decode(msgspec.json.encode(slow), type=CumulativePrice) == slow


def test_a_price_has_a_largest_value_that_follows_from_the_share() -> None:
    def dearest(slo_share: float) -> float | None:
        price = CumulativePrice().updated(0, 0, slo_share)
        for second in range(1, 100):
            price = price.updated(200 * second, 200 * second, slo_share)
        return price.value

    first = CumulativePrice().updated(0, 0, 0.99).value
    assert first is not None
    assert dearest(0.99) == pytest.approx(LARGEST_PART * first)
    assert dearest(0.9999) == 5.0


def test_the_price_of_the_smallest_fleet_falls_more_slowly_the_longer_a_start_up() -> None:
    def after_a_minute(start_up: float, smallest: bool) -> float:
        price = CumulativePrice().updated(0, 0, 0.99)
        for second in range(1, 60):
            price = price.updated(100 * second, 0, 0.99, start_up, smallest=smallest)
        assert price.value is not None
        return price.value

    assert after_a_minute(0.0, smallest=True) == after_a_minute(0.0, smallest=False)
    assert after_a_minute(3.0, smallest=True) > 1.2 * after_a_minute(3.0, smallest=False)
    assert after_a_minute(10.0, smallest=True) > 1.15 * after_a_minute(3.0, smallest=True)


@pytest.mark.parametrize(("late_per_second", "settled", "hours_later"), [(1.0, 1 / 2, 1 / 4), (1.98, 1.0, 1.0)])
def test_late_events_change_a_settled_price_less_while_the_contract_is_kept(
    late_per_second: float, settled: float, hours_later: float
) -> None:
    def change_after(seconds: int) -> float:
        price = CumulativePrice(value=0.3).updated(0, 0, 0.99)
        for second in range(1, seconds):
            price = price.updated(200 * second, int(late_per_second * second), 0.99, part=0.75)
        price = msgspec.structs.replace(price, value=0.3, owed=0.0)
        after = price.updated(200 * seconds, int(late_per_second * seconds) + 40, 0.99, part=0.75)
        return log((after.value or 0.0) / 0.3)

    early = change_after(300)
    assert early > 0.1
    assert change_after(2400) == pytest.approx(early * settled, rel=0.25)
    assert change_after(20_000) == pytest.approx(early * hours_later, rel=0.25)  # and no less


def test_more_of_the_contract_is_used_the_more_events_it_is_about() -> None:
    parts = [part_to_use(allowed) for allowed in (0.0, 10.0, 1000.0, 100_000.0)]
    assert parts == sorted(parts)
    assert 0.5 < parts[0] < 0.8 and 0.99 < parts[-1] < 1.0


@pytest.mark.parametrize(("part", "cheaper"), [(1.0, True), (0.75, False)])
def test_what_is_left_over_of_the_contract_may_be_used_unless_jumps_need_it(part: float, cheaper: bool) -> None:
    """After ten minutes with and without late events, the same late events follow."""

    def after_minutes(late_before: int) -> float:
        price = CumulativePrice().updated(0, 0, 0.99)
        for second in range(1, 600):
            price = price.updated(200 * second, late_before * second // 600, 0.99, part=part)
        price = msgspec.structs.replace(price, value=0.1, owed=0.0)
        for second in range(600, 660):
            price = price.updated(200 * second, late_before + int(2.5 * (second - 600)), 0.99, part=part)
        assert price.value is not None
        return price.value

    assert (after_minutes(0) < 0.95 * after_minutes(1100)) == cheaper


def test_late_events_that_come_in_clumps_are_aimed_at_less() -> None:
    single, clumps = CumulativePrice(), CumulativePrice()
    for interval in range(200):
        counts = 200 * interval, int(1.8 * interval)  # nine tenths of what 99 % allow
        single, clumps = single.updated(*counts, 0.99), clumps.updated(*counts, 0.99, together=5.0)
    assert (clumps.value or 0.0) > 1.2 * (single.value or 0.0)


def test_late_events_before_the_first_reading_and_in_a_gap_are_counted() -> None:
    counts = (100, 40), (None, None), (None, None), (400, 40), (500, 100)
    price, values = CumulativePrice(), []
    for finished, late in counts:
        price = price.updated(finished, late, 0.99)
        values.append(price.value or 0.0)
    first = CumulativePrice().updated(None, None, 0.99).value or 0.0
    assert values[0] > first
    assert values[1] == values[2] == values[0]
    assert price.finished == 500 and price.late == 100


def test_a_long_past_does_not_make_the_price_slow() -> None:
    price = CumulativePrice()
    for interval in range(30):
        price = price.updated(1_000_000 + 100 * interval, 0, 0.99)
    assert price.usual == pytest.approx(100.0)


@pytest.mark.parametrize(("by_jumps", "part"), [(0, 0.75), (20, 0.75), (50, 0.5), (75, 0.25), (500, 0.25)])
def test_late_events_of_jumps_leave_fewer_to_others(by_jumps: int, part: float) -> None:
    assert LateEvents(by_jumps=by_jumps).beside_jumps(0.99, 10_000) == pytest.approx(part)
    assert LateEvents(by_jumps=by_jumps).beside_jumps(0.99, None) == 0.75


# --- scale-ins whose rebalance is long -------------------------------------------------------------------------------


def by_simulation(busy_s: float, pause_s: float, limit_s: float) -> float:
    """Late part of a burst at time 0, over stops that begin at any time of a second: those from ``pause_s`` before it
    until it is served meet it.
    """
    step_s = 1 / 2000
    finished_s = (np.arange(1000) + 0.5) / 1000 * busy_s
    late = 0.0
    for begin_s in np.arange(-pause_s, busy_s, step_s):
        left_s = min(pause_s, begin_s + pause_s)  # of the stop, once the burst is there
        late += float((finished_s + np.where(finished_s > begin_s, left_s, 0.0) > limit_s).mean()) * step_s
    return late


@pytest.mark.parametrize("busy_s", [0.05, 0.2, 0.45])
@pytest.mark.parametrize("pause_s", [0.3, 0.5, 0.7, 2.0])
def test_a_stop_at_an_unknown_time_makes_as_many_events_late_as_in_a_simulation(busy_s: float, pause_s: float) -> None:
    [late] = late_at_any_time(np.array([busy_s]), pause_s, 0.5)
    assert late == pytest.approx(by_simulation(busy_s, pause_s, 0.5), abs=0.003)


@pytest.mark.parametrize(("late", "removed", "ratios"), [(0, 10, {LEAST_RATIO}), (180, 2, {MOST_RATIO})])
def test_scale_ins_that_make_many_events_late_are_fewer(late: int, removed: int, ratios: set[float]) -> None:
    group = Group(make(rebalance_time_s=0.5, price_s=0.08))
    before, fewer = 1, 0
    for second in range(400):
        removing = group.replicas < before
        fewer, before = fewer + removing, group.replicas
        group.tick(group.observe(evenly(250 if second % 40 < 20 else 150), late=late * removing))
    assert fewer == removed
    assert set(group.state.late.scale_ins.ratios) == ratios


@pytest.mark.parametrize(("rebalance_time_s", "told"), [(0.25, False), (0.26, True)])
def test_the_ratio_of_scale_ins_is_told_where_rebalances_take_more_than_half_of_the_slo(
    rebalance_time_s: float, told: bool
) -> None:
    group = Group(make(rebalance_time_s=rebalance_time_s))
    group.tick(group.observe(evenly(100)))
    decision = group.tick(group.observe(evenly(100)))
    assert ("scale_in_ratio" in decision.why["payments"]) == told
    assert ("scale-ins make 1 times as many events late" in explain("newsvendor", decision)) == told


def test_a_scale_in_that_costs_late_events_comes_when_fewer_replicas_have_been_enough_for_long() -> None:
    group = Group(make(rebalance_time_s=0.5, price_s=1.0))
    group.replicas, group.plan = 5, ((0,), (1,), (2,), (3,), (4,))
    decisions = [group.tick(group.observe(evenly(100))) for _ in range(60)]
    waited = next(number for number, each in enumerate(decisions) if each.action == "down")
    assert waited > 5  # the scaler knows the load after its first second
    saved = [max(as_list(each.why["payments"]["saved"])) for each in decisions[1 : waited + 1]]
    assert saved[0] < saved[2] < saved[-1]
    assert "(credit of fewer replicas)" in explain("newsvendor", decisions[waited])


def test_late_events_of_scale_ins_with_short_rebalances_are_not_compared() -> None:
    group = Group(make(rebalance_time_s=0.09, price_s=0.1))
    for second in range(200):
        group.tick(group.observe(evenly(250 if second % 40 < 20 else 60), late=50))
    assert group.state.late.scale_ins == LateRatios()


def test_late_events_of_a_scale_in_are_counted_at_its_end_or_when_the_next_one_begins() -> None:
    begun = LateRatios().begun(until=107, late=40, expected=50.0)
    assert begun.updated(106, 90) == begun
    assert begun.updated(107, 90).ratios == (1.0,)
    assert begun.updated(107, None) == begun  # unknown: later
    following = begun.begun(until=110, late=65, expected=20.0)
    assert following.ratios == (0.5,)
    assert following.updated(110, 1000).ratios == (0.5, MOST_RATIO)
    assert begun.begun(until=110, late=65, expected=LEAST_EXPECTED - 1).until is None


# --- loads that jump -------------------------------------------------------------------------------------------------


def on_off(group: Group, seconds: int, late_per_jump: int = 0) -> list[int]:
    """Replicas, second by second, under 300 events/s in turns with 60; each jump makes so many events late."""
    replicas = list[int]()
    for second in range(seconds):
        on = second // 60 % 2 == 0
        jumped = second > 0 and second % 120 == 0
        group.tick(group.observe(evenly(300 if on else 60), late=late_per_jump if jumped else 0))
        replicas.append(group.replicas)
    return replicas


@pytest.mark.parametrize(("start_up_s", "slo_share"), [(10.0, 0.99), (2.0, 0.999)])
def test_replicas_are_kept_for_a_load_that_fell_and_may_come_back(start_up_s: float, slo_share: float) -> None:
    fell, steady = (Group(make(start_up_s=start_up_s, slo_share=slo_share)) for _ in range(2))
    kept = on_off(fell, 110)[-20:]
    for _ in range(STEADY_TICKS + 60):
        steady.tick(steady.observe(evenly(60)))
    assert steady.replicas == 1
    assert min(kept) > 1


def test_replicas_are_kept_for_a_load_of_which_nothing_says_yet_how_it_changes() -> None:
    steady, gradual = (Group(make(start_up_s=10.0, slo_share=0.999)) for _ in range(2))
    for second in range(120):
        told = steady.tick(steady.observe(evenly(60)))
        known = gradual.tick(gradual.observe(evenly(min(60, 20 + second))))
    assert steady.replicas > 1
    assert gradual.replicas == 1
    sentence = "nothing says yet how the load changes: a jump to 180 events is expected"
    assert sentence in explain("newsvendor", told)
    assert sentence not in explain("newsvendor", known)


def test_no_replica_is_kept_for_a_jump_that_can_be_answered_in_time() -> None:
    group = Group(make(start_up_s=0.0, rebalance_time_s=0.05))
    assert on_off(group, 120)[-20:] == [1] * 20
    assert group.state.estimates.jumps.rate > 0


def test_jumps_that_make_fewer_events_late_than_expected_need_fewer_replicas() -> None:
    harmless, expected = (Group(make(start_up_s=10.0)) for _ in range(2))
    after = on_off(harmless, 720)[-20:], on_off(expected, 720, late_per_jump=250)[-20:]
    assert harmless.state.late.jumps.ratios == (LEAST_RATIO,) * 4  # the first jump meets all replicas
    assert max(expected.state.late.jumps.ratios) > 5 * LEAST_RATIO
    assert sum(after[0]) < sum(after[1])


def test_late_events_of_a_jump_do_not_raise_the_price_itself_and_raise_the_least_price() -> None:
    group = Group(make(start_up_s=2.0))
    on_off(group, 120)
    before = group.state
    on_off_again = group.observe(evenly(300), late=600)
    why = group.tick(on_off_again).why["payments"]
    assert group.state.late.by_jumps == before.late.by_jumps + 600
    assert group.state.price.value is not None and before.price.value is not None
    assert group.state.price.value <= before.price.value
    assert why["price_s"] == why["least_price_s"]
    text = explain("newsvendor", group.tick(group.observe(evenly(300))))
    assert "λ is at least" in text and "times as many events late as expected" in text


def test_a_told_price_is_not_raised_for_jumps() -> None:
    group = Group(make(start_up_s=10.0, price_s=0.1))
    on_off(group, 119)
    why = group.tick(group.observe(evenly(60))).why["payments"]
    assert why["price_s"] == pytest.approx(0.1)
    assert float(str(why["jumps"])) > 0 and "least_price_s" not in why


# --- replicas that have to start -------------------------------------------------------------------------------------


def after_a_jump(start_up_s: float, ticks: int) -> list[int]:
    """Numbers that are wanted after a jump from 100 to 600 smooth events/s while the new replicas start."""
    group = Group(make(start_up_s=start_up_s))
    wanted = []
    for tick in range(30 + ticks):
        jumped = tick - 29
        per_slot, lag = (6, 80 * jumped) if jumped > 0 else (1, 0)
        observation = group.observe([per_slot] * PARTITIONS, lags=[lag] * PARTITIONS, profile=[1] * ARRIVAL_SLOTS)
        counts = ReplicaCounts(joined=1, started=group.replicas - 1)
        held = {"payments-1": tuple(range(PARTITIONS))}
        group.tick(msgspec.structs.replace(observation, replicas=counts, assigned=held))
        wanted.append(group.replicas)
    return wanted[30:]


def test_after_a_jump_all_replicas_are_requested_at_once_and_none_puts_them_off() -> None:
    [first, *later] = after_a_jump(3.0, 3)
    assert first >= 4  # 600 events/s are three replicas' work, and a backlog grows while they start
    assert later == [first] * 2  # a further request would put off those that start: a plan waits for all its members


def test_while_replicas_start_those_that_have_joined_are_grouped_and_then_all_that_will_have() -> None:
    group = Group(make(start_up_s=4.0))
    group.replicas, group.plan = 2, ((0, 1), (2, 3, 4))
    held = {"payments-1": (0, 1), "payments-2": (2, 3, 4)}
    plans = []
    for tick in range(34):
        # Partitions 0 and 1 have most of the events: together they are too much for one replica.
        observation = group.observe([120, 100, 10, 10, 10] if tick >= 30 else [24, 20, 2, 2, 2])
        counts = ReplicaCounts(joined=2, started=group.replicas - 2)
        group.tick(msgspec.structs.replace(observation, replicas=counts, assigned=held))
        plans.append(group.plan)
    assert group.replicas > 2
    assert {len(plan) for plan in plans[30:33]} == {2}
    assert not any({0, 1} <= set(each) for each in plans[30])
    assert len(plans[33]) == group.replicas  # they join before the next decision


@pytest.mark.parametrize(
    ("start_up_s", "lags", "groups"),
    [
        # Partition 0 is begun: after 0.2 s in the old groups, 35 of partition 1 would be late; 5 in new ones.
        (1.2, (45, 70, 5, 5, 5), 2),
        (1.2, (15, 60, 45, 40, 10), 3),  # the two that have joined are late in any groups
        (1.0, (45, 70, 5, 5, 5), 3),  # it joins now
    ],
)
def test_a_burst_does_not_wait_for_a_replica_that_joins_within_its_limit(
    start_up_s: float, lags: Sequence[int], groups: int
) -> None:
    group = Group(make(start_up_s=start_up_s, price_s=0.5))
    group.replicas, group.plan = 2, ((0, 1), (2, 3, 4))
    held = {"payments-1": (0, 1), "payments-2": (2, 3, 4)}
    for tick in range(32):
        if tick == 30:  # one is on its way, as if it was requested now
            group.state = msgspec.structs.replace(group.state, starting_s=())
        counts = ReplicaCounts(joined=2, started=1 if tick >= 30 else 0)
        observation = group.observe([60, 70, 50, 40, 40], lags=lags if tick == 31 else (0,) * PARTITIONS)
        group.tick(msgspec.structs.replace(observation, replicas=counts, assigned=held))
        if tick < 31:
            group.replicas, group.plan = 2, ((0, 1), (2, 3, 4))
    assert group.replicas >= 3
    assert len([each for each in group.plan if each]) == groups


@pytest.mark.parametrize(("slo_share", "start_up"), [(0.99, 0.0), (0.999, 0.0), (0.999, 1.2), (0.999, 10.0)])
def test_a_price_does_not_fall_below_a_part_of_the_first_one(slo_share: float, start_up: float) -> None:
    price = CumulativePrice()
    for tick in range(1, 1000):
        price = price.updated(200 * tick, 0, slo_share, start_up)
    part = {0.0: 0.25, 1.2: 0.25, 10.0: 0.5 * 10 / 13}[start_up]
    assert price.value == pytest.approx(max(0.03, part * first_price(slo_share)))


@pytest.mark.parametrize("changed", [True, False])
def test_a_burst_that_can_still_be_grouped_is_grouped_by_its_own_events(changed: bool) -> None:
    """A load that has not changed yet is expected to jump: then groups are those on which the jump is to fall."""
    group, burst, usual = Group(make(price_s=0.5)), (10, 33, 33, 33, 10), np.array((80, 20, 20, 20, 20))
    for tick in range(100):
        group.replicas, group.plan = 2, ((0,), (1, 2, 3, 4))
        arrivals = np.round(usual * min(1.0, 0.5 + tick / 160)).astype(int).tolist() if changed else usual.tolist()
        decision = group.tick(group.observe(arrivals))
    assert (decision.why["payments"]["jumps"] == 0) == changed
    group.replicas, group.plan = 2, ((0,), (1, 2, 3, 4))
    group.tick(group.observe(burst, lags=burst))
    assert group.replicas == 2
    # 67 are served before the limit. Grouped by the load of a second and these together, 76 wait for one replica.
    assert max(sum(burst[p] for p in each) for each in group.plan) == (66 if changed else 76)


@pytest.mark.parametrize(
    ("burst", "lags", "apart"),
    [
        # Partitions 0 and 2 are begun, and done in 0.2 s: 30 of partition 1 and 20 of 3 and 4 each are left then.
        ((55, 30, 50, 30, 30), (40, 30, 20, 30, 30), {1, 3, 4}),
        # Partitions 1 and 4 are begun: 45 of partition 0 are left, and 30 of 2 and 3 each.
        ((65, 40, 45, 45, 40), (65, 20, 45, 45, 10), {0, 2, 3}),
    ],
)
def test_groups_for_a_replica_that_joins_in_a_burst_balance_what_is_left_then(
    burst: Sequence[int], lags: Sequence[int], apart: set[int]
) -> None:
    held = {"payments-1": (0, 1), "payments-2": (2, 3, 4)}
    group = Group(make(start_up_s=1.2, price_s=0.5))
    for tick in range(101):
        group.replicas, group.plan = 2, ((0, 1), (2, 3, 4))
        arrivals = np.round(np.array(burst) * min(1.0, 0.5 + tick / 160)).astype(int).tolist()
        if tick == 100:
            group.replicas, group.state = 3, msgspec.structs.replace(group.state, starting_s=(group.time_s,))
        observation = group.observe(arrivals, lags=lags if tick == 100 else (0,) * PARTITIONS)
        counts = ReplicaCounts(joined=2, started=group.replicas - 2)
        group.tick(msgspec.structs.replace(observation, replicas=counts, assigned=held))
    assert len(group.plan) == group.replicas == 3
    assert all(len(apart.intersection(each)) == 1 for each in group.plan)


def test_a_burst_is_grouped_anew_though_fewer_replicas_would_be_enough() -> None:
    """They have to be enough for a fifth of the start-up; until then, all replicas serve the burst in equal parts."""
    group, burst = Group(make(start_up_s=1.2, price_s=0.5)), (60, 50, 10, 5, 5)
    for tick in range(100):
        group.replicas, group.plan = 3, ((0, 1), (2,), (3, 4))
        group.tick(group.observe(np.round(np.array(burst) * min(1.0, 0.5 + tick / 160)).astype(int).tolist()))
    group.replicas, group.plan = 3, ((0, 1), (2,), (3, 4))
    group.state = msgspec.structs.replace(group.state, fewer=0)
    decision = group.tick(group.observe(burst, lags=burst))
    why = decision.why["payments"]
    assert why["wanted"] == 2
    assert why["reason"] == "fewer replicas are wanted for 1 decisions, more than 1 are needed"
    assert decision.action == "reassign"
    assert max(sum(burst[p] for p in each) for each in group.plan) == 60


def test_a_replica_that_is_long_overdue_keeps_no_plan_waiting() -> None:
    group = Group(make(start_up_s=4.0))
    group.replicas, group.plan = 2, ((0, 1), (2, 3, 4))
    held, grouped = {"payments-1": (0, 1), "payments-2": (2, 3, 4)}, []
    for tick in range(48):
        observation = group.observe([120, 100, 10, 10, 10] if tick >= 30 else [20] * PARTITIONS)
        counts = ReplicaCounts(joined=2, started=group.replicas - 2)
        group.tick(msgspec.structs.replace(observation, replicas=counts, assigned=held))
        grouped.append(len([each for each in group.plan if each]))
    assert max(grouped[33:38]) > 2  # those that were requested at 30 are expected at 34
    assert grouped[40:] == [2] * 8


def test_requests_are_remembered_until_their_replicas_join() -> None:
    def observed(time_s: float, joined: int, started: int) -> StreamObservation:
        return StreamObservation(
            time_s=time_s, fleet="payments", replicas=ReplicaCounts(joined=joined, started=started)
        )

    asked = requests((), observed(10, 1, 0), 3)
    assert asked == (10, 10)
    asked = requests(asked, observed(12, 1, 2), 4)
    assert asked == (10, 10, 12)
    assert requests(asked, observed(13, 1, 3), 3) == (10, 10)  # the youngest is not wanted any more
    asked = requests(asked, observed(20, 3, 1), 4)
    assert asked == (12,)
    assert requests(asked, observed(22, 4, 0), 4) == ()
    assert requests((), observed(5, 1, 1), 2) == (5,)  # its request is unknown: as if it was now


# --- backlogs and gaps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "enough"), [(BURST, 5), ([1] * ARRIVAL_SLOTS, 3)], ids=["bursts", "smooth"])
@pytest.mark.parametrize(("replicas", "waiting"), [(1, 100), (1, 1000), (1, 10_000), (2, 1000), (2, 10_000)])
def test_a_backlog_is_worked_off_however_large_it_is(
    profile: Sequence[int], enough: int, replicas: int, waiting: int
) -> None:
    # 500 events/s need three replicas of 200, or five in bursts; the group has fewer, and so many events wait in each
    # partition.
    group = Group(make(start_up_s=1.2))
    group.replicas, group.plan = replicas, range_groups(range(PARTITIONS), replicas)
    lags = [waiting] * PARTITIONS
    for _ in range(150):
        lags = [max(0, lag + 100 - 200 * group.replicas // PARTITIONS) for lag in lags]
        per_slot = 100 // sum(profile)
        group.tick(group.observe([per_slot] * PARTITIONS, lags=lags, profile=profile))
    assert sum(lags) == 0
    assert group.replicas == enough


def test_a_gap_in_the_readings_is_no_jump_and_its_late_events_are_no_reason_to_refuse() -> None:
    group = Group(make(start_up_s=2.0))
    decision, load = Decision(action="none"), 50.0
    for second in range(180):
        load += 4
        gap = 60 <= second < 120
        if gap:
            group.time_s += 1
            group.ends = [end + round(load / PARTITIONS) for end in group.ends]
        else:
            decision = group.tick(group.observe(evenly(round(load)), late=5000 if second == 120 else 0))
    assert group.state.estimates.jumps.rate == 0
    assert "cannot" not in decision.why["payments"]


# --- beliefs ---------------------------------------------------------------------------------------------------------


def test_beliefs_are_told_then_measured_and_in_the_arithmetic() -> None:
    group = Group(make(start_up_s=6.0, rebalance_time_s=0.45, service_rate_per_s=240.0))
    first = group.tick(group.observe(evenly(200)))
    for tick in range(8):
        group.measured = {"busy_s": 1.0 * tick, "start_ups_s": (1.2,) * 3, "rebalances_s": (0.09,) * 3}
        decision = group.tick(group.observe(evenly(200)))
    told = Group(make(start_up_s=6.0, service_rate_per_s=240.0, calibrate=False))
    told.measured = group.measured
    told.tick(told.observe(evenly(200)))
    unmoved = told.tick(told.observe(evenly(200)))
    assert first.action == "hold"  # the first reading

    def believed(decision: Decision) -> list[Any]:
        why = decision.why["payments"]
        return [why[name] for name in ("service_rate_per_s", "start_up_s", "rebalance_time_s", "measured")]

    assert believed(decision) == [pytest.approx(200.0), 1.2, 0.09, [7, 3, 3]]
    assert believed(unmoved) == [240.0, 6.0, 0.05, [0, 0, 0]]


@given(
    arrivals=ARRIVALS,
    busy_s=st.none() | st.floats(0.0, 9.0),
    start_ups_s=st.lists(st.floats(0.0, 30.0), max_size=4).map(tuple),
    rebalances_s=st.lists(st.floats(0.0, 5.0), max_size=4).map(tuple),
)
def test_whatever_is_measured_answers_are_repeatable_and_the_state_survives_json(
    arrivals: list[list[int]],
    busy_s: float | None,
    start_ups_s: tuple[float, ...],
    rebalances_s: tuple[float, ...],
) -> None:
    scaler = make()
    group = Group(scaler)
    for tick, each in enumerate(arrivals):
        if tick % 2:  # the start-up that is believed changes within the run
            group.measured = {"busy_s": busy_s, "start_ups_s": start_ups_s, "rebalances_s": rebalances_s}
        observation, state = group.observe(each), group.state
        decision = group.tick(observation)
        written = msgspec.json.decode(msgspec.json.encode(state), type=NewsvendorState)
        assert scaler.decide(observation, written) == (decision, group.state)
        assert 1 <= group.replicas <= PARTITIONS


# --- contracts that cannot be kept -----------------------------------------------------------------------------------


def test_a_contract_is_refused_only_for_late_events_that_nothing_had_announced() -> None:
    def reason(loads: Sequence[int], late_after_a_jump: int) -> str:
        group = Group(make(start_up_s=2.0))
        decision = Decision(action="none")
        for before, load in zip((loads[0], *loads), loads, strict=False):
            decision = group.tick(group.observe(evenly(load), late=late_after_a_jump if load > 2 * before else 0))
        return str(decision.why["payments"].get("cannot", ""))

    unforeseen = [50] * 60 + [400] * 3
    refused = reason(unforeseen, 200)
    assert refused.startswith("no number of replicas that follows from the load can meet this: 200 of ")
    assert " events were late under loads beyond forecast and peak of a start-up (2 s) before; " in refused
    assert refused.endswith("; --set newsvendor.announced_peak_per_s=RATE announces such a load")
    assert reason(unforeseen, 10) == ""  # the contract allows more
    seen_before = [400] * 20 + [50] * 40 + [400] * 3
    assert reason(seen_before, 200) == ""


def test_an_announced_peak_keeps_more_replicas_before_any_jump_and_is_told() -> None:
    def after_two_minutes(announced_peak_per_s: float | None) -> tuple[int, Decision]:
        group = Group(make(start_up_s=10.0, announced_peak_per_s=announced_peak_per_s))
        decisions = [group.tick(group.observe(evenly(60))) for _ in range(120)]
        return group.replicas, decisions[-1]

    (guessed, untold), (kept, told), (as_high, _) = map(after_two_minutes, (None, 300.0, 60.0))
    assert as_high == 1
    assert guessed < kept <= PARTITIONS
    assert "announced" not in explain("newsvendor", untold)
    assert "300 events/s are announced, which may come at any time" in explain("newsvendor", told)


def test_late_events_of_a_load_that_was_announced_are_no_reason_to_refuse() -> None:
    group = Group(make(start_up_s=2.0, announced_peak_per_s=400.0))
    for load in [50] * 60 + [400] * 3:
        decision = group.tick(group.observe(evenly(load), late=200 if load == 400 else 0))
        assert "cannot" not in decision.why.get("payments", {})


@pytest.mark.parametrize(
    ("rebalance_time_s", "slo_share", "late", "refused"),
    [(2.0, 0.999, 30, True), (2.0, 0.9, 30, False), (2.0, 0.999, 0, False), (0.4, 0.999, 30, False)],
)
def test_a_contract_is_refused_for_rebalances_that_alone_make_too_many_events_late(
    rebalance_time_s: float, slo_share: float, late: int, refused: bool
) -> None:
    group = Group(make(rebalance_time_s=rebalance_time_s, slo_share=slo_share))
    decision, rebalances = Decision(action="none"), 0
    for load in [20] * 30 + [20 + 3 * second for second in range(90)]:
        before = group.replicas
        decision = group.tick(group.observe(evenly(load), late=late if rebalances == 1 else 0))
        rebalances = rebalances + 1 if rebalances else int(group.replicas > before)
    assert rebalances > 1
    said = str(decision.why["payments"].get("cannot", ""))
    assert ("after rebalances, each of which stops the group for 2 s" in said) is refused
    assert said.endswith("a fixed number of replicas has no rebalances") is refused


# --- groups and ages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "stopped"),
    [(((0, 1), (2,)), ((2,), (0, 1)), set()), (((0, 1, 2),), ((0, 1), (2,)), {2}), (((0,), (1, 2)), ((0, 1, 2),), {0})],
)
def test_partitions_move_that_change_their_replica(before: Groups, after: Groups, stopped: set[int]) -> None:
    assert moved(before, after) == stopped


def test_the_oldest_waiting_event_is_among_the_newest_arrivals_of_its_partition() -> None:
    slots = [[0] * 10 + [7] + [0] * 8 + [3], [0] * ARRIVAL_SLOTS]
    assert age_of_oldest([0, 0], slots, ()) == 0.0
    assert age_of_oldest([3, 0], slots, ()) == pytest.approx(0.025)
    assert age_of_oldest([4, 0], slots, ()) == pytest.approx(9.5 / ARRIVAL_SLOTS)
    assert age_of_oldest([11, 0], slots, ()) == 2.0  # older than what was counted
    assert age_of_oldest([11, 0], slots, [[1] * ARRIVAL_SLOTS, [0] * ARRIVAL_SLOTS]) == pytest.approx(1.025)
