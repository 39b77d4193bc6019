"""Containers of an app of which only the number is known, as timelines. Times are in seconds."""

from controller.fleets.counted_replicas import CountedReplicas
from penstock.contracts import ReplicaEvent

SECOND = 1_000_000_000


class Containers:
    """A set with everything that happened to it."""

    def __init__(self) -> None:
        self.set = CountedReplicas(fleet="pay-1", prefix="pay-1.")
        self.seen: list[ReplicaEvent] = []

    def resize(self, size: int, at_s: float, due_s: float | None = None) -> None:
        due_s = at_s if due_s is None else due_s
        self.set.resize(size, round(at_s * SECOND), round(due_s * SECOND))
        self.seen += self.set.take_events()

    def has(self, running: int, at_s: float) -> None:
        self.set.observe(running, round(at_s * SECOND))
        self.seen += self.set.take_events()

    def wanted(self, at_s: float) -> int:
        return self.set.wanted(round(at_s * SECOND))

    def life(self, number: int) -> list[tuple[str, float]]:
        return [(event.phase, event.at_ns / SECOND) for event in self.seen if event.replica == f"pay-1.{number}"]


def test_a_container_is_requested_when_it_is_asked_for_and_joined_when_the_app_has_it() -> None:
    containers = Containers()
    containers.resize(1, at_s=0)
    containers.has(0, at_s=0.2)
    containers.has(1, at_s=0.6)
    assert containers.life(1) == [("requested", 0), ("started", 0.6), ("joined", 0.6)]
    assert {event.fleet for event in containers.seen} == {"pay-1"}


def test_the_app_is_told_of_a_container_when_it_is_due_and_not_before() -> None:
    containers = Containers()
    containers.resize(2, at_s=0, due_s=3)
    assert [containers.wanted(at_s) for at_s in (0, 2.9, 3)] == [0, 0, 2]
    containers.has(2, at_s=2)  # what it has is not what was asked for
    assert containers.set.counts().joined == 0


def test_one_that_has_not_come_goes_before_one_that_works() -> None:
    containers = Containers()
    containers.resize(2, at_s=0)
    containers.has(2, at_s=1)
    containers.resize(3, at_s=2, due_s=9)
    containers.resize(1, at_s=3)
    assert containers.life(3) == [("requested", 2), ("gone", 3)]
    assert containers.life(2)[-1] == ("draining", 3)
    assert containers.set.phases() == {"pay-1.1": "joined", "pay-1.2": "draining"}
    containers.has(2, at_s=4)  # it still has an event
    assert containers.life(2)[-1] == ("draining", 3)
    containers.has(1, at_s=5)
    assert containers.life(2)[-1] == ("gone", 5)


def test_what_a_killed_app_had_is_gone_and_requested_anew() -> None:
    containers = Containers()
    containers.resize(3, at_s=0)
    containers.has(3, at_s=1)
    containers.resize(2, at_s=2)
    containers.set.lose(["pay-1.1", "pay-1.2", "pay-1.3"], 3 * SECOND, 3 * SECOND, "killed")
    containers.seen += containers.set.take_events()
    assert [phase for phase, _ in containers.life(1)] == ["requested", "started", "joined", "gone", "requested"]
    assert containers.life(3)[-1] == ("gone", 3)
    containers.has(2, at_s=4)
    assert containers.set.counts().joined == 2


def test_names_are_never_used_twice() -> None:
    containers = Containers()
    containers.resize(2, at_s=0)
    containers.resize(0, at_s=1)
    containers.resize(1, at_s=2)
    assert list(containers.set.phases()) == ["pay-1.3"]
