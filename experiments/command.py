"""``penstock run``, ``compare``, ``report`` and ``experiments``."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.calibration_command import register_calibration
from experiments.replay.command import register_replay

if TYPE_CHECKING:
    from experiments.experiment import Options
    from penstock.rundir import RunDirectory

OF_THE_EXPERIMENT = "the experiment's"

ExperimentName = Annotated[str, typer.Argument(help="Its name, as `penstock experiments` lists them.")]
World = Annotated[
    str, typer.Option("--world", help="sim: virtual time; local: real services and processes; kubernetes: pods.")
]
From = Annotated[float, typer.Option("--from", help="First second of the workload to play.")]
Seconds = Annotated[float | None, typer.Option(help="Length of the slice in seconds.", show_default="to the end")]
Speed = Annotated[float, typer.Option(help="Rates times this, every duration divided by it.")]
Seed = Annotated[int, typer.Option(help="Seed of the schedule and of every random draw.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="scaler.parameter=value, worker.setting=value, system.setting=value or workload.parameter=value; may be "
        "repeated.",
    ),
]
Phase = Annotated[
    float | None,
    typer.Option(
        "--tick-phase",
        help="Seconds after each whole second at which the controller looks.",
        show_default=OF_THE_EXPERIMENT,
    ),
]
FaultOption = Annotated[
    list[str] | None, typer.Option("--fault", help="kind@second[+duration], such as stop-broker@30+5; may be repeated.")
]
InitialReplicas = Annotated[
    int | None, typer.Option(help="Replicas at the start.", show_default=f"{OF_THE_EXPERIMENT}; of a slice, enough")
]
MaxReplicas = Annotated[int | None, typer.Option(help="Cap of the fleet.", show_default=OF_THE_EXPERIMENT)]
Shadows = Annotated[
    str | None,
    typer.Option(
        help="Scalers that advise beside it, by commas; all, or none.",
        show_default=f"{OF_THE_EXPERIMENT}; none in world sim",
    ),
]
Spark = Annotated[bool, typer.Option(help="Let Spark compute figures while the run goes on.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("experiments", epilog="Example: penstock experiments")(list_experiments)
    app.command(
        "run",
        epilog="Example: penstock run binpack-workload-1 --scaler binpack-tail --from 420 --seconds 110",
    )(run)
    app.command(
        "compare",
        epilog="Example: penstock compare binpack-workload-1 --scalers binpack-tail,linear --repeat 3 --resume",
    )(compare)
    app.command("report", epilog="Example: penstock report runs/20260102T030405Z-binpack-workload-1-compare")(report)
    register_replay(app)
    register_calibration()


def list_experiments() -> None:
    """Every experiment: what it plays, for how long, from which paper."""
    from rich.console import Console
    from rich.table import Column, Table

    from experiments.catalogue import EXPERIMENTS

    table = Table(Column("experiment", no_wrap=True), "what", "seconds", "SLO", "paper", box=None, pad_edge=False)
    for experiment in EXPERIMENTS.values():
        table.add_row(
            experiment.name, experiment.title, f"{experiment.seconds:g}", f"{experiment.slo_s:g} s", experiment.paper
        )
    Console().print(table)


def run(
    experiment: ExperimentName,
    scaler: Annotated[str, typer.Option(help="The one that acts: a name of `penstock scalers`, or path.py:Class.")],
    world: World = "local",
    from_s: From = 0.0,
    seconds: Seconds = None,
    speed: Speed = 1.0,
    seed: Seed = 1,
    settings: Set = None,
    tick_phase: Phase = None,
    faults: FaultOption = None,
    initial_replicas: InitialReplicas = None,
    max_replicas: MaxReplicas = None,
    spark: Spark = True,
    shadows: Shadows = None,
) -> None:
    """Run an experiment once with one acting scaler."""
    options = _options(
        world,
        from_s,
        seconds,
        speed,
        seed,
        settings,
        tick_phase,
        faults,
        initial_replicas,
        max_replicas,
        spark,
        shadows,
    )
    _play(experiment, [scaler], options, repeat=1, resume=False)


def compare(
    experiment: ExperimentName,
    scalers: Annotated[str, typer.Option(help="Names or path.py:Class, separated by commas.")],
    world: World = "local",
    from_s: From = 0.0,
    seconds: Seconds = None,
    speed: Speed = 1.0,
    seed: Seed = 1,
    settings: Set = None,
    tick_phase: Phase = None,
    faults: FaultOption = None,
    initial_replicas: InitialReplicas = None,
    max_replicas: MaxReplicas = None,
    spark: Spark = True,
    shadows: Shadows = None,
    repeat: Annotated[int, typer.Option(help="Repetitions; each has its own seed, the same for all scalers.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the same comparison, keep its runs.")] = False,
) -> None:
    """Run an experiment once per scaler on the same schedule; a table, one report."""
    options = _options(
        world,
        from_s,
        seconds,
        speed,
        seed,
        settings,
        tick_phase,
        faults,
        initial_replicas,
        max_replicas,
        spark,
        shadows,
    )
    _play(experiment, list(_names(scalers)), options, repeat=repeat, resume=resume)


def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, or one comparison's directory.")],
) -> None:
    """Write report.html again, from the directories alone."""
    from experiments.compare import ComparisonDirectory
    from penstock.rundir import RunDirectory

    if len(directories) == 1 and (directories[0] / "compare.json").is_file():
        comparison = ComparisonDirectory(directories[0])
        _report(comparison.runs(), comparison.report_file)
    else:
        runs = [RunDirectory.open(path) for path in directories]
        _report(runs, runs[0].report_file if len(runs) == 1 else directories[0].parent / "report.html")


def _play(experiment: str, scalers: list[str], options: "Options", *, repeat: int, resume: bool) -> None:
    from rich.console import Console

    from experiments.catalogue import find_experiment
    from experiments.compare import Request, play
    from experiments.worlds import played_elsewhere
    from penstock.registry import parse_scaler
    from penstock.settings import Folders

    request = Request(find_experiment(experiment), scalers, repeat)
    options = dataclasses.replace(options, compared=tuple(parse_scaler(scaler).name for scaler in scalers))
    console, runs = Console(), Folders().runs.absolute()

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    code = played_elsewhere(options.world, sys.argv[1:], runs, tell)
    if code is not None:
        raise typer.Exit(code)
    (directory,) = play(console, [request], options, runs, resume=resume)
    _report(directory.runs(), directory.report_file)


def _report(runs: list["RunDirectory"], out: Path) -> None:
    from rich.console import Console

    from experiments.analysis.measurement import summary_of
    from experiments.report import comparison_table, write_report
    from penstock.errors import PenstockError

    if not runs:
        raise PenstockError(f"{out.parent}: no finished run in it; run it again with --resume")
    for directory in runs:
        write_report([directory], directory.report_file)
    if out not in {directory.report_file for directory in runs}:
        write_report(runs, out)
    console = Console()
    console.print(comparison_table([summary_of(directory) for directory in runs]))
    console.print(f"report: {out}", soft_wrap=True, highlight=False)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _options(
    world: str,
    from_s: float,
    seconds: float | None,
    speed: float,
    seed: int,
    settings: list[str] | None,
    tick_phase: float | None,
    faults: list[str] | None,
    initial_replicas: int | None,
    max_replicas: int | None,
    spark: bool,
    shadows: str | None,
) -> "Options":
    from experiments.experiment import Options, parse_faults
    from experiments.worlds import world_name
    from penstock.registry import parse_settings

    given = parse_settings(settings or ())
    return Options(
        world=world_name(world),
        from_s=from_s,
        seconds=seconds,
        speed=speed,
        seed=seed,
        tick_phase_s=tick_phase,
        worker=given.pop("worker", {}),
        system=given.pop("system", {}),
        workload=given.pop("workload", {}),
        settings=given,
        faults=parse_faults(faults or ()),
        analytics=spark,
        shadows=None if shadows is None else _names("" if shadows == "none" else shadows),
        initial_replicas=initial_replicas,
        max_replicas=max_replicas,
    )
