"""Pods: read from what the API says, in the order in which Kubernetes deletes them, and given names."""

import msgspec

from penstock.adapters.kubernetes.pods import GOES_FIRST, REPLICA, Pod, in_line, name_pods, size
from tests.penstock.adapters.kubernetes.memory_deployment import make_pod

FROM_THE_API = b"""
{
  "metadata": {
    "name": "payments-7d4b-x2x", "uid": "0c1d", "resourceVersion": "811", "creationTimestamp": "2026-11-21T22:01:02Z",
    "labels": {"app": "payments"}, "annotations": {"penstock.dev/replica": "payments-3"}
  },
  "spec": {"nodeName": "node1", "containers": [{"name": "worker"}]},
  "status": {
    "phase": "Running",
    "conditions": [
      {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T22:01:02Z"},
      {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T22:01:04Z"}
    ],
    "containerStatuses": [
      {"name": "worker", "restartCount": 1, "state": {"running": {"startedAt": "2026-11-21T22:01:03Z"}},
       "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    ]
  }
}
"""


def test_a_pod_is_read_from_what_the_api_says() -> None:
    pod = msgspec.json.decode(FROM_THE_API, type=Pod)
    assert (pod.name, pod.replica, pod.ready, pod.restarts) == ("payments-7d4b-x2x", "payments-3", True, 1)
    assert pod.ready_since == "2026-11-21T22:01:04Z"
    assert pod.program().name == "payments-3" and pod.program().state == "active" and pod.program().pid is not None
    assert not pod.ending and not pod.over and not pod.trouble


def test_each_life_of_a_container_is_another_process() -> None:
    first, second = make_pod("a"), make_pod("a", restarts=1)
    assert first.life is not None and second.life is not None and first.life != second.life
    assert make_pod("a", running=False).life is None


def test_a_pod_that_cannot_be_pulled_scheduled_or_started_says_why() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pull = {"metadata": {"name": "a"}, "status": {"containerStatuses": [{"state": waiting}]}}
    assert msgspec.convert(pull, Pod).trouble == "ImagePullBackOff: no such image"
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu."}
    schedule = {"metadata": {"name": "a"}, "status": {"conditions": [full]}}
    assert msgspec.convert(schedule, Pod).trouble == "Unschedulable: Insufficient cpu."
    starting = {"metadata": {"name": "a"}, "status": {"containerStatuses": [{"state": {"waiting": {}}}]}}
    assert not msgspec.convert(starting, Pod).trouble


def test_the_line_is_the_order_in_which_a_replica_set_deletes() -> None:
    pods = [
        make_pod("old", born=1),
        make_pod("young", born=9),
        make_pod("cheap", born=2, cost=-5),
        make_pod("dear", born=10, cost=7),
        make_pod("not ready", born=3, ready=False),
        make_pod("pending", born=4, phase="Pending", ready=False, running=False),
        make_pod("nowhere", born=5, node="", phase="Pending", ready=False, running=False),
        make_pod("ending", born=6, ending=True),
        make_pod("evicted", born=7, phase="Failed", ready=False),
    ]
    expected = ["nowhere", "pending", "not ready", "cheap", "young", "old", "dear"]
    assert [pod.name for pod in in_line(pods)] == expected


def test_a_cost_that_is_no_number_counts_as_none() -> None:
    assert make_pod("a", annotations={"controller.kubernetes.io/pod-deletion-cost": "low"}).deletion_cost == 0


def test_pods_get_the_names_of_replicas_that_have_none_oldest_first() -> None:
    pods = [make_pod("c", born=3), make_pod("b", born=2), make_pod("a", born=1, annotations={REPLICA: "pay-1"})]
    assert name_pods(pods, ["pay-1", "pay-2", "pay-3"], {}) == {"b": "pay-2", "c": "pay-3"}
    assert name_pods(pods, ["pay-1", "pay-2"], {}) == {"b": "pay-2"}


def test_a_name_that_was_given_out_is_not_given_again_before_it_is_seen_on_the_pod() -> None:
    pods = [make_pod("a", born=1), make_pod("b", born=2)]
    assert name_pods(pods, ["pay-1", "pay-2"], {"a": "pay-1"}) == {"b": "pay-2"}


def test_the_successor_of_a_pod_that_ends_takes_over_its_name() -> None:
    pods = [make_pod("a", ending=True, annotations={REPLICA: "pay-1"}), make_pod("b", born=2)]
    assert name_pods(pods, ["pay-1"], {}) == {"b": "pay-1"}


def test_the_size_grows_at_once() -> None:
    assert size([make_pod("a")], 3, (), 1, patient=True) == (3, ())


def test_the_size_shrinks_once_those_that_go_are_first_in_line() -> None:
    pods = [make_pod("a", born=1), make_pod("b", born=2)]
    assert size(pods, 1, ["a"], 2, patient=True) == (2, ("a",))
    pods[0] = make_pod("a", born=1, cost=GOES_FIRST)
    assert size(pods, 1, ["a"], 2, patient=True) == (1, ("a",))


def test_a_pod_that_is_wanted_and_not_ready_yet_holds_up_those_that_go() -> None:
    pods = [make_pod("a", cost=GOES_FIRST), make_pod("b"), make_pod("new", ready=False, running=False, phase="Pending")]
    assert size(pods, 2, ["a"], 3, patient=True) == (3, ("a",))


def test_first_down_then_up() -> None:
    pods = [make_pod("a", cost=GOES_FIRST), make_pod("b")]
    assert size(pods, 4, ["a"], 2, patient=True) == (1, ("a",))
    assert size([make_pod("a", cost=GOES_FIRST, ending=True), make_pod("b")], 4, ["a"], 1, patient=True) == (4, ())


def test_pods_that_were_asked_for_and_are_not_there_hold_up_those_that_go_for_a_while_only() -> None:
    pods = [make_pod("a", cost=GOES_FIRST), make_pod("b")]
    assert size(pods, 2, ["a"], 3, patient=True) == (3, ("a",))
    assert size(pods, 2, ["a"], 3, patient=False) == (1, ("a",))
