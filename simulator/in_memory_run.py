"""A run in memory: the control loop over an engine, and its measures over time. For figures; writes nothing.

Measures come from the results, not from the monitor's observations, so that they do not depend on a scaler's interval.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.journal import TickRecord
from controller.loop import Loop
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import ReplicaEvent, Scaler
from penstock.distributions import Floats
from penstock.errors import PenstockError
from penstock.measures import replica_seconds
from penstock.runspec import RunSpec
from simulator.clock import VirtualClock, nanos
from simulator.engine import Engine, EventTable

DRAIN_S = 1e6
LONGEST_WAKING_S = 3600.0
"""After the end of the run, for how long a scaler may decide until all events are finished, if it has left a fleet
without replicas.
"""


class _Memory:
    """A journal in memory, of the ticks before ``until_s`` that ``keep`` wants. ``last``: of all, the last one."""

    def __init__(self, keep: Callable[[TickRecord], bool], until_s: float) -> None:
        self.ticks: list[TickRecord] = []
        self.last: TickRecord | None = None
        self._keep = keep
        self._until_s = until_s

    def tick(self, record: TickRecord) -> None:
        self.last = record
        if record.time_s < self._until_s and self._keep(record):
            self.ticks.append(record)


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A finished run of ``duration_s``; ``results`` has all its events, also those that finished later."""

    duration_s: float
    ticks: list[TickRecord]
    events: list[ReplicaEvent]
    results: EventTable

    def responses(self) -> tuple[Floats, Floats]:
        """(intended, response time) of every event in order of its number, seconds."""
        table = self.results
        last = np.arange(len(table)) if table.terminal is None else np.flatnonzero(table.terminal)
        last = last[np.argsort(table.id[last], kind="stable")]
        return table.intended_s[last], table.finished_s[last] - table.intended_s[last]

    def waiting(self, times_s: Floats, queue: str | None = None) -> Floats:
        """Tasks that wait in a queue, or in all of them together, at each time."""
        table = self.results
        some = slice(None) if queue is None else table.queue == table.queues.index(queue)
        received, started = np.sort(table.received_s[some]), np.sort(table.started_s[some])
        return np.asarray(
            np.searchsorted(received, times_s, side="right") - np.searchsorted(started, times_s, side="right"),
            dtype=np.float64,
        )

    def replicas(self, times_s: Floats, fleet: str | None = None) -> Floats:
        """Billed replicas of a fleet, or of all of them together, at each time: from requested to gone."""
        events = [event for event in self.events if fleet in (None, event.fleet)]
        at_ns = {phase: sorted(e.at_ns for e in events if e.phase == phase) for phase in ("requested", "gone")}
        times_ns = np.rint(times_s * NANOS_PER_SECOND)
        requested, gone = (np.searchsorted(at_ns[phase], times_ns, side="right") for phase in ("requested", "gone"))
        return np.asarray(requested - gone, dtype=np.float64)

    def missed(self, times_s: Floats, deadline_s: float) -> Floats:
        """Events that were finished after their deadline, by each time."""
        intended_s, response_s = self.responses()
        late = np.sort((intended_s + response_s)[response_s > deadline_s + 1e-9])
        return np.searchsorted(late, times_s, side="right").astype(np.float64)

    def replica_minutes(self, until_s: float | None = None) -> float:
        """Cost of the replicas during the run, or until another time."""
        return replica_seconds(self.events, 0, nanos(self.duration_s if until_s is None else until_s)) / 60


def run_to_end(
    spec: RunSpec,
    engine: Engine,
    scaler: Scaler[Any, Any],
    *,
    keep: Callable[[TickRecord], bool] = lambda _: True,
    after_tick: Callable[[TickRecord], None] = lambda _: None,
) -> FinishedRun:
    """``play``, with the results of all events."""
    ticks = play(spec, engine, scaler, keep=keep, after_tick=after_tick)
    return FinishedRun(spec.duration_s, ticks, list(engine.actuator.events()), engine.results())


def play(
    spec: RunSpec,
    engine: Engine,
    scaler: Scaler[Any, Any],
    *,
    keep: Callable[[TickRecord], bool] = lambda _: True,
    after_tick: Callable[[TickRecord], None] = lambda _: None,
) -> list[TickRecord]:
    """Let ``scaler`` act on ``engine`` for the run's duration, then let the fleet finish all events. ``keep``: which
    ticks are returned. ``after_tick`` ends the run with an exception of its own.

    There is no decision after the run, unless a fleet has no replicas at its end: then the scaler decides on until all
    events are finished. PenstockError if they are not: it may have left the fleet without replicas.
    """
    memory = _Memory(keep, spec.duration_s)
    clock = VirtualClock(engine.advance)
    loop = Loop(
        fleet=spec.fleet,
        clock=clock,
        monitor=engine.monitor,
        actuator=engine.actuator,
        acting=scaler,
        guard=spec.guard,
        journals=(memory,),
        tick_phase_s=spec.tick_phase_s,
        seed=spec.seed,
    )
    loop.run(lambda: clock.now() >= spec.duration_s, after_tick)
    until_s = spec.duration_s + LONGEST_WAKING_S
    loop.run(lambda: not (has_none(memory.last) and engine.left() and clock.now() < until_s), after_tick)
    engine.advance(spec.duration_s + DRAIN_S)
    if engine.left():
        raise PenstockError(f"{spec.run}: {engine.left()} events were never finished; a fleet has no replicas")
    return memory.ticks


def has_none(record: TickRecord | None) -> bool:
    """Whether a fleet has no replicas, or is to have none."""
    if record is None:
        return False
    decision = record.decisions.get(record.acting)
    targets = {} if decision is None else decision.targets
    return any(targets.get(part.fleet, part.replicas.current) == 0 for part in record.observation.parts())
