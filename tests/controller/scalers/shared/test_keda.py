"""KEDA's triggers: what they tell the HPA, when they wake a fleet and put it to sleep, and where they are trapped."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.keda_kafka import KedaKafka, capped_lag, even_replicas
from controller.scalers.keda_rabbitmq import KedaRabbitmq, QueueRates, consumption_time, queue_length
from penstock.contracts import Decision, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.errors import PenstockError
from tests.controller.scalers.one_fleet import FLEET, Fleet, make

GROUP = "payments"


def group(time_s: float, replicas: int, lags: Sequence[int | None], **unknown: str) -> StreamObservation:
    """A consumer group; a lag of None is a partition without a commit."""
    return StreamObservation(
        time_s=time_s,
        fleet=GROUP,
        replicas=ReplicaCounts(joined=replicas),
        partitions=tuple(
            PartitionObservation(p, 1000, None if lag is None else 1000 - lag) for p, lag in enumerate(lags)
        ),
        unknown=unknown,
    )


class Group:
    """A consumer group that does at once what KEDA says."""

    def __init__(self, replicas: int = 1, **parameters: Any) -> None:
        self.scaler = make(KedaKafka, **parameters)
        self.state, self.replicas = self.scaler.start(1), replicas

    def tick(self, time_s: float, lags: Sequence[int | None], **unknown: str) -> Decision:
        decision, self.state = self.scaler.decide(group(time_s, self.replicas, lags, **unknown), self.state)
        self.replicas = decision.targets.get(GROUP, self.replicas)
        return decision


@pytest.mark.parametrize(
    ("lags", "switches", "expected"),
    [
        ([10, 10, 10], {}, 30),
        ([19, 10, 10], {}, 39),  # ⌊3.9⌋ is no more than three partitions
        ([20, 10, 10], {}, 30),
        ([500, 0, 0], {}, 30),
        ([500, 0, 0], {"allow_idle_consumers": True}, 500),
        ([500, 0, 0], {"limit_to_partitions_with_lag": True}, 10),
        ([500, 1, 0], {"limit_to_partitions_with_lag": True}, 20),
        ([0, 0, 0], {"limit_to_partitions_with_lag": True}, 0),
        ([0, 0, 0], {}, 0),
        ([11] + [0] * 11, {"ensure_even_distribution": True}, 20),
        ([45] + [0] * 11, {"ensure_even_distribution": True}, 60),  # five would leave two consumers with a third
        ([999] + [0] * 11, {"ensure_even_distribution": True}, 120),
        ([0] * 12, {"ensure_even_distribution": True}, 10),
        ([45] + [0] * 11, {"ensure_even_distribution": True, "limit_to_partitions_with_lag": True}, 10),
        ([45] + [0] * 11, {"ensure_even_distribution": True, "allow_idle_consumers": True}, 60),
    ],
)
def test_the_lag_for_the_hpa_is_capped_at_what_partitions_can_use(
    lags: list[int], switches: dict[str, bool], expected: int
) -> None:
    assert capped_lag(lags, 10, **switches) == expected


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 20))
def test_an_even_distribution_divides_the_partitions(total: int, partitions: int, threshold: int) -> None:
    d = even_replicas(total, partitions, threshold)
    assert partitions % d == 0
    assert d == partitions or d * threshold >= total
    assert all(smaller * threshold < total for smaller in range(1, d) if partitions % smaller == 0)


@pytest.mark.parametrize("partitions", [2, 5, 10, 11, 20, 40, 100])
def test_cap_and_tolerance_together_stall_every_fleet_of_at_least_p_over_1_1(partitions: int) -> None:
    stalled = {
        replicas
        for replicas in range(1, partitions + 1)
        if Group(replicas, max_replicas=200).tick(0.0, [100_000] * partitions).action == "none"
    }
    assert stalled == {n for n in range(1, partitions + 1) if 11 * n >= 10 * partitions}


def test_a_stalled_fleet_stays_so_however_long_the_lag_grows_and_idle_consumers_would_free_it() -> None:
    stuck = Group(19)
    assert [stuck.tick(15.0 * t, [10_000 * (t + 1)] * 20).action for t in range(40)] == ["none"] * 40
    assert Group(19, allow_idle_consumers=True, max_replicas=20).tick(0.0, [10_000] * 20).targets == {GROUP: 20}


def test_lag_drives_the_hpa_and_partitions_are_kafkas_range() -> None:
    decision = Group(1).tick(0.0, [8, 7, 6, 5, 4])  # ⌈30 / 10⌉
    assert decision.targets == {GROUP: 3}
    assert decision.assignment == ((0, 1), (2, 3), (4,))
    assert decision.why[GROUP]["metric"] == 30


def test_a_group_that_never_was_active_is_put_to_sleep_at_the_first_poll() -> None:
    assert Group(3).tick(0.0, [0] * 5).targets == {GROUP: 0}
    assert Group(3, min_replicas=1).tick(0.0, [0] * 5).action == "none"  # the HPA's stabilisation


def test_only_a_poll_wakes_a_sleeping_group_and_to_one_replica_only() -> None:
    asleep = Group(0)
    assert asleep.tick(0.0, [0] * 5).action == "none"
    assert asleep.tick(15.0, [100] * 5).action == "none"
    assert asleep.tick(30.0, [100] * 5).targets == {GROUP: 1}
    assert asleep.tick(45.0, [100] * 5).targets == {GROUP: 4}
    assert asleep.tick(60.0, [100] * 5).targets == {GROUP: 5}


def test_a_backlog_that_drains_is_followed_to_its_height_as_behind_the_real_keda() -> None:
    # KEDA 2.20's kafka trigger on Kubernetes 1.34: a lag of 604 on twelve partitions, of which the HPA saw these sums.
    seen_by_hpa = (160, 151, 4, 4)
    real = Group(0, max_replicas=12, allow_idle_consumers=True)
    real.tick(0.0, [604] + [0] * 11)
    found = [real.replicas]
    for number, total in enumerate(seen_by_hpa):
        real.tick(5.0 + 15.0 * number, [total] + [0] * 11)
        found.append(real.replicas)
    assert found == [1, 4, 8, 12, 12]
    with_behavior = Group(1, max_replicas=12, allow_idle_consumers=True, behavior=True)
    for number, total in enumerate(seen_by_hpa):
        with_behavior.tick(15.0 * number, [total] + [0] * 11)
    assert with_behavior.replicas == 10


def test_the_cooldown_after_the_last_active_poll_is_300_seconds() -> None:
    calm = Group(2)
    calm.tick(0.0, [20, 0])
    actions = {t: calm.tick(float(t), [0, 0]).targets.get(GROUP) for t in range(15, 346, 15)}
    # At 300 s the stabilisation of the HPA is over, but the cooldown is not; the next poll is at 330 s.
    assert {t: target for t, target in actions.items() if target is not None} == {300: 1, 330: 0}


def test_work_between_two_polls_does_not_count_as_activity() -> None:
    blinking = Group(1)
    blinking.tick(0.0, [1, 0])
    for t in range(15, 331, 15):
        blinking.tick(float(t), [1 if t % 30 else 0, 0])
    assert blinking.replicas == 0


def test_the_activation_threshold_counts_the_whole_lag() -> None:
    assert Group(0, activation_lag_threshold=50).tick(0.0, [25, 25]).action == "none"
    assert Group(0, activation_lag_threshold=50).tick(0.0, [25, 26]).targets == {GROUP: 1}


def test_a_partition_without_a_commit_has_a_lag_of_one_or_all_of_it() -> None:
    assert Group(1).tick(0.0, [None] * 5, committed="").why[GROUP]["lag"] == [1] * 5
    said = {"partitions.1.committed_offset": "no commit yet"}
    assert Group(1).tick(0.0, [0, None], **said).why[GROUP]["lag"] == [0, 1]
    assert Group(1, offset_reset="earliest").tick(0.0, [0, None], **said).why[GROUP]["lag"] == [0, 1000]


def test_offsets_that_could_not_be_read_hold() -> None:
    group_ = Group(4)
    said = {"partitions.1.committed_offset": "broker away"}
    for decision in (group_.tick(0.0, [0, None], **said), group_.tick(30.0, [])):
        assert decision.action == "hold"
    assert "broker away" in str(Group(4).tick(0.0, [0, None], **said).why[GROUP]["reason"])
    blind = msgspec.structs.replace(group(0.0, 4, [0]), partitions=(PartitionObservation(0, None, 5),))
    scaler = make(KedaKafka)
    assert scaler.decide(blind, scaler.start(1))[0].action == "hold"


def test_a_queue_is_measured_by_ready_and_unacknowledged_messages() -> None:
    fleet = Fleet(make(KedaRabbitmq))
    decision = fleet.tick(0.0, backlog=50, in_flight=11)  # ⌈61 / 20⌉
    assert decision.targets == {FLEET: 4}
    assert Fleet(make(KedaRabbitmq)).tick(0.0, backlog=50).targets == {FLEET: 3}


def test_the_consumption_time_is_what_waits_and_what_comes_on_top_over_what_is_delivered() -> None:
    # (30 − 20) / 20 + 600 / 20
    assert consumption_time(600, QueueRates(30.0, 20.0), 10.0, 0.0).metric == 30.5
    fleet = Fleet(make(KedaRabbitmq, mode="consumption-time", consumption_time_s=10))
    fleet.tick(0.0, backlog=450, in_flight=0, arrived=1000, completed=550)
    decision = fleet.tick(15.0, backlog=599, in_flight=1, arrived=1450, completed=849)
    assert decision.why[FLEET]["publish_per_s"] == 30.0
    assert decision.why[FLEET]["deliver_per_s"] == 20.0
    assert decision.targets == {FLEET: 4}


@given(st.integers(1, 100_000), st.floats(0, 1000))
def test_a_queue_without_deliveries_reads_as_idle_to_the_hpa_and_as_active_to_keda(
    messages: int, publish: float
) -> None:
    trigger = consumption_time(messages, QueueRates(publish, 0.0), 10.0, 0.0)
    assert trigger.metric == 0
    assert trigger.active
    assert queue_length(messages, 20.0, 0.0).metric == messages
    empty = consumption_time(0, QueueRates(publish, 0.0), 10.0, 0.0)
    assert (empty.metric, empty.active) == (0, False)


def test_a_stuck_fleet_is_scaled_in_while_its_queue_grows() -> None:
    stuck = Fleet(make(KedaRabbitmq, mode="consumption-time"), 8)
    for t in range(0, 331, 15):
        stuck.tick(float(t), backlog=100 * t, in_flight=0, arrived=100 * t, completed=0)
    assert stuck.replicas == 1
    by_length = Fleet(make(KedaRabbitmq), 8)
    by_length.tick(0.0, backlog=10_000, in_flight=0)
    assert by_length.replicas == 16  # twice as many


def test_a_queue_that_cannot_be_read_holds() -> None:
    for counts in ({"unknown": {"backlog": "away"}}, {"backlog": 5, "unknown": {"in_flight": "away"}}):
        decision = Fleet(make(KedaRabbitmq), 3).tick(0.0, **counts)
        assert decision.action == "hold"
        assert "away" in str(decision.why[FLEET]["reason"])
    rates = Fleet(make(KedaRabbitmq, mode="consumption-time"), 3)
    assert rates.tick(0.0, backlog=5, arrived=10, completed=5).action == "hold"
    assert rates.tick(15.0, backlog=5, arrived=10, unknown={"completed": "away"}).action == "hold"


polls = st.lists(st.lists(st.integers(0, 400), min_size=6, max_size=6), min_size=1, max_size=40)


@given(polls, st.integers(0, 2), st.integers(2, 8))
def test_a_group_has_no_more_replicas_than_allowed_and_wakes_only_by_polls(
    ticks: list[list[int]], least: int, most: int
) -> None:
    kafka = Group(1, min_replicas=least, max_replicas=most)
    for number, lags in enumerate(ticks):
        before = kafka.replicas
        kafka.tick(15.0 * number, lags)
        assert least <= kafka.replicas <= min(most, 6) or kafka.replicas <= before
        if before == 0 or kafka.replicas == 0:
            assert number % 2 == 0 or kafka.replicas == before
        if before == 0:
            assert kafka.replicas <= 1


def test_the_hpa_does_not_see_lag_that_persists_and_the_group_stays_awake() -> None:
    def at(time_s: float, stuck: int, moving: int) -> StreamObservation:
        """Two partitions with an end of 1000 and these commits."""
        partitions = (PartitionObservation(0, 1000, stuck), PartitionObservation(1, 1000, moving))
        return StreamObservation(
            time_s=time_s, fleet=GROUP, replicas=ReplicaCounts(joined=1), partitions=partitions, unknown={}
        )

    for excluded, metrics in ((True, [1000, 50, 0, 500]), (False, [1000, 550, 550, 1000])):
        scaler = make(KedaKafka, exclude_persistent_lag=excluded, allow_idle_consumers=True, min_replicas=1)
        state, found = scaler.start(1), []
        for number, moving in enumerate((500, 950, 950, 500)):
            decision, state = scaler.decide(at(15.0 * number, 500, moving), state)
            found.append(decision.why[GROUP]["metric"])
            assert decision.why[GROUP]["active"] is True
        assert found == metrics


@pytest.mark.parametrize(("to_zero", "active", "metric"), [(False, True, 2), (True, False, 0)])
def test_partitions_without_a_commit_wake_a_group_unless_it_is_told_otherwise(
    to_zero: bool, active: bool, metric: int
) -> None:
    asleep = Group(0, scale_to_zero_on_invalid_offset=to_zero)
    decision = asleep.tick(0.0, [None, None])
    assert (decision.why[GROUP]["active"], decision.why[GROUP]["metric"]) == (active, metric)
    assert asleep.replicas == int(active)


def test_what_is_not_emulated_of_the_trigger_is_refused_by_name() -> None:
    with pytest.raises(PenstockError, match=r"unknown parameter 'keda-kafka.partition_limitation'"):
        make(KedaKafka, partition_limitation="1-3")
    assert "``partitionLimitation`` is not emulated" in " ".join(str(KedaKafka.Parameters.__doc__).split())


def test_kedas_own_contradiction_and_impossible_values_are_told() -> None:
    with pytest.raises(PenstockError, match="KEDA takes one of them only"):
        make(KedaKafka, allow_idle_consumers=True, limit_to_partitions_with_lag=True)
    with pytest.raises(PenstockError, match="lag_threshold=0"):
        make(KedaKafka, lag_threshold=0)
    with pytest.raises(PenstockError, match="min_replicas=-1: expected at least 0"):
        make(KedaRabbitmq, min_replicas=-1)
