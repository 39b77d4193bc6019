"""Beliefs of a scaler: told, then measured; one odd measurement moves nothing, and what is unknown changes nothing."""

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.shared.beliefs import LEAST_EVENTS, LEAST_RATES, Beliefs, Believed
from experiments.binpack.experiments import WORKLOAD_1
from experiments.experiment import Options
from experiments.run_result import simulate
from penstock.contracts import ReplicaCounts, StreamObservation

TOLD = Believed(240.0, 6.0, 0.45)


def observed(
    finished: int | None = None,
    busy_s: float | None = None,
    start_ups_s: tuple[float, ...] = (),
    rebalances_s: tuple[float, ...] = (),
) -> StreamObservation:
    return StreamObservation(
        time_s=0.0,
        fleet="payments",
        replicas=ReplicaCounts(joined=1),
        finished=finished,
        busy_s=busy_s,
        start_ups_s=start_ups_s,
        rebalances_s=rebalances_s,
    )


def after(*observations: StreamObservation) -> Beliefs:
    beliefs = Beliefs()
    for each in observations:
        beliefs = beliefs.updated(each)
    return beliefs


def test_what_was_told_counts_until_something_is_measured() -> None:
    assert after(observed(), observed(100, None), observed(None, 0.5)).believed(TOLD) == TOLD


def test_a_wrong_service_rate_is_corrected_after_six_counts() -> None:
    beliefs = after(*(observed(200 * tick, tick * 1.0) for tick in range(LEAST_RATES)))
    assert beliefs.believed(TOLD).service_rate_per_s == TOLD.service_rate_per_s
    beliefs = beliefs.updated(observed(200 * LEAST_RATES, LEAST_RATES * 1.0))
    assert beliefs.believed(TOLD).service_rate_per_s == pytest.approx(200.0)
    assert beliefs.believed(TOLD).measured == (LEAST_RATES, 0, 0)


def test_a_delivery_counts_as_last_observed() -> None:
    assert after(observed()).believed(TOLD).delivery_s == 0
    seen = msgspec.structs.replace(observed(), delivery_s=0.006)
    assert after(seen, observed()).believed(TOLD).delivery_s == 0.006


def test_few_events_are_counted_together_with_the_next_ones() -> None:
    beliefs = after(*(observed(5 * tick, 0.025 * tick) for tick in range(LEAST_EVENTS // 5)))
    assert beliefs.rates_per_s == ()
    assert list(beliefs.updated(observed(LEAST_EVENTS, 0.1)).rates_per_s) == pytest.approx([200.0])


def test_one_stalled_replica_moves_nothing() -> None:
    ticks = [(200 * tick, tick + (30.0 if tick > 4 else 0.0)) for tick in range(10)]
    assert after(*(observed(*each) for each in ticks)).believed(TOLD).service_rate_per_s == pytest.approx(200.0)


def test_counts_that_fell_are_of_another_process_and_measure_nothing() -> None:
    beliefs = after(observed(1000, 5.0), observed(100, 0.5), observed(200, 1.0))
    assert list(beliefs.rates_per_s) == pytest.approx([200.0])


@pytest.mark.parametrize(
    ("measured_s", "believed_s"), [((), 6.0), ((1.2,), 3.6), ((1.2, 1.3), 1.3), ((1.2, 1.3, 9.0), 1.3)]
)
def test_a_start_up_told_five_times_too_long_is_corrected_after_two_joined(
    measured_s: tuple[float, ...], believed_s: float
) -> None:
    assert after(observed(start_ups_s=measured_s)).believed(TOLD).start_up_s == pytest.approx(believed_s)


def test_a_rebalance_told_five_times_too_long_is_corrected_after_two() -> None:
    beliefs = after(observed(rebalances_s=(0.09, 0.095)), observed())  # then they are unknown
    assert beliefs.believed(TOLD).rebalance_time_s == pytest.approx(0.095)


COUNTS = st.none() | st.integers(0, 10_000)
TIMES = st.lists(st.floats(0.0, 100.0), max_size=9).map(tuple)


@given(st.lists(st.builds(observed, COUNTS, st.none() | st.floats(0.0, 100.0), TIMES, TIMES), max_size=20))
def test_beliefs_survive_json_and_lie_among_what_was_told_and_measured(observations: list[StreamObservation]) -> None:
    beliefs = after(*observations)
    assert msgspec.json.decode(msgspec.json.encode(beliefs), type=Beliefs) == beliefs
    believed = beliefs.believed(TOLD)
    assert believed.service_rate_per_s > 0
    for value_s, told_s, measured_s in (
        (believed.start_up_s, TOLD.start_up_s, beliefs.start_ups_s),
        (believed.rebalance_time_s, TOLD.rebalance_time_s, beliefs.rebalances_s),
    ):
        assert min(told_s, *measured_s, told_s) <= value_s <= max(told_s, *measured_s, told_s)


# --- wrong beliefs in the sim world -----------------------------------------------------------------------------------

TRUE = {"service_rate_per_s": 200.0, "start_up_s": 1.2, "rebalance_time_s": 0.09}
NEEDED = dict(zip(TRUE, (5, 2, 2), strict=True))
"""Measurements after which a belief is corrected: seconds with events, replicas that joined, rebalances."""
RATE_WITHIN_S = 10.0


@cache
def beliefs(planted: tuple[tuple[str, str], ...]) -> list[tuple[float, dict[str, Any]]]:
    """(time, terms) of each decision on 100 s of workload 1."""
    options = Options(
        world="sim",
        seed=31,
        from_s=200,
        seconds=100,
        tick_phase_s=0.71,
        system={"rebalance_s": str(TRUE["rebalance_time_s"])},
        settings={"newsvendor": dict(planted)},
    )
    ticks = simulate(WORKLOAD_1, "newsvendor", options).ticks
    return [(tick.time_s, dict(tick.decisions["newsvendor"].why["payments"])) for tick in ticks[1:]]


@pytest.mark.parametrize(
    "planted",
    [
        (("service_rate_per_s", "240"),),
        (("service_rate_per_s", "160"),),
        (("rebalance_time_s", "0.45"),),
        (("start_up_s", "6"),),
    ],
    ids=["μ + 20 %", "μ − 20 %", "t_r × 5", "start-up × 5"],
)
def test_a_planted_belief_is_corrected_after_few_measurements(planted: tuple[tuple[str, str], ...]) -> None:
    [(name, value)] = planted
    decided = beliefs(planted)
    assert decided[0][1][name] == float(value)
    measured = [terms["measured"][list(TRUE).index(name)] for _, terms in decided]
    corrected = [index for index, count in enumerate(measured) if count >= NEEDED[name]]
    for index in corrected:
        assert decided[index][1][name] == pytest.approx(TRUE[name], rel=0.12)
    assert corrected  # within 100 s, although a long start-up or rebalance is a reason to change little
    if name == "service_rate_per_s":
        assert decided[corrected[0]][0] <= RATE_WITHIN_S


def test_what_was_told_stays_where_calibration_is_switched_off() -> None:
    planted = (("service_rate_per_s", "240"), ("calibrate", "false"))
    assert {terms["service_rate_per_s"] for _, terms in beliefs(planted)} == {240.0}
