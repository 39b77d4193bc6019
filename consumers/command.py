"""``penstock calibrate worker``."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.answers import print_json
from penstock.command import calibrate
from penstock.durations import duration_option
from penstock.errors import PenstockError
from penstock.runspec import WorkerServiceDistribution, WorkerSpec

if TYPE_CHECKING:
    from consumers.calibration import Calibration


def register(app: typer.Typer) -> None:
    """Add the command, to `penstock calibrate`."""
    del app
    calibrate.command("worker", epilog="Example: penstock calibrate worker --service-time 0.005 --seconds 10")(worker)


def worker(
    service_time: Annotated[float, duration_option(help="Service-time floor; 0: real work only.")] = 0.005,
    service_law: Annotated[
        WorkerServiceDistribution, typer.Option(help="How service times are spread.")
    ] = "deterministic",
    commit_every: Annotated[int, typer.Option(help="Events per ledger, result and commit round trip.")] = 1,
    seconds: Annotated[float, duration_option(help="Time that counts, after 2 s of warming up.")] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure μ, the events per second that one replica can do."""
    for name, value, lowest in (
        ("--service-time", service_time, 0.0),
        ("--commit-every", commit_every, 1),
        ("--seconds", seconds, 2.0),
    ):
        if not lowest <= value < 3600:
            raise PenstockError(f"{name} {value:g}: expected {lowest:g} or more, and less than 3600")
    from rich.console import Console

    from consumers.calibration import calibrate_worker
    from penstock.settings import Endpoints

    spec = WorkerSpec(service_time_s=service_time, service_law=service_law, commit_every=commit_every)
    console = Console(stderr=True, highlight=False)
    with console.status("looking for the services") as status:
        found = calibrate_worker(Endpoints(), spec, seconds=seconds, tell=status.update)
    if json:
        print_json(found)
    else:
        _print(found, spec)


def _print(found: "Calibration", worker: WorkerSpec) -> None:
    from rich.console import Console
    from rich.table import Table

    from penstock.measures import PERCENTILES

    low, high = found.spread_per_s
    table = Table("measure", "value", box=None, pad_edge=False)
    table.add_row("service rate μ", f"{found.service_rate_per_s:.1f} events/s")
    table.add_row("whole seconds, p10–p90", f"{low:.0f}–{high:.0f} events/s")
    if worker.service_time_s:
        table.add_row("share of 1/floor", f"{found.service_rate_per_s * worker.service_time_s:.1%}")
    for percentile, value in zip(PERCENTILES, found.service_s, strict=True):
        table.add_row(f"service time p{percentile:g}", f"{value * 1000:.3f} ms")
    table.add_row("measured", f"{found.events} events in {found.seconds:.1f} s")
    Console(highlight=False).print(table)
    typer.echo(f"\nFor scalers: --set binpack.service_rate_per_s={found.service_rate_per_s:.0f}")
