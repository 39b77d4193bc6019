"""The complete description of a run: written into its directory first, and read by every process of the run.

Durations are already divided, and rates multiplied, by the run's ``speed``; the field is a record only.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from penstock import measured
from penstock.fleet_kinds import AnySystem
from penstock.systems import StreamSystem

Arrivals = Literal["burst", "uniform", "poisson"]
WorkerServiceDistribution = Literal["deterministic", "exponential"]
WorldName = Literal["sim", "local", "kubernetes"]
FaultKind = Literal[
    "kill-worker",
    "kill-all-workers",
    "freeze-workers",
    "stop-broker",
    "restart-redis",
    "kill-controller",
    "kill-forwarder",
    "kill-dataflow",
    "kill-gateway",
    "stop-gateway",
    "blind-monitor",
    "fill-disk",
    "cut-workers",
    "cut-controller",
]
"""Name of a fault. docs/your-own-fault.md describes how to add one."""

LASTING_FAULTS: Final[frozenset[FaultKind]] = frozenset(
    (
        "freeze-workers",
        "stop-broker",
        "restart-redis",
        "stop-gateway",
        "blind-monitor",
        "fill-disk",
        "cut-workers",
        "cut-controller",
    )
)
"""Faults with a duration; every other one happens at once."""


def part_hit(kind: FaultKind) -> str:
    """The part in the name of a fault: ``forwarder`` of ``kill-forwarder``."""
    return kind.partition("-")[2]


class Fault(msgspec.Struct, frozen=True):
    """A failure injected on purpose."""

    kind: FaultKind
    """What fails."""
    at_s: float
    """Seconds from the start of the run."""
    seconds: float = 0.0
    """Duration, for a fault that lasts."""

    def __str__(self) -> str:
        lasting = f"+{self.seconds:g}" if self.seconds else ""
        return f"{self.kind}@{self.at_s:g}{lasting}"


class FaultRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line of faults.jsonl: a fault as it was injected."""

    kind: FaultKind
    """What failed."""
    at_ns: int
    """Wall clock of the injection."""
    seconds: float
    """Duration, for a fault that lasts."""
    detail: str
    """Name of the process, pod or service; why the fault had no effect."""
    hit: bool = True
    """False: what it was to hit did not run at that moment, or was hit already. The fault had no effect."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of the consumer fleet."""

    service_time_s: float = 0.005
    """Mean service floor in seconds: the replica does its real work, then waits until the floor has passed. 0: no
    floor.
    """
    service_law: WorkerServiceDistribution = "deterministic"
    """Distribution of the service floor."""
    commit_every: int = 1
    """Events per round trip to ledger, results and commit."""
    commit_interval_s: float = 0.02
    """Shortest time in seconds between two commits while events keep coming. The committed offset, and so the observed
    lag, is late by at most this.
    """
    heartbeat_s: float = 0.5
    """Seconds between two heartbeats to the group's coordinator."""
    session_timeout_s: float = 3.0
    """Seconds without a heartbeat after which a member leaves the group."""
    directed_rebalance: bool = True
    """Every member is notified of a new assignment at once. Otherwise only the leader rejoins, and the others learn of
    it with their next heartbeat, as in the bin-pack paper.
    """
    rebalance_pause_s: float = 0.0
    """Seconds for which every consumer stops after a rebalance (the bin-pack paper's t_r)."""


class ScalerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A scaler and its parameters."""

    name: str
    """Name in `penstock scalers`, or of the class in ``file``."""
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Parameters that differ from the scaler's defaults."""
    file: str = ""
    """``path.py:Class`` of a scaler that is not installed."""


class GuardSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The knowledge of the guards around a scaler (``controller.guard``): what a run knows of its world."""

    slo_s: float
    """Latency SLO, seconds."""
    slo_share: float
    """Share of the events that is to be within the SLO."""
    max_replicas: int
    """Maximum of replicas of a fleet."""
    service_rate_per_s: float | None = None
    """μ: events per second that one replica serves."""
    rebalance_time_s: float | None = None
    """Seconds for which a rebalance stops a consumer group."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    run: str
    """Name of the run, its directory, and the prefix of its topics, queues and keys."""
    experiment: str
    """Name of the experiment."""
    world: WorldName
    """sim: virtual time. local: processes. kubernetes: pods."""
    scaler: ScalerSpec
    """The acting scaler."""
    shadows: tuple[ScalerSpec, ...] = ()
    """Scalers that decide on the same observations without effect."""
    guard: GuardSpec | None = None
    """Guards around the acting scaler; None: its decisions are carried out as they are."""
    seed: int = 1
    """Seed of the schedule and of all random draws."""
    speed: float = 1.0
    """Factor by which rates were multiplied and durations divided."""
    pipeline: str = "payments"
    """Name of the processing that events go through."""
    fleet: str = "payments"
    """Name of the fleet, for kinds with one fleet."""
    partitions: int = 5
    """Partitions of the topic of events."""
    slo_s: float = 0.5
    """Latency limit in seconds."""
    slo_share: float = 0.99
    """Share of the events that is to be within the SLO."""
    duration_s: float
    """Length of the schedule in seconds."""
    start_ns: int = 0
    """Wall clock of offset 0, a whole second; 0 until the run has started."""
    tick_phase_s: float = 0.1
    """The controller ticks this many seconds after each whole second of the run."""
    initial_replicas: int = 1
    """Replicas that serve before the start."""
    max_replicas: int = 5
    """Upper limit of the fleet."""
    join_timeout_s: float = measured.JOIN_TIMEOUT_S
    """Seconds for which an assignment waits for members that have not joined."""
    reads_arrivals: bool = False
    """The monitor of a stream reads arrivals by slot and counts of late events: a scaler asks for them."""
    replica_price_per_hour: float = 0.04
    """Price of a replica, for the cost in the report."""
    worker: WorkerSpec = WorkerSpec()
    """Settings of the consumers."""
    system: AnySystem = StreamSystem()
    """The fleet, by kind."""
    faults: tuple[Fault, ...] = ()
    """Faults to inject, in the order of their times."""
    workload: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Workload, slice and arrivals of the schedule."""
    analytics: bool = True
    """Spark computes figures during the run; otherwise they are computed from the raw results only."""

    @property
    def assumptions(self) -> str:
        """One line on the delays that the sim world assumes; "" in a live world, which has its own."""
        start_up_s = [
            getattr(self.system, name)
            for name in ("start_up_s", "cold_start_s", "first_container_s")
            if hasattr(self.system, name)
        ]
        if self.world != "sim" or not start_up_s:
            return ""
        line = f"Assumed in virtual time: start-up of a replica {start_up_s[0]:g} s"
        if isinstance(self.system, StreamSystem):
            rebalance_s = self.system.rebalance_s + self.worker.rebalance_pause_s
            protocol = "cooperative" if self.system.cooperative else "eager"
            line += f", rebalance {rebalance_s:g} s ({protocol}), stop of a replica {self.system.stop_s:g} s"
        return f"{line}; change with --set system.<name>."

    @property
    def events_topic(self) -> str:
        """Kafka topic of this run's events."""
        return f"{self.run}.events"

    @property
    def results_topic(self) -> str:
        """Kafka topic of this run's results."""
        return f"{self.run}.results"

    @property
    def group(self) -> str:
        """Consumer group of the fleet."""
        return f"{self.run}.{self.fleet}"

    @property
    def ledger_key(self) -> str:
        """Redis hash of this run's bookings: event id → booking."""
        return f"penstock:{self.run}:ledger"
