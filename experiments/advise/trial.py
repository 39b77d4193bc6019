"""A trial: one scaler with one setting on one part of the trace by one seed, simulated in memory."""

from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from controller.journal import TickRecord
from controller.scalers.shared.base import TOLERANCE_S
from penstock.distributions import Floats
from penstock.errors import PenstockError
from penstock.measures import replica_seconds
from penstock.registry import make_scaler
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from simulator.clock import nanos
from simulator.in_memory_run import play
from simulator.stream import StreamEngine, drawn_service_s, make_engine

REMEMBERED: Final = 4
"""Schedules, and service times of their events, that a process keeps."""
LOOKED_AT: Final = 50
"""How often a trial with limits is compared with them, over its length."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that exceeds one of them cannot win, and is given up: late events, as a share of all, and cost."""

    late_share: float = inf
    replica_minutes: float = inf


NO_LIMITS: Final = Limits()


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """``schedule``: the file with its arrivals. ``lead_in_s``: the begin of the run, which is not counted."""

    spec: RunSpec
    schedule: str
    lead_in_s: float = 0.0
    limits: Limits = NO_LIMITS


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """``slo_share``: of the events that are counted; 0 where some are never finished. ``p99_s``: nearest rank, None
    then. ``error``: of a scaler that failed on a tick, whose figures are those of its holds. ``given_up``: it exceeded
    its limits; share and cost are then those so far, the cost in proportion to the whole length, and neither is proven.
    """

    slo_share: float
    replica_minutes: float
    p99_s: float | None = None
    error: str = ""
    given_up: bool = False


_drawn: Final[dict[bytes, Floats]] = {}


class _GivenUpError(Exception):
    """With the outcome so far."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class _Watch:
    """Compares a run with its limits, now and then after a tick. ``events``: of those that are counted."""

    def __init__(self, trial: Trial, engine: StreamEngine, events: int) -> None:
        self._limits, self._events, self._from_s = trial.limits, events, trial.lead_in_s
        self._length_s = trial.spec.duration_s - self._from_s
        self._every_s = self._length_s / LOOKED_AT
        self._next_s = self._from_s + self._every_s
        self._late_by = engine.topic.late_counter(trial.spec.slo_s, self._from_s)
        self._before_s = self._replica_s = 0.0
        self._replicas = trial.spec.initial_replicas

    def after_tick(self, record: TickRecord) -> None:
        """Raise ``_GivenUpError`` over a limit. Replicas count as of the tick before."""
        now_s = record.time_s
        self._replica_s += self._replicas * max(0.0, now_s - max(self._before_s, self._from_s))
        self._before_s, self._replicas = now_s, record.observation.replicas.current
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        late, limits = self._late_by(now_s), self._limits
        if late <= limits.late_share * self._events and self._replica_s <= 60 * limits.replica_minutes:
            return
        done = (now_s - self._from_s) / self._length_s
        raise _GivenUpError(
            Outcome(
                slo_share=max(0.0, 1 - late / (done * self._events)),
                replica_minutes=self._replica_s / 60 / done,
                given_up=True,
            )
        )


def simulate(trial: Trial) -> Outcome:
    """Simulate it to the end of its last event, or until it is given up. PenstockError where no event is counted: it
    has no share then.
    """
    spec, schedule = trial.spec, _schedule(trial.schedule)
    events = counted(schedule, trial.lead_in_s)
    if not events:
        raise PenstockError(f"{trial.schedule}: no event after the lead-in of {trial.lead_in_s:g} s")
    engine = make_engine(spec, schedule, service_s=_service_s(spec, trial.schedule))
    watch = None if trial.limits == NO_LIMITS else _Watch(trial, engine, events)
    try:
        ticks = play(
            spec,
            engine,
            make_scaler(spec.scaler),
            keep=lambda tick: bool(tick.errors),
            after_tick=(lambda _: None) if watch is None else watch.after_tick,
        )
    except _GivenUpError as given_up:
        return given_up.outcome
    except PenstockError as unfinished:
        return Outcome(slo_share=0.0, replica_minutes=0.0, error=str(unfinished))
    response_s = engine.topic.response_s(trial.lead_in_s)
    replica_minutes = replica_seconds(engine.actuator.events(), nanos(trial.lead_in_s), nanos(spec.duration_s)) / 60
    error = next(iter(ticks[0].errors.values())) if ticks else ""
    return Outcome(
        slo_share=float((response_s <= spec.slo_s + TOLERANCE_S).mean()),
        replica_minutes=replica_minutes,
        p99_s=float(np.quantile(response_s, 0.99, method="inverted_cdf")),
        error=error,
    )


def counted(schedule: Schedule, from_s: float) -> int:
    """Events that arrive from ``from_s`` on, after the lead-in."""
    return len(schedule) - int(np.searchsorted(schedule.intended_offset_ns, nanos(from_s)))


@lru_cache(maxsize=REMEMBERED)
def _schedule(path: str) -> Schedule:
    return Schedule.read(Path(path))


def _service_s(spec: RunSpec, path: str) -> Floats:
    """The service times of a schedule's events: of all trials with this worker and seed the same."""
    key = msgspec.json.encode((path, spec.seed, spec.worker, spec.system))
    if key not in _drawn:
        while len(_drawn) >= REMEMBERED:
            del _drawn[next(iter(_drawn))]
        _drawn[key] = drawn_service_s(spec, len(_schedule(path)))
    return _drawn[key]
