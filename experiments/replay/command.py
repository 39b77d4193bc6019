"""``penstock replay TRACE.csv --slo 500ms``: the cheapest scaler that meets the SLO on a user's trace, and why."""

import inspect
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from experiments.replay.request import ReplayRequest
from penstock.errors import PenstockError
from penstock.measured import REBALANCE_S

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.replay.cells import CellTask
    from experiments.replay.plan import ReplayPlan

EPILOG = "Example: penstock replay load.csv --slo 500ms --service-time 5ms --partitions 5"

WIDE = 140
TOLD_EVERY_S = 10.0
"""Where there is no progress bar."""
TOLD_BYTES = 20_000_000
"""Reading a trace of this size takes some seconds."""


def register_replay(app: typer.Typer) -> None:
    """Add the command."""
    replay.__signature__ = inspect.signature(ReplayRequest)  # type: ignore[attr-defined]
    replay.__annotations__ = {}
    app.command("replay", epilog=EPILOG)(replay)


def replay(**given: Any) -> None:
    """Run your own trace with every scaler that fits, and show the cheapest that meets the SLO and why.

    Every scaler runs in virtual time on the same arrivals, as with compare --world sim; an hour takes seconds.
    """
    import shutil

    from rich.console import Console

    from experiments.compare import ComparisonDirectory
    from experiments.replay.plan import make_plan, prepare, remove_unfinished
    from experiments.replay.table import advise, as_json, results_table, rows_of
    from penstock.rundir import RunDirectory, slug
    from penstock.settings import Folders
    from report import write_report
    from report.analysis.measurement import summary_of
    from report.analysis.run_data import RunData
    from report.groups import PALETTE

    request = ReplayRequest(**given)
    said = Console(stderr=request.json, highlight=False, soft_wrap=True)
    if request.trace.is_file() and request.trace.stat().st_size > TOLD_BYTES:
        typer.echo(f"reading {request.trace}, {request.trace.stat().st_size / 1e6:.0f} MB", err=True)
    runs = Folders().runs.absolute()
    if "," in str(runs):
        raise PenstockError(f"{runs}: a folder of runs without a comma in its name is needed; set PENSTOCK_RUNS")
    directory = ComparisonDirectory.create(runs, f"replay-{slug(request.trace.stem) or 'trace'}")
    tasks: list[CellTask] = []
    try:
        plan = make_plan(request, directory.path)
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
        _run(tasks, request, said)
    except KeyboardInterrupt:
        finished = len(directory.runs())
        said.print(f"interrupted: {finished} of {len(tasks)} cells finished, all is stopped")
        raise
    finally:
        remove_unfinished(tasks)
    rows = rows_of([summary_of(RunData(run)) for run in directory.runs()], request.share, plan.sweeps)
    advice = advise(rows, slo_s=plan.experiment.slo_s, wanted_share=request.share, hot=plan.hot)
    # In the order of the table, as many runs as the report has colours.
    shown = [RunData(RunDirectory.open(runs / row.run)) for row in rows[: len(PALETTE)]]
    with said.status("writing the report"):
        write_report(shown, directory.report_file)
    encoded = as_json(plan, rows, advice, directory=str(directory.path), report=str(directory.report_file))
    (directory.path / "replay.json").write_bytes(encoded + b"\n")
    if request.json:
        typer.echo(encoded)
        return
    # A file or a pipe has no edge at which a table would have to be folded.
    Console(width=None if said.is_terminal else WIDE).print(results_table(rows, title=plan.experiment.title))
    said.print(f"\n{advice}", markup=False, style="bold")
    of_all = f" (the first {len(shown)} of the table; penstock report {directory.path} draws all)"
    said.print(f"report: {directory.report_file}{of_all if len(shown) < len(rows) else ''}", markup=False)


def _run(tasks: "Sequence[CellTask]", request: ReplayRequest, said: "Console") -> None:
    """Run every cell with a progress bar; PenstockError of the first cell that failed."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from experiments.replay.cells import carry_out_in_processes, carry_out_on_spark

    on_spark = request.engine == "spark"
    errors: list[str] = []
    ended, told_s = 0, monotonic()
    bars = Progress(
        TextColumn("cells" + (" on Spark" if on_spark else "")),
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

        def tell(error: str) -> None:
            nonlocal ended, told_s
            if error:
                errors.append(error)
            bars.update(bar, advance=1, refresh=True)
            ended += 1
            if not said.is_terminal and monotonic() - told_s >= TOLD_EVERY_S:
                said.print(f"{ended} of {len(tasks)} cells")
                told_s = monotonic()

        carry_out = carry_out_on_spark if on_spark else carry_out_in_processes
        carry_out(tasks, request.jobs, tell)
    if errors:
        raise PenstockError(errors[0])


def _conditions(plan: "ReplayPlan") -> list[str]:
    """Trace and fleet in words, so that a wrong assumption is visible."""
    from experiments.experiment import tuning_line
    from experiments.replay.plan import MADE_FOR_OTHER_FLEETS
    from penstock.registry import parse_scaler

    request, trace, experiment = plan.request, plan.trace, plan.experiment
    played = (
        f"{trace.path}: {trace.form}: {trace.rate_per_s.sum():,.0f} events in {trace.seconds:,} s, "
        f"mean {trace.rate_per_s.mean():.1f}, peak {trace.rate_per_s.max():.0f} events/s, arrivals {plan.arrivals}"
    )
    fleet = (
        f"{experiment.partitions} partitions, {1000 * plan.service_time_s:g} ms an event "
        f"({1 / plan.service_time_s:g} events/s a replica), {experiment.initial_replicas} to start with, "
        f"{experiment.max_replicas} at most, start-up {plan.start_up_s:g} s, rebalance {REBALANCE_S:g} s, "
        f"{request.price:g} a replica-hour"
    )
    names = list(dict.fromkeys(scaler for scaler, _ in plan.wanted))
    tuned = tuning_line(experiment, [parse_scaler(name) for name in names])
    lines = [played, fleet, f"{len(plan.wanted)} cells: {', '.join(names)}", tuned]
    if not request.scalers and not plan.sweeps:
        lines.append(f"left out as made for other fleets: {', '.join(MADE_FOR_OTHER_FLEETS)} (--scalers takes them)")
    return lines
