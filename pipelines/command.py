"""Sub-commands of ``penstock`` from this package: ``penstock measures``."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from penstock.errors import PenstockError
from penstock.run_argument import run_argument

if TYPE_CHECKING:
    from penstock.rundir import RunDirectory
    from pipelines.run_measures import RunMeasures

Engine = Literal["numpy", "spark"]


def measures(
    run: Annotated[Path, run_argument()],
    engine: Annotated[Engine, typer.Option(help="What computes; both give the same numbers.")] = "numpy",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the histogram.")] = False,
) -> None:
    """Compute the latencies of a run from its raw results. Percentiles, SLO share, and where time was spent."""
    from penstock.rundir import RunDirectory
    from pipelines import run_measures

    directory = RunDirectory.open(run)
    found = run_measures.measure(directory) if engine == "numpy" else _by_spark(directory)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    if not found.completed:
        raise PenstockError(f"{run}: no event completed in this run, so there is no latency to measure")
    _print(found, directory.name)


def _by_spark(directory: "RunDirectory") -> "RunMeasures":
    from rich.console import Console

    from pipelines.batch import measure
    from pipelines.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder,
        Console(stderr=True).status("Spark is computing"),
        spark_session(f"penstock measures {directory.name}", Path(folder)) as spark,
    ):
        return measure(spark, directory)


def _print(found: "RunMeasures", name: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from penstock.measures import PERCENTILES

    console = Console()
    share = "–" if found.slo_share is None else f"{100 * found.slo_share:.2f} %"
    console.print(
        f"{name}: {found.completed:,} events completed, {share} of them within {1000 * found.slo_s:g} ms; "
        f"{found.redelivered:,} redelivered"
        + "".join(f", {count:,} {outcome}" for outcome, count in sorted(found.other_outcomes.items()))
        + (f", {found.unmeasured:,} without times" if found.unmeasured else "")
        + (f", {found.external:,} external" if found.external else ""),
        highlight=False,
        soft_wrap=True,
    )
    table = Table("ms", "mean", *(f"p{percentile:g}" for percentile in PERCENTILES), "< 0", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for part, values in found.parts.items():
        *shown, _ = msgspec.structs.astuple(values)
        negative = f"{found.negative[part]:,}"
        table.add_row(part.replace("_", " "), *(f"{1000 * value:,.2f}" for value in shown), negative)
    console.print(table)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("measures", epilog="Example: penstock measures runs/20260101T000000Z-binpack-linear --engine spark")(
        measures
    )
