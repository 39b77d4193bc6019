"""The sim world: the live worlds' control loop over an engine in virtual time.

Everything that a seed makes is written without a trace of the wall clock: the run of one seed has the same decisions,
replicas and results, byte by byte, on every machine.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from controller.journal import RunJournal, TickRecord
from controller.loop import Loop
from penstock.contracts import ReplicaEvent
from penstock.errors import PenstockError
from penstock.registry import make_scaler
from penstock.rundir import JsonLines, RunDirectory
from penstock.runspec import Fault, FaultRecord, RunSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem
from penstock.world import OneRunWorld, Progress
from simulator.clock import EPOCH_NS, VirtualClock, nanos
from simulator.engine import Engine, unsupported

ENGINES: Final[dict[type[msgspec.Struct], str]] = {
    StreamSystem: "simulator.stream:make_engine",
    QueueSystem: "simulator.queue_bank:make_engine",
    FunctionSystem: "simulator.pipeline:make_engine",
    NetworkSystem: "simulator.network:make_engine",
}
"""Who simulates which kind of fleet; imported only when it is wanted."""

FAULTS: Final[dict[type[msgspec.Struct], str]] = {
    StreamSystem: "simulator.stream:FAULTS",
    QueueSystem: "simulator.queue_fleet:FAULTS",
    FunctionSystem: "simulator.network_stations:FAULTS",
    NetworkSystem: "simulator.network_stations:FAULTS",
}
"""What can go wrong on purpose in which kind of fleet."""

DRAIN_STEP_S = 1.0
DRAIN_STALL_S = 30.0
"""A drain in which nothing is finished for this long is given up; what is left counts as in flight."""


def find_engine(spec: RunSpec) -> Callable[[RunSpec, Schedule], Engine]:
    """What makes the engine of a run's kind of fleet. PenstockError where there is none."""
    make: Callable[[RunSpec, Schedule], Engine] = _of_kind(spec.system, ENGINES)
    return make


def check_faults(system: msgspec.Struct, faults: Iterable[Fault]) -> None:
    """Raise PenstockError for the first fault that the simulated kind of fleet does not have, with those it has."""
    for fault in faults:
        known: Collection[str] = _of_kind(system, FAULTS)
        if fault.kind not in known:
            raise unsupported(fault, known)


def _of_kind(system: msgspec.Struct, places: Mapping[type[msgspec.Struct], str]) -> Any:
    where = places.get(type(system))
    if where is None:
        raise PenstockError(f"--world sim: nothing simulates a {type(system).__name__}; use --world local")
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


class SimWorld(OneRunWorld):
    """World port in virtual time: waiting is computing, and nothing is left behind."""

    def __init__(self, tell: Progress = lambda _: None) -> None:
        self._tell = tell

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """The engine with the initial replicas, and the loop over it."""
        self.run = _Run(spec, directory)


class _Run:
    """One run: engine, clock and loop, and what they write."""

    def __init__(self, spec: RunSpec, directory: RunDirectory) -> None:
        self.spec, self.directory = spec, directory
        self.engine = find_engine(spec)(spec, Schedule.read(directory.schedule_file))
        self.until_s = 0.0
        self.clock = VirtualClock(self.engine.advance)
        self.journal = EpochJournal(RunJournal(directory))
        self.faults = JsonLines(directory.faults_file)
        acting, *shadows = (make_scaler(each) for each in (spec.scaler, *spec.shadows))
        self.loop = Loop(
            fleet=spec.fleet,
            clock=_UpTo(self.clock, lambda: self.until_s),
            monitor=self.engine.monitor,
            actuator=self.engine.actuator,
            acting=acting,
            shadows=shadows,
            journals=(self.journal,),
            tick_phase_s=spec.tick_phase_s,
            seed=spec.seed,
        )

    def start(self) -> RunSpec:
        self.spec = msgspec.structs.replace(self.spec, start_ns=EPOCH_NS)
        self.directory.write(self.directory.spec_file, self.spec)
        self.journal.replicas(self.engine.actuator.events())
        return self.spec

    def wait_until(self, until_s: float) -> None:
        self.until_s = max(self.until_s, until_s)
        self.loop.run(lambda: self.clock.now() >= self.until_s)
        self.clock.sleep_until(self.until_s)

    def inject(self, fault: Fault) -> None:
        self.engine.inject(fault)
        at_ns = EPOCH_NS + nanos(self.clock.now())
        self.faults.append(FaultRecord(kind=fault.kind, at_ns=at_ns, seconds=fault.seconds, detail="simulated"))

    def drain(self) -> int:
        left = self.engine.left()
        moved_s = self.clock.now()
        while left and self.clock.now() - moved_s < DRAIN_STALL_S:
            self.wait_until(self.clock.now() + DRAIN_STEP_S)
            now_left = self.engine.left()
            if now_left != left:
                left, moved_s = now_left, self.clock.now()
        return left

    def collect(self) -> None:
        self.journal.replicas(self.engine.actuator.events())
        self.engine.results().write(self.directory.results_folder, self.spec)

    def close(self) -> None:
        self.journal.close()
        self.faults.close()


class _UpTo:
    """A clock on which nobody can sleep beyond a limit."""

    def __init__(self, clock: VirtualClock, limit_s: Callable[[], float]) -> None:
        self._clock, self._limit_s = clock, limit_s

    def now(self) -> float:
        return self._clock.now()

    def sleep_until(self, time_s: float) -> None:
        self._clock.sleep_until(min(time_s, self._limit_s()))


class EpochJournal:
    """A run's journal that is given times since the start of the run, and writes them since the Unix epoch."""

    def __init__(self, journal: RunJournal) -> None:
        self._journal = journal

    def tick(self, record: TickRecord) -> None:
        """One tick is over."""
        self._journal.tick(msgspec.structs.replace(record, at_ns=EPOCH_NS + record.at_ns))

    def replicas(self, events: Iterable[ReplicaEvent]) -> None:
        """Steps in the lives of replicas, in order."""
        self._journal.replicas(msgspec.structs.replace(event, at_ns=EPOCH_NS + event.at_ns) for event in events)

    def close(self) -> None:
        """Close the files."""
        self._journal.close()
