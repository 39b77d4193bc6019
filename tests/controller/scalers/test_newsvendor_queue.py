"""newsvendor for banks of queues: the trade, the shares, and what holds for every input."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scalers.newsvendor_queue import (
    NewsvendorQueue,
    NewsvendorQueueParameters,
    NewsvendorQueueState,
    Service,
    best_load,
    equal_waits,
    least_late,
    rounded_up,
    steady,
)
from penstock.contracts import Decision, QueueObservation, QueueStatus, ReplicaCounts

Load = tuple[int, int, int]
"""Events per second, queues, events in each of them."""


def scaler(**parameters: Any) -> NewsvendorQueue:
    return NewsvendorQueue(NewsvendorQueueParameters(**parameters))


def observed(second: int, load: Load, servers: int = 10, **changes: Any) -> QueueObservation:
    """Queues of equal shares, K = 50, a container serves ten events a second."""
    per_s, queues, events = load
    names = [f"q{number}" for number in range(queues)]
    arrived = per_s * second
    whole = QueueObservation(
        time_s=float(second),
        fleet="bank",
        replicas=ReplicaCounts(joined=queues),
        arrived=arrived,
        completed=max(0, arrived - events * queues),
        rejected=0,
        backlog=events * queues,
        queues=tuple(
            QueueStatus(
                queue=name,
                depth=max(0, events - servers),
                in_flight=min(events, servers),
                servers=servers,
                capacity=50,
                service_rate_per_s=10.0,
            )
            for name in names
        ),
        routing=dict.fromkeys(names, 1 / queues),
        pool=("spare",),
    )
    return msgspec.structs.replace(whole, **changes)


def after_steady_load(load: Load, **parameters: Any) -> Decision:
    """The decision after twelve seconds of a steady load."""
    own, state = scaler(**parameters), NewsvendorQueueState()
    for second in range(12):
        decision, state = own.decide(observed(second, load), state)
    return decision


def size(decision: Decision) -> int:
    return decision.targets["bank"]


def test_a_load_that_fits_keeps_its_queues_and_queues_that_are_not_needed_go_after_two_decisions() -> None:
    assert size(after_steady_load((70, 1, 7), slo_share=0.9)) == 1
    own, state, sizes = scaler(slo_share=0.9), NewsvendorQueueState(), []
    for second in range(6):
        decision, state = own.decide(observed(second, (50, 3, 2)), state)
        sizes.append(decision.targets.get("bank", 3))
    assert sizes == [3, 3, 1, 1, 1, 1]


def test_a_load_beyond_the_containers_adds_queues_and_the_spare_one_has_what_is_too_much_for_the_full_one() -> None:
    decision = after_steady_load((200, 1, 50))
    assert decision.action == "up"
    assert size(decision) >= 3
    assert decision.routing is not None
    assert 0 < decision.routing["q0"] < decision.routing["spare"]


def test_the_trade_is_shown_for_one_fewer_and_one_more() -> None:
    why = after_steady_load((200, 3, 10), price_s=0.1).why["bank"]
    late, cost, chosen = why["late"], why["cost"], why["chosen"]
    assert isinstance(late, list)
    assert isinstance(cost, list)
    assert isinstance(chosen, int)
    assert late == sorted(late, reverse=True)
    assert min(cost) == cost[chosen]


def test_all_queues_take_equally_long() -> None:
    assert equal_waits([0, 0], [10, 5], 150, 10) == pytest.approx([2 / 3, 1 / 3])
    first, second = equal_waits([40, 10], [10, 10], 200, 10)
    assert 200 * first + 40 == pytest.approx(200 * second + 10)
    assert equal_waits([50, 0], [10, 10], 20, 1) == pytest.approx([0, 1])
    assert equal_waits([5, 0], [10, 0], 20, 10) == pytest.approx([1, 0])
    assert equal_waits([0, 0], [0, 0], 20, 10) == pytest.approx([0.5, 0.5])


def service(capacity: int = 50) -> Service:
    """Of ten services a second of a container, and a limit of 0.5 s."""
    return Service(rounded_up(10.0), capacity, 0.5, 1.0)


def test_of_more_than_can_be_in_time_one_queue_takes_what_is_too_much_for_the_others() -> None:
    best = best_load(10, service())
    assert 80 < best.arriving < 100
    assert best.in_time > 0.9 * best.arriving
    assert steady(rounded_up(200.0), 10, service()).in_time < 0.75 * best.in_time  # it is full: waits are too long
    shares = least_late([best.events, best.events, best.events], [10, 10, 9], 400.0, service())
    assert [400 * share for share in shares[:2]] == pytest.approx([best.arriving] * 2)
    assert sum(shares) == pytest.approx(1)
    behind, ahead, last = least_late([50.0, 0.0, best.events], [10, 10, 9], 400.0, service())
    assert behind < ahead < last


@pytest.mark.parametrize(
    ("servers", "arriving", "capacity"),
    [
        ([10, 10], 150.0, 50),  # it can be served
        ([10], 400.0, 50),
        ([10, 10], 400.0, 10),  # nothing waits in a queue: full ones are in time, too
        ([0, 0], 400.0, 50),
    ],
)
def test_otherwise_all_queues_take_equally_long(servers: list[int], arriving: float, capacity: int) -> None:
    events = [5.0] * len(servers)
    assert least_late(events, servers, arriving, service(capacity)) == equal_waits(
        events, servers, arriving, 1.02 ** rounded_up(10.0)
    )


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 10)), min_size=1, max_size=6), st.floats(0, 2000))
def test_parts_of_the_arrivals_add_up_to_all_of_them(queues: list[tuple[float, int]], arriving: float) -> None:
    shares = least_late([e for e, _ in queues], [s for _, s in queues], arriving, service())
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0


def test_a_jump_of_the_load_is_followed_at_once() -> None:
    own, state = scaler(), NewsvendorQueueState()
    for second in range(10):
        _, state = own.decide(observed(second, (40, 1, 4)), state)
    _, state = own.decide(observed(10, (40, 1, 4), arrived=360 + 300), state)
    assert state.forecast.level_per_s == pytest.approx(300)


def test_rejected_events_raise_the_price_and_their_absence_lowers_it() -> None:
    own, state, prices = scaler(), NewsvendorQueueState(), []
    for second in range(40):
        rejected = 30 * min(second, 10)
        _, state = own.decide(observed(second, (100, 2, 5), rejected=rejected), state)
        prices.append(state.price.value or 0.0)
    assert prices[10] > prices[1]
    assert prices[39] < max(prices)


@pytest.mark.parametrize("field", ["arrived", "queues"])
def test_unknown_readings_hold(field: str) -> None:
    own, state = scaler(), NewsvendorQueueState()
    for second in range(3):
        _, state = own.decide(observed(second, (0, 3, 0)), state)
    unknown = None if field == "arrived" else ()
    decision, _ = own.decide(msgspec.structs.replace(observed(3, (0, 3, 0)), **{field: unknown}), state)
    assert decision.action == "hold"


@pytest.mark.parametrize("field", ["depth", "servers", "capacity"])
def test_unknown_readings_of_a_queue_hold(field: str) -> None:
    own, state = scaler(), NewsvendorQueueState()
    for second in range(3):
        _, state = own.decide(observed(second, (0, 3, 0)), state)
    known = observed(3, (0, 3, 0))
    blind = msgspec.structs.replace(known.queues[0], **{field: None})
    decision, _ = own.decide(msgspec.structs.replace(known, queues=(blind, *known.queues[1:])), state)
    assert decision.action == "hold"


def test_containers_of_one_queue_and_queues_too_long_to_compute_hold() -> None:
    one = observed(1, (10, 1, 1))
    containers = msgspec.structs.replace(one, queues=(msgspec.structs.replace(one.queues[0], queue="bank"),))
    long = msgspec.structs.replace(one, queues=(msgspec.structs.replace(one.queues[0], capacity=1000),))
    for observation, said in ((containers, "containers of one queue"), (long, "K = 1000")):
        decision, _ = scaler().decide(observation, NewsvendorQueueState())
        assert said in str(decision.why)
    with pytest.raises(ValueError, match="capacity=1000"):
        scaler(capacity=1000)


@pytest.mark.parametrize("first_container_s", [0.0, 31.0, 60.0])
def test_a_new_queue_is_worth_its_seconds_however_late_its_first_container_comes(first_container_s: float) -> None:
    assert size(after_steady_load((400, 1, 50), price_s=0.1, first_container_s=first_container_s)) >= 3


def test_events_that_the_main_queue_holds_are_late_and_get_queues() -> None:
    own, state = scaler(slo_share=0.9, max_replicas=6), NewsvendorQueueState()
    for second in range(60):
        waiting = 200 * second
        seen = observed(second, (400, 2, 50), backlog=100 + waiting, completed=200 * second)
        decision, state = own.decide(seen, state)
    assert size(decision) == 6
    assert state.late == pytest.approx(200 * 59, rel=0.05)


LOADS = st.tuples(st.integers(0, 400), st.integers(1, 5), st.integers(0, 50))


@settings(max_examples=10, deadline=None)
@given(load=LOADS, price_s=st.floats(0.005, 1))
def test_doubling_the_price_never_lowers_n(load: Load, price_s: float) -> None:
    once, twice = (size(after_steady_load(load, price_s=each)) for each in (price_s, 2 * price_s))
    assert twice >= once


@settings(max_examples=15, deadline=None)
@given(load=LOADS, servers=st.integers(0, 10))
def test_the_same_input_has_the_same_answer_within_the_bounds_also_from_a_stored_state(
    load: Load, servers: int
) -> None:
    own, state = scaler(min_replicas=2, max_replicas=4), NewsvendorQueueState()
    for second in range(4):
        stored = msgspec.json.decode(msgspec.json.encode(state), type=NewsvendorQueueState)
        now = observed(second, load, servers)
        decision, following = own.decide(now, state)
        assert own.decide(now, stored) == (decision, following)
        assert all(2 <= target <= 4 for target in decision.targets.values())
        state = following


@pytest.mark.parametrize(("on_their_way", "held"), [(0, 0), (2, 0), (3, 3)])
def test_an_event_on_its_way_to_each_queue_is_not_held_in_the_main_queue(on_their_way: int, held: int) -> None:
    """A live reading of a bank sees events between the main queue and the others."""
    own, state = scaler(slo_share=0.3), NewsvendorQueueState()
    for second in range(3):
        seen = observed(second, (200, 2, 15))
        seen = msgspec.structs.replace(seen, backlog=30 + on_their_way)
        decision, state = own.decide(seen, state)
    assert decision.why["bank"]["held"] == held
