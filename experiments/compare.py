"""A comparison: several scalers one after the other on one schedule, with repetitions; one table and one report.

Its directory is written before the first run, so that ``--resume`` can continue it and keep the finished runs.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from experiments.driver import carry_out, describe, schedule_of
from experiments.experiment import Experiment, Options, run_spec
from experiments.progress import RunProgress
from experiments.worlds import make_world
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, slug
from penstock.world import World


class Cell(msgspec.Struct, kw_only=True):
    """One run of a comparison."""

    scaler: str
    repetition: int
    seed: int
    directory: str = ""
    """Name under runs/; empty before the run has begun."""


class Comparison(msgspec.Struct, kw_only=True):
    """``compare.json``: the request, and its runs in order."""

    experiment: str
    request: dict[str, Any]
    cells: list[Cell]


class ComparisonDirectory:
    """``runs/<utc>-<experiment>-compare``: compare.json and report.html over the runs beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "compare.json"
        self.report_file = path / "report.html"

    @classmethod
    def create(cls, runs: Path, experiment: str) -> "ComparisonDirectory":
        """Create one; a number is added to its name if another was begun in the same second."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        for attempt in count(1):
            number = f"-{attempt}" if attempt > 1 else ""
            path = runs / f"{stamp}-{slug(experiment)}-compare{number}"
            with suppress(FileExistsError):
                path.mkdir(parents=True)
                return cls(path)
        raise AssertionError("there is always another number")

    def read(self) -> Comparison:
        """The comparison. PenstockError if this is not a comparison's directory."""
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=Comparison)
        except FileNotFoundError:
            raise PenstockError(f"{self.path}: not a comparison's directory (no compare.json)") from None
        except msgspec.DecodeError as error:
            raise PenstockError(f"{self.file}: cannot be read: {error}") from None

    def write(self, comparison: Comparison) -> None:
        """Write compare.json."""
        RunDirectory(self.path).write(self.file, comparison)

    def runs(self) -> list[RunDirectory]:
        """Directories of the finished runs."""
        found = [RunDirectory(self.path.parent / cell.directory) for cell in self.read().cells if cell.directory]
        return [directory for directory in found if directory.finished]


def request_of(experiment: Experiment, scalers: Sequence[str], options: Options, repeat: int) -> dict[str, Any]:
    """Identity of a comparison, as read back from compare.json."""
    asked = {"experiment": experiment.name, "scalers": scalers, "repeat": repeat, **_fields(options)}
    return msgspec.json.decode(msgspec.json.encode(asked), type=dict[str, Any])


def _fields(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}


def begin(
    experiment: Experiment, scalers: Sequence[str], options: Options, repeat: int, runs: Path, *, resume: bool
) -> ComparisonDirectory:
    """A comparison's directory: with ``resume`` the newest one of the same request, if there is one.

    Raises PenstockError for an invalid request, scaler or workload before anything is written.
    """
    if not scalers:
        raise PenstockError("--scalers: name at least one, such as --scalers binpack-tail,linear")
    if repeat < 1:
        raise PenstockError(f"--repeat {repeat}: must be at least 1")
    for scaler in scalers:
        spec = run_spec(experiment, scaler, options, run="checked-before-anything-is-made")
    schedule_of(experiment, options, spec)  # the same for all: an invalid workload is refused here
    request = request_of(experiment, scalers, options, repeat)
    if resume:
        for path in sorted(runs.glob(f"*-{slug(experiment.name)}-compare*"), reverse=True):
            earlier = ComparisonDirectory(path)
            if earlier.file.is_file() and earlier.read().request == request:
                return earlier
    directory = ComparisonDirectory.create(runs, experiment.name)
    cells = [
        Cell(scaler=scaler, repetition=repetition, seed=options.seed + repetition)
        for repetition in range(repeat)
        for scaler in scalers
    ]
    directory.write(Comparison(experiment=experiment.name, request=request, cells=cells))
    return directory


def carry_out_all(
    world: World, experiment: Experiment, options: Options, directory: ComparisonDirectory, progress: RunProgress
) -> None:
    """Carry out every unfinished run, one after the other."""
    comparison = directory.read()
    runs = directory.path.parent
    for cell in comparison.cells:
        title = cell.scaler + (f", repetition {cell.repetition + 1}" if cell.repetition else "")
        progress.begin(title)
        if cell.directory and RunDirectory(runs / cell.directory).finished:
            progress.note(f"{title}: already finished, kept ({cell.directory})")
            continue
        cell_options = _with_seed(options, cell.seed)
        run, _ = describe(experiment, cell.scaler, cell_options, runs)
        cell.directory = run.name
        directory.write(comparison)
        summary = carry_out(world, experiment, cell_options, run, progress)
        progress.note(f"{title}: {summary.verdict}, {run.path}")


def _with_seed(options: Options, seed: int) -> Options:
    return Options(**{**_fields(options), "seed": seed})


class ComparisonRequest(NamedTuple):
    """An experiment to run once per scaler, ``repeat`` times."""

    experiment: Experiment
    scalers: Sequence[str]
    repeat: int = 1


def run_comparisons(
    console: Console, requests: Sequence[ComparisonRequest], options: Options, runs: Path, *, resume: bool
) -> list[ComparisonDirectory]:
    """Finish a comparison for each request, in the world of the options, which is started if any run is missing. Ctrl-C
    prints the progress before it propagates.
    """
    directories = [begin(one.experiment, one.scalers, options, one.repeat, runs, resume=resume) for one in requests]
    wanted = sum(len(directory.read().cells) for directory in directories)
    if _finished(directories) == wanted:
        return directories
    try:
        with RunProgress(console, runs=wanted) as progress, make_world(options.world, progress.step) as world:
            for request, directory in zip(requests, directories, strict=True):
                carry_out_all(world, request.experiment, options, directory, progress)
    except KeyboardInterrupt:
        remedy = f"; the same command {'' if resume else 'with --resume '}continues it" if wanted > 1 else ""
        console.print(
            f"interrupted: {_finished(directories)} of {wanted} runs finished, all is stopped{remedy}",
            highlight=False,
            soft_wrap=True,
        )
        raise
    return directories


def _finished(directories: Sequence[ComparisonDirectory]) -> int:
    return sum(len(directory.runs()) for directory in directories)
