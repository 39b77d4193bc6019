"""A finished run, read back from its directory as the simulator shows a run in memory.

So the figures of a paper are reckoned by the same lines of code from simulated runs and from live ones. Times are in
the experiment's own seconds, whatever the run's speed.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from controller.journal import read_replica_events
from experiments.analysis.decisions import read_records
from experiments.analysis.outcomes import read_outcomes
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from simulator.engine import OUTCOMES, EventTable, Floats
from simulator.network_play import Played

Texts = npt.NDArray[np.str_]


def finished(folders: Iterable[Path], experiments: Collection[str]) -> list[RunDirectory]:
    """The finished runs of these experiments among folders, by name. PenstockError if there is none."""
    runs = [RunDirectory(folder) for folder in sorted(folders)]
    found = [run for run in runs if run.finished and run.spec().experiment in experiments]
    if not found:
        names = " or ".join(sorted(experiments))
        raise PenstockError(f"no finished run of {names} among these folders: give run directories, such as runs/*")
    return found


def played(run: RunDirectory) -> Played:
    """A run of any world. What was there before its start is there from its start on; a tick at its very end is not of
    it.
    """
    spec = run.spec()
    ticks = (tick for tick in read_records(run) if tick.time_s < spec.duration_s)
    return Played(
        duration_s=spec.duration_s * spec.speed,
        ticks=[msgspec.structs.replace(tick, time_s=round(tick.time_s * spec.speed, 6)) for tick in ticks],
        events=[
            msgspec.structs.replace(event, at_ns=round(max(0, event.at_ns - spec.start_ns) * spec.speed))
            for event in read_replica_events(run)
        ],
        results=outcomes(run),
    )


def outcomes(run: RunDirectory) -> EventTable:
    """The earliest outcome of each event, by id. Who served it is left out."""
    spec, table = run.spec(), read_outcomes(run, "queue", "received_ns")
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
    nobody = np.full(len(ids), -1, dtype=np.int32)
    return EventTable(
        id=ids,
        intended_s=seconds("intended_ns"),
        sent_s=seconds("sent_ns"),
        received_s=seconds("received_ns"),
        started_s=seconds("started_ns"),
        finished_s=seconds("finished_ns"),
        worker=nobody,
        queue=queue.astype(np.int32),
        outcome=codes,
        stage=np.zeros(len(ids), dtype=np.int32),
        attempt=np.ones(len(ids), dtype=np.int32),
        workers=(),
        queues=tuple(queues.tolist()),
        stages=(spec.pipeline,),
    )
