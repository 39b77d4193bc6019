"""Contracts of the control loop: what a scaler sees, what it answers, and the ports around it.

One tick is observe → decide (all scalers, same observation) → act (one) → journal. A scaler is pure: no clock, no I/O,
no globals; its state is a plain struct that can be written down and read back. Worlds differ in their ports only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

import msgspec

# --- observation -----------------------------------------------------------------------------------------------------


class ReplicaCounts(msgspec.Struct, frozen=True):
    """Replicas of a fleet by phase. ``current`` is what a scaler calls G: wanted and not on the way out."""

    requested: int = 0
    started: int = 0
    joined: int = 0
    draining: int = 0
    pooled: int = 0

    @property
    def current(self) -> int:
        """Replicas that exist or were asked for, without those that drain."""
        return self.requested + self.started + self.joined

    @classmethod
    def count(cls, phases: Iterable["Phase"]) -> "ReplicaCounts":
        """Counts from the phase of each replica; after its first event it is joined, a gone one is none."""
        of = Counter(phases)
        return cls(of["requested"], of["started"], of["joined"] + of["first-event"], of["draining"], of["pooled"])


class FleetObservation(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="fleet"):
    """What every kind of fleet can tell, so that a scaler of rates and backlogs runs on any of them.

    ``time_s`` counts from the start of the run. ``arrived`` and ``completed`` are cumulative counts of events: a scaler
    takes differences over its own period. Unknown is not zero: a value that could not be read is None and
    ``unknown[field]`` says why; scalers hold on it.
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
        """The fleets that one number each scales. A scaler of a single fleet is asked about every one of them."""
        return (self,)


Groups = tuple[tuple[int, ...], ...]
"""Partitions by consumer: what a packing returns and a plan carries."""


class PartitionObservation(msgspec.Struct, frozen=True):
    """One Kafka partition at one instant. A missing commit is None ("no commit yet"), never zero.

    ``arrival_rate_per_s`` is Δend/Δt over the monitor's own last whole interval, None before two readings exist.
    """

    partition: int
    end_offset: int | None
    committed_offset: int | None
    arrival_rate_per_s: float | None = None

    @property
    def lag(self) -> int | None:
        """Events not yet consumed, None if an offset is unknown."""
        if self.end_offset is None or self.committed_offset is None:
            return None
        return max(0, self.end_offset - self.committed_offset)


class StreamObservation(FleetObservation, frozen=True, kw_only=True, tag="stream"):
    """A Kafka consumer group. ``plan`` is the grouping that the scaler last asked for and decides on (spec 4.13);
    ``assigned`` is what each replica was seen to hold.
    """

    partitions: tuple[PartitionObservation, ...] = ()
    plan: Groups = ()
    plan_epoch: int = 0
    assigned: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    last_rebalance_s: float | None = None


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One queue with the servers behind it. ``arrived``, ``completed`` and ``rejected`` are cumulative; ``arrived`` is
    what was offered to it, rejected ones included. ``capacity`` is K, events in the system (reading Q1), None for no
    bound. ``servers``: containers that work on it. ``offered`` and ``refused`` are cumulative as well: events for which
    it was the first choice, and those of them that it had no room for; their ratio is P_K as observed, also where an
    event that was refused is held. None in worlds that do not count them apart.
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
    """A main queue that feeds a bank of sub-queues, each with a function of its own; the fleet's replicas are the
    sub-queues. ``queues`` in order of creation, ``pool`` the spare ones in the order in which they will be taken,
    ``routing`` the share of arrivals that each queue gets now. ``arrived`` and ``rejected`` count at the main queue.
    """

    queues: tuple[QueueStatus, ...] = ()
    pool: tuple[str, ...] = ()
    routing: Mapping[str, float] = msgspec.field(default_factory=dict)
    rejected: int | None = None


class FunctionStatus(FleetObservation, frozen=True, kw_only=True, tag="function-fleet"):
    """One function of a pipeline, one request per replica at a time. ``backlog`` are the requests that wait for it.

    ``busy_s`` is the cumulative processing time of its completed requests. ``laxity_s``: time to deadline minus the
    estimate of what is left, one sample for each request that was taken up within the monitor's last epoch or waits now
    (AMESoS 3.5). The epoch is the monitor's own, so that no other scaler's ticks take samples away. ``concurrency`` is
    the limit of the connection pool.
    """

    busy_s: float | None = None
    laxity_s: tuple[float, ...] = ()
    concurrency: int | None = None


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
    service time; service rate and scv are of tasks that finished within the monitor's window.
    """

    service_scv: float | None = None


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job type: ``route`` names the topic of each step, repeats included (A, D, D)."""

    job: str
    route: tuple[str, ...]
    arrived: int | None = None
    arrival_rate_per_s: float | None = None
    arrival_scv: float | None = None


class NetworkObservation(FleetObservation, frozen=True, kw_only=True, tag="network"):
    """An open network of topics. ``response_time_s`` is the mean over the jobs that finished within the window."""

    topics: tuple[TopicStatus, ...] = ()
    jobs: tuple[JobStatus, ...] = ()
    response_time_s: float | None = None

    def parts(self) -> tuple[FleetObservation, ...]:
        """Its topics."""
        return self.topics


# --- decision --------------------------------------------------------------------------------------------------------

Action = Literal["up", "down", "reassign", "none", "hold"]
Term = float | int | str | bool | list[Any] | None
"""One value in the arithmetic of a decision."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a scaler wants. ``hold`` is a decision too: leave everything as it is, and ``why`` says for what reason.

    ``targets`` are replicas per fleet (empty: no change). ``assignment`` is a grouping of partitions (streams),
    ``routing`` a share per queue, ``pool`` the number of pre-provisioned replicas. ``why`` is the arithmetic per fleet:
    the terms of the paper with their values, in the order in which they were computed.
    """

    action: Action
    targets: Mapping[str, int] = msgspec.field(default_factory=dict)
    assignment: Groups | None = None
    routing: Mapping[str, float] | None = None
    pool: int | None = None
    why: Mapping[str, Mapping[str, Term]] = msgspec.field(default_factory=dict)


def hold(fleet: str, reason: str, **terms: Term) -> Decision:
    """The decision to leave everything as it is, with its reason."""
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
        ...

    def start(self, seed: int) -> StateT:
        """State before the first tick. ``seed`` feeds the random draws of those scalers that have some."""
        ...

    def decide(self, observation: Obs, state: StateT) -> tuple[Decision, StateT]:
        """One decision. Same observation and state, same answer."""
        ...


# --- ports -----------------------------------------------------------------------------------------------------------

Phase = Literal["requested", "created", "scheduled", "started", "joined", "first-event", "draining", "gone", "pooled"]

POD_STEPS: Final[tuple[Phase, ...]] = ("created", "scheduled")
"""Of a pod before its container starts: it is there, it has a node. On record, and never the phase that it is in."""


class ReplicaEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step in the life of a replica. Replica time runs from ``requested`` to ``gone``."""

    fleet: str
    replica: str
    phase: Phase
    at_ns: int
    reason: str = ""


class Accepted(msgspec.Struct, frozen=True):
    """What an actuator took on: the targets it now works towards, and those it had to cut ("5 → 4: cap 4")."""

    targets: Mapping[str, int]
    clamped: Mapping[str, str] = msgspec.field(default_factory=dict)


ObsOut = TypeVar("ObsOut", bound=FleetObservation, covariant=True)


class Monitor(Protocol[ObsOut]):
    """Reads one fleet."""

    def observe(self) -> ObsOut:
        """The state of the fleet now. A source that is away gives None fields with their reasons, not an exception."""
        ...


class Actuator(Protocol):
    """Carries decisions out. A decision is never assumed to have happened: ``events`` tells what did."""

    def apply(self, decision: Decision) -> Accepted:
        """Start working towards the decision; return at once."""
        ...

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        ...

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        ...
