"""Grafana of the local world, where it is installed: the boards of ``grafana/dashboards`` over the world's Prometheus.

Supported distributions have no package of it, so it is optional. Every local user can view the boards; there is no
account, and so no password.
"""

import os
import shutil
from configparser import ConfigParser
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import ClassVar, Final

import grafana
from infra.local.service import Service
from infra.local.state import write_private
from penstock.adapters.process_manager import Program
from penstock.errors import PenstockError

BOARDS: Final = Path(grafana.__file__).resolve().parent / "dashboards"
PROVISIONING: Final = Path(grafana.__file__).resolve().parent / "provisioning"
"""Data source and boards; the addresses in it come from the environment, the same files in every world."""

NOT_INSTALLED: Final = (
    "grafana: not installed, so there are no boards; with grafana-server on PATH the next `penstock up` starts it"
)

SETTINGS: Final = Path(__file__).parents[1] / "kubernetes" / "grafana" / "config" / "grafana.ini"
"""Of both worlds; paths and address are this world's own."""


@dataclass(frozen=True)
class Grafana(Service):
    """Read-only for every local user; its database is in the state folder."""

    name: ClassVar = "grafana"
    health: ClassVar = "/api/health"
    """Whether it serves and its database is there."""

    prometheus_url: str

    @staticmethod
    def installed() -> bool:
        """Whether this machine has it."""
        return _command() is not None

    def prepare(self) -> Program:
        """Write grafana.ini. Raises PenstockError where Grafana or its own files are not there."""
        command = _command()
        if command is None:
            raise PenstockError("there is no grafana-server on PATH: install Grafana, or leave it out")
        home = _home(Path(command[0]))
        folder = self.folder
        file = folder / "grafana.ini"
        settings = ConfigParser(interpolation=None)
        settings.read(SETTINGS)
        # Three quotes are Grafana's own way to write a value that may hold # or ;
        settings["paths"].update({name: f'"""{folder}/{name}"""' for name in ("data", "logs", "plugins")})
        settings["paths"]["provisioning"] = f'"""{PROVISIONING}"""'
        settings["server"].update(http_addr="127.0.0.1", http_port=str(self.port))
        settings["dashboards"]["default_home_dashboard_path"] = f'"""{BOARDS}/overview.json"""'
        text = StringIO()
        settings.write(text)
        write_private(file, text.getvalue().encode())
        env = {"PENSTOCK_PROMETHEUS": self.prometheus_url, "PENSTOCK_DASHBOARDS": str(BOARDS)}
        given = (*command, f"--homepath={home}", f"--config={file}")
        return self.program(given, 10.0, env)


def board_link(url: str, run: str, from_ns: int) -> str:
    """The overview of a run, from a time on."""
    return f"{url}/d/penstock-overview?var-run={run}&from={from_ns // 1_000_000}&to=now"


def _command() -> tuple[str, ...] | None:
    """The server's command: since version 10 a sub-command of ``grafana``. Packages install it in /usr/sbin, which may
    not be on PATH.
    """
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    if (found := shutil.which("grafana", path=places)) is not None:
        return found, "server"
    if (found := shutil.which("grafana-server", path=places)) is not None:
        return (found,)
    return None


def _home(executable: Path) -> Path:
    """The folder with its defaults and pages: beside the executable in an archive, elsewhere in packages."""
    beside = executable.resolve().parents[1]
    for place in (beside, beside / "share" / "grafana", Path("/usr/share/grafana")):
        if (place / "conf" / "defaults.ini").is_file():
            return place
    raise PenstockError(f"{executable}: its conf/defaults.ini is neither in {beside} nor in /usr/share/grafana")
