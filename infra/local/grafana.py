"""Grafana of the local world, where it is installed: the boards of ``grafana/dashboards`` over the world's Prometheus.

No distribution that Penstock sets itself up on has a package of it, so it is never asked for: ``installed`` tells.
Whoever can reach the loopback port may look; there is no account, and so no password.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import grafana
from infra.local.service import service_folder, service_program
from infra.local.state import StateFolder, write_private
from penstock.errors import PenstockError
from penstock.supervision import Program, base_environment

BOARDS: Final = Path(grafana.__file__).resolve().parent / "dashboards"
PROVISIONING: Final = Path(grafana.__file__).resolve().parent / "provisioning"
"""Data source and boards; the addresses in it come from the environment, the same files in every world."""

NOT_INSTALLED: Final = (
    "grafana: not installed, so there are no boards; with grafana-server on PATH the next `penstock up` starts it"
)

# Three quotes are Grafana's own way to write a value that may hold # or ;
CONFIG = '''\
[paths]
data = """{folder}/data"""
logs = """{folder}/logs"""
plugins = """{folder}/plugins"""
provisioning = """{provisioning}"""

[server]
protocol = http
http_addr = 127.0.0.1
http_port = {port}

[dashboards]
default_home_dashboard_path = """{boards}/overview.json"""

[security]
disable_initial_admin_creation = true

[auth]
disable_login_form = true

[auth.anonymous]
enabled = true
org_role = Viewer

[users]
allow_sign_up = false

[log]
mode = console
level = warn

# Nothing leaves this machine, and nothing is fetched.
[analytics]
reporting_enabled = false
check_for_updates = false
check_for_plugin_updates = false

[news]
news_feed_enabled = false

[plugins]
preinstall_disabled = true
plugin_admin_enabled = false
public_key_retrieval_disabled = true

[snapshots]
external_enabled = false

# Prometheus evaluates the alert rules.
[unified_alerting]
enabled = false
'''


class Grafana:
    """On loopback, for anybody to look at; its database lies in the state folder."""

    name = "grafana"

    def __init__(self, state: StateFolder, port: int, prometheus_url: str) -> None:
        self._state = state
        self._port = port
        self._prometheus_url = prometheus_url

    @staticmethod
    def installed() -> bool:
        """Whether this machine has it."""
        return _command() is not None

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        return {"PENSTOCK_GRAFANA_PORT": self._port}

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self._port}"

    def prepare(self) -> Program:
        """Write grafana.ini. Raises PenstockError where Grafana or its own files are not there."""
        command = _command()
        if command is None:
            raise PenstockError("there is no grafana-server on PATH: install Grafana, or leave it out")
        home = _home(Path(command[0]))
        folder = service_folder(self._state, self.name)
        config = folder / "grafana.ini"
        text = CONFIG.format(folder=folder, provisioning=PROVISIONING, boards=BOARDS, port=self._port)
        write_private(config, text.encode())
        env = {
            **base_environment(),
            "PENSTOCK_PROMETHEUS": self._prometheus_url,
            "PENSTOCK_DASHBOARDS": str(BOARDS),
        }
        given = (*command, f"--homepath={home}", f"--config={config}")
        return service_program(self._state, self.name, given, env, grace_s=10.0)

    def answers(self) -> bool:
        """Whether it serves and its database is there."""
        import httpx

        try:
            return httpx.get(f"{self.url}/api/health", timeout=2.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False


def _command() -> tuple[str, ...] | None:
    """What starts the server: since version 10 a sub-command of ``grafana``. Its packages put it into /usr/sbin, which
    is not on everybody's PATH.
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
