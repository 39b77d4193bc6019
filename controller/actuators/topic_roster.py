"""The consumers of a pub/sub network and what is to be done next, without doing it: one app a topic, whose containers
are the topic's replicas. No clock, no I/O, as in ``roster``.
"""

from collections.abc import Iterable, Mapping

import msgspec

from controller.actuators.app_process import AppProcess
from controller.actuators.containers import ContainerSet
from penstock.apps import AppReport
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Phase, ReplicaCounts, ReplicaEvent
from penstock.supervision import ProgramStatus


class Topic(AppProcess, kw_only=True):
    """A topic's app with its containers, the replicas ``<topic>-<number>``."""

    containers: ContainerSet


class TopicWork(msgspec.Struct, frozen=True):
    """What to do with apps: start these, end those."""

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


class TopicRoster(msgspec.Struct, kw_only=True):
    """All topics of a network, in its order. ``start_up_s``: from requested to working, for all but the first."""

    start_up_s: float = 0.0
    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    ended: bool = False
    events: list[ReplicaEvent] = msgspec.field(default_factory=list)

    # --- what is asked -----------------------------------------------------------------------------------------------

    def phases(self) -> dict[str, Phase]:
        """Each replica's phase, by topic and age."""
        return {name: phase for each in self.topics.values() for name, phase in each.containers.phases().items()}

    def counts(self) -> dict[str, ReplicaCounts]:
        """Replicas of each topic by phase."""
        return {name: topic.containers.counts() for name, topic in self.topics.items()}

    def sizes(self) -> dict[str, int]:
        """Replicas of each topic that exist or were asked for, without those on the way out."""
        return {name: topic.containers.size for name, topic in self.topics.items()}

    def wanted(self, now_ns: int) -> dict[str, int]:
        """How many containers each app is to have now."""
        return {name: topic.containers.wanted(now_ns) for name, topic in self.topics.items()}

    def ready(self) -> bool:
        """Whether all that was asked for works."""
        heard = all(topic.heard is not None for topic in self.topics.values())
        return bool(self.topics) and heard and set(self.phases().values()) <= {"joined"}

    def copy(self) -> "TopicRoster":
        """As it is to be written down: without the last reports, which come again."""
        topics = {name: msgspec.structs.replace(topic, heard=None) for name, topic in self.topics.items()}
        remembered = msgspec.structs.replace(self, topics=topics)
        return msgspec.json.decode(msgspec.json.encode(remembered), type=TopicRoster)

    def happened(self) -> list[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        handed_out, self.events = self.events, []
        return handed_out

    # --- the plan's side ---------------------------------------------------------------------------------------------

    def bring_up(self, names: Iterable[str], initial: int, now_ns: int) -> None:
        """So many replicas of each topic, unless that was asked for already."""
        for name in names:
            if name not in self.topics:
                self.topics[name] = Topic(name=name, containers=ContainerSet(fleet=name, prefix=f"{name}-"))
                self.events += self.topics[name].containers.resize(initial, now_ns, now_ns)

    def resize(self, targets: Mapping[str, int], now_ns: int) -> None:
        """So many replicas of these topics."""
        due_ns = now_ns + round(self.start_up_s * NANOS_PER_SECOND)
        for name, target in targets.items():
            self.events += self.topics[name].containers.resize(target, now_ns, due_ns)

    def end_all(self, now_ns: int) -> None:
        """Everything is to go."""
        self.ended = True
        self.resize(dict.fromkeys(self.topics, 0), now_ns)

    # --- the world's side --------------------------------------------------------------------------------------------

    def observe(self, programs: Mapping[str, ProgramStatus], reports: Mapping[str, AppReport], now_ns: int) -> None:
        """Take in what runs and what apps said last, both by topic."""
        for name, topic in self.topics.items():
            if lost := topic.watch(programs.get(name), now_ns):
                self.events += topic.containers.end(now_ns) if self.ended else topic.containers.lost(now_ns, lost)
            if topic.listen(reports.get(name)) and topic.heard is not None:
                self.events += topic.containers.observe(topic.heard.containers, now_ns)

    def work(self, programs: Mapping[str, ProgramStatus], now_ns: int) -> TopicWork:
        """What brings what runs closer to what is wanted."""
        running = {name: programs[name] for name in self.topics if name in programs}
        if self.ended:
            return TopicWork(end=tuple(name for name, program in running.items() if program.state != "stopping"))
        return TopicWork(
            start=tuple(name for name in self.topics if name not in running),
            end=tuple(name for name, program in running.items() if self.topics[name].to_be_ended(program, now_ns)),
        )
