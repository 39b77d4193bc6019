"""The ``penstock`` command. Packages add sub-commands as entry points in the group ``penstock.commands``."""

import errno
import functools
import inspect
import os
import re
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperOption
from typer.models import CommandInfo, TyperInfo

from penstock import __version__
from penstock.errors import PenstockError
from penstock.extras import remedy as extra_remedy

DISK_ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST,
)  # fmt: skip
errors = Console(stderr=True, soft_wrap=True, highlight=False)

GROUPS = {
    "Which scaler?": ("advise", "replay", "scalers", "bound", "formula", "paper"),
    "Experiments": ("demo", "experiments", "workloads", "schedule", "run", "compare", "chaos"),
    "Results": ("runs", "report", "watch", "explain", "measures"),
    "Deploy": ("keda", "control", "load", "calibrate"),
    "Services": ("setup", "up", "status", "env", "down"),
}
"""Commands by task, in the order of the help; others come last."""

app = typer.Typer(
    name="penstock",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="A testbed and reference deployment for autoscalers of event-driven systems.",
    epilog="Example: penstock advise load.csv --slo 500ms",
)

calibrate = typer.Typer(
    no_args_is_help=True,
    help="Measure what one replica can do on the local services.",
    epilog="Example: penstock calibrate worker",
)
"""``penstock calibrate``: packages add their measurements."""
app.add_typer(calibrate, name="calibrate")


def _type_of(option: TyperOption, ctx: typer.Context) -> str | None:
    return None if option.is_flag else _display_type(option, ctx)


# typer has no setting for it: a flag takes no value, so that its help shows no type.
_display_type = TyperOption.display_type_rich
TyperOption.display_type_rich = _type_of  # type: ignore[method-assign, assignment]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


@functools.cache
def build() -> typer.Typer:
    """The command with the sub-commands of all packages, each registered once in a process."""
    for point in sorted(entry_points(group="penstock.commands"), key=lambda point: point.name):
        point.load()(app)
    panels = {name: (panel, rank) for rank, (panel, name) in enumerate(_grouped())}
    everything: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
    for each in everything:
        each.rich_help_panel = panels.get(each.name or "", ("Others", 0))[0]
        if isinstance(each, CommandInfo) and each.callback is not None:
            # One line in the list of commands; the whole text in the command's own help.
            each.short_help = (each.help or inspect.getdoc(each.callback) or "").partition("\n\n")[0]
            each.short_help = " ".join(each.short_help.split()).partition(". ")[0].rstrip(".") + "."
    app.registered_commands.sort(key=lambda each: panels.get(each.name or "", ("", len(panels)))[1])
    return app


def _grouped() -> Iterator[tuple[str, str]]:
    return ((panel, name) for panel, names in GROUPS.items() for name in names)


def _terminated(*_: object) -> None:
    sys.exit(143)


def main() -> None:
    """Bad input ends in one line and exit code 2, a full or read-only disk in 1, Ctrl-C in 130, SIGTERM in 143; what
    was started is stopped.
    """
    signal.signal(signal.SIGTERM, _terminated)
    try:
        code = build()(prog_name="penstock", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except PenstockError as error:
        _tell(str(error))
        sys.exit(error.exit_code)
    except typer.TyperException as error:
        if error.format_message():  # empty where a command without arguments has shown its help
            _tell(_one_line(error))
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        remedy = (
            "make room, or set PENSTOCK_RUNS to another folder; `penstock report` writes the report of a finished run"
        )
        _tell(f"{error.filename or error}: {os.strerror(error.errno or 0)}; {remedy}")
        sys.exit(1)
    except ModuleNotFoundError as error:
        told = extra_remedy(error.name or "")
        if told is None:
            raise
        _tell(told)
        sys.exit(2)
    except typer.Abort:
        errors.print("aborted")
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)


def _tell(error: str) -> None:
    errors.print(Text.assemble(("error:", "bold red"), f" {error}"))


WORDS: Final = (
    (r"Input should be a valid integer\b.*", "expected a whole number"),
    (r"Input should be a valid number\b.*", "expected a number"),
    (r"Input should be greater than or equal to (\S+)", r"expected at least \1"),
    (r"Input should be less than or equal to (\S+)", r"expected at most \1"),
)
"""Sentences about values of options, in the words of the other messages."""


def _one_line(error: typer.TyperException) -> str:
    """What is wrong with a command's options or arguments, and which help has them."""
    said = " ".join(error.format_message().split()).rstrip(".")
    for pattern, words in WORDS:
        said = re.sub(pattern, words, said)
    context: typer.Context | None = getattr(error, "ctx", None)
    path = context.command_path if context is not None else app.info.name
    return f"{said[:1].lower()}{said[1:]}; see {path} --help"
