"""The command as a person gives it, with a state folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

from infra.local.settings import ServiceSettings

PENSTOCK = Path(sys.executable).with_name("penstock")


def command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """``penstock`` with these arguments on the state folder ``folder``, and further variables of its environment."""
    environment = {**os.environ, "PENSTOCK_STATE": str(folder), **variables}
    return subprocess.run(
        [PENSTOCK, *arguments], env=environment, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
    )


def any_ports() -> dict[str, str]:
    """Every service on a port that is free."""
    return {f"PENSTOCK_{name.upper()}": "0" for name in ServiceSettings.model_fields if name.endswith("_port")}
