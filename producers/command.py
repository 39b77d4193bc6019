"""``penstock workloads`` and ``penstock schedule``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.answers import AsJson, print_json
from penstock.durations import duration_option
from penstock.errors import PenstockError
from penstock.runspec import Arrivals

if TYPE_CHECKING:
    from penstock.schedule import Schedule


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("workloads", epilog="Example: penstock workloads")(workloads)
    app.command(
        "schedule",
        epilog="Example: penstock schedule binpack-workload-1 --from 420 --seconds 110 --out demo.parquet",
    )(schedule)


def workloads(as_json: AsJson = False) -> None:
    """List the workloads with their parameters."""
    from rich.console import Console
    from rich.table import Table

    from producers.workloads.catalogue import WORKLOADS, parameter_texts

    if as_json:
        print_json(
            [
                {
                    "workload": kind.name,
                    "description": kind.summary,
                    "parameters": parameter_texts(kind),
                    "arrivals": kind.arrivals,
                }
                for kind in WORKLOADS.values()
            ]
        )
        return
    table = Table("workload", "description", "parameters", "arrivals", box=None, pad_edge=False)
    for kind in WORKLOADS.values():
        parameters = ", ".join(parameter_texts(kind)) or "none"
        table.add_row(kind.name, kind.summary, parameters, kind.arrivals)
    Console().print(table)
    typer.echo("\nParameters without a value are required, as in: constant:rate_per_s=200,duration_s=30")


def schedule(
    workload: Annotated[str, typer.Argument(help="name[:parameter=value,…]; see `penstock workloads`.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    arrivals: Annotated[
        Arrivals | None, typer.Option(help="How events arrive within a second.", show_default="the workload's own")
    ] = None,
    partitions: Annotated[int, typer.Option(help="Partitions of the topic.")] = 5,
    hot_partitions: Annotated[int, typer.Option(help="The first N partitions are hot; 0: all are equal.")] = 0,
    hot_share: Annotated[float, typer.Option(help="Share of the events that the hot partitions take together.")] = 0.5,
    from_s: Annotated[float, duration_option("--from", help="First second of the workload.")] = 0.0,
    seconds: Annotated[float | None, duration_option(help="Length of the workload.", show_default="to its end")] = None,
    speed: Annotated[float, typer.Option(help="Rates × this, durations ÷ this.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 1,
) -> None:
    """Make the schedule of a workload and print its figures. It has intended time and partition of each event."""
    from producers.schedule import hot_weights, make_schedule
    from producers.workloads import parse_workload

    made = make_schedule(
        parse_workload(workload),
        seed=seed,
        partitions=partitions,
        arrivals=arrivals,
        partition_weights=hot_weights(partitions, hot_partitions, hot_share) if hot_partitions else None,
        from_s=from_s,
        seconds=seconds,
        speed=speed,
    )
    if not out.parent.is_dir() or out.is_dir():
        raise PenstockError(f"{out}: cannot be written; choose a file in an existing folder")
    made.write(out)
    _print(made, out)


def _print(made: "Schedule", out: Path) -> None:
    import numpy as np

    per_second = made.arrivals_per_second()
    shares = np.bincount(made.partition, minlength=made.description["partitions"]) / len(made)
    typer.echo(f"{out}: {len(made):,} events in {made.duration_s:g} s ({made.description['arrivals']} arrivals)")
    mean = len(made) / made.duration_s
    typer.echo(f"per second: mean {mean:,.1f}, peak {per_second.max():,} in second {per_second.argmax()}")
    typer.echo("share of each partition: " + " ".join(f"{share:.3f}" for share in shares))
