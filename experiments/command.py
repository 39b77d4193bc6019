"""``penstock run``, ``compare``, ``report`` and ``experiments``."""

import dataclasses
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.advise.command import register_advise
from experiments.calibration_command import register_calibration
from experiments.chaos_command import register_chaos
from experiments.replay.command import register_replay
from experiments.runs_command import register_runs
from penstock.answers import AsJson, FailUnder, print_json
from penstock.completion import scalers as complete_scalers
from penstock.durations import duration_option
from penstock.errors import PenstockError
from penstock.run_argument import run_argument

if TYPE_CHECKING:
    from experiments.experiment import Options

OF_THE_EXPERIMENT = "the experiment's"


def complete_experiments(incomplete: str) -> list[str]:
    """Experiments, for a shell."""
    from experiments.catalogue import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]


ExperimentName = Annotated[
    str, typer.Argument(help="Name of the experiment; see `penstock experiments`.", autocompletion=complete_experiments)
]
Json = Annotated[bool, typer.Option("--json", help="Print verdict.json instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.")]


def _options(
    world: Annotated[
        str, typer.Option(help="sim: virtual time; local: real services and processes; kubernetes: pods.")
    ] = "local",
    workload: Annotated[
        str | None,
        typer.Option(
            help="FILE.csv with a column rate_per_s, path.py:Class, or name:parameter=value,… of `penstock workloads`.",
            show_default=OF_THE_EXPERIMENT,
        ),
    ] = None,
    from_s: Annotated[float, duration_option("--from", help="First second of the workload.")] = 0.0,
    seconds: Annotated[float | None, duration_option(help="Length of the slice.", show_default="to the end")] = None,
    slo: Annotated[float | None, duration_option(help="Latency limit.", show_default=OF_THE_EXPERIMENT)] = None,
    service_time: Annotated[
        float | None,
        duration_option(help="Time to process one event: worker.service_time_s.", show_default=OF_THE_EXPERIMENT),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of the topic.", show_default=OF_THE_EXPERIMENT)
    ] = None,
    start_up: Annotated[
        float | None,
        duration_option(
            help="World sim: from request of a replica to its joining: system.start_up_s.",
            show_default="measured live",
        ),
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="Price per replica-hour.")] = 0.04,
    speed: Annotated[float, typer.Option(help="Factor on rates; durations are divided by it.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the schedule and of all random draws.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="scaler.parameter=value, worker.setting=value, system.setting=value or workload.parameter=value; "
            "repeatable.",
        ),
    ] = None,
    tick_phase: Annotated[
        float | None,
        duration_option(help="Offset of the ticks from whole seconds.", show_default=OF_THE_EXPERIMENT),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", help="kind@time[+duration], such as stop-broker@30s+500ms; repeatable."),
    ] = None,
    initial_replicas: Annotated[
        int | None,
        typer.Option(
            help="Replicas at the start; 0 for a consumer group that scales from zero.",
            show_default=f"{OF_THE_EXPERIMENT}; of a slice or another workload, enough",
        ),
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option(help="Upper limit of the fleet.", show_default=OF_THE_EXPERIMENT)
    ] = None,
    join_timeout: Annotated[
        float | None,
        duration_option(
            help="Time for which a new assignment waits for replicas that have not joined.",
            show_default="10; 30 in world kubernetes",
        ),
    ] = None,
    guard: Annotated[
        bool,
        typer.Option(
            "--guard",
            help="Guards around the scaler: no scale-in on unknown input, none that made events late, no oscillation.",
        ),
    ] = False,
    spark: Annotated[bool, typer.Option(help="Compute figures with Spark during the run.")] = True,
    shadows: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated shadow scalers, or `all`, `none`.",
            show_default=f"{OF_THE_EXPERIMENT}; none in world sim",
        ),
    ] = None,
) -> "Options":
    """The command line's options of a run. Raises PenstockError."""
    from experiments.experiment import Options, parse_faults
    from experiments.worlds import world_name
    from penstock.parameters import parse_settings

    given = parse_settings(settings or ())
    _give(given, "worker.service_time_s", "--service-time", service_time)
    _give(given, "system.start_up_s", "--start-up", start_up)
    if start_up is not None and world != "sim":
        raise PenstockError("--start-up: only the sim world can choose it; a live replica takes the time it takes")
    return Options(
        world=world_name(world),
        own_workload=workload,
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
        join_timeout_s=join_timeout,
        guard=guard,
        slo_s=slo,
        partitions=partitions,
        replica_price_per_hour=price,
    )


def _give(given: dict[str, dict[str, str]], setting: str, option: str, value: float | None) -> None:
    """An option that is short for a setting. PenstockError if both are given."""
    target, _, name = setting.partition(".")
    if value is not None and given.setdefault(target, {}).setdefault(name, repr(value)) != repr(value):
        raise PenstockError(f"{option} and --set {setting}: give one of them")


def _with_options(**fixed: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter ``options`` by the parameters of ``_options``. Parameters in ``fixed`` keep the
    given value and are no options of the command.
    """
    every = inspect.signature(_options).parameters
    shared = {name: parameter for name, parameter in every.items() if name not in fixed}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command).parameters.values():
            parameters += shared.values() if parameter.name == "options" else [parameter]

        def with_options(**given: Any) -> None:
            options = _options(**{name: given.pop(name) for name in shared}, **fixed)
            command(options=options, **given)

        with_options.__doc__ = command.__doc__
        with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        with_options.__annotations__ = {}
        return with_options

    return decorate


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
    app.command("demo", epilog="Example: penstock demo --world local")(demo)
    app.command("bound", epilog="Example: penstock bound binpack-workload-1 --share 0.99 --tick-phase 0.62")(bound)
    app.command("report", epilog="Example: penstock report runs/20260102T030405Z-binpack-workload-1-compare")(report)
    register_advise(app)
    register_chaos(app)
    register_replay(app)
    register_runs(app)
    register_calibration()


def list_experiments(
    as_json: AsJson = False,
) -> None:
    """List the experiments with title, length, SLO and paper."""
    from rich.console import Console
    from rich.table import Column, Table

    from experiments.catalogue import EXPERIMENTS

    if as_json:
        print_json(
            [
                {
                    "experiment": each.name,
                    "title": each.title,
                    "seconds": each.seconds,
                    "slo_s": each.slo_s,
                    "paper": each.paper,
                }
                for each in EXPERIMENTS.values()
            ]
        )
        return
    table = Table(Column("experiment", no_wrap=True), "title", "seconds", "SLO", "paper", box=None, pad_edge=False)
    for experiment in EXPERIMENTS.values():
        table.add_row(
            experiment.name, experiment.title, f"{experiment.seconds:g}", f"{experiment.slo_s:g} s", experiment.paper
        )
    Console().print(table)


@_with_options()
def run(
    experiment: ExperimentName,
    scaler: Annotated[
        str,
        typer.Option(
            help="Acting scaler: a name of `penstock scalers`, or path.py:Class.", autocompletion=complete_scalers
        ),
    ],
    options: "Options",
    fail_under: FailUnder = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment once with one acting scaler. Exit code 98: its verdict is INVALID.

    Its directory is made in the folder PENSTOCK_RUNS (default: runs).
    """
    _run(experiment, [scaler], options, repeat=1, resume=False, fail_under=fail_under, as_json=as_json, quiet=quiet)


@_with_options()
def compare(
    experiment: ExperimentName,
    scalers: Annotated[
        str, typer.Option(help="Comma-separated names, or path.py:Class.", autocompletion=complete_scalers)
    ],
    options: "Options",
    repeat: Annotated[int, typer.Option(help="Repetitions; each has its own seed, the same for all scalers.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the same comparison and keep its finished runs.")
    ] = False,
    fail_under: FailUnder = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment once per scaler on the same schedule. Print a table and write one report. Exit code 98: a
    verdict is INVALID.

    The directories are made in the folder PENSTOCK_RUNS (default: runs).
    """
    _run(
        experiment,
        list(_names(scalers)),
        options,
        repeat=repeat,
        resume=resume,
        fail_under=fail_under,
        as_json=as_json,
        quiet=quiet,
    )


def demo(
    world: Annotated[str, typer.Option(help="sim: virtual time; local: real services and processes.")] = "sim",
) -> None:
    """Compare two scalers on 70 s of load. The bin-pack paper's workload, seconds 480 to 550, under binpack-tail and
    linear: a table and a report in the folder PENSTOCK_RUNS (default: runs). A live one does without Spark.
    """
    from experiments.experiment import Options
    from experiments.worlds import world_name

    # The load falls from its peak: the fleet is as large as it has to be at first, so that no cold start at the peak is
    # measured, and two live runs take less than three minutes.
    options = Options(world=world_name(world), from_s=480.0, seconds=70.0, initial_replicas=5, analytics=False)
    _run(
        "binpack-workload-1",
        ["binpack-tail", "linear"],
        options,
        repeat=1,
        resume=False,
        fail_under=None,
        as_json=False,
        quiet=False,
    )


@_with_options(world="sim", price=0.0, faults=None, guard=False, spark=False, shadows=None)
def bound(
    experiment: ExperimentName,
    options: "Options",
    share: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of the events within the SLO.", show_default=OF_THE_EXPERIMENT),
    ] = None,
) -> None:
    """Print the least cost at which a share can be within the SLO.

    The lower bound holds for every scaler, whatever it knows of the load. The second figure is the cost of a plan that
    knows the whole load. Both are of virtual time. Consumer groups with bursts only. There is no scaler: --set takes
    settings of worker, system and workload.
    """
    from rich.console import Console
    from rich.table import Table

    from experiments.bound import bound as find_bound
    from experiments.catalogue import find_experiment
    from experiments.experiment import changed
    from report.wording import share as per_cent

    if options.settings:
        raise PenstockError(f"--set {next(iter(options.settings))}.…: a bound has no scaler")
    chosen = changed(find_experiment(experiment), options)
    found = find_bound(chosen, options, chosen.slo_share if share is None else share)
    table = Table("clairvoyant", "within SLO", "replica-minutes", box=None, pad_edge=False)
    table.add_row("lower bound", per_cent(found.share), f"{found.least_minutes:.2f}")
    if found.plan_minutes is not None:
        table.add_row("plan, carried out", per_cent(found.plan_share), f"{found.plan_minutes:.2f}")
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{chosen.name}, seed {options.seed}: at least {per_cent(found.share)} of {found.events} events")
    console.print(table)
    console.print(found.assumptions, markup=False)
    console.print(
        "The bound holds for one decision a second and for service times that do not vary."
        + ("" if found.plan_minutes is not None else " No plan that was tried keeps the share.")
    )


def report(
    directories: Annotated[
        list[Path], run_argument(help="Run directories, or one comparison's directory; or their names.")
    ],
    as_json: Json = False,
    fail_under: FailUnder = None,
) -> None:
    """Write reports and verdicts again from run directories. Exit code 98: a verdict is INVALID, or files
    of a run were changed.
    """
    from experiments.compare import ComparisonDirectory
    from experiments.reporting import write_reports
    from penstock.rundir import RunDirectory

    if len(directories) == 1 and (directories[0] / "compare.json").is_file():
        comparison = ComparisonDirectory(directories[0])
        write_reports(comparison.runs(), comparison.report_file, fail_under, as_json=as_json)
    else:
        runs = [RunDirectory.open(path) for path in directories]
        out = runs[0].report_file if len(runs) == 1 else directories[0].parent / "report.html"
        write_reports(runs, out, fail_under, as_json=as_json)


def _run(
    experiment: str,
    scalers: list[str],
    options: "Options",
    *,
    repeat: int,
    resume: bool,
    fail_under: float | None,
    as_json: bool,
    quiet: bool,
) -> None:
    from rich.console import Console

    from experiments.catalogue import find_experiment
    from experiments.compare import ComparisonRequest, run_comparisons
    from experiments.experiment import changed, tuning_line
    from experiments.reporting import write_reports
    from experiments.worlds import run_in_driver_pod
    from penstock.registry import parse_scaler
    from penstock.rundir import check_runs_folder
    from penstock.settings import Folders

    request = ComparisonRequest(changed(find_experiment(experiment), options), scalers, repeat)
    options = dataclasses.replace(options, compared=tuple(parse_scaler(scaler).name for scaler in scalers))
    # The answer alone goes to standard output.
    console, runs = Console(stderr=as_json, quiet=quiet), Folders().runs.absolute()

    def tell(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    check_runs_folder(runs)
    code = run_in_driver_pod(options.world, sys.argv[1:], runs, tell)
    if code is not None:
        raise typer.Exit(code)
    (directory,) = run_comparisons(console, [request], options, runs, resume=resume)
    tuned = tuning_line(request.experiment, [parse_scaler(scaler) for scaler in scalers], options)
    write_reports(directory.runs(), directory.report_file, fail_under, as_json=as_json, quiet=quiet, told=tuned)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
