"""A run in memory: simulated without a directory, or read back from one.

So the figures of a paper are computed by the same code from simulated runs and from live ones. Times are in the
experiment's own seconds, whatever the run's speed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from experiments.driver import schedule_of
from experiments.experiment import Experiment, Options, run_spec
from experiments.paper import Request
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.fleet_kinds import kind_of
from penstock.registry import make_scaler
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from report.analysis.run_data import RunData
from simulator.engine import OUTCOMES, Engine, EventTable, Floats
from simulator.in_memory_run import FinishedRun, run_to_end

Texts = npt.NDArray[np.str_]
SIMULATED = Options(world="sim")


class Simulation(NamedTuple):
    """A run in virtual time before its first event."""

    spec: RunSpec
    schedule: Schedule
    engine: Engine


def simulation(experiment: Experiment, scaler: str, options: Options = SIMULATED) -> Simulation:
    """The run of ``penstock run --world sim``."""
    spec = run_spec(experiment, scaler, options, run=f"{experiment.name}-{scaler}-{options.seed}")
    schedule = schedule_of(experiment, options, spec)
    return Simulation(spec, schedule, kind_of(spec.system).load("engine")(spec, schedule))


def simulate(experiment: Experiment, scaler: str, options: Options = SIMULATED) -> FinishedRun:
    """That run with its scaler; events after the schedule's end count, decisions after it do not."""
    spec, _, engine = simulation(experiment, scaler, options)
    return run_to_end(spec, engine, make_scaler(spec.scaler))


def recorded(request: Request, experiments: Iterable[Experiment]) -> Iterator[RunData]:
    """The finished runs of these experiments among the request's folders, each reported."""
    runs = finished(request.runs, {experiment.name for experiment in experiments})
    return request.each(runs, lambda run: run.name)


def finished(folders: Iterable[Path], experiments: Iterable[str]) -> list[RunData]:
    """The finished runs of these experiments among folders, by name. PenstockError if there is none."""
    finished = [RunDirectory(folder) for folder in sorted(folders) if RunDirectory(folder).finished]
    wanted = sorted(experiments)
    found = [run for run in map(RunData, finished) if run.spec.experiment in wanted]
    if not found:
        names = " or ".join(wanted)
        raise PenstockError(f"no finished run of {names} among these folders: give run directories, such as runs/*")
    return found


def conditions(spec: RunSpec) -> dict[str, str]:
    """World, speed and seed of a run, for its row of a table."""
    return {"world": spec.world, "speed": f"{spec.speed:g}", "seed": str(spec.seed)}


def finished_run(run: RunData) -> FinishedRun:
    """A run of any world. What was there before its start is there from its start on; a tick at its very end is not of
    it.
    """
    spec = run.spec
    ticks = (tick for tick in run.ticks if tick.time_s < spec.duration_s)
    return FinishedRun(
        duration_s=spec.duration_s * spec.speed,
        ticks=[msgspec.structs.replace(tick, time_s=round(tick.time_s * spec.speed, 6)) for tick in ticks],
        events=[
            msgspec.structs.replace(event, at_ns=round(max(0, event.at_ns - spec.start_ns) * spec.speed))
            for event in run.replica_events
        ],
        results=outcomes(run),
    )


def outcomes(run: RunData) -> EventTable:
    """The earliest outcome of each event, by id. Who served it is left out."""
    spec, table = run.spec, run.outcomes("queue", "received_ns")
    finished_ns, ids = (table[name].to_numpy() for name in ("finished_ns", "id"))
    order = np.lexsort((finished_ns, ids))
    first = order[np.diff(ids[order], prepend=-1) > 0]
    ids = ids[first]

    def seconds(name: str) -> Floats:
        since_ns = table[name].to_numpy()[first] - spec.start_ns
        return np.asarray(since_ns / NANOS_PER_SECOND * spec.speed, dtype=np.float64)

    def texts(name: str) -> Texts:
        chosen: Texts = np.asarray(table[name].cast("string").to_pylist(), dtype=np.str_)[first]
        return chosen

    queues, queue = np.unique(texts("queue"), return_inverse=True)
    codes = np.asarray([OUTCOMES.index(outcome) for outcome in texts("outcome").tolist()], dtype=np.int8)
    no_worker = np.full(len(ids), -1, dtype=np.int32)
    return EventTable(
        id=ids,
        intended_s=seconds("intended_ns"),
        sent_s=seconds("sent_ns"),
        received_s=seconds("received_ns"),
        started_s=seconds("started_ns"),
        finished_s=seconds("finished_ns"),
        worker=no_worker,
        queue=queue.astype(np.int32),
        outcome=codes,
        stage=np.zeros(len(ids), dtype=np.int32),
        attempt=np.ones(len(ids), dtype=np.int32),
        workers=(),
        queues=tuple(queues.tolist()),
        stages=(spec.pipeline,),
    )
