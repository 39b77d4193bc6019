"""Sub-commands of ``penstock`` that this room brings: ``scalers``, ``explain``, ``formula``,
``keda``, ``control`` and ``watch``.
"""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from controller.attach_command import control
from controller.formula_command import register_formulas
from controller.keda.command import keda
from controller.watch_command import watch
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.journal import TickRecord
    from penstock.registry import ScalerClass

UNITS = {"_per_s": "1/s", "_per_hour": "1/h", "_s": "s", "_ms": "ms", "_ns": "ns"}
"""Unit by the ending of a parameter's name; without one it is a count, a share or a choice."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: penstock scalers --json")(scalers)
    app.command(epilog="Example: penstock explain runs/20260101T120000Z-binpack-binpack-tail --at 57")(explain)
    register_formulas(app)
    app.command(
        epilog="Example: penstock keda --kafka kafka:9092 --topic orders --group shop --scaler binpack-tail "
        "--set binpack-tail.slo_s=0.5 --listen 0.0.0.0:6000"
    )(keda)
    app.command(
        epilog="Example: penstock control --kafka localhost:9092 --topic orders --group shop --scaler linear "
        "--set linear.service_rate_per_s=50 -- python consumer.py"
    )(control)
    app.command(epilog="Example: penstock watch runs/20260101T120000Z-binpack-binpack-tail --once")(watch)


def scalers(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """List the scalers: the kind of fleet each reads, its paper, its parameters with unit and default."""
    from penstock.registry import scaler_classes

    described = [describe(name, kind) for name, kind in scaler_classes().items()]
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(described), indent=2).decode())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("scaler", "fleet", "parameters", "paper", box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for each in described:
        parameters = "\n".join(_told(parameter) for parameter in each["parameters"])
        emulated = f" (our emulation of {each['emulates']})" if each["emulates"] else ""
        table.add_row(each["name"], each["fleet"], parameters, each["paper"] + emulated)
    Console().print(table)
    typer.echo("\nSet one with --set scaler.parameter=value; bring your own scaler with --scalers path.py:Class")


def explain(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    at: Annotated[float, typer.Option(help="Seconds from the start of the run.")],
    scaler: Annotated[str | None, typer.Option(help="Acting scaler or shadow.", show_default="the acting one")] = None,
) -> None:
    """Show the arithmetic of one decision: the last one that was taken at or before that second."""
    from controller.explain import explain as explained
    from controller.explanations.wording import readable
    from controller.journal import read_ticks
    from penstock.rundir import RunDirectory

    record = find_tick(run, list(read_ticks(RunDirectory.open(run))), at, scaler)
    decided = scaler or record.acting
    acting = "acting" if decided == record.acting else f"a shadow; {record.acting} was acting"
    typer.echo(f"tick {record.tick} at {record.time_s:g} s of {run.name} ({decided}: {acting})")
    if record.note:
        typer.echo(f"note: {readable(record.note)}")
    typer.echo(explained(decided, record.decisions[decided]))
    if decided == record.acting and record.accepted is not None:
        typer.echo(f"accepted: {_accepted(record)}; plan epoch then {record.plan_epoch}")


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


def describe(name: str, kind: "ScalerClass") -> dict[str, Any]:
    """A scaler as plain data."""
    from penstock.registry import emulated_system

    return {
        "name": name,
        "fleet": kind.fleets.__name__.removesuffix("Observation").lower(),
        "paper": kind.paper,
        "emulates": emulated_system(kind),
        "parameters": [
            {"name": field.name, "default": _default(field), "unit": unit(field.name)}
            for field in dataclasses.fields(kind.Parameters)
        ],
    }


def unit(parameter: str) -> str:
    """Unit of a parameter, from its name; empty where it has none."""
    return next((unit for ending, unit in UNITS.items() if parameter.endswith(ending)), "")


def _default(field: "dataclasses.Field[Any]") -> Any:
    """Its default, None if it has to be given."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _told(parameter: dict[str, Any]) -> str:
    default = "none" if parameter["default"] is None else str(parameter["default"])
    return f"{parameter['name']}={default} {parameter['unit']}".rstrip()


def _accepted(record: "TickRecord") -> str:
    assert record.accepted is not None
    cut = record.accepted.clamped
    return ", ".join(f"{fleet} {cut.get(fleet, target)}" for fleet, target in record.accepted.targets.items())
