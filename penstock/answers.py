"""Answers of commands to programs: ``--json``, and ``--fail-under`` for the exit code."""

from typing import Annotated, Any

import msgspec
import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FailUnder = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Exit with code 99 if a run keeps a smaller share of events within the SLO."),
]


def print_json(answer: Any) -> None:
    """Print plain data or records on standard output."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
