"""After ``penstock down`` nothing of ours is left: no queue, exchange, policy or connection at RabbitMQ, no process."""

import os
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from infra.local.orphans import marked
from infra.local.services import LocalServices
from penstock.errors import PenstockError
from penstock.settings import Folders
from tests.infra.commanding import PENSTOCK, any_ports, command
from tests.support.changed import LIVE_RUN
from tests.support.eventually import eventually
from tests.support.services import on_free_ports

pytestmark = pytest.mark.live

PATIENCE_S = 120.0
KINDS = ("queues", "exchanges", "policies", "connections")
NOTHING: dict[str, list[str]] = {kind: [] for kind in KINDS}

RUNS = (
    ("multiqueue", "--scaler", "multiqueue-damped", "--seconds", "5"),
    ("elastic-faas", "--scaler", "elastic-faas", "--from", "20", "--seconds", "20", "--speed", "4"),
    ("pubsub", "--scaler", "min-time", "--seconds", "600", "--speed", "120"),
)


def local(folder: Path) -> LocalServices:
    return LocalServices(Folders(state=folder), on_free_ports(ready_timeout_s=PATIENCE_S))


def at_broker(services: LocalServices) -> dict[str, list[str]]:
    """All that RabbitMQ has beside the exchanges that it makes itself."""
    url = services.endpoints().require("rabbitmq_management")
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S) as client:
        there = {kind: client.get(f"/api/{kind}").raise_for_status().json() for kind in KINDS}
    # A connection that has only just come has no name yet.
    found = {kind: [str(one.get("name", "?")) for one in each] for kind, each in there.items()}
    found["exchanges"] = [name for name in found["exchanges"] if name and not name.startswith("amq.")]
    return found


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.when_changed(*LIVE_RUN)
def test_after_runs_of_each_kind_and_down(state_folder: Path, tmp_path: Path) -> None:
    variables = {**any_ports(), "PENSTOCK_RUNS": str(tmp_path)}
    assert command(state_folder, "up", **variables).returncode == 0
    services = local(state_folder)
    for run in RUNS:
        done = command(state_folder, "run", *run, "--no-spark", **variables)
        assert done.returncode == 0, done.stderr + done.stdout
    eventually(lambda: at_broker(services) == NOTHING, lambda: at_broker(services))
    processes = marked(state_folder)
    assert {process.name() for process in processes} >= {"beam.smp", "epmd", "redis-server", "java"}
    down = command(state_folder, "down")
    assert down.returncode == 0, down.stderr
    assert alive(processes) == []
    assert marked(state_folder) == []


@pytest.mark.when_changed(*LIVE_RUN)
def test_after_a_run_that_was_killed_and_down(state_folder: Path, tmp_path: Path) -> None:
    services = local(state_folder)
    environment = {**os.environ, **any_ports(), "PENSTOCK_STATE": str(state_folder), "PENSTOCK_RUNS": str(tmp_path)}
    run = [str(PENSTOCK), "run", "multiqueue", "--scaler", "multiqueue-damped", "--no-spark"]

    def has_begun() -> bool:
        try:
            return sum(len(names) for names in at_broker(services).values()) >= 4
        except (PenstockError, httpx.HTTPError):
            return False  # RabbitMQ is not up yet

    with subprocess.Popen(run, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(has_begun, lambda: f"the run has made nothing; exit code {process.poll()}")
        finally:
            process.kill()
    processes = marked(state_folder)
    assert at_broker(services)["queues"] != [], "it had no time to clear"
    down = command(state_folder, "down")
    assert down.returncode == 0, down.stderr
    assert "rabbitmq: deleting the queues of " in down.stderr
    assert alive(processes) == []
    assert marked(state_folder) == []
    try:
        services.up(("rabbitmq",))
        assert at_broker(services) == NOTHING, "RabbitMQ's data outlives it"
    finally:
        services.down()
