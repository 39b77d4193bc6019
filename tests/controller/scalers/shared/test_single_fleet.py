"""Windows of cumulative counters, and scalers of one fleet on observations of many."""

from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.shared.base import CannotDecide, check_known, resize
from controller.scalers.shared.parameters import Parameters
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, merged
from penstock.contracts import (
    Decision,
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    ReplicaCounts,
    StreamObservation,
)


def filled(*samples: tuple[float, int | None], keep_s: float = 60.0) -> Window:
    window = Window()
    for time_s, count in samples:
        window = window.add(time_s, count, keep_s)
    return window


def test_a_rate_needs_two_readings() -> None:
    assert Window().rate_per_s(10) is None
    assert filled((0, 5)).rate_per_s(10) is None
    assert filled((0, 5), (10, 25)).rate_per_s(10) == 2.0


def test_a_window_longer_than_what_was_read_is_no_whole_window() -> None:
    window = filled((0, 0), (5, 50))
    assert window.rate_per_s(120) == 10.0
    assert window.rate_per_s(120, whole=True) is None
    assert window.rate_per_s(5, whole=True) == 10.0


def test_a_rate_is_of_the_last_seconds_only() -> None:
    window = filled((0, 0), (5, 100), (10, 110), (15, 120), (20, 150))
    assert window.rate_per_s(5) == 6.0
    assert window.rate_per_s(10) == 4.0
    assert window.rate_per_s(20) == 7.5


def test_a_window_shorter_than_the_interval_takes_the_last_interval() -> None:
    assert filled((0, 0), (15, 30), (30, 90)).rate_per_s(10) == 4.0


def test_an_unknown_count_leaves_the_window_as_it_is() -> None:
    assert filled((0, 0), (5, None), (10, 40)) == filled((0, 0), (10, 40))


@pytest.mark.parametrize("again", [(15.0, 3), (5.0, 20)])
def test_a_counter_that_began_anew_is_not_compared_with_the_old_one(again: tuple[float, int]) -> None:
    window = filled((0, 0), (10, 20), again)
    assert window.samples == (again,)
    assert window.rate_per_s(60) is None


def test_a_second_reading_at_the_same_time_replaces_the_first() -> None:
    assert filled((0, 0), (10, 20), (10, 30)).samples == ((0, 0), (10, 30))


@given(
    st.lists(st.integers(0, 500), min_size=2, max_size=60),
    st.sampled_from([1.0, 2.5, 5.0]),
    st.integers(1, 12),
)
def test_a_window_keeps_as_much_as_it_needs_and_no_more(counts: list[int], period_s: float, periods: int) -> None:
    keep_s, total, window = periods * period_s, 0, Window()
    totals = [total := total + count for count in counts]
    for tick, count in enumerate(totals):
        window = window.add(0.1 + tick * period_s, count, keep_s)
    assert len(window.samples) == min(len(counts), periods + 1)
    first = totals[max(0, len(totals) - 1 - periods)]
    seconds = period_s * min(periods, len(counts) - 1)
    assert window.rate_per_s(keep_s) == pytest.approx((totals[-1] - first) / seconds)


class Asked(msgspec.Struct, frozen=True):
    times: int = 0
    arrivals: Window = Window()


class OneEach(SingleFleetScaler[Parameters, Asked]):
    """As many replicas as events arrived since the last time, one fewer where none are known."""

    name: ClassVar[str] = "one-each"
    paper: ClassVar[str] = "none"

    def read(self, part: FleetObservation, state: Asked, _: FleetObservation) -> Asked:
        return Asked(state.times + 1, state.arrivals.add(part.time_s, part.arrived, 2.5))

    def decide_part(self, part: FleetObservation, state: Asked, observation: FleetObservation) -> Step[Asked]:
        check_known(part, "arrived")
        rate = state.arrivals.rate_per_s(2.5)
        if rate is None:
            raise CannotDecide("first reading", whole=observation.fleet)
        return resize(part, round(rate * 2.5), {"rate_per_s": rate}), state


def pipeline(time_s: float, **arrived: int | None) -> FunctionObservation:
    return FunctionObservation(
        time_s=time_s,
        fleet="documents",
        replicas=ReplicaCounts(),
        functions=tuple(
            # A monitor reads its sources one after the other; only the whole has the tick's time.
            FunctionStatus(time_s=time_s - 0.3, fleet=name, replicas=ReplicaCounts(joined=3), arrived=count)
            for name, count in arrived.items()
        ),
    )


def test_every_part_is_decided_for_itself() -> None:
    scaler = OneEach(Parameters(decision_interval_s=2.5))
    first, state = scaler.decide(pipeline(0.1, qr=0, pdf=0, store=0), scaler.start(1))
    assert first.action == "hold"
    assert first.why["qr"] == {"reason": "first reading", "whole": "documents"}
    decision, state = scaler.decide(pipeline(2.6, qr=5, pdf=3, store=1), state)
    assert decision.action == "up"
    assert decision.targets == {"qr": 5, "store": 1}
    assert [why["action"] for why in decision.why.values()] == ["up", "none", "down"]
    assert decision.why["qr"]["rate_per_s"] == pytest.approx(2.0)
    assert {fleet: part.times for fleet, part in state.by_fleet.items()} == {"qr": 2, "pdf": 2, "store": 2}


def test_one_unknown_part_does_not_stop_the_others() -> None:
    scaler = OneEach(Parameters(decision_interval_s=2.5))
    _, state = scaler.decide(pipeline(0.1, qr=0, pdf=0), scaler.start(1))
    decision, _ = scaler.decide(pipeline(2.6, qr=None, pdf=2), state)
    assert decision.action == "down"
    assert decision.targets == {"pdf": 2}
    assert decision.why["qr"] == {"reason": "arrived is unknown"}


def test_what_the_monitor_said_is_told() -> None:
    part = FleetObservation(time_s=0, fleet="qr", replicas=ReplicaCounts(), unknown={"backlog": "broker away"})
    with pytest.raises(CannotDecide, match=r"^backlog is unknown \(broker away\)$"):
        check_known(part, "backlog")
    check_known(part, "time_s")


def test_a_consumer_group_is_one_part() -> None:
    scaler = OneEach(Parameters(decision_interval_s=2.5))
    seen = StreamObservation(time_s=0.1, fleet="payments", replicas=ReplicaCounts(joined=1), arrived=10)
    _, state = scaler.decide(seen, scaler.start(1))
    decision, _ = scaler.decide(msgspec.structs.replace(seen, time_s=2.6, arrived=14), state)
    assert decision.targets == {"payments": 4}


def test_an_observation_without_parts_holds_and_forgets_nothing() -> None:
    scaler = OneEach(Parameters(decision_interval_s=2.5))
    _, state = scaler.decide(pipeline(0.1, qr=0), scaler.start(1))
    decision, following = scaler.decide(pipeline(2.6), state)
    assert decision.action == "hold"
    assert following == state


@pytest.mark.parametrize(
    ("actions", "merged_action"),
    [
        (["hold", "hold"], "hold"),
        (["hold", "none"], "none"),
        (["hold", "down"], "down"),
        (["none", "down", "up"], "up"),
    ],
)
def test_up_before_down_before_none_before_hold(actions: list[str], merged_action: str) -> None:
    parts = {
        str(i): Decision(action=action, why={str(i): {}})  # type: ignore[arg-type]
        for i, action in enumerate(actions)
    }
    assert merged(parts).action == merged_action


def test_the_state_survives_a_restart() -> None:
    scaler = OneEach(Parameters(decision_interval_s=2.5))
    state = scaler.start(1)
    assert isinstance(state, scaler.State)
    for tick in range(3):
        _, state = scaler.decide(pipeline(2.5 * tick, qr=tick, pdf=2 * tick), state)
    again = msgspec.json.decode(msgspec.json.encode(state), type=scaler.State)
    assert again == state
    seen = pipeline(7.5, qr=9, pdf=9)
    assert scaler.decide(seen, again) == scaler.decide(seen, state)
    decision, _ = scaler.decide(seen, state)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision
