"""The sim world: the control loop of the live worlds over an engine in virtual time.

Nothing that is written depends on the wall clock: a run of one seed has the same decisions, replicas and results, byte
by byte, on every machine.
"""

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import msgspec

from controller.journal import DecisionsFile, ReplicasFile, TickRecord
from controller.loop import Loop, LoopState, check_kinds
from penstock.fleet_kinds import kind_of
from penstock.measured import RESTART_S
from penstock.registry import make_scaler
from penstock.rundir import JsonLines, RunDirectory
from penstock.runspec import Fault, FaultKind, FaultRecord, RunSpec, part_hit
from penstock.schedule import Schedule
from penstock.systems import System
from penstock.world import Progress, World
from simulator.clock import EPOCH_NS, VirtualClock, nanos
from simulator.engine import Engine, unsupported

DRAIN_STEP_S = 1.0
DRAIN_STALL_S = 30.0
"""A drain without progress for this long ends; the events that are left count as in flight."""
CONTROLLER_FAULTS: Final[tuple[FaultKind, ...]] = ("kill-controller", "fill-disk")
LONG_DECISION_S = 5.0
"""Between two looks at the decision under way. One that both looks find is reported."""


def simulated_faults(system: System) -> frozenset[FaultKind]:
    """The faults of a simulated system: those of its engine, and those of the controller, which every run has."""
    known: set[FaultKind] = {*kind_of(system).load("faults"), *CONTROLLER_FAULTS}
    return frozenset(kind for kind in known if part_hit(kind) not in system.lacks)


def check_faults(system: System, faults: Iterable[Fault]) -> None:
    """Raise PenstockError for the first fault that the simulated system does not have, with those it has."""
    known = simulated_faults(system)
    for fault in faults:
        if fault.kind not in known:
            raise unsupported(fault, known)


class SimWorld(World):
    """World port in virtual time: waiting is computing; nothing needs cleaning up."""

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
        self._run = _Run(spec, directory, self._tell)


class _Run:
    """One run: engine, clock, loop and their files."""

    def __init__(self, spec: RunSpec, directory: RunDirectory, tell: Progress) -> None:
        self.spec, self.directory, self._tell = spec, directory, tell
        kind = kind_of(spec.system)
        acting, *shadows = scalers = [make_scaler(each) for each in (spec.scaler, *spec.shadows)]
        check_kinds(scalers, kind.load("observation"))
        self.engine: Engine = kind.load("engine")(spec, Schedule.read(directory.schedule_file))
        self.clock = VirtualClock(self.engine.advance)
        self.clock.limit_s = 0.0
        self.decisions = DecisionsFile(directory, EPOCH_NS)
        self.replicas = ReplicasFile(directory, EPOCH_NS)
        self.faults = JsonLines(directory.faults_file)
        self._lasting_until_s: dict[FaultKind, float] = {}
        self._full_until_s = 0.0
        self._saved: LoopState | None = None
        self._unwritten: list[TickRecord] = []

        def make_loop(resume: LoopState | None = None) -> Loop:
            return Loop(
                fleet=spec.fleet,
                clock=self.clock,
                monitor=self.engine.monitor,
                actuator=self.engine.actuator,
                acting=acting,
                guard=spec.guard,
                shadows=shadows,
                journals=(self,),
                tick_phase_s=spec.tick_phase_s,
                seed=spec.seed,
                resume=resume,
            )

        self._make_loop, self.loop = make_loop, make_loop()
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """Tell of a scaler that decides for long: a ``decide`` that never returns says nothing itself."""
        seen, told = ("", 0.0), ("", 0.0)
        while not self._over.wait(LONG_DECISION_S):
            now = (self.loop.deciding, self.clock.now())
            if now[0] and now == seen != told:
                told = now
                self._tell(f"{now[0]} has decided on the tick at {now[1]:g} s for more than {LONG_DECISION_S:g} s")
            seen = now

    def start(self) -> RunSpec:
        self.spec = msgspec.structs.replace(self.spec, start_ns=EPOCH_NS)
        self.directory.write(self.directory.spec_file, self.spec)
        return self.spec

    def tick(self, record: TickRecord) -> None:
        """The journal of the loop. Decisions wait while the disk is full, as in a live controller."""
        self._unwritten.append(record)
        if self.clock.now() >= self._full_until_s:
            self._write()

    def _write(self) -> None:
        for record in self._unwritten:
            self.decisions.tick(record)
        self._unwritten.clear()

    def wait_until(self, until_s: float) -> None:
        self.clock.limit_s = limit_s = max(self.clock.limit_s, until_s)
        self.clock.sleep_until(self._lasting_until_s.get("kill-controller", 0.0))
        self.loop.run(lambda: self.clock.now() >= limit_s)
        self.clock.sleep_until(limit_s)

    def inject(self, fault: Fault) -> None:
        """As in a live run: a fault has no effect while one of its kind lasts. A killed controller continues from its
        snapshot after ``RESTART_S``, at the run's speed; the snapshot is from before the fault while the disk is full.
        """
        check_faults(self.spec.system, [fault])
        now_s, detail = self.clock.now(), "simulated"
        hit = now_s >= self._lasting_until_s.get(fault.kind, 0.0)
        if not hit:
            detail = "the one before still lasts"
        elif fault.kind == "kill-controller":
            self._kill_controller(now_s)
        elif fault.kind == "fill-disk":
            hit = now_s >= self._lasting_until_s.get("kill-controller", 0.0)
            if hit:
                self._full_until_s, self._saved = now_s + fault.seconds, self.loop.snapshot()
                self._lasting_until_s[fault.kind] = self._full_until_s
            detail = detail if hit else "no controller was running"
        else:
            hit = self.engine.inject(fault)
            self._lasting_until_s[fault.kind] = now_s + fault.seconds
            detail = detail if hit else "no replica was running"
        at_ns = EPOCH_NS + nanos(now_s)
        self.faults.append(FaultRecord(kind=fault.kind, at_ns=at_ns, seconds=fault.seconds, detail=detail, hit=hit))

    def _kill_controller(self, now_s: float) -> None:
        """What was not written is lost with it; its successor finds space."""
        full = now_s < self._full_until_s
        self.loop = self._make_loop(self._saved if full else self.loop.snapshot())
        if full:
            self._unwritten.clear()
            self._full_until_s = 0.0
        self._lasting_until_s["kill-controller"] = now_s + RESTART_S / self.spec.speed

    def drain(self) -> int:
        left = self.engine.left()
        moved_s = self.clock.now()
        stall_s = max(DRAIN_STALL_S, self.spec.slo_s)  # a scaler may let a job wait for as long as its limit
        while left and self.clock.now() - moved_s < stall_s:
            self.wait_until(self.clock.now() + DRAIN_STEP_S)
            now_left = self.engine.left()
            if now_left != left:
                left, moved_s = now_left, self.clock.now()
        return left

    def collect(self) -> None:
        self.replicas.append(self.engine.actuator.events())
        self.engine.results().write(self.directory.results_folder, self.spec)

    def close(self) -> None:
        self._over.set()
        with ExitStack() as steps:  # one that fails does not skip others
            for lines in (self.faults, self.replicas, self.decisions):
                steps.callback(lines.close)
            self._write()
