"""The options of ``penstock advise``."""

from dataclasses import dataclass
from typing import Annotated

from experiments.replay.request import TraceRequest, runs_option
from penstock.completion import scalers as complete_scalers
from penstock.durations import duration_option


@dataclass(frozen=True, kw_only=True)
class AdviceRequest(TraceRequest):
    """The options as they are given; times in seconds."""

    scalers: Annotated[
        str,
        runs_option(
            help="Comma-separated names or path.py:Class.",
            show_default="all that are made for consumer groups",
            autocompletion=complete_scalers,
        ),
    ] = ""
    tick_phase: Annotated[
        float | None,
        duration_option(
            rich_help_panel="Runs",
            help="Time of the controller's tick after each whole second.",
            show_default="searched",
        ),
    ] = None
    seeds: Annotated[
        int, runs_option(help="Seeds of every proof, from --seed on; the advised setting gets further ones.")
    ] = 3
    chosen_on: Annotated[
        float, runs_option(help="Part of the trace on which settings are chosen; the rest proves them.")
    ] = 0.5
    jobs: Annotated[int | None, runs_option(help="Parallel trials.", show_default="cores")] = None
    engine: Annotated[str, runs_option(help="local processes, or spark tasks.")] = "local"
    resume: Annotated[bool, runs_option("--resume", help="Continue the same request that was interrupted.")] = False
    json: Annotated[bool, runs_option("--json", help="JSON on standard output.")] = False
