"""Planted bugs: what the simulation has to find. Each puts a mistake into the real code, as somebody might make it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from penstock.adapters.redis import REDIS_AWAY
from penstock.contracts import Accepted, StreamObservation

Plant = Callable[[], Any]
"""Makes a context manager in which the bug is there."""


def lost_booking() -> Any:
    """A worker takes a ledger that does not answer for one that has booked."""
    from consumers.ledger import Ledger

    book = Ledger.book

    def careless(self: Ledger, bookings: Sequence[Any]) -> list[int]:
        try:
            return book(self, bookings)
        except REDIS_AWAY:
            return [1] * len(bookings)

    return patch.object(Ledger, "book", careless)


def forgotten_attempt() -> Any:
    """An event that was delivered again counts as new."""
    from consumers.ledger import Ledger

    book = Ledger.book
    return patch.object(Ledger, "book", lambda self, bookings: [1 for _ in book(self, bookings)])


def double_owner() -> Any:
    """A member that the plan has no group for keeps what it holds."""
    from consumers import assignor

    planned = assignor.planned

    def sticky(plan: Any, topic: str, members: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        given = planned(plan, topic, members)
        kept = {member: data.held.get(topic, ()) for member, data in members.items()}
        return {member: partitions or kept[member] for member, partitions in given.items()}

    return patch.object(assignor, "planned", sticky)


def snapshot_not_written() -> Any:
    """The state is written for replicas only, not for ticks."""
    from controller.assembly import ControllerState, StateFile

    write = StateFile.write
    last: list[ControllerState] = []

    def lazy(self: StateFile, state: ControllerState) -> None:
        if not last or last[-1].fleet != state.fleet:
            write(self, state)
        last[:] = [state]

    return patch.object(StateFile, "write", lazy)


def committed_early() -> Any:
    """An offset is committed before the result is out."""
    from consumers.commit_tracker import CommitTracker

    publish = CommitTracker.publish

    def eager(self: Any, source: Any, offset: int, result: Any) -> None:
        publish(self, source, offset, result)
        if (queue := self._queues.get(source)) and not queue[-1].delivered:
            queue[-1].delivered = True
            self.outstanding += 1
            self.delivered(source)

    return patch.object(CommitTracker, "publish", eager)


def _unlimited(wanted: Mapping[str, int], sizes: Mapping[str, int], **_: Any) -> Accepted:
    return Accepted({name: wanted[name] for name in sizes if name in wanted})


def forgotten_clamp() -> Any:
    """Targets are not limited."""
    from controller.fleets.stream import actuator

    return patch.object(actuator, "clamp_targets", _unlimited)


def forgotten_clamp_of_queues() -> Any:
    """Targets are not limited."""
    from controller.fleets.queue import replica_set

    return patch.object(replica_set, "clamp_targets", _unlimited)


def unknown_is_zero() -> Any:
    """What cannot be read is observed as nothing."""
    from controller.fleets.stream.monitor import KafkaMonitor

    observe = KafkaMonitor.observe

    def blind(self: KafkaMonitor) -> StreamObservation:
        seen = observe(self)
        return msgspec.structs.replace(
            seen, arrived=seen.arrived or 0, completed=seen.completed or 0, backlog=seen.backlog or 0, unknown={}
        )

    return patch.object(KafkaMonitor, "observe", blind)


def given_up_for_ever() -> Any:
    """A program that its process manager has given up is not started anew."""
    from controller.fleets.programs import ProcessWatch

    return patch.object(ProcessWatch, "is_given_up", lambda *_, **__: False)


def nothing_adopted() -> Any:
    """A program without a record is nobody's."""
    from penstock.replica_set import ReplicaSet

    return patch.object(ReplicaSet, "adopt", lambda *_, **__: None)


def some_left_behind() -> Any:
    """At the end only the first of the programs is ended."""
    from controller.fleets.programs import RunPrograms

    return patch.object(RunPrograms, "end_all", lambda self, *names, prefix="", timeout_s: [
        self.end(name) for name in [*self.look(prefix)][:1]
    ])  # fmt: skip


def refused_is_confirmed() -> Any:
    """The forwarder takes a message that a full queue has refused for one that is in it."""
    from controller.fleets.queue.forwarder import Forwarder

    published = Forwarder._published

    def trusting(self: Any, event: Any, flow: Any, way: Any, outcome: Any) -> None:
        published(self, event, flow, way, "confirmed" if outcome == "full" else outcome)

    return patch.object(Forwarder, "_published", trusting)


def acknowledged_early() -> Any:
    """An event is acknowledged before its result is out."""
    from penstock.adapters.result_topic import ResultTopic

    publish = ResultTopic.publish

    def eager(self: ResultTopic, result: Any, on_out: Callable[[], None] = lambda: None) -> None:
        publish(self, result)
        on_out()

    return patch.object(ResultTopic, "publish", eager)


def full_queue_deleted() -> Any:
    """A queue is deleted although something waits in it, as soon as its app is told to end."""
    from controller.fleets.queue.replica_set import QueueReplicaSet
    from tests.faults.rabbit_broker import Management

    delete, drain = Management.delete_queue, QueueReplicaSet._drain

    def at_once(self: Any, function: Any, now_ns: int) -> None:
        drain(self, function, now_ns)
        function.app.ending = function.name in self.replicas

    @contextmanager
    def both() -> Iterator[None]:
        with (
            patch.object(Management, "delete_queue", lambda self, queue, only_empty=False: delete(self, queue)),
            patch.object(QueueReplicaSet, "_drain", at_once),
        ):
            yield

    return both()


def routing_not_followed() -> Any:
    """The forwarder keeps its first routing."""
    from controller.fleets.queue.forwarder import Forwarder

    follow = Forwarder._follow

    def once(self: Any, routing: Any) -> None:
        if self._routing is None or not self._draws.queues:
            follow(self, routing)
        self._wanted = None

    return patch.object(Forwarder, "_follow", once)


def deletion_cost_forgotten() -> Any:
    """Pods that the plan releases are not marked: Kubernetes deletes the youngest."""
    from penstock.adapters.kubernetes import replica_pods

    return patch.object(replica_pods, "GOES_FIRST", 0)


def foreign_size_kept() -> Any:
    """A size that was asked for once is not asked for again."""
    from penstock.adapters.kubernetes.replica_pods import ReplicaPods

    ask = ReplicaPods._ask

    def once(self: Any, replicas: int, seen: Any) -> None:
        if self._asked != replicas:
            ask(self, replicas, seen)

    return patch.object(ReplicaPods, "_ask", once)


def one_name_for_two_pods() -> Any:
    """A pod without a replica gets one that another pod has."""
    from penstock.adapters.kubernetes import replica_pods

    def careless(pods: Sequence[Any], replicas: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
        nameless = [pod.name for pod in pods if pod.alive and not pod.replica and pod.name not in named]
        return dict(zip(nameless, replicas, strict=False))

    return patch.object(replica_pods, "name_pods", careless)


def full_disk_forgets() -> Any:
    """A line that finds no room is dropped."""
    from penstock.rundir import JsonLines

    append = JsonLines.append

    def forget(self: Any, record: Any) -> None:
        append(self, record)
        self._unwritten.clear()

    return patch.object(JsonLines, "append", forget)


BUGS: dict[str, tuple[str, Plant]] = {
    "lost booking": ("stream", lost_booking),
    "an event finished twice": ("stream", forgotten_attempt),
    "double owner": ("stream", double_owner),
    "snapshot not written": ("stream", snapshot_not_written),
    "committed early": ("stream", committed_early),
    "forgotten clamp": ("stream", forgotten_clamp),
    "unknown is zero": ("stream", unknown_is_zero),
    "given up for ever": ("stream", given_up_for_ever),
    "nothing adopted": ("stream", nothing_adopted),
    "some left behind": ("stream", some_left_behind),
    "refused is confirmed": ("queue", refused_is_confirmed),
    "an event drained twice": ("queue", forgotten_attempt),
    "acknowledged early": ("queue", acknowledged_early),
    "full queue deleted": ("queue", full_queue_deleted),
    "routing not followed": ("queue", routing_not_followed),
    "forgotten clamp of queues": ("queue", forgotten_clamp_of_queues),
    "deletion cost forgotten": ("pods", deletion_cost_forgotten),
    "foreign size kept": ("pods", foreign_size_kept),
    "one name for two pods": ("pods", one_name_for_two_pods),
    "a full disk forgets": ("stream", full_disk_forgets),
}
"""Each bug with the kind of fleet that has it."""

FOUND_BY: dict[str, int] = {
    "lost booking": 4,
    "an event finished twice": 12,
    "double owner": 0,
    "snapshot not written": 0,
    "committed early": 28,
    "forgotten clamp": 2,
    "unknown is zero": 1,
    "given up for ever": 8,
    "nothing adopted": 0,
    "some left behind": 0,
    "refused is confirmed": 1,
    "an event drained twice": 0,
    "acknowledged early": 0,
    "full queue deleted": 2,
    "routing not followed": 0,
    "forgotten clamp of queues": 0,
    "deletion cost forgotten": 11,
    "foreign size kept": 23,
    "one name for two pods": 0,
    "a full disk forgets": 3,
}
"""The first seed that shows each bug: ``python -m tests.faults --bug all`` finds them again."""
