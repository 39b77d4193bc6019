"""``penstock chaos``: faults by seed on an experiment, and whether it loses or doubles an event or leaves anything."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.answers import print_json
from penstock.durations import duration_option

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.chaos import ChaosRun

EPILOG = "Example: penstock chaos binpack-workload-1 --scaler linear --from 420 --seeds 1-20 --world sim"
SHORTEST_S, LONGEST_S = 5.0, 3600.0
"""Of one run."""


def register_chaos(app: typer.Typer) -> None:
    """Add the command."""
    app.command("chaos", epilog=EPILOG)(chaos)


def chaos(
    experiment: Annotated[str, typer.Argument(help="Name of the experiment; see `penstock experiments`.")],
    scaler: Annotated[str, typer.Option(help="Acting scaler: a name of `penstock scalers`, or path.py:Class.")],
    seeds: Annotated[str, typer.Option(help="Seeds, such as 1-20 or 3,7: each draws the faults of one run.")] = "1-20",
    world: Annotated[str, typer.Option(help="sim: virtual time; local: processes; kubernetes: pods.")] = "sim",
    seconds: Annotated[float, duration_option(help="Length of each run on the clock, 5 s to 1 h.")] = 30.0,
    from_s: Annotated[float, duration_option("--from", help="First second of the workload.")] = 0.0,
    speed: Annotated[float, typer.Option(help="Factor on rates; durations are divided by it.")] = 1.0,
    settings: Annotated[list[str] | None, typer.Option("--set", help="As of `penstock run`; repeatable.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the seeds that are done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to stderr.")] = False,
) -> None:
    """Run an experiment under faults that seeds draw.

    Each seed is one run. It must lose no event, finish none twice and leave nothing running. Exit code 98: a seed
    violates this.
    """
    from rich.console import Console

    from experiments.catalogue import find_experiment
    from experiments.chaos import ChaosRequest, begin_chaos, carry_out_chaos, parse_seeds
    from experiments.experiment import Options
    from experiments.progress import RunProgress
    from experiments.worlds import run_in_driver_pod, world_name
    from penstock.errors import EXIT_INVALID, PenstockError
    from penstock.parameters import parse_settings
    from penstock.rundir import check_runs_folder
    from penstock.settings import Folders

    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise PenstockError(f"--seconds {seconds:g}: from {SHORTEST_S:g} to {LONGEST_S:g} s")
    name = world_name(world)
    given = parse_settings(settings or ())
    options = Options(
        world=name,
        from_s=from_s,
        speed=speed,
        worker=given.pop("worker", {}),
        system=given.pop("system", {}),
        workload=given.pop("workload", {}),
        settings=given,
        analytics=False,
        shadows=(),
    )
    request = ChaosRequest(
        experiment=find_experiment(experiment),
        scaler=scaler,
        options=options,
        seeds=parse_seeds(seeds),
        seconds=seconds,
    )
    runs = Folders().runs.absolute()
    check_runs_folder(runs)
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    code = run_in_driver_pod(name, sys.argv[1:], runs, lambda line: console.print(line, markup=False))
    if code is not None:
        raise typer.Exit(code)
    directory = begin_chaos(request, runs, resume=resume)
    done: list[ChaosRun] = []
    try:
        with RunProgress(console, runs=len(request.seeds)) as progress:
            for run in carry_out_chaos(request, directory, progress):
                done.append(run)
                progress.note(f"seed {run.seed}: {'; '.join(run.violations) or 'good'}; {' '.join(run.faults)}")
    except KeyboardInterrupt:
        console.print(
            f"interrupted: {len(done)} of {len(request.seeds)} seeds done, all is stopped; "
            f"the same command {'' if resume else 'with --resume '}continues it"
        )
        raise
    bad = [run for run in done if run.violations]
    if as_json:
        print_json(done)
    else:
        console.print(_table(done, f"{experiment}, {scaler}, world {name}: {seconds:g} s a seed"))
        console.print(f"{len(bad)} of {len(done)} seeds violate conservation; {directory.path}", markup=False)
    for run in bad:
        for violation in run.violations:
            typer.echo(f"seed {run.seed}: {violation}", err=True)
        typer.echo(f"again: {request.replay(run.seed)}", err=True)
    if bad:
        raise typer.Exit(EXIT_INVALID)


def _table(runs: "list[ChaosRun]", title: str) -> "Table":
    from report.terminal import plain_table

    table = plain_table(title)
    for name in ("seed", "events", "failed", "lost", "twice", "left"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    table.add_column("faults", overflow="fold")
    for run in runs:
        left = run.in_flight + len(run.left_behind)
        numbers = (run.seed, run.events, run.failed, run.lost, run.finished_twice, left)
        table.add_row(*map(str, numbers), "ERROR" if run.error else run.verdict or "", " ".join(run.faults))
    return table
