"""A run, fully described: written into its directory first, read by every process that takes part in it.

Durations are already divided, and rates multiplied, by the run's ``speed`` (design, measurement rule 7); ``speed`` is
kept for the record only.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from penstock.systems import StreamSystem, System

Arrivals = Literal["burst", "uniform", "poisson"]
ServiceLaw = Literal["deterministic", "exponential"]
WorldName = Literal["sim", "local", "kubernetes"]
FaultKind = Literal[
    "kill-worker",
    "freeze-workers",
    "stop-broker",
    "restart-redis",
    "kill-controller",
    "kill-forwarder",
    "kill-dataflow",
    "blind-monitor",
]


class Fault(msgspec.Struct, frozen=True):
    """Something bad done on purpose, ``at_s`` seconds into the run; ``seconds`` where it lasts."""

    kind: FaultKind
    at_s: float
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = f"+{self.seconds:g}" if self.seconds else ""
        return f"{self.kind}@{self.at_s:g}{lasting}"


class FaultRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line of faults.jsonl: what was really done, and to whom."""

    kind: FaultKind
    at_ns: int
    seconds: float
    detail: str


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of the consumer fleet. ``service_time_s`` is a floor: real work first, then wait until it has passed
    (0: real work only). ``commit_every`` is the number of events per ledger, result and commit round trip.
    ``directed_rebalance``: every member is told of a new plan at once; otherwise only the leader rejoins and the others
    learn of it with their next heartbeat, as the paper's did. ``rebalance_pause_s`` stops every consumer for that long
    after each rebalance (the paper's t_r experiments). ``commit_interval_s``: the least time between two commits while
    events keep coming; the committed offset, and with it the lag that is seen, is that much behind at most.
    """

    service_time_s: float = 0.005
    service_law: ServiceLaw = "deterministic"
    commit_every: int = 1
    commit_interval_s: float = 0.02
    heartbeat_s: float = 0.5
    session_timeout_s: float = 3.0
    directed_rebalance: bool = True
    rebalance_pause_s: float = 0.0


class ScalerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A scaler by name, and the parameters that differ from its defaults. ``file``: ``path.py:Class`` of one's own."""

    name: str
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    file: str = ""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run is. ``tick_phase_s``: the controller ticks at whole seconds of the run plus this."""

    run: str
    experiment: str
    world: WorldName
    scaler: ScalerSpec
    shadows: tuple[ScalerSpec, ...] = ()
    seed: int = 1
    speed: float = 1.0
    pipeline: str = "payments"
    fleet: str = "payments"
    partitions: int = 5
    slo_s: float = 0.5
    duration_s: float
    start_ns: int = 0
    """Wall clock of offset 0, a whole second; 0 until the run has started."""
    tick_phase_s: float = 0.1
    initial_replicas: int = 1
    max_replicas: int = 5
    join_timeout_s: float = 5.0
    replica_price_per_hour: float = 0.04
    worker: WorkerSpec = WorkerSpec()
    system: System = StreamSystem()
    faults: tuple[Fault, ...] = ()
    workload: Mapping[str, Any] = msgspec.field(default_factory=dict)
    analytics: bool = True
    """Whether Spark computes figures while the run goes on; without it, from the raw results only."""

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
