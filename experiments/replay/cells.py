"""One cell: one scaler with one set of parameters on the trace, in the sim world, in its own run directory.

It is driven by the very code of ``penstock compare --world sim``. A cell is told by plain values, so that a process of
the pool or a Spark task can carry it out anywhere on this machine's file system.
"""

import io
import tempfile
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from experiments.driver import carry_out
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.schedule import Schedule
from simulator.world import SimWorld


class CellTask(msgspec.Struct, frozen=True, kw_only=True):
    """``run`` is a described run directory that has its schedule already."""

    experiment: Experiment
    options: Options
    run: str


class CellEnd(msgspec.Struct, frozen=True, kw_only=True):
    """``error`` is the line for the user if the cell could not be carried out."""

    run: str
    error: str = ""


def load_beforehand(task: CellTask) -> None:
    """Everything that cells load when they first want it: the engine with its compiled loops, and what pyarrow looks
    for when it first sees an array. A run of one event wants all of it; nothing of that is kept.
    """
    from simulator.stream import make_engine

    spec = RunDirectory.open(Path(task.run)).spec()
    event = Schedule(np.zeros(1, np.int64), np.zeros(1, np.int16), duration_s=1.0)
    engine = make_engine(spec, event)
    engine.advance(spec.duration_s)
    engine.monitor.observe()
    with tempfile.TemporaryDirectory() as folder:
        engine.results().write(Path(folder), spec)


def carry_out_cell(task: CellTask) -> CellEnd:
    """Run the cell to its end. Nothing is raised for what a user can mend: Spark would bury it in its own trace."""
    directory = RunDirectory.open(Path(task.run))
    quiet = RunProgress(Console(file=io.StringIO()), runs=1)
    try:
        with SimWorld() as world:
            carry_out(world, task.experiment, task.options, directory, quiet)
    except PenstockError as error:
        return CellEnd(run=task.run, error=str(error))
    return CellEnd(run=task.run)
