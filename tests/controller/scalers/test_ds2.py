"""DS2's one step to the rate of the source, and the capacities, windows and delays of Flink's autoscaler."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.ds2 import Ds2, instances
from controller.scalers.flink import Flink, FlinkParameters, aligned, capacities, capacity, parallelism
from penstock.contracts import (
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    JobStatus,
    NetworkObservation,
    PartitionObservation,
    ReplicaCounts,
    StreamObservation,
    TopicStatus,
)
from penstock.errors import PenstockError
from report.explain import explain
from tests.controller.scalers.one_fleet import FLEET, Fleet, make


@pytest.mark.parametrize(
    ("rate", "true_rate", "headroom", "expected"),
    [(100.0, 20.0, 0.0, 5), (100.1, 20.0, 0.0, 6), (100.0, 20.0, 0.1, 6), (0.0, 20.0, 0.5, 0), (3.0, 200.0, 0.0, 1)],
)
def test_instances_are_the_input_with_headroom_over_the_true_rate(
    rate: float, true_rate: float, headroom: float, expected: int
) -> None:
    assert instances(rate, true_rate, headroom) == expected


def pipeline(time_s: float, arrived: int | None, *functions: tuple[int, int, float]) -> FunctionObservation:
    """A pipeline; of each function (replicas, completed, busy seconds)."""
    return FunctionObservation(
        time_s=time_s,
        fleet="pipeline",
        pipeline="document",
        replicas=ReplicaCounts(),
        arrived=arrived,
        unknown={} if arrived is not None else {"arrived": "gateway away"},
        functions=tuple(
            FunctionStatus(
                time_s=time_s,
                fleet=f"f{number}",
                replicas=ReplicaCounts(joined=replicas),
                arrived=completed,
                completed=completed,
                backlog=0,
                busy_s=busy,
            )
            for number, (replicas, completed, busy) in enumerate(functions)
        ),
    )


def test_every_function_is_scaled_for_the_source_although_a_bottleneck_hides_its_load() -> None:
    scaler = make(Ds2)
    _, state = scaler.decide(pipeline(0.0, 0, (1, 0, 0.0), (1, 0, 0.0)), scaler.start(1))
    # 60 s: 30/s come; the first gets 10/s done and is busy all the time; the second sees those 10/s, half a second
    # each, of which it manages two per second of work.
    decision, _ = scaler.decide(pipeline(60.0, 1800, (1, 600, 60.0), (1, 600, 300.0)), state)
    assert decision.targets == {"f0": 3, "f1": 15}
    assert decision.why["f1"]["true_rate_from"] == "events by busy time"


def test_a_topic_gets_the_rates_of_all_jobs_as_often_as_their_routes_visit_it() -> None:
    def network(time_s: float, a: int) -> NetworkObservation:
        return NetworkObservation(
            time_s=time_s,
            fleet="network",
            replicas=ReplicaCounts(),
            topics=tuple(
                TopicStatus(
                    time_s=time_s, fleet=topic, replicas=ReplicaCounts(joined=1), backlog=0, service_rate_per_s=4.0
                )
                for topic in ("A", "D")
            ),
            jobs=(
                JobStatus(job="1", route=("A", "D", "D"), arrived=a),
                JobStatus(job="2", route=("D",), arrival_rate_per_s=1.5),
            ),
        )

    scaler = make(Ds2)
    _, state = scaler.decide(network(0.0, 0), scaler.start(1))
    decision, _ = scaler.decide(network(60.0, 360), state)  # 6/s of job 1
    assert decision.targets == {"A": 2, "D": 4}  # ⌈6 / 4⌉ and ⌈(2·6 + 1.5) / 4⌉
    assert decision.why["D"]["input_rate_per_s"] == 13.5


def test_without_input_no_true_rate_is_needed() -> None:
    fleet = Fleet(make(Ds2), 20)
    fleet.tick(0.0, arrived=0, completed=0)
    assert fleet.tick(60.0, arrived=0, completed=0).targets == {FLEET: 1}


def test_flink_takes_the_true_rate_as_infinite_while_nothing_comes() -> None:
    fleet = Fleet(make(Flink, stabilisation_s=0, metrics_window_s=60, scale_down_interval_s=120), 20)
    sizes = []
    for time_s in range(0, 300, 60):
        decision = fleet.tick(float(time_s), arrived=500, completed=500, backlog=0)
        sizes.append(fleet.replicas)
    assert sizes == [20, 20, 20, 8, 8]  # 60 % less, after the delay
    fleet = Fleet(make(Flink, stabilisation_s=0, metrics_window_s=60), 20)
    for tick in range(2):
        decision = fleet.tick(60.0 * tick, arrived=500, completed=500, backlog=0)
    assert fleet.why(decision)["true_rate_per_s"] == "inf"
    assert "true rate of one replica = ∞/s (nothing comes)" in explain("flink", decision)


def test_the_true_rate_may_be_measured_or_given_but_not_missing() -> None:
    given_, missing = Fleet(make(Ds2, service_rate_per_s=25)), Fleet(make(Ds2))
    for fleet in (given_, missing):
        assert fleet.tick(0.0, arrived=0, completed=0).action == "hold"
    assert given_.tick(60.0, arrived=6000, completed=0).targets == {FLEET: 4}
    decision = missing.tick(60.0, arrived=6000, completed=0)
    assert decision.action == "hold"
    assert "true rate is unknown" in str(decision.why[FLEET]["reason"])
    assert missing.tick(120.0, arrived=12000, completed=0, service_rate_per_s=50.0).targets == {FLEET: 2}


def test_unknown_arrivals_hold_the_whole_pipeline() -> None:
    for kind, parameters in ((Ds2, {}), (Flink, {"stabilisation_s": 0})):
        scaler = make(kind, service_rate_per_s=10, **parameters)
        decision, _ = scaler.decide(pipeline(0.0, None, (1, 0, 0.0), (2, 0, 0.0)), scaler.start(1))
        assert decision.action == "hold"
        assert all("gateway away" in str(terms["reason"]) for terms in decision.why.values())


def test_capacity_is_for_the_lag_the_restart_and_the_input_at_the_utilisation() -> None:
    p = FlinkParameters()
    # 3600 / 1800 + 70 · 300 / 1800 + 70 / 0.7
    assert capacity(3600, 70.0, 0.7, p, with_restart=True) == pytest.approx(2 + 11 + 2 / 3 + 100)
    assert capacity(3600, 70.0, 1.0, p, with_restart=False) == 72.0
    assert capacity(0, 70.0, 0.0, p, with_restart=True) == float("inf")
    assert capacity(0, 70.0, 1.7, p, with_restart=False) == 70.0


@pytest.mark.parametrize(("now", "outside"), [(99.0, True), (100.0, False), (266.0, False), (267.0, True)])
def test_the_boundary_is_a_utilisation_of_40_to_100_percent(now: float, outside: bool) -> None:
    # For 100/s: 100 / 1.0 without a restart, and 100 · 300 / 1800 + 100 / 0.4 = 266.7 with one.
    assert capacities(now, 0.0, 100.0, FlinkParameters()).outside is outside


@pytest.mark.parametrize(("now", "wanted"), [(99.0, 17), (160.0, 10), (267.0, 6)])
def test_replicas_are_scaled_by_target_over_present_capacity(now: float, wanted: int) -> None:
    p = FlinkParameters()  # 100 · 300 / 1800 + 100 / 0.7 = 159.52
    assert parallelism(10, capacities(now, 0.0, 100.0, p), p) == wanted


def test_one_step_takes_60_percent_away_at_most() -> None:
    p = FlinkParameters()
    assert parallelism(10, capacities(10_000.0, 0.0, 1.0, p), p) == 4
    assert parallelism(2, capacities(10_000.0, 0.0, 1.0, p), p) == 1
    assert parallelism(10, capacities(1.0, 0.0, 1000.0, p), p) == 200


def play(fleet: Fleet, since_s: int, until_s: int, rate_per_s: int, backlog: int = 0) -> dict[int, int]:
    """Ticks of a minute at a constant rate; replicas by time."""
    sizes = {}
    for time_s in range(since_s, until_s, 60):
        fleet.tick(float(time_s), arrived=rate_per_s * time_s, completed=rate_per_s * time_s, backlog=backlog)
        sizes[time_s] = fleet.replicas
    return sizes


def test_nothing_happens_before_stabilisation_and_a_full_window_and_again_after_each_change() -> None:
    fleet = Fleet(make(Flink, service_rate_per_s=10))
    sizes = play(fleet, 0, 3600, 35)
    # 5 + 15 minutes; then 35 · 300 / 1800 + 35 / 0.7 = 55.83 → 6 replicas. They are enough ever after.
    assert {time_s for time_s, size in sizes.items() if size == 1} == set(range(0, 1200, 60))
    assert set(sizes.values()) == {1, 6}
    held = fleet.scaler.decide(fleet_of(7, 3600.0), fleet.state)[0]
    assert "stabilisation interval" in str(held.why[FLEET]["reason"])


def fleet_of(replicas: int, time_s: float) -> FleetObservation:
    return FleetObservation(
        time_s=time_s, fleet=FLEET, replicas=ReplicaCounts(joined=replicas), arrived=0, completed=0, backlog=0
    )


def test_lag_that_must_be_caught_up_makes_the_fleet_larger() -> None:
    fleet = Fleet(make(Flink, service_rate_per_s=10))
    assert play(fleet, 0, 1260, 35, backlog=18_000)[1200] == 7  # 10 + 55.83


def test_a_scale_in_waits_an_hour_and_takes_the_largest_recommendation_of_it() -> None:
    fleet = Fleet(make(Flink, service_rate_per_s=10), 20)
    sizes = play(fleet, 0, 4860, 20)
    # From 1200 s on 8 are recommended (60 % off at once); an hour later that is done.
    assert {time_s for time_s, size in sizes.items() if size == 20} == set(range(0, 4800, 60))
    assert sizes[4800] == 8


def test_within_the_boundary_nothing_changes() -> None:
    # Capacity 60 for 35/s: between 35 and 35 · 300 / 1800 + 35 / 0.4 = 93.3.
    fleet = Fleet(make(Flink, service_rate_per_s=10), 6)
    assert set(play(fleet, 0, 9000, 35).values()) == {6}


@pytest.mark.parametrize(
    ("partitions", "replicas", "wanted", "expected"),
    [
        (12, 1, 5, 6),
        (12, 1, 7, 12),
        (12, 6, 20, 12),
        (5, 1, 2, 5),
        (12, 12, 5, 6),
        (12, 4, 4, 4),
        (12, 5, 5, 5),  # nothing is to change
        (7, 5, 3, 3),  # none up to five: three for the fullest already
        (10, 8, 7, 5),  # none up to eight: two for the fullest, as with seven
        (12, 4, 5, 6),
    ],
)
def test_replicas_are_a_divisor_of_the_partitions(partitions: int, replicas: int, wanted: int, expected: int) -> None:
    assert aligned(wanted, replicas, partitions, FlinkParameters()) == expected


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.none() | st.integers(1, 60))
def test_alignment_keeps_the_direction_and_the_bounds(
    partitions: int, replicas: int, wanted: int, most: int | None
) -> None:
    p = FlinkParameters(max_replicas=most)
    replicas, wanted = p.bounded(min(replicas, partitions)), p.bounded(min(wanted, partitions))
    found = aligned(wanted, replicas, partitions, p)
    assert 1 <= found <= p.bounded(partitions)
    assert (found - replicas) * (wanted - replicas) >= 0


def test_a_consumer_group_gets_a_divisor_of_its_partitions_and_is_told_so() -> None:
    scaler = make(Flink, stabilisation_s=0, metrics_window_s=60, service_rate_per_s=10)
    state = scaler.start(1)
    for time_s in (0, 60):
        group = StreamObservation(
            time_s=float(time_s),
            fleet=FLEET,
            replicas=ReplicaCounts(joined=1),
            arrived=35 * time_s,
            completed=35 * time_s,
            backlog=0,
            partitions=tuple(PartitionObservation(each, 0, 0) for each in range(9)),
        )
        decision, state = scaler.decide(group, state)
    assert decision.targets == {FLEET: 9}  # 6 would leave three replicas with two partitions
    assert "up to a divisor of the 9 partitions: 9" in explain("flink", decision)


@pytest.mark.parametrize(("lag_s", "sizes"), [(301, [20, 20]), (300, [20, 8])])
def test_with_a_lag_over_five_minutes_nothing_is_removed(lag_s: int, sizes: list[int]) -> None:
    fleet, found = Fleet(make(Flink, stabilisation_s=0, metrics_window_s=60, scale_down_interval_s=0), 20), []
    for time_s in (0, 60):
        count = 60 * time_s
        decision = fleet.tick(
            float(time_s), arrived=count, completed=count, backlog=60 * lag_s, service_rate_per_s=100.0
        )
        found.append(fleet.replicas)
    assert found == sizes
    assert ("a backlog: no scale-in" in explain("flink", decision)) is (lag_s > 300)


@pytest.mark.parametrize(("rates", "expected"), [([81, 81, 79, 81, 79], 6), ([79, 79, 81, 79, 81], 10)])
def test_of_equal_recommendations_the_latest_tells_whether_it_is_outside(rates: list[int], expected: int) -> None:
    parameters = {"stabilisation_s": 0, "metrics_window_s": 15, "scale_down_interval_s": 60, "restart_s": 0}
    fleet = Fleet(make(Flink, service_rate_per_s=20, decision_interval_s=15, **parameters), 10)
    count = 0
    for tick, rate in enumerate([0, *rates]):
        count += 15 * rate
        fleet.tick(15.0 * tick, arrived=count, completed=count, backlog=0)
    assert fleet.replicas == expected  # six are recommended at both rates; below 80/s that is outside


@pytest.mark.parametrize("kind", [Ds2, Flink])
def test_a_fleet_without_replicas_gets_the_minimum_at_least(kind: type[Any]) -> None:
    parameters = {"stabilisation_s": 0, "metrics_window_s": 60} if kind is Flink else {}
    fleet = Fleet(make(kind, service_rate_per_s=10, min_replicas=2, **parameters), 0)
    fleet.tick(0.0, arrived=0, completed=0, backlog=0)
    assert fleet.tick(60.0, arrived=60, completed=0, backlog=60).targets == {FLEET: 2}


@given(st.floats(0.1, 1000), st.floats(0.1, 500), st.floats(0, 2), st.integers(1, 40))
def test_ds2_needs_one_step(rate: float, true_rate: float, headroom: float, replicas: int) -> None:
    needed = instances(rate, true_rate, headroom)
    assert needed * true_rate >= (1 + headroom) * rate - 1e-6
    assert (needed - 1) * true_rate < (1 + headroom) * rate + 1e-6
    p = FlinkParameters(max_scale_down=1.0, max_replicas=None)
    once = parallelism(replicas, capacities(true_rate * replicas, 0.0, rate, p), p)
    assert parallelism(once, capacities(true_rate * once, 0.0, rate, p), p) == once


def test_impossible_parameters_are_told() -> None:
    with pytest.raises(PenstockError, match="max_scale_down=2"):
        make(Flink, max_scale_down=2)
    with pytest.raises(PenstockError, match="headroom=-1"):
        make(Ds2, headroom=-1)


def test_functions_without_a_pipeline_are_scaled_for_their_own_calls() -> None:
    def functions(time_s: float, *counted: tuple[int, int, float]) -> FunctionObservation:
        pipe = pipeline(
            time_s, sum(arrived for arrived, _, _ in counted), *((1, done, busy) for _, done, busy in counted)
        )
        parts = zip(pipe.functions, counted, strict=True)
        own = tuple(msgspec.structs.replace(each, arrived=arrived) for each, (arrived, _, _) in parts)
        return msgspec.structs.replace(pipe, pipeline="", functions=own)

    scaler = make(Ds2)
    state = scaler.start(1)
    _, state = scaler.decide(functions(0.0, (0, 0, 0.0), (0, 0, 0.0)), state)
    after_s = scaler.period_s
    # One function has 30 calls per second, the other 5; a replica serves 10 per second.
    busy = functions(after_s, (round(30 * after_s), 10, 1.0), (round(5 * after_s), 10, 1.0))
    decision, _ = scaler.decide(busy, state)
    first, second = (each.fleet for each in busy.functions)
    assert decision.targets == {first: 3} and decision.why[second]["needed"] == 1
