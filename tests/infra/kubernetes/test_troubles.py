"""Troubles of pods that are waited for, on a clock of the test's own."""

import pytest

from infra.kubernetes.troubles import PULL_S, REPORT_AFTER_S, Troubles
from penstock.adapters.kubernetes.pods import Condition, Metadata, Pod, PodStatus

AWAY = 'ErrImagePull: failed to pull "redis:7": dial tcp: lookup registry.invalid: no such host'
BACK_OFF = 'ImagePullBackOff: Back-off pulling image "redis:7"'
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


class Clock:
    """Seconds that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def troubles(clock: Clock, told: list[str]) -> Troubles:
    return Troubles(told.append, clock)


@pytest.mark.parametrize(
    "text",
    [
        "ErrImagePull: docker.io/library/redis:9: not found",
        "ErrImagePull: pull access denied, repository does not exist or may require authorization",
        "InvalidImageName: couldn't parse image name",
        'pods "redis-0" is forbidden: exceeded quota: few, requested: pods=1',
        'CreateContainerConfigError: secret "penstock" not found',
    ],
)
def test_an_answer_of_registry_or_cluster_is_final_at_once(troubles: Troubles, text: str) -> None:
    assert troubles.final({"pod redis-0": text}) == [f"pod redis-0: {text}"]


@pytest.mark.parametrize(
    "text",
    [
        AWAY,
        BACK_OFF,
        "CreateContainerConfigError: failed to sync secret cache: timed out waiting",
        'pods "redis-0" is forbidden: status unknown for quota: few',
        f"Unschedulable: {NO_ROOM}",
        "CrashLoopBackOff: back-off 10s restarting failed container",
    ],
)
def test_trouble_that_may_pass_is_waited_for(troubles: Troubles, text: str) -> None:
    assert not troubles.final({"pod redis-0": text})


def test_a_pull_that_keeps_failing_is_final_after_a_minute_with_its_first_reason(
    troubles: Troubles, clock: Clock
) -> None:
    assert not troubles.final({"pod redis-0": AWAY})
    clock.now_s += PULL_S - 1
    assert not troubles.final({"pod redis-0": BACK_OFF})
    clock.now_s += 1
    assert troubles.final({"pod redis-0": BACK_OFF}) == [f"pod redis-0: {AWAY}"]


def unschedulable(name: str) -> Pod:
    condition = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=NO_ROOM)
    return Pod(metadata=Metadata(name=name), status=PodStatus(conditions=(condition,)))


def test_a_pod_without_a_node_is_reported_once_with_the_schedulers_reason(
    troubles: Troubles, clock: Clock, told: list[str]
) -> None:
    troubles.report([unschedulable("payments-1"), Pod(metadata=Metadata(name="redis-0"))])
    assert not told, "a volume that is being made also holds a pod up"
    clock.now_s += REPORT_AFTER_S
    troubles.report([unschedulable("payments-1")])
    troubles.report([unschedulable("payments-1")])
    assert told == [f"cluster: pod payments-1 waits for a node: Unschedulable: {NO_ROOM}"]
