"""The options of ``penstock replay``."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.measured import START_UP_S

_load, _fleet, _runs = (partial(typer.Option, rich_help_panel=panel) for panel in ("Load", "Fleet", "Runs"))


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The options as they are given; each field is a parameter of the command."""

    trace: Annotated[
        Path,
        typer.Argument(
            help="CSV file whose first line names its columns: rate_per_s, events_per_minute, timestamp (one row per "
            "event, optionally with partition or key), or p0,p1,… (events per second of each partition); "
            "rates may have a column time_s or timestamp."
        ),
    ]
    slo: Annotated[str, typer.Option(help="Longest latency of an event, such as 500ms or 0.5s.")]
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
    service_time: Annotated[str, _fleet(help="Service time of an event.")] = "5ms"
    service_law: Annotated[str, _fleet(help="Distribution of service times: deterministic or exponential.")] = (
        "deterministic"
    )
    partitions: Annotated[int | None, _fleet(help="Partitions (default: the trace's, else 5).")] = None
    max_replicas: Annotated[int | None, _fleet(help="Limit of the fleet (default: one per partition).")] = None
    initial_replicas: Annotated[
        int | None, _fleet(help="Replicas at the start (default: 80 % busy in the trace's first minute).")
    ] = None
    start_up: Annotated[str, _fleet(help="From request of a replica to its joining.")] = f"{START_UP_S:g}s"
    price: Annotated[float, _fleet(help="Price of a replica-hour.")] = 0.04
    scalers: Annotated[
        str,
        _runs(
            help="Comma-separated names or path.py:Class; optimal knows all rates in advance, for comparison "
            "(default: all that are made for consumer groups)."
        ),
    ] = ""
    settings: Annotated[list[str] | None, _runs("--set", help="scaler.parameter=value; may be repeated.")] = None
    sweep: Annotated[list[str] | None, _runs(help="scaler.parameter=a,b,c; repeated: every combination.")] = None
    seed: Annotated[int, _runs(help="Seed of every random draw.")] = 1
    tick_phase: Annotated[str, _runs(help="Time of the controller's tick after each whole second.")] = "0.1s"
    jobs: Annotated[int | None, _runs(help="Parallel cells (default: cores).")] = None
    engine: Annotated[str, _runs(help="local processes, or spark tasks.")] = "local"
    json: Annotated[bool, _runs("--json", help="JSON on standard output.")] = False
