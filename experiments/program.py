"""How a program of this room is run: ``python -m experiments.…``."""

import sys
from collections.abc import Callable

import typer

from penstock.errors import PenstockError


def program(main: Callable[..., None], example: str) -> typer.Typer:
    """The command line of ``main``."""
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", add_completion=False)
    app.command(epilog=f"Example: {example}")(main)
    return app


def run_program(main: Callable[..., None], example: str) -> None:
    """Run it with the options of the command line. What the user can mend is one line, with its exit code."""
    try:
        program(main, example)()
    except PenstockError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
