"""The control loop behind one trigger: it observes the group and decides; the HPA acts on the last decision.

The fleet is a stream fleet whose actuator only remembers. Replicas are the group's members; a replica that was decided
on and is not there yet counts as requested, a surplus one as draining. No component follows a plan: of a scaler that
plans partitions only the number counts, and it finds its own last plan in the next observation.
"""

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from controller.assembly import Controller, StoppableClock, make_live_scaler, reason_of
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.group_members import GroupReader, Member
from controller.fleets.stream.monitor import KafkaMonitor
from controller.fleets.stream.offsets import NO_COMMIT
from controller.journal import TickRecord
from controller.keda.caution import Caution
from controller.keda.hpa import MetricValue, metric_value
from controller.keda.metadata import Trigger
from penstock.adapters.kafka import BrokerAwayError
from penstock.contracts import Accepted, Decision, Groups, Phase, ReplicaCounts, ReplicaEvent, StreamObservation
from penstock.plan import MemberReport, Plan
from penstock.registry import reads_arrivals

log = logging.getLogger(__name__)


class TriggerState(msgspec.Struct, frozen=True):
    """The current state of a trigger's group. ``wanted``: replicas for the HPA, None while too little is known;
    ``active``: whether there is work, None while that was never known.
    """

    wanted: int | None = None
    current: int = 0
    active: bool | None = None
    why: str = "no reading yet"


class TriggerFleet:
    """The group of a trigger, as a controller needs it: an actuator that only remembers the decision, the monitor's
    view of replicas and plan, and its monitor, which reads the members before the offsets.

    ``connect`` makes the monitor, given what this fleet knows; it is made anew when the topic has got partitions.
    """

    def __init__(self, trigger: Trigger, reader: GroupReader, connect: Callable[..., KafkaMonitor]) -> None:
        self._trigger, self._fleet = trigger, trigger.group
        self._reader, self._connect = reader, connect
        self._monitor: KafkaMonitor | None = None
        self._partitions = 0
        self._members: Sequence[Member] | None = None
        self.actuator = self
        self.wanted: int | None = None
        self._groups: Groups = ()

    @property
    def present(self) -> int | None:
        """Replicas that exist, as last read; None before the first reading."""
        if self._trigger.replicas is not None or self._members is None:
            return self._trigger.replicas
        return math.ceil(len(self._members) / self._trigger.members_per_replica)

    def look(self) -> None:
        """Read the members; the last reading stays while the broker does not answer."""
        members = self._reader.members
        if members is not None:
            self._members = members

    def apply(self, decision: Decision) -> Accepted:
        """Remember the target."""
        wanted = decision.targets.get(self._fleet, self.counts().current)
        most = self._trigger.max_replicas
        self.wanted = wanted if most is None else min(wanted, most)
        if decision.assignment is not None:
            self._groups = decision.assignment
        cut = {} if self.wanted == wanted else {self._fleet: f"{wanted} → {self.wanted}: maxReplicas {most}"}
        return Accepted({self._fleet: self.wanted}, cut)

    def events(self) -> Sequence[ReplicaEvent]:
        """None: Kubernetes manages the pods."""
        return ()

    def replicas(self) -> Mapping[str, Phase]:
        """The members, each as a replica that has joined."""
        return {member.member_id: "joined" for member in self._members or ()}

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        present = self.present or 0
        wanted = present if self.wanted is None else self.wanted
        return ReplicaCounts(
            requested=max(0, wanted - present), joined=min(present, wanted), draining=max(0, present - wanted)
        )

    def plans(self) -> AssignmentPlanner:
        """The grouping last decided on, which no component follows, and the partitions of the members."""
        members = {each.member_id: MemberReport("joined", 0, each.partitions) for each in self._members or ()}
        return AssignmentPlanner(join_timeout_s=0.0, current=Plan(epoch=0, groups=self._groups), members=members)

    def start(self, after_step: Callable[[], None]) -> None:  # noqa: ARG002 - the actuator has no events
        """Begin to read the members."""
        self._reader.start()

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> "TriggerFleet":
        """Itself. It connects at the first observation, since the broker may be away."""
        self._connect = partial(self._connect, counts=self.counts, plans=self.plans, origin_s=origin_s, blind=blind)
        return self

    def observe(self) -> StreamObservation:
        """Members first, then the offsets. BrokerAwayError if the topic was never seen."""
        self.look()
        partitions = self._reader.partitions
        if partitions is None:
            raise BrokerAwayError(self._reader.trouble or "the topic was not read yet")
        if self._monitor is None or partitions != self._partitions:
            if self._monitor is not None:
                log.info("topic %s has %d partitions now", self._trigger.topic, partitions)
                self._monitor.close()
            self._monitor, self._partitions = self._connect(partitions=partitions), partitions
        return self._monitor.observe()

    def stop(self) -> None:
        """End the reading."""
        if self._monitor is not None:
            self._monitor.close()
        self._reader.stop()


class ScaledFleet:
    """The controller of one trigger, in a thread from ``start`` to ``stop``. ``name`` is for logs. ``notify`` is
    called, from that thread, after each tick that changed ``state``.

    PenstockError for a scaler that cannot decide about a consumer group.
    """

    def __init__(
        self, name: str, trigger: Trigger, *, bootstrap: str, notify: Callable[[], None] = lambda: None
    ) -> None:
        self.name, self.trigger = name, trigger
        self.state = TriggerState()
        self._caution = Caution(trigger.scale_in_hold_s)
        self._notify = notify
        self._clock = StoppableClock()
        scaler = make_live_scaler(trigger.scaler, StreamObservation)
        topic, group = trigger.topic, trigger.group
        connect = partial(
            KafkaMonitor.connected,
            bootstrap=bootstrap,
            topic=topic,
            group=group,
            clock=self._clock,
            period_s=scaler.period_s,
            reads_arrivals=reads_arrivals((trigger.scaler,)),
            fleet=group,
        )
        self._fleet = TriggerFleet(trigger, GroupReader(bootstrap=bootstrap, topic=topic, group=group), connect)
        controller = Controller(trigger.group, self._fleet, [scaler], self._clock, journals=(self,))
        self._thread = threading.Thread(target=controller.run, name=f"loop of {name}", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def end(self) -> None:
        """Have the loop end."""
        self._clock.stop()

    def stop(self) -> None:
        """End the loop; returns when it has ended."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()

    def value(self) -> MetricValue | None:
        """For the HPA now; None while too little is known."""
        wanted, current = self.state.wanted, self.state.current
        return None if wanted is None else metric_value(wanted, current, self.trigger.hpa_tolerance)

    def tick(self, record: TickRecord) -> None:
        """Take in a tick. A hold keeps the target of before."""
        before, fleet = self.state, self._fleet
        decision = record.decisions[record.acting]
        if fleet.wanted is None and decision.action == "none":
            fleet.wanted = record.observation.replicas.current
        if any(each.end_offset is not None for each in getattr(record.observation, "partitions", ())):
            self._caution.take(record.time_s, fleet.wanted, fleet.present)
        wanted, active = self._caution.told, is_active(record.observation)
        self.state = TriggerState(
            wanted=wanted,
            current=fleet.present or 0,
            active=before.active if active is None else active,
            why=record.note or reason_of(decision, self.trigger.group),
        )
        if record.note and record.note != before.why:
            log.warning("%s: %s", self.name, record.note)
        if wanted != before.wanted:
            log.info("%s: %s wants %s replicas, there are %d", self.name, record.acting, wanted, self.state.current)
            if (value := self.value()) is not None and value.nudged:
                log.info("%s: %s", self.name, value.nudged)
        if self.state != before:
            self._notify()


def is_active(observation: object) -> bool | None:
    """Whether there is work: events that arrive, wait, or belong to a group without a commit, which has to be started
    to make one. None if that cannot be known.
    """
    if not isinstance(observation, StreamObservation) or not observation.partitions:
        return None
    unknown = False
    for each in observation.partitions:
        reason = observation.unknown.get(f"partitions.{each.partition}.committed_offset")
        if each.end_offset is not None and (each.arrival_rate_per_s or each.lag):
            return True
        if each.end_offset and each.lag is None and reason == NO_COMMIT:
            return True
        unknown |= (each.lag is None and each.end_offset != 0) or each.arrival_rate_per_s is None
    return None if unknown else False
