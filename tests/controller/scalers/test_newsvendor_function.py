"""newsvendor for pipelines of functions: what is due by the deadline, the trade, and what holds for every input."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scalers.newsvendor_function import (
    NewsvendorFunction,
    NewsvendorFunctionParameters,
    NewsvendorFunctionState,
)
from controller.scalers.shared.newsvendor import Forecast
from penstock.contracts import Decision, FunctionObservation, FunctionStatus, ReplicaCounts

SERVICE_S = 0.1
NAMES = ("first", "second")


def scaler(**parameters: Any) -> NewsvendorFunction:
    return NewsvendorFunction(NewsvendorFunctionParameters(**parameters))


def observed(
    time_s: float, arrived: int | None, done: Mapping[str, int], replicas: int = 3, **changes: Any
) -> FunctionObservation:
    """Two functions in a row, of which each has finished ``done`` requests and works on none."""
    parts = [
        FunctionStatus(
            time_s=time_s,
            fleet=name,
            replicas=ReplicaCounts(joined=replicas),
            arrived=(arrived or 0) if index == 0 else done["first"],
            completed=done[name],
            backlog=max(0, ((arrived or 0) if index == 0 else done["first"]) - done[name]),
            in_flight=0,
            service_rate_per_s=1 / SERVICE_S,
            after=NAMES[:index],
        )
        for index, name in enumerate(NAMES)
    ]
    whole = FunctionObservation(
        time_s=time_s,
        fleet="pipeline",
        replicas=ReplicaCounts(joined=replicas * len(NAMES)),
        arrived=arrived,
        deadline_s=1.0,
        functions=tuple(parts),
        finished=done["second"],
        missed=0,
    )
    return msgspec.structs.replace(whole, **changes)


def sizes(decision: Decision, replicas: int = 3) -> list[int]:
    return [decision.targets.get(name, replicas) for name in NAMES]


def after_steady_load(per_s: int, waiting: int = 0, replicas: int = 3, **parameters: Any) -> Decision:
    """The decision after twenty seconds of a steady load, with requests that wait at the first function."""
    own, state = scaler(**parameters), NewsvendorFunctionState()
    for second in range(20):
        arrived = per_s * second
        done = dict.fromkeys(NAMES, arrived - (waiting if second == 19 else 0))
        decision, state = own.decide(observed(float(second), arrived, done, replicas), state)
    return decision


def test_idle_replicas_go_and_a_load_that_fits_keeps_its_replicas() -> None:
    assert sizes(after_steady_load(per_s=5)) == [1, 1]
    assert sizes(after_steady_load(per_s=26)) == [3, 3]


def test_a_queue_that_cannot_be_served_in_time_adds_replicas_to_the_whole_pipeline() -> None:
    first, second = sizes(after_steady_load(per_s=26, waiting=40))
    assert first > 3
    assert 3 < second <= first


def test_the_trade_is_shown_for_one_fewer_and_one_more() -> None:
    why = after_steady_load(per_s=26).why["first"]
    assert why["candidates"] == [2, 3, 4]
    late, cost = why["late"], why["cost"]
    assert isinstance(late, list) and isinstance(cost, list)
    assert late[0] > late[1] > late[2]
    assert min(cost) == cost[1]


def test_arrivals_are_interpolated_and_expected() -> None:
    forecast = Forecast().updated(0.0, 0, 3.0).updated(1.0, 10, 3.0).updated(2.0, 20, 3.0)
    assert [forecast.count_at(after_s) for after_s in (-9.0, -1.5, 0.0)] == [0, 5, 20]
    assert forecast.count_at(1.0) == pytest.approx(30)
    assert forecast.updated(3.0, 5, 3.0) == Forecast(((3.0, 5),))  # started anew


def test_a_replica_that_starts_is_not_asked_for_again() -> None:
    own, state = scaler(start_up_s=5.0), NewsvendorFunctionState()
    for second in range(20):
        done = dict.fromkeys(NAMES, 26 * second - (90 if second == 19 else 0))
        decision, state = own.decide(observed(float(second), 26 * second, done), state)
    more = decision.targets["first"] - 3
    assert state.asked["first"] == ((19.0, more),)
    later = observed(20.0, 26 * 20, dict.fromkeys(NAMES, 26 * 20 - 86))
    starting = msgspec.structs.replace(later.functions[0], replicas=ReplicaCounts(joined=3, requested=more))
    decision, _ = own.decide(msgspec.structs.replace(later, functions=(starting, later.functions[1])), state)
    assert decision.targets.get("first", 3 + more) <= 3 + more + 1


@pytest.mark.parametrize("field", ["arrived", "deadline_s"])
def test_unknown_readings_hold(field: str) -> None:
    own, state = scaler(), NewsvendorFunctionState()
    for second in range(3):
        _, state = own.decide(observed(float(second), 0, dict.fromkeys(NAMES, 0)), state)
    blind = msgspec.structs.replace(observed(3.0, 0, dict.fromkeys(NAMES, 0)), **{field: None})
    decision, _ = own.decide(blind, state)
    assert decision.action == "hold"
    assert field in str(decision.why)


@pytest.mark.parametrize("field", ["arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "after"])
def test_unknown_readings_of_a_function_hold(field: str) -> None:
    own, state = scaler(), NewsvendorFunctionState()
    for second in range(3):
        _, state = own.decide(observed(float(second), 0, dict.fromkeys(NAMES, 0)), state)
    known = observed(3.0, 30, dict.fromkeys(NAMES, 30))
    blind = msgspec.structs.replace(known.functions[0], **{field: None})
    decision, _ = own.decide(msgspec.structs.replace(known, functions=(blind, known.functions[1])), state)
    assert decision.action == "hold"


@pytest.mark.parametrize("start_up_s", [1.0, 6.0, 10.0, 60.0])
def test_without_load_the_least_replicas_are_left_however_long_a_start_up_is(start_up_s: float) -> None:
    own, state, replicas = scaler(start_up_s=start_up_s), NewsvendorFunctionState(), 6
    for second in range(200):
        arrived = 40 * min(second, 20)
        decision, state = own.decide(observed(float(second), arrived, dict.fromkeys(NAMES, arrived), replicas), state)
        replicas = max(sizes(decision, replicas))
    assert replicas == 1


def test_requests_that_fail_for_good_are_not_due_any_more() -> None:
    own, state = scaler(), NewsvendorFunctionState()
    for second in range(200):
        arrived = 20 * min(second, 50)
        done = dict.fromkeys(NAMES, max(0, arrived - 100))
        seen = observed(float(second), arrived, done)
        first = msgspec.structs.replace(seen.functions[0], backlog=0)
        decision, state = own.decide(msgspec.structs.replace(seen, functions=(first, seen.functions[1])), state)
    assert sizes(decision) == [1, 1]
    assert decision.why["first"]["due"] == pytest.approx(0, abs=0.01)
    assert decision.why["second"]["due"] == pytest.approx(0, abs=0.01)


def test_before_the_first_request_the_least_replicas_need_no_service_rate() -> None:
    own, state = scaler(), NewsvendorFunctionState()
    for second in range(3):
        seen = observed(float(second), 0, dict.fromkeys(NAMES, 0))
        parts = tuple(msgspec.structs.replace(each, service_rate_per_s=None) for each in seen.functions)
        decision, state = own.decide(msgspec.structs.replace(seen, functions=parts), state)
    assert sizes(decision) == [1, 1]


LOADS = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 8))


@settings(max_examples=5, deadline=None)
@given(load=LOADS, price_s=st.floats(0.1, 20))
def test_doubling_the_price_never_lowers_n(load: tuple[int, int, int], price_s: float) -> None:
    per_s, waiting, replicas = load
    once, twice = (
        sizes(after_steady_load(per_s, min(waiting, 19 * per_s), replicas, price_s=each), replicas)
        for each in (price_s, 2 * price_s)
    )
    assert twice[0] >= once[0]


@settings(max_examples=15, deadline=None)
@given(load=LOADS)
def test_the_same_input_has_the_same_answer_within_the_bounds_also_from_a_stored_state(
    load: tuple[int, int, int],
) -> None:
    per_s, waiting, replicas = load
    own, state = scaler(min_replicas=2, max_replicas=5), NewsvendorFunctionState()
    for second in range(4):
        arrived = per_s * second
        done = dict.fromkeys(NAMES, max(0, arrived - waiting))
        stored = msgspec.json.decode(msgspec.json.encode(state), type=NewsvendorFunctionState)
        now = observed(float(second), arrived, done, replicas)
        decision, following = own.decide(now, state)
        assert own.decide(now, stored) == (decision, following)
        assert all(2 <= target <= 5 for target in decision.targets.values())
        state = following
