"""Prometheus of the local world: scrapes every process that announces its port in the folder of targets, and evaluates
the alert rules of ``infra/prometheus/rules``, which all worlds share.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from infra.local.service import Service, find_executable
from penstock.adapters.process_manager import Program

RULES: Final = Path(__file__).resolve().parents[1] / "prometheus" / "rules"

# A metric's own labels run and fleet override the target's: a controller reports several fleets.
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


@dataclass(frozen=True)
class Prometheus(Service):
    """Two hours of one-second samples, on loopback. A new target is noticed at once (inotify), at the latest in 5 s."""

    name: ClassVar = "prometheus"
    health: ClassVar = "/-/ready"

    def prepare(self) -> Program:
        """Write prometheus.yml."""
        executable = find_executable("prometheus", "prometheus")
        folder = self.folder
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(targets=_quoted(self.state.scrape_targets), rules=_quoted(RULES)))
        command = (
            executable,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=2h",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        )
        return self.program(command, grace_s=10.0)


def _quoted(path: Path) -> str:
    """For YAML's single quotes."""
    return str(path).replace("'", "''")
