"""Replicas of a pub/sub network and their next steps, without I/O: one app per topic, whose containers are the topic's
replicas ``<topic>-<number>``.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import msgspec

from controller.fleets.apps.app import App, work
from controller.fleets.counted_replicas import CountedReplicas
from controller.fleets.programs import ProgramWork
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Phase, ReplicaCounts, ReplicaEvent
from penstock.replica_set import in_order


class NetworkReplicaSet(msgspec.Struct, kw_only=True):
    """The apps of a network's topics, in its order. ``start_up_s``: from requested to joined, for all but the first."""

    start_up_s: float = 0.0
    topics: dict[str, App] = msgspec.field(default_factory=dict)

    def phases(self) -> dict[str, Phase]:
        """Phase by replica, by topic and age."""
        return {name: phase for topic in self.topics.values() for name, phase in topic.containers.phases().items()}

    def counts(self) -> dict[str, ReplicaCounts]:
        """Replicas of each topic by phase."""
        return {name: topic.containers.counts() for name, topic in self.topics.items()}

    def sizes(self) -> dict[str, int]:
        """Replicas of each topic that exist or were requested, without draining ones."""
        return {name: topic.containers.size for name, topic in self.topics.items()}

    def wanted(self, now_ns: int) -> dict[str, int]:
        """Containers that each app is to have now."""
        return {name: topic.containers.wanted(now_ns) for name, topic in self.topics.items()}

    def ready(self) -> bool:
        """Whether all requested replicas have joined."""
        reported = all(topic.report is not None for topic in self.topics.values())
        return bool(self.topics) and reported and set(self.phases().values()) <= {"joined"}

    def copy(self) -> Self:
        """A copy to be written down, without the last reports, which come again."""
        topics = {name: msgspec.structs.replace(topic, report=None) for name, topic in self.topics.items()}
        return msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(self, topics=topics)), type=type(self))

    def take_events(self) -> Sequence[ReplicaEvent]:
        """Events since the last call, in order."""
        return in_order(*(topic.containers for topic in self.topics.values()))

    def bring_up(self, names: Iterable[str], initial: int, now_ns: int) -> None:
        """Request ``initial`` replicas of each topic, unless that was done already."""
        for name in names:
            if name not in self.topics:
                self.topics[name] = App(name=name, containers=CountedReplicas(fleet=name))
                self.topics[name].containers.resize(initial, now_ns)

    def resize(self, targets: Mapping[str, int], now_ns: int) -> None:
        """Set the number of replicas of these topics."""
        due_ns = now_ns + round(self.start_up_s * NANOS_PER_SECOND)
        for name, target in targets.items():
            self.topics[name].containers.resize(target, now_ns, due_ns)

    def end_all(self, now_ns: int) -> None:
        """End everything."""
        for topic in self.topics.values():
            topic.ending = True
            topic.containers.resize(0, now_ns)

    def observe(self, programs: Mapping[str, ProgramStatus], reports: Mapping[str, AppReport], now_ns: int) -> None:
        """Take in programs and the last reports of apps, both by topic."""
        for name, topic in self.topics.items():
            topic.observe(programs.get(name), reports.get(name), now_ns)

    def work(self, programs: Mapping[str, ProgramStatus], now_ns: int) -> ProgramWork:
        """Apps to start and to end."""
        return work(self.topics.values(), programs, now_ns)
