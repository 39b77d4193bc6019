"""Sub-commands of ``penstock``: ``scalers``, ``formula``, ``keda`` and ``control``."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.control.command import control
from controller.keda.command import keda
from controller.queueing.command import formulas
from penstock.answers import print_json
from penstock.completion import scalers as complete_scalers
from penstock.parameters import split_unit

if TYPE_CHECKING:
    from penstock.registry import ScalerClass


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("scalers", epilog="Example: penstock scalers linear my_scaler.py:MyScaler")(scalers)
    app.add_typer(formulas, name="formula")
    app.command(
        "keda",
        epilog="Example: penstock keda --kafka kafka:9092 --topic orders --group shop --scaler binpack-tail "
        "--set binpack-tail.slo_s=0.5 --listen 0.0.0.0:6000",
    )(keda)
    app.command(
        "control",
        epilog="Example: penstock control --kafka localhost:9092 --topic orders --group shop --scaler linear "
        "--set linear.service_rate_per_s=50 -- python consumer.py",
    )(control)


def scalers(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SCALER]...",
            help="Names, or path.py:Class.",
            show_default="all that are registered",
            autocompletion=complete_scalers,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """List the scalers and their parameters. Each with kind of fleet and paper, parameters with unit and default."""
    from penstock.registry import find_scaler, parse_scaler, scaler_classes

    chosen = {spec.name: find_scaler(spec) for spec in map(parse_scaler, names or ())}
    described = [describe(name, kind) for name, kind in (chosen or scaler_classes()).items()]
    if as_json:
        print_json(described)
        return
    from rich.console import Console
    from rich.table import Column, Table

    name, parameters = Column("scaler", no_wrap=True), Column("parameters", no_wrap=True)
    paper = Column("paper", overflow="fold")
    table = Table(name, parameters, paper, box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for each in described:
        lines = "\n".join(_parameter_text(parameter) for parameter in each["parameters"])
        emulated = f" (our emulation of {each['emulates']})" if each["emulates"] else ""
        table.add_row(f"{each['name']}\nfleet: {each['fleet']}", lines, each["paper"] + emulated)
    Console().print(table)
    typer.echo("\nSet one with --set scaler.parameter=value; bring your own scaler with --scalers path.py:Class")


def describe(name: str, kind: "ScalerClass") -> dict[str, Any]:
    """A scaler as plain data."""
    from penstock.contracts import FleetObservation
    from penstock.registry import emulated_system

    return {
        "name": name,
        "fleet": "any" if kind.fleets is FleetObservation else str(kind.fleets.__struct_config__.tag),
        "paper": kind.paper,
        "emulates": emulated_system(kind),
        "parameters": [
            {"name": field.name, "default": _default(field), "unit": split_unit(field.name)[1]}
            for field in dataclasses.fields(kind.Parameters)
        ],
    }


def _default(field: "dataclasses.Field[Any]") -> Any:
    """Its default, None if it is required."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _parameter_text(parameter: dict[str, Any]) -> str:
    default = "none" if parameter["default"] is None else str(parameter["default"])
    return f"{parameter['name']}={default} {parameter['unit']}".rstrip()
