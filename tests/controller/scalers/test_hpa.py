"""The HPA: tolerance, stabilisation, scale-up limits and bounds; expected numbers are reckoned here by its rules."""

import dataclasses
from collections.abc import Sequence
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.hpa import Hpa, HpaParameters
from controller.scalers.shared.hpa_sync import HpaHistory, HpaRules, recommend
from experiments.experiment import at_speed
from penstock.contracts import Decision, FunctionStatus, ReplicaCounts
from penstock.errors import PenstockError
from report.explain import explain
from tests.controller.scalers.one_fleet import FLEET, Fleet, make, seen


def replicas_for(backlog: int, replicas: int, **parameters: Any) -> int:
    """Where a fleet stands after one sync with nothing remembered."""
    fleet = Fleet(make(Hpa, stabilisation_s=0, **parameters), replicas)
    fleet.tick(0.0, backlog=backlog)
    return fleet.replicas


@pytest.mark.parametrize(
    ("backlog", "expected"),
    [
        (100, 10),
        (110, 10),  # ratio 1.1: the last one within the tolerance
        (111, 12),  # ⌈11.1⌉
        (90, 10),
        (89, 9),  # ⌈8.9⌉
        (101, 10),  # ⌈10.1⌉ would be 11
        (0, 1),
    ],
)
def test_a_ratio_within_a_tenth_of_one_changes_nothing(backlog: int, expected: int) -> None:
    assert replicas_for(backlog, 10) == expected


def test_without_tolerance_any_excess_counts() -> None:
    assert replicas_for(101, 10, tolerance=0) == 11


def sizes(series: Sequence[int], replicas: int, **parameters: Any) -> list[int]:
    """Replicas after each sync of a series of metric values, of which one replica is to have ten."""
    fleet = Fleet(make(Hpa, target_per_replica=10, **parameters), replicas)
    found = []
    for sync, value in enumerate(series):
        fleet.tick(15.0 * sync, backlog=value)
        found.append(fleet.replicas)
    return found


@pytest.mark.parametrize(
    ("series", "replicas", "without", "with_behavior"),
    [
        # Seen with the controller of Kubernetes 1.34; the first number is before the first sync.
        ([100] * 3, 1, [4, 8, 10], [5, 10, 10]),
        ([200, 200, 60, 60, 60], 1, [4, 8, 16, 20, 20], [5, 10, 10, 10, 10]),
    ],
)
def test_a_series_ends_where_the_real_hpa_ended(
    series: list[int], replicas: int, without: list[int], with_behavior: list[int]
) -> None:
    assert sizes(series, replicas) == without
    assert sizes(series, replicas, behavior=True) == with_behavior


def test_without_behavior_one_sync_doubles_or_makes_four() -> None:
    assert sizes([100_000] * 6, 1) == [4, 8, 16, 32, 64, 128]
    assert sizes([100_000] * 3, 3) == [6, 12, 24]


def test_with_behavior_one_sync_doubles_or_adds_four() -> None:
    assert sizes([100_000] * 5, 1, behavior=True) == [5, 10, 20, 40, 80]


def test_with_behavior_early_syncs_share_the_limit_of_a_period() -> None:
    fleet = Fleet(make(Hpa, behavior=True, decision_interval_s=5))
    found = []
    for sync in range(7):
        fleet.tick(5.0 * sync, backlog=10_000)
        found.append(fleet.replicas)
    assert found == [5, 5, 5, 10, 10, 10, 20]


def test_the_period_of_the_policies_is_a_parameter_that_a_runs_speed_divides() -> None:
    values = at_speed(dataclasses.asdict(HpaParameters(behavior=True)), 10)
    fleet, found = Fleet(make(Hpa, **values)), []
    for sync in range(4):
        fleet.tick(1.5 * sync, backlog=10_000)
        found.append(fleet.replicas)
    assert found == [5, 10, 20, 40]  # as every 15 s at speed 1


def test_a_short_peak_is_followed_to_its_full_height_without_behavior_only() -> None:
    peak = [200] + [50] * 22
    assert sizes(peak, 1) == [4, 8, 16] + [20] * 17 + [5] * 3
    assert sizes(peak, 1, behavior=True) == [5] * 23


def test_a_scale_in_waits_for_the_highest_recommendation_of_300_seconds() -> None:
    fleet = Fleet(make(Hpa), 10)
    backlog = {0: 100, 15: 100, 30: 80}
    after = {}
    for time_s in range(0, 376, 15):
        fleet.tick(float(time_s), backlog=backlog.get(time_s, 50))
        after[time_s] = fleet.replicas
    # 10 was recommended until 15 s, 8 at 30 s, 5 from then on.
    assert {time_s for time_s, size in after.items() if size == 10} == set(range(0, 301, 15))
    assert after[315] == 8
    assert after[330] == 5


def test_a_new_hpa_shrinks_nothing_in_its_first_300_seconds() -> None:
    fleet = Fleet(make(Hpa), 7)
    targets = [fleet.tick(15.0 * sync, backlog=0).targets.get(FLEET) for sync in range(21)]
    assert targets == [None] * 20 + [1]


def test_the_stabilisation_never_delays_a_scale_up() -> None:
    for behavior in (False, True):
        fleet = Fleet(make(Hpa, behavior=behavior), 4)
        fleet.tick(0.0, backlog=10)
        assert fleet.tick(15.0, backlog=60).targets == {FLEET: 6}


def test_replicas_outside_the_bounds_are_brought_back_whatever_the_metric() -> None:
    assert replicas_for(10_000, 9, max_replicas=4) == 4
    assert replicas_for(0, 1, min_replicas=3) == 3


def test_a_fleet_at_zero_is_not_scaled() -> None:
    # Seen with the controller of Kubernetes 1.34: condition ScalingActive False, reason ScalingDisabled.
    assert replicas_for(10_000, 0) == 0


def test_an_external_metric_is_divided_by_all_replicas_that_exist() -> None:
    # Seen with the controller of Kubernetes 1.34: 53 at five pods, none of them ready, is within the tolerance.
    fleet = Fleet(make(Hpa), 5)
    assert fleet.tick(0.0, starting=5, backlog=53).action == "none"
    assert fleet.tick(15.0, starting=5, backlog=56).targets == {FLEET: 6}


def test_a_metric_of_pods_is_divided_by_the_ready_ones() -> None:
    scaler = make(Hpa, metric="utilisation", target_per_replica=0.5, stabilisation_s=0)
    # Ten exist, five are ready and do 2.6 replicas' work: 1.04 of the target each.
    counts = ReplicaCounts(started=5, joined=5)
    state = scaler.start(1)
    for time_s, value in ((0.0, 0.0), (15.0, 39.0)):
        observation = FunctionStatus(time_s=time_s, fleet=FLEET, replicas=counts, busy_s=value)
        decision, state = scaler.decide(observation, state)
    assert (decision.action, decision.why[FLEET]["ready"]) == ("none", 5)


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (6.4, 10),  # ratio 1.83 of the ready ones; with the others at zero 0.91, within the tolerance
        (5.0, 10),  # 1.43, and 0.71: the direction would change
        (7.6, 10),  # 2.17, and 1.086
        (7.8, 12),  # 2.23, and 1.114: ⌈7.8 / 0.7⌉
        (3.6, 10),  # 1.03: within the tolerance
        (2.8, 4),  # 0.8: a scale-down counts the ready ones alone, ⌈0.8 · 5⌉
    ],
)
def test_where_pods_ask_for_more_the_unready_ones_count_as_idle(total: float, expected: int) -> None:
    counts, rules = ReplicaCounts(started=5, joined=5), HpaRules(stabilisation_s=0)
    assert recommend(total, 0.7, 0.0, counts, rules, HpaHistory(), of_pods=True).replicas == expected


def test_a_scale_up_that_unready_pods_stop_is_explained() -> None:
    _, _, why = recommend(5.0, 0.7, 0.0, ReplicaCounts(started=5, joined=5), HpaRules(), HpaHistory(), of_pods=True)
    said = explain("hpa", Decision(action="none", why={FLEET: {"metric": "utilisation", **why}}))
    assert "ratio = Σ metric / (target · 5 ready) = 1.429 > 1" in said
    assert "pods without load 0.714 ≤ 1 + tolerance = 1 + 0.1? yes" in said


def test_with_no_ready_pod_there_is_no_metric_and_no_change() -> None:
    scaler = make(Hpa, metric="utilisation", target_per_replica=0.5, stabilisation_s=0)
    state = scaler.start(1)
    for time_s, value in ((0.0, 0.0), (15.0, 39.0)):
        starting = FunctionStatus(time_s=time_s, fleet=FLEET, replicas=ReplicaCounts(started=2), busy_s=value)
        decision, state = scaler.decide(starting, state)
    assert decision.action == "hold"
    assert "no replica is ready" in str(decision.why[FLEET]["reason"])


def test_a_rate_is_of_the_arrivals_since_the_last_sync() -> None:
    fleet = Fleet(make(Hpa, metric="rate", target_rate_per_s=20))
    assert fleet.tick(0.0, arrived=1000).action == "hold"
    decision = fleet.tick(15.0, arrived=1000 + 15 * 63)  # 63/s at 20/s each
    assert decision.targets == {FLEET: 4}
    assert fleet.why(decision)["sum"] == 63.0


def test_utilisation_is_busy_time_or_completions_over_the_service_rate() -> None:
    fleet = Fleet(make(Hpa, metric="utilisation", target_per_replica=0.5, service_rate_per_s=10), 2)
    assert fleet.tick(0.0, completed=0).action == "hold"
    # 18/s of 10/s each: 1.8 replicas' work, of which each is to do half a replica's.
    assert fleet.tick(15.0, completed=270).targets == {FLEET: 4}
    scaler = make(Hpa, metric="utilisation", target_per_replica=0.5)
    busy = [
        FunctionStatus(time_s=t, fleet=FLEET, replicas=ReplicaCounts(joined=2), busy_s=value)
        for t, value in ((0.0, 100.0), (15.0, 127.0))
    ]
    _, state = scaler.decide(busy[0], scaler.start(1))
    assert scaler.decide(busy[1], state)[0].targets == {FLEET: 4}
    unmeasured = Fleet(make(Hpa, metric="utilisation"))
    unmeasured.tick(0.0, completed=0)
    assert "set service_rate_per_s" in str(unmeasured.why(unmeasured.tick(15.0, completed=9))["reason"])


@pytest.mark.parametrize("metric", ["backlog", "rate", "utilisation"])
def test_a_metric_that_cannot_be_read_changes_nothing(metric: str) -> None:
    scaler = make(Hpa, metric=metric, service_rate_per_s=10)
    state = scaler.start(1)
    for time_s in (0.0, 15.0):
        unknown = dict.fromkeys(("backlog", "arrived", "completed"), "broker away")
        decision, state = scaler.decide(seen(time_s, 3, unknown=unknown), state)
        assert decision.action == "hold"
        assert "broker away" in str(decision.why[FLEET]["reason"])


@given(
    st.lists(st.tuples(st.floats(0, 5000), st.integers(0, 5)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(4, 50),
    st.integers(1, 60),
    st.booleans(),
)
def test_every_step_is_within_bounds_and_limits_and_above_what_was_recommended_last(
    syncs: list[tuple[float, int]], least: int, most: int, replicas: int, behavior: bool
) -> None:
    rules, history = HpaRules(min_replicas=least, max_replicas=most, behavior=behavior), HpaHistory()
    wanted_by: list[tuple[float, int]] = []
    for sync, (total, starting) in enumerate(syncs):
        time_s = 15.0 * sync
        counts = ReplicaCounts(started=min(starting, replicas), joined=max(0, replicas - starting))
        after = recommend(total, 10.0, time_s, counts, rules, history)
        assert least <= after.replicas <= most
        if least <= replicas <= most:
            assert after.replicas <= max(2 * replicas, replicas + 4 if behavior else 4)
            wanted_by.append((time_s, ceil(total / 10.0 - 1e-9)))
            if after.replicas < replicas:
                recent = [wanted for at_s, wanted in wanted_by if time_s - at_s < 300]
                assert after.replicas >= min(max(recent), replicas)
        replicas, history = after.replicas, after.history


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"min_replicas": "0"}, "min_replicas=0: expected at least 1"),
        ({"min_replicas": "5", "max_replicas": "4"}, "max_replicas=4: expected at least 5"),
        ({"target_per_replica": "0"}, "target_per_replica=0: expected a number above 0"),
        ({"metric": "cpu"}, "metric"),
        ({"service_rate_per_s": "-1"}, "service_rate_per_s=-1"),
    ],
)
def test_an_impossible_parameter_is_told(parameters: dict[str, str], said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        make(Hpa, **parameters)
