"""Options of the commands that play a user's trace: of the trace and its fleet, and of ``penstock replay``."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.answers import FailUnder
from penstock.completion import scalers as complete_scalers
from penstock.durations import duration_option
from penstock.measured import START_UP_S

_load, _fleet, runs_option = (partial(typer.Option, rich_help_panel=panel) for panel in ("Load", "Fleet", "Runs"))
_fleet_time = partial(duration_option, rich_help_panel="Fleet")


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """The options as they are given; each field is a parameter of the command. Times in seconds."""

    trace: Annotated[
        Path,
        typer.Argument(
            help="CSV file whose first line names its columns: rate_per_s, events_per_minute, timestamp (one row per "
            "event, optionally with partition or key), or p0,p1,… (events per second of each partition); "
            "rates may have a column time_s or timestamp."
        ),
    ]
    slo: Annotated[float, duration_option(help="Longest latency of an event, such as 500ms.")]
    share: Annotated[float, typer.Option(help="Share of the events that has to meet the SLO.")] = 0.99
    column: Annotated[str, _load(help="Column of rates (or of times, with --timestamps).")] = ""
    per: Annotated[str | None, _load(help="Unit of rates: per second or minute.")] = None
    timestamps: Annotated[bool, _load("--timestamps", help="One row per event.")] = False
    partition_columns: Annotated[str, _load(help="Columns of rates, one per partition: east,west,…")] = ""
    skew: Annotated[str | None, _load(help="Share of each partition: 0.4,0.3,0.3 (default: equal).")] = None
    arrivals: Annotated[
        str | None,
        _load(
            help="Arrivals within a second: burst, uniform or poisson (default: poisson; as recorded with timestamps)."
        ),
    ] = None
    service_time: Annotated[float, _fleet_time(help="Time to process one event.")] = 0.005
    service_law: Annotated[str, _fleet(help="Distribution of service times: deterministic or exponential.")] = (
        "deterministic"
    )
    partitions: Annotated[int | None, _fleet(help="Partitions (default: the trace's, else 5).")] = None
    max_replicas: Annotated[int | None, _fleet(help="Limit of the fleet (default: one per partition).")] = None
    initial_replicas: Annotated[
        int | None, _fleet(help="Replicas at the start (default: 80 % busy in the trace's first 10 s or minute).")
    ] = None
    start_up: Annotated[float, _fleet_time(help="From request of a replica to its joining.")] = START_UP_S
    price: Annotated[float, _fleet(help="Price per replica-hour.")] = 0.04
    settings: Annotated[list[str] | None, runs_option("--set", help="scaler.parameter=value; may be repeated.")] = None
    seed: Annotated[int, runs_option(help="Random seed.")] = 1


@dataclass(frozen=True, kw_only=True)
class ReplayRequest(TraceRequest):
    """Of one run with one scaler."""

    scaler: Annotated[
        str, runs_option(help="A name of `penstock scalers`, or path.py:Class.", autocompletion=complete_scalers)
    ]
    tick_phase: Annotated[
        float,
        duration_option(rich_help_panel="Runs", help="Time of the controller's tick after each whole second."),
    ] = 0.1
    fail_under: FailUnder = None
    json: Annotated[bool, runs_option("--json", help="JSON on standard output.")] = False
