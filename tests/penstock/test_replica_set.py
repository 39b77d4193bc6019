"""The common part of every replica set, as timelines."""

import msgspec

from penstock.contracts import Phase
from penstock.replica_set import Replica, ReplicaSet, in_order


class Pod(Replica, kw_only=True):
    """A replica with a field of its own."""

    node: str = ""


class PodSet(ReplicaSet[Pod], kw_only=True):
    """Of pods."""

    Kind = Pod


def steps(replicas: ReplicaSet[Pod]) -> list[tuple[str, Phase, int]]:
    return [(event.replica, event.phase, event.at_ns) for event in replicas.take_events()]


def test_names_follow_the_fleet_and_are_never_reused() -> None:
    pods = PodSet(fleet="pay")
    assert pods.request(2, 5, node="a") == ["pay-1", "pay-2"]
    pods.remove(["pay-2"], 6)
    assert pods.request(1, 7) == ["pay-3"]
    assert PodSet(fleet="pay", prefix="pay.").request(1, 0) == ["pay.1"]
    assert pods.replicas["pay-1"].node == "a"


def test_skipped_phases_are_entered_at_the_time_of_the_report() -> None:
    pods = PodSet(fleet="pay")
    pods.request(1, 5)
    pods.reach("pay-1", "joined", 9)
    pods.reach("pay-1", "started", 10)
    assert steps(pods) == [("pay-1", "requested", 5), ("pay-1", "started", 9), ("pay-1", "joined", 9)]
    assert pods.counts().joined == 1


def test_reports_of_a_former_process_and_of_unknown_replicas_change_nothing() -> None:
    pods = PodSet(fleet="pay")
    pods.request(1, 5)
    pods.respawn("pay-1", 20, "killed")
    pods.take_events()
    pods.reach("pay-1", "joined", 19)
    pods.reach("pay-9", "joined", 21)
    assert steps(pods) == [] and pods.phases() == {"pay-1": "requested"}


def test_a_step_is_never_recorded_before_the_last_one() -> None:
    pods = PodSet(fleet="pay")
    pods.request(1, 5)
    pods.reach("pay-1", "joined", 9)
    pods.drain(["pay-1"], 8)
    assert steps(pods)[-1] == ("pay-1", "draining", 9)


def test_surplus_names_replicas_that_do_not_serve_first_then_the_youngest() -> None:
    pods = PodSet(fleet="pay")
    pods.request(4, 0)
    for name in ("pay-1", "pay-3", "pay-4"):
        pods.reach(name, "joined", 1)
    pods.drain(["pay-1"], 2)
    assert [pod.name for pod in pods.surplus(1)] == ["pay-2", "pay-4"]
    assert pods.size == 3


def test_an_adopted_replica_keeps_its_number() -> None:
    pods = PodSet(fleet="pay")
    assert pods.adopt("pay-7", 3).number == 7
    assert pods.request(1, 4) == ["pay-8"]


def test_a_set_survives_being_written_down() -> None:
    pods = PodSet(fleet="pay")
    pods.request(1, 0, node="b")
    assert msgspec.json.decode(msgspec.json.encode(pods), type=PodSet) == pods


def test_events_of_several_sets_are_taken_in_order_of_time() -> None:
    a, b = PodSet(fleet="a"), PodSet(fleet="b")
    a.request(1, 0)
    b.request(1, 1)
    a.request(1, 2)
    assert [event.replica for event in in_order(a, b)] == ["a-1", "b-1", "a-2"]
    assert not a.events
