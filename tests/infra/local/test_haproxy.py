"""The gateway as a service of the local world: it comes back when killed and leaves nothing when it is stopped."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.local.haproxy import Gateway
from infra.local.orphans import marked
from infra.local.ports import free_port
from infra.local.services import LocalServices
from infra.local.settings import ServiceSettings
from infra.local.state import StateFolder
from penstock.adapters.process_manager import Supervisor
from penstock.settings import Folders
from tests.functions.gateway_process import body
from tests.support.eventually import eventually

pytestmark = pytest.mark.live

PASSWORD = "open sesame"
PATIENCE_S = 90.0


@pytest.fixture
def gateway(state_folder: Path) -> Iterator[Gateway]:
    """Under a supervisor of its own, with Redis beside it."""
    ports = {name: 0 for name in ServiceSettings.model_fields if name.endswith("_port")}
    services = LocalServices(Folders(state=state_folder), ServiceSettings.model_validate(ports))
    redis_url = services.up(["redis"]).require("redis")
    made = Gateway(StateFolder(state_folder), free_port(), PASSWORD, redis_url)
    Supervisor(services.endpoints().supervisor).add(made.prepare())
    wait(made.answers)
    yield made
    services.down()
    assert marked(state_folder) == []


def wait(condition: Callable[[], bool]) -> None:
    eventually(condition, within_s=PATIENCE_S)


def test_it_serves_with_redis_comes_back_when_killed_and_leaves_nothing(gateway: Gateway, state_folder: Path) -> None:
    def processes(part: str) -> list[psutil.Process]:
        return [process for process in marked(state_folder) if any(part in word for word in process.cmdline())]

    with httpx.Client(base_url=gateway.url, timeout=PATIENCE_S, trust_env=False) as client:
        assert client.post("/system/functions", json=body("store", floor_s="0")).status_code == 202
        document = {"sha256": "ab", "pdf": {"inline": "aGk="}}
        wait(lambda: client.post("/function/store", json=document).status_code == 200)
        stored = client.post("/function/store", json=document).json()
        assert stored == {"sha256": "ab", "document": "penstock:document:ab", "bytes": 2}

        (haproxy,) = (process.pid for process in marked(state_folder) if process.name() == "haproxy")
        parents = {process.pid for process in processes("functions.fork_server")}
        (control,) = (process.pid for process in processes("functions.gateway"))
        os.kill(control, signal.SIGKILL)
        assert client.post("/function/store", json=document).status_code == 200, "requests do not need it"
        wait(lambda: gateway.answers() and control not in {process.pid for process in processes("functions.gateway")})
        assert {process.pid for process in processes("functions.fork_server")} == parents
        assert haproxy in {process.pid for process in marked(state_folder)}
        assert client.get("/system/function/store").json()["availableReplicas"] == 1
        targets = list((state_folder / "targets").glob("gateway.json"))
        assert len(targets) == 1

    Supervisor(StateFolder(state_folder).supervisor_endpoint).remove("service:gateway")
    assert processes("functions.") == []
    assert [process for process in marked(state_folder) if process.name() == "haproxy"] == []
    words = " ".join(word for process in marked(state_folder) for word in process.cmdline())
    assert PASSWORD not in words
