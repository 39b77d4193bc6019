"""``penstock watch``: a run at a terminal."""

from pathlib import Path
from typing import Annotated

import typer

REFRESH_S = 0.5


def watch(
    run: Annotated[Path | None, typer.Argument(help="Run directory.", show_default="the newest run")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
) -> None:
    """Show a run while it goes on: rates, lag, replicas, latency against the SLO, the last decision and the shadows'.

    Ends when the run ends; Ctrl-C leaves it alone.
    """
    import time

    from rich.console import Console
    from rich.live import Live

    from controller.watch import Watched, find_run, frame
    from penstock.settings import Folders

    console = Console(highlight=False)
    watched = Watched(find_run(Folders().runs, run))
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
        console.print("the run goes on")
