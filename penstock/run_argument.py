"""One way to name a run on the command line: its directory, or its name in the folder of runs."""

from functools import partial
from pathlib import Path
from typing import Final

import typer

from penstock.completion import runs as complete_runs

RUN_HELP: Final = "Run directory, or its name in the folder of runs."


def listed(text: str) -> Path:
    """A run directory by its path, or by its name in the folder of runs, as ``penstock runs list`` prints it."""
    from penstock.settings import Folders

    path = Path(text)
    inside = Folders().runs / path
    return inside if not path.exists() and len(path.parts) == 1 and inside.is_dir() else path


run_argument = partial(typer.Argument, help=RUN_HELP, parser=listed, metavar="RUN", autocompletion=complete_runs)
"""``typer.Argument`` of a run's directory."""
