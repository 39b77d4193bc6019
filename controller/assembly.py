"""The controller, assembled: clock, fleet, scalers, loop and journals, and the snapshot of a run.

``Controller`` is what ``penstock keda`` and runs share; ``RunController`` adds the run directory.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client import REGISTRY

from controller.exposition import ControllerMetrics
from controller.fleets.fleet import ControlledFleet, Fleet
from controller.journal import DecisionsFile, ReplicasFile, TickJournal, TickRecord
from controller.loop import AnyScaler, Loop, LoopState, check_kinds
from penstock.adapters.exposition import expose
from penstock.clock import NANOS_PER_SECOND, WallClock
from penstock.contracts import Decision, FleetObservation, ReplicaEvent
from penstock.errors import PenstockError
from penstock.log_once import LogOnce
from penstock.registry import check_interval, find_scaler, is_clairvoyant, make_scaler
from penstock.rundir import RunDirectory, while_full
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints

log = logging.getLogger("controller")

POLL_S = 0.05
WAITING_LOG_INTERVAL_S = 5.0

FleetT = TypeVar("FleetT", bound=ControlledFleet)


class ControllerState(msgspec.Struct, frozen=True, kw_only=True):
    """Scalers and last scale action; the ``snapshot`` of the fleet."""

    loop: LoopState
    fleet: msgspec.Raw


class StateFile:
    """``controller-state.json`` of a run directory; replaced as a whole, so that a killed writer leaves the one
    before.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._file = directory.controller_state_file
        self._lock = threading.Lock()
        self._written: ControllerState | None = None
        self._full = LogOnce(log, "%s")

    def read(self) -> ControllerState | None:
        """The predecessor's state, None if there was none. Raises PenstockError if it can't be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=ControllerState)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PenstockError(
                f"{self._file}: not a controller's state ({error}); remove it and the controller starts from what runs"
            ) from None

    def write(self, state: ControllerState) -> None:
        """Write if something has changed; while the disk is full, the state before stays. Safe to call from several
        threads.
        """
        with self._lock, while_full(self._full):
            if state != self._written:
                self._directory.write(self._file, state)
                self._written = state


class StoppableClock(WallClock):
    """The wall clock; ``stop`` ends a sleep at once, also from a signal handler."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def sleep_until(self, time_s: float) -> None:
        """Sleep until then or until ``stop``."""
        self._stop.wait(max(0.0, time_s - time.time()))

    def stop(self) -> None:
        """End this and every later sleep."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()


def make_live_scaler(spec: ScalerSpec, offered: type[FleetObservation], speed: float = 1.0) -> AnyScaler:
    """A scaler for a live fleet. PenstockError if it does not exist, reads another kind of fleet, cannot compute with
    its decision interval, or needs the future load.
    """
    if is_clairvoyant(find_scaler(spec)):
        raise PenstockError(f"scaler {spec.name!r} needs the load in advance: it runs in --world sim only")
    scaler = make_scaler(spec)
    check_kinds([scaler], offered)
    check_interval(scaler, speed)
    return scaler


def reason_of(decision: Decision, fleet: str) -> str:
    """A decision for a log: its action, and its reason if it has one."""
    reason = decision.why.get(fleet, {}).get("reason")
    return f"{decision.action}: {reason}" if reason else decision.action


class Controller(Generic[FleetT]):
    """Controls one fleet from ``run`` until ``clock.stop``. The first of ``scalers`` acts, the others are shadows.
    ``loop_options`` are of ``Loop`` alone.
    """

    def __init__(
        self,
        name: str,
        fleet: FleetT,
        scalers: Sequence[AnyScaler],
        clock: StoppableClock,
        journals: Sequence[TickJournal],
        *,
        loop_state: LoopState | None = None,
        blind: Callable[[], bool] = lambda: False,
        **loop_options: Any,
    ) -> None:
        self.name, self.fleet, self.clock = name, fleet, clock
        self.loop_state = loop_state or LoopState()
        self._scalers, self._journals, self._blind, self._loop_options = scalers, journals, blind, loop_options

    def run(self) -> None:
        """Start the fleet, then tick until the clock is stopped."""
        self.fleet.start(self.after_step)
        try:
            origin_s = self.await_start()
            if not self.clock.stopped:
                loop = Loop(
                    fleet=self.name,
                    clock=self.clock,
                    monitor=self.fleet.monitor(origin_s, self._blind),
                    actuator=self.fleet.actuator,
                    acting=self._scalers[0],
                    shadows=self._scalers[1:],
                    journals=self._journals,
                    origin_s=origin_s,
                    resume=self.loop_state,
                    **self._loop_options,
                )
                loop.run(lambda: self.clock.stopped, lambda record: self.after_tick(loop, record))
        finally:
            self.fleet.stop()
            self.after_step()

    def await_start(self) -> float:
        """Return offset 0 of the ticks on the clock when they may begin."""
        return math.ceil(self.clock.now())

    def after_tick(self, loop: Loop, record: TickRecord) -> None:
        """Called after each tick."""

    def after_step(self) -> None:
        """Called when something may have happened to a replica, from any thread."""


class RunController(Controller[Fleet[Any]]):
    """The controller of a run directory: journals and snapshot are there, and a start that may be set later. It alone
    takes the actuator's events.
    """

    def __init__(
        self,
        directory: RunDirectory,
        spec: RunSpec,
        endpoints: Endpoints,
        fleet: Fleet[Any],
        scalers: Sequence[AnyScaler],
        clock: StoppableClock,
        loop_state: LoopState | None = None,
    ) -> None:
        self.directory, self.spec, self._endpoints = directory, spec, endpoints
        self._decisions, self._replicas = DecisionsFile(directory), ReplicasFile(directory)
        self._metrics = ControllerMetrics(spec.run, spec.fleet, REGISTRY, spec)
        super().__init__(
            spec.fleet,
            fleet,
            scalers,
            clock,
            (self._decisions, self._metrics),
            guard=spec.guard,
            tick_phase_s=spec.tick_phase_s,
            seed=spec.seed,
            loop_state=loop_state,
            blind=directory.blind_file.exists,
        )
        self._state_file = StateFile(directory)
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve metrics, bring the initial replicas up, wait for the start of the run, and tick."""
        spec = self.spec
        expose(f"{spec.run}-controller", self._endpoints.scrape_targets, {"run": spec.run, "fleet": spec.fleet})
        super().run()

    def stop_replicas(self) -> None:
        """End all replicas; after ``run``."""
        self.fleet.stop_replicas()
        self.after_step()

    def close(self) -> None:
        """Close the journals."""
        self._decisions.close()
        self._replicas.close()

    def await_start(self) -> float:
        """See ``Controller``."""
        self.bring_up()
        while not self.clock.stopped and self.spec.start_ns <= 0:
            self.clock.sleep_until(time.time() + POLL_S)
            self.spec = self.directory.spec()
        return self.spec.start_ns / NANOS_PER_SECOND

    def bring_up(self) -> None:
        """Bring the initial replicas up and report that they serve. A run that has begun does not wait for them."""
        self.fleet.bring_up()
        logged_s = time.monotonic()
        while not self.clock.stopped and not (self.directory.spec().start_ns > 0 or self._ready()):
            self.clock.sleep_until(time.time() + POLL_S)
            if time.monotonic() - logged_s >= WAITING_LOG_INTERVAL_S:
                logged_s = time.monotonic()
                log.info("waiting for replicas to join: %s", dict(self.fleet.actuator.replicas()))
        if not self.clock.stopped:
            joined = self.fleet.counts().joined
            with while_full(LogOnce(log, "%s")):  # after the start of the run no process waits for this file
                self.directory.write(self.directory.controller_ready_file, {"ready": True, "joined": joined})
            log.info("ready: %d replicas of %s joined", joined, self.spec.group)

    def _ready(self) -> bool:
        """Whether the fleet is ready. A refusal is left for the run, which ends then."""
        try:
            return self.fleet.ready()
        except PenstockError as error:
            self.directory.refusal_file.write_text(str(error))
            raise

    def after_tick(self, loop: Loop, record: TickRecord) -> None:
        """Save, and log what was changed or failed."""
        self.loop_state = loop.snapshot()
        self.after_step()
        if record.note:
            log.warning("tick %d at %.1f s: %s", record.tick, record.time_s, record.note)
        if record.accepted is not None:
            before = {part.fleet: part.replicas.current for part in (record.observation, *record.observation.parts())}
            for fleet, target in record.accepted.targets.items():
                why = reason_of(record.decisions[record.acting], fleet)
                log.info("%s: %s → %d replicas, %s", fleet, before.get(fleet, "?"), target, why)

    def after_step(self) -> None:
        """Journal what happened to replicas and save the state."""
        with self._lock:
            events = self.fleet.actuator.events()
            self._replicas.append(events)
            self._metrics.replicas(events)
            state = ControllerState(loop=self.loop_state, fleet=self.fleet.snapshot())
            self._state_file.write(state)
        if (why := self.fleet.refusal) and not self.directory.refusal_file.exists():
            log.error("%s", why)
            self.directory.refusal_file.write_text(why)  # the run ends then
        self.report(events)

    def report(self, events: Sequence[ReplicaEvent]) -> None:
        """Called with what happened to replicas."""
