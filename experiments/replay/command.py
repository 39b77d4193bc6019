"""``penstock replay TRACE.csv --slo 500ms``: which scaler to use on one's own trace, at what cost and why."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.compare import ComparisonDirectory
    from experiments.replay.cells import CellTask
    from experiments.replay.plan import Plan, Request
    from experiments.replay.table import Row

EPILOG = "Example: penstock replay load.csv --slo 500ms --service-time 5ms --partitions 5"

WIDE = 140
LOAD, FLEET, RUNS = "What comes in", "Who serves it", "What is run"


def register_replay(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay", epilog=EPILOG)(replay)


def replay(
    trace: Annotated[
        Path,
        typer.Argument(
            help="CSV file whose first line names its columns: rate_per_s, events_per_minute, timestamp (a row an "
            "event; its partition or key may stand beside it), or p0,p1,… (events per second of each partition); "
            "time_s or timestamp may stand beside rates."
        ),
    ],
    slo: Annotated[str, typer.Option(help="Longest latency of an event, such as 500ms or 0.5s.")],
    share: Annotated[float, typer.Option(help="Share of the events that has to keep the SLO.")] = 0.99,
    column: Annotated[
        str, typer.Option(help="Column of rates (or of times, with --timestamps).", rich_help_panel=LOAD)
    ] = "",
    per: Annotated[str | None, typer.Option(help="second or minute: what rates are per.", rich_help_panel=LOAD)] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="A row an event.", rich_help_panel=LOAD)] = False,
    partition_columns: Annotated[
        str, typer.Option(help="Columns of rates, one a partition: east,west,…", rich_help_panel=LOAD)
    ] = "",
    skew: Annotated[
        str | None, typer.Option(help="Share of each partition: 0.4,0.3,0.3 (default: equal).", rich_help_panel=LOAD)
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            help="Within a second: burst, uniform or poisson (default: poisson; as recorded with timestamps).",
            rich_help_panel=LOAD,
        ),
    ] = None,
    service_time: Annotated[str, typer.Option(help="An event on one replica.", rich_help_panel=FLEET)] = "5ms",
    service_law: Annotated[
        str, typer.Option(help="deterministic or exponential.", rich_help_panel=FLEET)
    ] = "deterministic",
    partitions: Annotated[
        int | None, typer.Option(help="Partitions (default: the trace's, else 5).", rich_help_panel=FLEET)
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option(help="Cap of the fleet (default: one a partition).", rich_help_panel=FLEET)
    ] = None,
    initial_replicas: Annotated[
        int | None,
        typer.Option(help="At the start (default: 80 % busy in the trace's first minute).", rich_help_panel=FLEET),
    ] = None,
    start_up: Annotated[
        str, typer.Option(help="From asking for a replica to its joining.", rich_help_panel=FLEET)
    ] = "1.2s",
    price: Annotated[float, typer.Option(help="Of a replica for an hour.", rich_help_panel=FLEET)] = 0.04,
    scalers: Annotated[
        str,
        typer.Option(
            help="Names or path.py:Class, by commas; optimal knows all rates beforehand, to compare with "
            "(default: all that are made for consumer groups).",
            rich_help_panel=RUNS,
        ),
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="scaler.parameter=value; may be repeated.", rich_help_panel=RUNS),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="scaler.parameter=a,b,c; repeated: every combination.", rich_help_panel=RUNS),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every random draw.", rich_help_panel=RUNS)] = 1,
    tick_phase: Annotated[
        str, typer.Option(help="After each whole second at which the controller looks.", rich_help_panel=RUNS)
    ] = "0.1s",
    jobs: Annotated[int | None, typer.Option(help="Cells at a time (default: cores).", rich_help_panel=RUNS)] = None,
    engine: Annotated[str, typer.Option(help="local processes, or spark tasks.", rich_help_panel=RUNS)] = "local",
    json_wanted: Annotated[bool, typer.Option("--json", help="JSON on standard output.", rich_help_panel=RUNS)] = False,
) -> None:
    """Play your own trace to every scaler that fits: which is the cheapest that meets the SLO, and why.

    Every scaler runs in virtual time on the same arrivals, as with compare --world sim; an hour takes seconds.
    """
    from experiments.replay.plan import Request, duration_s, weights
    from experiments.replay.plan import sweep as parse_sweep
    from experiments.replay.trace import Per, read_trace
    from penstock.errors import PenstockError
    from penstock.registry import parse_settings
    from penstock.runspec import Arrivals, ServiceLaw

    if jobs is not None and jobs < 1:
        raise PenstockError(f"--jobs {jobs}: has to be at least 1")
    slo_s = duration_s("--slo", slo)
    chosen_engine = _one_of("--engine", engine, ("local", "spark"))
    request = Request(
        trace=read_trace(
            trace,
            column=column,
            per=None if per is None else _one_of("--per", per, get_args(Per)),
            timestamps=timestamps,
            partition_columns=_names(partition_columns),
        ),
        slo_s=slo_s,
        service_time_s=duration_s("--service-time", service_time),
        service_law=_one_of("--service-law", service_law, get_args(ServiceLaw)),
        partitions=partitions,
        skew=None if skew is None else weights("--skew", skew),
        max_replicas=max_replicas,
        initial_replicas=initial_replicas,
        start_up_s=duration_s("--start-up", start_up, zero=True),
        price_per_hour=price,
        scalers=tuple(dict.fromkeys(_names(scalers))),
        share=share,
        seed=seed,
        settings=parse_settings(settings or ()),
        sweeps=tuple(parse_sweep(text) for text in sweep or ()),
        arrivals=None if arrivals is None else _one_of("--arrivals", arrivals, get_args(Arrivals)),
        tick_phase_s=duration_s("--tick-phase", tick_phase, zero=True),
    )
    _carry_out(request, jobs, chosen_engine, json_wanted=json_wanted)


def _carry_out(request: "Request", jobs: int | None, engine: Literal["local", "spark"], *, json_wanted: bool) -> None:
    import shutil

    from rich.console import Console

    from experiments.analysis.measurement import summary_of
    from experiments.compare import ComparisonDirectory
    from experiments.replay.plan import make_plan, prepare, remove_unfinished
    from experiments.replay.table import advise, as_json, results_table, rows_of
    from penstock.errors import PenstockError
    from penstock.rundir import slug
    from penstock.settings import Folders

    said = Console(stderr=json_wanted, highlight=False, soft_wrap=True)
    runs = Folders().runs.absolute()
    if "," in str(runs):
        raise PenstockError(f"{runs}: a folder of runs without a comma in its name is needed; set PENSTOCK_RUNS")
    directory = ComparisonDirectory.create(runs, f"replay-{slug(request.trace.path.stem) or 'trace'}")
    tasks: list[CellTask] = []
    try:
        trace_file = directory.path / "trace.csv"
        request.trace.write(trace_file)
        plan = make_plan(request, f"trace:path={trace_file}")
        tasks = prepare(plan, directory)
    except BaseException as error:
        remove_unfinished(tasks)
        shutil.rmtree(directory.path, ignore_errors=True)
        if isinstance(error, KeyboardInterrupt):
            said.print("interrupted: no cell was begun, nothing is left")
        raise
    for line in _conditions(plan):
        said.print(line, markup=False)
    for warning in plan.warnings:
        said.print(f"warning: {warning}", style="yellow", markup=False)
    try:
        _run(tasks, jobs, engine, said)
    except KeyboardInterrupt:
        finished = len(directory.runs())
        said.print(f"interrupted: {finished} of {len(tasks)} cells finished, all is stopped")
        raise
    finally:
        remove_unfinished(tasks)
    rows = rows_of([summary_of(run) for run in directory.runs()], request.share, request.sweeps)
    advice = advise(rows, slo_s=request.slo_s, wanted_share=request.share, hot=plan.hot)
    shown = _report(rows, directory, said)
    told = as_json(plan, rows, advice, directory=str(directory.path), report=str(directory.report_file))
    (directory.path / "replay.json").write_bytes(told + b"\n")
    if json_wanted:
        typer.echo(told)
        return
    # A file or a pipe has no edge at which a table would have to be folded.
    Console(width=None if said.is_terminal else WIDE).print(results_table(rows, title=plan.experiment.title))
    said.print(f"\n{advice}", markup=False, style="bold")
    of_all = (
        f" (the first {shown} of the table; penstock report {directory.path} draws all)" if shown < len(rows) else ""
    )
    said.print(f"report: {directory.report_file}{of_all}", markup=False)


def _run(tasks: "Sequence[CellTask]", jobs: int | None, engine: Literal["local", "spark"], said: "Console") -> None:
    """Every cell, with a line that moves; PenstockError of the first cell that could not be carried out."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from experiments.replay.cells import CellEnd
    from experiments.replay.spark import carry_out_on_spark
    from experiments.replay.sweep import carry_out_in_processes, default_jobs
    from penstock.errors import PenstockError

    ends: list[CellEnd] = []
    bars = Progress(
        TextColumn("cells" + (" on Spark" if engine == "spark" else "")),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=said,
        transient=True,
        disable=not said.is_terminal,
        # No thread of its own: processes are forked while it is shown.
        auto_refresh=False,
    )
    with bars:
        bar = bars.add_task("", total=len(tasks))
        bars.refresh()

        def tell(end: CellEnd) -> None:
            ends.append(end)
            bars.update(bar, advance=1)
            bars.refresh()

        carry_out = carry_out_on_spark if engine == "spark" else carry_out_in_processes
        carry_out(tasks, jobs or default_jobs(), tell)
    failed = [end for end in ends if end.error]
    if failed:
        raise PenstockError(failed[0].error)


def _report(rows: "Sequence[Row]", directory: "ComparisonDirectory", said: "Console") -> int:
    """report.html in the order of the table, no more runs than the report has colours for; how many those are."""
    from experiments.report import write_report
    from experiments.report.groups import PALETTE
    from penstock.rundir import RunDirectory

    chosen = [RunDirectory.open(directory.path.parent / row.run) for row in rows[: len(PALETTE)]]
    with said.status("writing the report"):
        write_report(chosen, directory.report_file)
    return len(chosen)


def _conditions(plan: "Plan") -> list[str]:
    """What was read and on what it will be played, so that a wrong assumption is seen."""
    from experiments.replay.plan import MADE_FOR_OTHER_FLEETS

    request, trace, experiment = plan.request, plan.request.trace, plan.experiment
    names = list(dict.fromkeys(scaler for scaler, _ in plan.wanted))
    played = (
        f"{trace.path}: {trace.form}: {trace.rate_per_s.sum():,.0f} events in {trace.seconds:,} s, "
        f"mean {trace.rate_per_s.mean():.1f}, peak {trace.rate_per_s.max():.0f} events/s, arrivals {plan.arrivals}"
    )
    fleet = (
        f"{experiment.partitions} partitions, {1000 * request.service_time_s:g} ms an event "
        f"({1 / request.service_time_s:g} events/s a replica), {experiment.initial_replicas} to start with, "
        f"{experiment.max_replicas} at most, start-up {request.start_up_s:g} s, "
        f"{request.price_per_hour:g} a replica-hour"
    )
    lines = [played, fleet, f"{len(plan.wanted)} cells: {', '.join(names)}"]
    if not request.scalers and not request.sweeps:
        lines.append(f"left out as made for other fleets: {', '.join(MADE_FOR_OTHER_FLEETS)} (--scalers takes them)")
    return lines


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _one_of(option: str, given: str, known: Sequence[Any]) -> Any:
    from penstock.errors import PenstockError

    if given not in known:
        raise PenstockError(f"{option} {given}: choose {' or '.join(known)}")
    return given
