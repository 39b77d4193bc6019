"""Answers of commands to programs: ``--json``."""

from typing import Annotated, Any

import msgspec
import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(answer: Any) -> None:
    """Print plain data or records on standard output."""
    typer.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
