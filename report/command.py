"""Sub-commands of ``penstock`` that the report package brings: ``explain`` and ``watch``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.answers import AsJson, print_json
from penstock.durations import duration_option
from penstock.errors import PenstockError
from penstock.run_argument import run_argument

REFRESH_S = 0.5

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.journal import TickRecord


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("explain", epilog="Example: penstock explain runs/20260101T120000Z-binpack-binpack-tail --at 57")(
        explain
    )
    app.command("watch", epilog="Example: penstock watch runs/20260101T120000Z-binpack-binpack-tail --once")(watch)


def explain(
    run: Annotated[Path, run_argument()],
    at: Annotated[float, duration_option(help="Time from the start of the run.")],
    scaler: Annotated[str | None, typer.Option(help="Acting scaler or shadow.", show_default="the acting one")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the arithmetic of one decision. It is the last one that was taken at or before that second."""
    from controller.journal import read_ticks
    from penstock.rundir import RunDirectory
    from report.explain import explain as explained
    from report.explanations.wording import readable

    record = find_tick(run, list(read_ticks(RunDirectory.open(run))), at, scaler)
    if as_json:
        print_json(record)
        return
    decided = scaler or record.acting
    acting = "acting" if decided == record.acting else f"a shadow; {record.acting} was acting"
    typer.echo(f"tick {record.tick} at {record.time_s:g} s of {run.name} ({decided}: {acting})")
    if record.note:
        typer.echo(f"note: {readable(record.note)}")
    typer.echo(explained(decided, record.decisions[decided]))
    if decided == record.acting and record.accepted is not None:
        targets, cut = record.accepted.targets, record.accepted.clamped
        accepted = ", ".join(f"{fleet} {cut.get(fleet, target)}" for fleet, target in targets.items())
        typer.echo(f"accepted: {accepted}; plan epoch then {record.plan_epoch}")


def find_tick(run: Path, records: "Sequence[TickRecord]", at_s: float, scaler: str | None) -> "TickRecord":
    """The last tick at or before ``at_s`` at which that scaler decided; a tick of the same second counts as before it.

    Raises PenstockError with the valid range or the names of the scalers.
    """
    names = sorted({name for record in records for name in record.decisions})
    if scaler is not None and scaler not in names:
        raise PenstockError(f"{run}: no scaler {scaler!r} decided in that run; those that did: {', '.join(names)}")
    deciding = [record for record in records if (scaler or record.acting) in record.decisions]
    if not deciding:
        raise PenstockError(f"{run}: its journal has no decision; the run ended before its first tick")
    first, last = int(deciding[0].time_s), math.ceil(deciding[-1].time_s)
    if not first <= at_s <= last:
        raise PenstockError(f"--at {at_s:g}: outside the run; {run} has decisions from {first} to {last} s")
    return [record for record in deciding if int(record.time_s) <= at_s][-1]


def watch(
    run: Annotated[Path | None, run_argument(show_default="the newest run")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Show a run as it proceeds. Rates, lag, replicas, latency against the SLO, the last decision and the shadows'.

    Ends when the run ends; Ctrl-C leaves it alone.
    """
    import time

    from rich.console import Console
    from rich.live import Live

    from penstock.settings import Folders
    from report.watch import WatchedRun, find_run, frame

    console = Console(highlight=False)
    watched = WatchedRun(find_run(Folders().runs, run))
    watched.look()
    if once:
        console.print(frame(watched))
        return
    try:
        with Live(frame(watched), console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while not watched.over:
                time.sleep(REFRESH_S)
                watched.look()
                live.update(frame(watched), refresh=True)
    except KeyboardInterrupt:
        console.print("the run continues")
