"""Prometheus of the local world: scrapes every process that announces its port in the folder of targets, and judges
what it gets by the alert rules of ``infra/prometheus/rules``, which every world shares.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.local.service import find_executable, service_folder, service_program
from infra.local.state import StateFolder
from penstock.supervision import Program, base_environment

RULES: Final = Path(__file__).resolve().parents[1] / "prometheus" / "rules"

# A metric's own run and fleet win over those of the process that tells it: a controller tells of several fleets.
CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: ['{rules}/*.yml']
scrape_configs:
  - job_name: penstock
    honor_labels: true
    file_sd_configs:
      - files: ['{targets}/*.json']
        refresh_interval: 5s
"""


class Prometheus:
    """Two hours of one-second samples, on loopback. A new target is noticed at once (inotify), at the latest in 5 s."""

    name = "prometheus"

    def __init__(self, state: StateFolder, port: int) -> None:
        self._state = state
        self._port = port

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        return {"PENSTOCK_PROMETHEUS_PORT": self._port}

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self._port}"

    def prepare(self) -> Program:
        """Write prometheus.yml."""
        executable = find_executable("prometheus", "prometheus")
        folder = service_folder(self._state, self.name)
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(targets=_quoted(self._state.scrape_targets), rules=_quoted(RULES)))
        command = (
            executable,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=2h",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        )
        return service_program(self._state, self.name, command, base_environment(), grace_s=10.0)

    def answers(self) -> bool:
        """Whether /-/ready says so."""
        import httpx

        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False


def _quoted(path: Path) -> str:
    """For YAML's single quotes."""
    return str(path).replace("'", "''")
