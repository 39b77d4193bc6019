"""The loop behind one trigger: it observes the group and decides, and the HPA acts on what it keeps.

Replicas are the group's members; a replica that was decided on and is not there yet counts as requested, one too many
as draining, as with an actuator of our own. Nobody follows a plan here: a scaler that plans partitions is asked for
their number only, and finds its own last plan in the next observation.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from controller.foreign import make_stream_scaler, reason_of
from controller.journal import TickRecord
from controller.keda.hpa import MetricValue, metric_value
from controller.keda.metadata import Trigger
from controller.loop import Loop
from controller.main import StoppableClock
from controller.monitors.group import GroupReader, Member
from controller.monitors.kafka import NO_COMMIT, KafkaMonitor, OffsetReader
from penstock.contracts import (
    Accepted,
    Decision,
    Groups,
    Phase,
    ReplicaCounts,
    ReplicaEvent,
    StreamObservation,
)
from penstock.plan import Plan

log = logging.getLogger(__name__)

MONITOR_SHARE: Final = 0.4
"""Of a second: what reading the offsets may take at most."""


class Standing(msgspec.Struct, frozen=True):
    """What is known of a trigger's group now. ``wanted``: what the scaler last decided on, None before that;
    ``active``: whether there is anything to do, None while that was never known.
    """

    wanted: int | None = None
    current: int = 0
    active: bool | None = None
    why: str = "no reading yet"


class Target:
    """The loop's actuator, which does nothing but remember, and its view of replicas and plan."""

    def __init__(self, trigger: Trigger, fleet: str, read_members: Callable[[], Sequence[Member] | None]) -> None:
        self._trigger, self._fleet = trigger, fleet
        self._read_members = read_members
        self._members: Sequence[Member] = ()
        self.wanted: int | None = None
        self.groups: Groups = ()
        """The grouping last asked for, which nobody follows."""
        self.current: Plan | None = None
        self.last_rebalance_ns: int | None = None

    @property
    def present(self) -> int:
        """Replicas that are there, as last read."""
        if self._trigger.replicas is not None:
            return self._trigger.replicas
        return math.ceil(len(self._members) / self._trigger.members_per_replica)

    def look(self) -> None:
        """Read who is there; what was seen last stays while the broker does not say."""
        members = self._read_members()
        if members is not None:
            self._members = members

    # --- Actuator ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Remember what is wanted."""
        wanted = decision.targets.get(self._fleet, self.counts().current)
        most = self._trigger.max_replicas
        self.wanted = wanted if most is None else min(wanted, most)
        if decision.assignment is not None:
            self.groups = decision.assignment
        cut = {} if self.wanted == wanted else {self._fleet: f"{wanted} → {self.wanted}: maxReplicas {most}"}
        return Accepted({self._fleet: self.wanted}, cut)

    def events(self) -> Sequence[ReplicaEvent]:
        """None: the pods' lives are Kubernetes' business."""
        return ()

    def replicas(self) -> Mapping[str, Phase]:
        """The members, each as a replica that has joined."""
        return {member.member_id: "joined" for member in self._members}

    # --- what the monitor is told ------------------------------------------------------------------------------------

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        present = self.present
        wanted = present if self.wanted is None else self.wanted
        return ReplicaCounts(
            requested=max(0, wanted - present), joined=min(present, wanted), draining=max(0, present - wanted)
        )

    def assigned(self) -> Mapping[str, tuple[int, ...]]:
        """Partitions by member."""
        return {member.member_id: member.partitions for member in self._members}


class ScaledFleet:
    """The loop of one trigger, in a thread of its own from ``start`` to ``stop``. ``name`` is for logs. ``told`` is
    called, from that thread, after each tick that changed what is known.

    Raises PenstockError for a scaler that cannot decide about a consumer group.
    """

    def __init__(
        self,
        name: str,
        trigger: Trigger,
        *,
        bootstrap: str,
        partitions: int,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.trigger = name, trigger
        self.standing = Standing()
        self._told = told
        self._clock = StoppableClock()
        self._scaler = make_stream_scaler(trigger.scaler)
        timeout_s = MONITOR_SHARE * min(1.0, self._scaler.period_s)
        self._group = GroupReader(bootstrap=bootstrap, topic=trigger.topic, group=trigger.group)
        self._target = Target(trigger, trigger.group, lambda: self._group.members)
        self._reader = OffsetReader(
            bootstrap=bootstrap,
            topic=trigger.topic,
            group=trigger.group,
            partitions=partitions,
            clock=self._clock,
            timeout_s=timeout_s,
        )
        origin_s = math.ceil(self._clock.now())
        self._monitor = KafkaMonitor(
            fleet=trigger.group,
            reader=self._reader,
            partitions=partitions,
            clock=self._clock,
            origin_s=origin_s,
            replicas=self._target,
            plans=self._target,
        )
        self._loop = Loop(
            fleet=trigger.group,
            clock=self._clock,
            monitor=self,
            actuator=self._target,
            acting=self._scaler,
            journals=(self,),
            origin_s=origin_s,
        )
        self._thread = threading.Thread(target=self._run, name=f"loop of {name}", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop; returns when it has ended."""
        self._clock.stop()
        if self._thread.is_alive():
            self._thread.join()

    def value(self) -> MetricValue | None:
        """For the HPA now; None before the first decision."""
        standing = self.standing
        if standing.wanted is None:
            return None
        return metric_value(standing.wanted, standing.current, self.trigger.hpa_tolerance)

    # --- Monitor and Journal of the loop -----------------------------------------------------------------------------

    def observe(self) -> StreamObservation:
        """Members first, then the offsets."""
        self._target.look()
        return self._monitor.observe()

    def tick(self, record: TickRecord) -> None:
        """Keep what was decided. A hold keeps what was wanted before."""
        before = self.standing
        decision = record.decisions[record.acting]
        if self._target.wanted is None and decision.action == "none":
            self._target.wanted = record.observation.replicas.current
        wanted = self._target.wanted
        active = is_active(record.observation)
        self.standing = Standing(
            wanted=wanted,
            current=self._target.present,
            active=before.active if active is None else active,
            why=record.note or reason_of(decision, self.trigger.group),
        )
        if record.note and record.note != before.why:
            log.warning("%s: %s", self.name, record.note)
        if wanted != before.wanted:
            log.info("%s: %s wants %s replicas, there are %d", self.name, record.acting, wanted, self._target.present)
            if (value := self.value()) is not None and value.nudged:
                log.info("%s: %s", self.name, value.nudged)
        if self.standing != before:
            self._told()

    def replicas(self, events: Iterable[ReplicaEvent]) -> None:
        """There are none."""

    def _run(self) -> None:
        self._group.start()
        self._reader.read()  # connections are made before the first tick, not in it
        try:
            self._loop.run(lambda: self._clock.stopped)
        finally:
            self._reader.close()
            self._group.stop()


def is_active(observation: object) -> bool | None:
    """Whether there is anything to do: events that arrive, that wait, or that nobody has ever looked at (a group
    without a commit has to be started to have one). None where that cannot be known.
    """
    if not isinstance(observation, StreamObservation):
        return None
    unknown = False
    for each in observation.partitions:
        if each.end_offset is None:
            unknown = True
        elif each.arrival_rate_per_s or each.lag:
            return True
        elif each.lag is None and each.end_offset > 0:
            if observation.unknown.get(f"partitions.{each.partition}.committed_offset") == NO_COMMIT:
                return True
            unknown = True
    return None if unknown or not observation.partitions else False
