"""One cell: one scaler with one set of parameters on the trace, in the sim world, in its own run directory.

It is driven by the very code of ``penstock compare --world sim``. A cell is told by plain values, so that a process of
the pool or a Spark task can carry it out anywhere on this machine's file system.
"""

import io
import shutil
from pathlib import Path

import msgspec
from rich.console import Console

from experiments.driver import carry_out
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from simulator.world import SimWorld


class CellTask(msgspec.Struct, frozen=True, kw_only=True):
    """``run`` is a described run directory. ``schedule``: the file that holds exact arrivals where the trace has them,
    "" where the driver draws them from the rates.
    """

    experiment: Experiment
    options: Options
    run: str
    schedule: str = ""


class CellEnd(msgspec.Struct, frozen=True, kw_only=True):
    """``error`` is the line for the user if the cell could not be carried out."""

    run: str
    error: str = ""


class ReplayWorld(SimWorld):
    """The sim world on arrivals that were recorded, not drawn."""

    def __init__(self, schedule: Path) -> None:
        super().__init__()
        self._recorded = schedule

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Put the recorded arrivals in the place of the drawn ones, for the engine and for whoever measures."""
        shutil.copyfile(self._recorded, directory.schedule_file)
        super().prepare(spec, directory)


def carry_out_cell(task: CellTask) -> CellEnd:
    """Run the cell to its end. Nothing is raised for what a user can mend: Spark would bury it in its own trace."""
    directory = RunDirectory.open(Path(task.run))
    quiet = RunProgress(Console(file=io.StringIO()), runs=1)
    try:
        with ReplayWorld(Path(task.schedule)) if task.schedule else SimWorld() as world:
            carry_out(world, task.experiment, task.options, directory, quiet)
    except PenstockError as error:
        return CellEnd(run=task.run, error=str(error))
    return CellEnd(run=task.run)
