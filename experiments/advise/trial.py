"""A trial: one scaler with one setting on one part of the trace by one seed, simulated in memory."""

from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from controller.scalers.shared.base import TOLERANCE_S
from penstock.errors import PenstockError
from penstock.registry import make_scaler
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from simulator.in_memory_run import run_to_end
from simulator.stream import make_engine


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """``schedule``: the file with its arrivals."""

    spec: RunSpec
    schedule: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """``slo_share``: of all events; 0 where some are never finished. ``p99_s``: nearest rank, None then. ``error``: of
    a scaler that failed on a tick, whose figures are those of its holds.
    """

    slo_share: float
    replica_minutes: float
    p99_s: float | None = None
    error: str = ""


def simulate(trial: Trial) -> Outcome:
    """Simulate it to the end of its last event."""
    spec = trial.spec
    try:
        engine = make_engine(spec, _schedule(trial.schedule))
        run = run_to_end(spec, engine, make_scaler(spec.scaler), keep=lambda tick: bool(tick.errors))
    except PenstockError as unfinished:
        return Outcome(slo_share=0.0, replica_minutes=0.0, error=str(unfinished))
    _, response_s = run.responses()
    error = next(iter(run.ticks[0].errors.values())) if run.ticks else ""
    if not len(response_s):
        return Outcome(slo_share=1.0, replica_minutes=run.replica_minutes(), error=error)
    return Outcome(
        slo_share=float((response_s <= spec.slo_s + TOLERANCE_S).mean()),
        replica_minutes=run.replica_minutes(),
        p99_s=float(np.quantile(response_s, 0.99, method="inverted_cdf")),
        error=error,
    )


@lru_cache(maxsize=4)
def _schedule(path: str) -> Schedule:
    return Schedule.read(Path(path))
