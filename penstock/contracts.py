"""Contracts of the control loop: observations, decisions, and the ports around them.

One tick is observe → decide (all scalers, same observation) → act (one) → journal. A scaler is pure: no clock, no I/O,
no globals; its state is a serialisable struct. Worlds differ in their ports only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

import msgspec

# --- observation -----------------------------------------------------------------------------------------------------


BLINDED: Final = "the monitor was blinded on purpose"
"""Reason of every unknown value during the fault ``blind-monitor``."""


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Replicas of a fleet by phase. ``current`` is the scalers' G: all but the draining ones."""

    requested: int = 0
    started: int = 0
    joined: int = 0
    draining: int = 0
    pooled: int = 0

    @property
    def current(self) -> int:
        """Replicas that exist or are requested, without those that drain."""
        return self.requested + self.started + self.joined

    @classmethod
    def count(cls, phases: Iterable["Phase"]) -> "ReplicaCounts":
        """Counts from the phase of each replica; ``first-event`` counts as joined."""
        of = list(phases).count
        return cls(of("requested"), of("started"), of("joined") + of("first-event"), of("draining"), of("pooled"))

    @classmethod
    def total(cls, counts: Iterable["ReplicaCounts"]) -> "ReplicaCounts":
        """The sum of several fleets' counts."""
        parts = [msgspec.structs.astuple(each) for each in counts]
        return cls(*map(sum, zip(*parts, strict=True)))


class FleetObservation(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="fleet"):
    """Fields of every kind of fleet: a scaler of rates and backlogs runs on all of them.

    ``time_s`` counts from the start of the run. ``arrived`` and ``completed`` are cumulative: scalers take differences
    over their own periods. Unknown is not zero: an unreadable value is None with its reason in ``unknown[field]``, and
    scalers hold.
    """

    time_s: float
    fleet: str
    replicas: ReplicaCounts
    arrived: int | None = None
    completed: int | None = None
    backlog: int | None = None
    in_flight: int | None = None
    service_rate_per_s: float | None = None
    last_scale_s: float | None = None
    unknown: Mapping[str, str] = msgspec.field(default_factory=dict)

    def parts(self) -> tuple["FleetObservation", ...]:
        """The fleets with one target each. A scaler of a single fleet decides on every one of them."""
        return (self,)


ARRIVAL_SLOTS: Final = 20
"""Slots of ``PartitionObservation.arrivals_by_slot``: 50 ms each in a run at speed 1."""

MEASURED: Final = 9
"""The largest number of start-ups and of rebalances in an observation."""

Groups = tuple[tuple[int, ...], ...]
"""Partitions by consumer: what a packing returns and a plan carries."""


class PartitionObservation(msgspec.Struct, frozen=True):
    """One Kafka partition at one instant. A missing commit is None ("no commit yet"), never zero.

    ``arrival_rate_per_s`` is Δend/Δt over the monitor's own last whole interval, None before two readings exist.
    ``arrivals_by_slot``: events of the last second of the run in ``ARRIVAL_SLOTS`` equal slots, oldest first; only
    read for a scaler that ``reads_arrivals``.
    """

    partition: int
    end_offset: int | None
    committed_offset: int | None
    arrival_rate_per_s: float | None = None
    arrivals_by_slot: tuple[int, ...] | None = None

    @property
    def lag(self) -> int | None:
        """Events not yet consumed, None if an offset is unknown."""
        if self.end_offset is None or self.committed_offset is None:
            return None
        return max(0, self.end_offset - self.committed_offset)


class StreamObservation(FleetObservation, frozen=True, kw_only=True, tag="stream"):
    """A Kafka consumer group. ``plan`` is the grouping of the last decision, on which the scaler decides next: a late
    rebalance must not be decided twice. ``assigned``: observed partitions of each replica. ``finished``, and of those
    ``late``, cumulative: events with a result, and those later than the SLO; read like ``arrivals_by_slot``, and so is
    ``busy_s``, the time for which replicas served events or events that had arrived were not fetched yet. Of the last
    replicas that joined, ``start_ups_s`` has the time from their request, and of the last rebalances ``rebalances_s``
    the time for which members stood still (the median of them); empty where it was not measured. ``delivery_s``: from
    an event's intended time until an idle replica begins to serve it.
    """

    partitions: tuple[PartitionObservation, ...] = ()
    plan: Groups = ()
    plan_epoch: int = 0
    assigned: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    last_rebalance_s: float | None = None
    finished: int | None = None
    late: int | None = None
    busy_s: float | None = None
    start_ups_s: tuple[float, ...] = ()
    rebalances_s: tuple[float, ...] = ()
    delivery_s: float | None = None


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One queue and its servers. ``arrived`` (rejected ones included), ``completed`` and ``rejected`` are cumulative.
    ``capacity`` is K, events in the system (reading Q1), None for no bound. ``servers``: its containers. ``offered``
    and ``refused``, cumulative: events for which it was the first choice, and those of them that found it full; their
    ratio is the observed P_K. None in worlds that do not count them.
    """

    queue: str
    arrived: int | None = None
    completed: int | None = None
    rejected: int | None = None
    depth: int | None = None
    in_flight: int | None = None
    servers: int | None = None
    capacity: int | None = None
    service_rate_per_s: float | None = None
    draining: bool = False
    offered: int | None = None
    refused: int | None = None


class QueueObservation(FleetObservation, frozen=True, kw_only=True, tag="queue"):
    """A main queue that feeds sub-queues, the fleet's replicas, each with its own function. ``queues`` in order of
    creation, ``pool``: spare ones in order of use, ``routing``: present share of arrivals by queue. ``arrived`` and
    ``rejected`` count at the main queue; ``backlog`` includes events in service.
    """

    queues: tuple[QueueStatus, ...] = ()
    pool: tuple[str, ...] = ()
    routing: Mapping[str, float] = msgspec.field(default_factory=dict)
    rejected: int | None = None


class FunctionStatus(FleetObservation, frozen=True, kw_only=True, tag="function-fleet"):
    """One function of a pipeline, one request per replica at a time. ``backlog``: waiting requests.

    ``busy_s``: cumulative processing time of completed requests. ``laxity_s``: time to deadline minus estimated
    remaining time, for each request that was started within the monitor's last epoch or waits now (AMESoS 3.5); the
    epoch does not depend on a scaler's ticks. ``concurrency``: limit of the connection pool. ``after``: the functions
    whose results it waits for; None where nobody knows the graph.
    """

    busy_s: float | None = None
    laxity_s: tuple[float, ...] = ()
    concurrency: int | None = None
    after: tuple[str, ...] | None = None


class FunctionObservation(FleetObservation, frozen=True, kw_only=True, tag="function"):
    """A pipeline of functions with a deadline. ``functions`` in topological order; ``arrived`` counts at the first.

    ``finished`` and ``missed`` are cumulative: requests that left the pipeline, and those of them after their deadline.
    """

    pipeline: str = ""
    deadline_s: float | None = None
    functions: tuple[FunctionStatus, ...] = ()
    finished: int | None = None
    missed: int | None = None

    def parts(self) -> tuple[FleetObservation, ...]:
        """Its functions."""
        return self.functions


class TopicStatus(FleetObservation, frozen=True, kw_only=True, tag="topic-fleet"):
    """One topic of a pub/sub network and its consumers. ``service_scv``: squared coefficient of variation of the
    service time; service rate and scv are of tasks that finished within the monitor's window. ``start_ups_s``: of its
    last consumers that joined, the time from their request.
    """

    service_scv: float | None = None
    start_ups_s: tuple[float, ...] = ()


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job type: ``route`` names the topic of each step, repeats included (A, D, D)."""

    job: str
    route: tuple[str, ...]
    arrived: int | None = None
    arrival_rate_per_s: float | None = None
    arrival_scv: float | None = None


class NetworkObservation(FleetObservation, frozen=True, kw_only=True, tag="network"):
    """An open network of topics. ``response_time_s`` is the mean over the jobs that finished within the window.
    ``late``, cumulative: of the completed jobs those that took longer than the SLO.
    """

    topics: tuple[TopicStatus, ...] = ()
    jobs: tuple[JobStatus, ...] = ()
    response_time_s: float | None = None
    late: int | None = None

    def parts(self) -> tuple[FleetObservation, ...]:
        """Its topics."""
        return self.topics


# --- decision --------------------------------------------------------------------------------------------------------

Action = Literal["up", "down", "reassign", "none", "hold"]
Term = float | int | str | bool | list[Any] | None
"""One value in the arithmetic of a decision."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decision of a scaler. ``hold`` changes nothing, for the reason in ``why``.

    ``targets``: replicas per fleet (empty: no change). ``assignment``: a grouping of partitions (streams); with fewer
    groups than replicas, for those that have joined, then for those that came furthest. ``routing``: share per queue.
    ``pool``: number of pre-provisioned replicas. ``why``: the arithmetic per fleet, the terms of the paper with their
    values in order of computation.
    """

    action: Action
    targets: Mapping[str, int] = msgspec.field(default_factory=dict)
    assignment: Groups | None = None
    routing: Mapping[str, float] | None = None
    pool: int | None = None
    why: Mapping[str, Mapping[str, Term]] = msgspec.field(default_factory=dict)


def hold(fleet: str, reason: str, **terms: Term) -> Decision:
    """The decision to change nothing, with its reason."""
    return Decision(action="hold", why={fleet: {"reason": reason, **terms}})


Obs = TypeVar("Obs", bound=FleetObservation, contravariant=True)
StateT = TypeVar("StateT")


class Scaler(Protocol[Obs, StateT]):
    """Maps an observation to a decision.

    A scaler class names its ``Parameters`` (a frozen dataclass, units in the field names) and its ``State`` (a
    msgspec struct) and is built as ``cls(parameters)``. ``fleets`` is the kind of observation that it reads.
    """

    name: ClassVar[str]
    fleets: ClassVar[type[FleetObservation]]
    paper: ClassVar[str]
    Parameters: ClassVar[type[Any]]
    State: ClassVar[type[Any]]
    parameters: Any

    @property
    def period_s(self) -> float:
        """Seconds between two decisions."""

    def start(self, seed: int) -> StateT:
        """State before the first tick. ``seed`` feeds the random draws of those scalers that have some."""

    def decide(self, observation: Obs, state: StateT) -> tuple[Decision, StateT]:
        """One decision. Same observation and state, same answer."""


# --- ports -----------------------------------------------------------------------------------------------------------

Phase = Literal["requested", "created", "scheduled", "started", "joined", "first-event", "draining", "gone", "pooled"]

POD_STEPS: Final[tuple[Phase, ...]] = ("created", "scheduled")
"""Steps of a pod before its container starts: created, on a node. Recorded as events, never the phase of a replica."""


class ReplicaEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step in the lifecycle of a replica. Replica time runs from ``requested`` to ``gone``."""

    fleet: str
    replica: str
    phase: Phase
    at_ns: int
    reason: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """Accepted targets of an actuator, and those that it had to cut ("5 → 4: cap 4")."""

    targets: Mapping[str, int]
    clamped: Mapping[str, str] = msgspec.field(default_factory=dict)


ObsOut = TypeVar("ObsOut", bound=FleetObservation, covariant=True)


class Monitor(Protocol[ObsOut]):
    """Reads one fleet."""

    def observe(self) -> ObsOut:
        """The present state of the fleet. A source that is away gives None fields with reasons, not an exception."""


class Actuator(Protocol):
    """Executes decisions. No decision is assumed to have taken effect: ``events`` reports the effects."""

    def apply(self, decision: Decision) -> Accepted:
        """Start working towards the decision; return at once."""

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
