"""Plays a simulated consumer group under one scaler, without a run directory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controller.journal import TickRecord
from controller.loop import Loop
from penstock.contracts import ReplicaEvent, Scaler
from penstock.measures import Completions, ScaleCounts, completions, replica_seconds, scale_counts, slo_share
from penstock.registry import make_scaler
from penstock.runspec import Fault, RunSpec, ScalerSpec, WorkerSpec
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from simulator.clock import VirtualClock, nanos
from simulator.stream import StreamEngine, make_engine

IDEAL = StreamSystem(start_up_s=0.0, rebalance_s=0.09, stop_s=0.2, staleness_s=0.0, service_scv=0.0)
"""Replicas that join at once, constant service times, offsets read without delay."""


def ideal(**fields: Any) -> StreamSystem:
    """The ideal system with other values."""
    return msgspec.structs.replace(IDEAL, **fields)


PAPERS = ideal(rebalance_s=0.0, stop_s=0.0, leaving_rebalances=False)
"""As in the burst model of the specification: instant replicas, one stop of all for each change."""
EVERY_EVENT = WorkerSpec(commit_interval_s=0.0)
BINPACK = {"service_rate_per_s": 200.0, "hold_s": 10.0, "f_up": 0.9, "f_down": 0.4, "max_replicas": 5}


@dataclass
class Kept:
    """A journal in memory."""

    ticks: list[TickRecord] = field(default_factory=list)
    events: list[ReplicaEvent] = field(default_factory=list)

    def tick(self, record: TickRecord) -> None:
        self.ticks.append(record)


@dataclass
class Played:
    """What came of it."""

    spec: RunSpec
    engine: StreamEngine
    journal: Kept

    @property
    def done(self) -> Completions:
        table = self.engine.results()
        times = (nanos_of(each) for each in (table.intended_s, table.sent_s, table.started_s, table.finished_s))
        return completions(table.id, *times)

    @property
    def slo_share(self) -> float:
        return slo_share(self.done.latency_s, self.spec.slo_s)

    @property
    def replica_minutes(self) -> float:
        return replica_seconds(self.journal.events, 0, nanos(self.spec.duration_s)) / 60

    @property
    def counts(self) -> ScaleCounts:
        records = [record for record in self.journal.ticks if record.accepted is not None]
        return scale_counts(
            (
                record.decisions[record.acting].action,
                record.observation.replicas.current,
                record.accepted.targets[record.observation.fleet] if record.accepted else 0,
            )
            for record in records
        )


def nanos_of(seconds: Any) -> Any:
    return (seconds * 1e9).round().astype("int64")


def spec_of(
    *,
    seconds: float,
    scaler: str = "overprovision",
    parameters: dict[str, Any] | None = None,
    worker: WorkerSpec | None = None,
    **fields: Any,
) -> RunSpec:
    """A run of the sim world; ten minutes of the bin-pack paper's fleet, whose replicas start at once, unless told
    otherwise.
    """
    return RunSpec(
        run="simulated",
        experiment="test",
        world="sim",
        scaler=ScalerSpec(name=scaler, parameters=parameters or {}),
        duration_s=seconds,
        worker=worker or EVERY_EVENT,
        **{"system": IDEAL, **fields},
    )


def play(
    spec: RunSpec,
    schedule: Schedule,
    *,
    scaler: Scaler[Any, Any] | None = None,
    faults: Sequence[Fault] = (),
    drain_s: float = 60.0,
) -> Played:
    """The whole run with its faults, and ``drain_s`` more."""
    engine = make_engine(spec, schedule)
    clock = VirtualClock(engine.advance)
    journal = Kept()
    loop = Loop(
        fleet=spec.fleet,
        clock=clock,
        monitor=engine.monitor,
        actuator=engine.actuator,
        acting=scaler or make_scaler(spec.scaler),
        journals=(journal,),
        tick_phase_s=spec.tick_phase_s,
        seed=spec.seed,
    )
    pending = sorted(faults, key=lambda fault: fault.at_s)
    point = 0
    while loop.grid.time_s(point) < spec.duration_s + drain_s:
        while pending and pending[0].at_s <= loop.grid.time_s(point):
            clock.sleep_until(pending[0].at_s)
            engine.inject(pending.pop(0))
        clock.sleep_until(loop.grid.time_s(point))
        loop.tick(point)
        point = loop.grid.next_due(point)
    journal.events.extend(engine.actuator.events())
    return Played(spec, engine, journal)


def bytes_of(played: Played) -> bytes:
    """Everything that a run tells, as bytes."""
    table = played.engine.results()
    columns = (table.id, table.received_s, table.started_s, table.finished_s, table.worker, table.queue, table.attempt)
    return b"".join(
        [
            *(msgspec.json.encode(record) for record in played.journal.ticks),
            *(msgspec.json.encode(event) for event in played.journal.events),
            *(column.tobytes() for column in columns),
        ]
    )
