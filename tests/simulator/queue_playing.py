"""Banks of queues to play with: schedules without a workload, runs without a directory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.contracts import Decision
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem
from simulator.queue import QueueEngine, make_engine

FLEET = "bank"


def spec_of(system: QueueSystem, *, seconds: float = 100.0, seed: int = 1, **fields: Any) -> RunSpec:
    return RunSpec(
        run="simulated",
        experiment="test",
        world="sim",
        scaler=ScalerSpec(name="none"),
        fleet=FLEET,
        duration_s=seconds,
        system=system,
        seed=seed,
        **fields,
    )


def schedule_at(arrivals_s: Sequence[float], seconds: float | None = None) -> Schedule:
    offsets = np.rint(np.asarray(arrivals_s, dtype=np.float64) * 1e9).astype(np.int64)
    last_s = float(arrivals_s[-1]) if len(arrivals_s) else 0.0
    return Schedule(offsets, np.zeros(len(offsets), dtype=np.int16), seconds or last_s + 1)


def poisson(rate_per_s: float, seconds: float, seed: int | Sequence[int]) -> Schedule:
    draws = np.random.default_rng(seed)
    return schedule_at(np.sort(draws.random(draws.poisson(rate_per_s * seconds)) * seconds), seconds)  # type: ignore[arg-type]


def bank(system: QueueSystem, schedule: Schedule, **fields: Any) -> QueueEngine:
    return make_engine(spec_of(system, seconds=schedule.duration_s, **fields), schedule)


def resized(replicas: int, **fields: Any) -> Decision:
    """The decision to have so many."""
    return Decision(action="up", targets={FLEET: replicas}, **fields)


def servers(engine: QueueEngine) -> dict[str, int | None]:
    """Containers of each queue that the monitor sees."""
    return {queue.queue: queue.servers for queue in engine.monitor.observe().queues}
