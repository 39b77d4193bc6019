"""Pipeline manager, gateway with real functions, and the controller's ports, all together."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.fleets.function.fleet import FunctionFleet
from experiments.amesos.experiments import DOCUMENT
from functions.dataflow.flow import Patience
from penstock.clock import WallClock
from penstock.contracts import Decision, ReplicaCounts
from penstock.settings import Endpoints
from penstock.systems import FunctionSpec
from tests.functions.dataflow_run import WAIT_S, Run
from tests.functions.gateway_process import PASSWORD, GatewayProcess
from tests.support.eventually import eventually

pytestmark = pytest.mark.live

Functions = tuple[FunctionSpec, ...]
Deployed = tuple[Run, FunctionFleet]


@pytest.fixture
def gateway(services: Endpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    started = GatewayProcess(tmp_path_factory.mktemp("g"), {"redis_url": services.require("redis")})
    started.start()
    yield started
    assert started.stop() == 0
    assert started.left() == []


@contextmanager
def deployed(services: Endpoints, gateway: GatewayProcess, functions: Functions, folder: Path) -> Iterator[Deployed]:
    """A run whose functions are deployed and ready; they are taken away afterwards."""
    url = gateway.url.replace("http://", f"http://admin:{PASSWORD.replace(' ', '%20')}@")
    run = Run(services, url, functions, folder)
    fleet = FunctionFleet(run.directory, run.spec, run.endpoints, WallClock(), None)
    fleet.start(lambda: None)
    try:
        fleet.bring_up()
        eventually(fleet.ready)
        yield run, fleet
    finally:
        fleet.stop()
        fleet.stop_replicas()
        run.close()
    assert fleet.counts() == ReplicaCounts()
    assert gateway.client.get("/system/functions").json() == []


def test_documents_go_through_real_functions_while_they_are_scaled(
    services: Endpoints, gateway: GatewayProcess, tmp_path: Path
) -> None:
    with deployed(services, gateway, DOCUMENT.functions, tmp_path) as (run, fleet):
        assert fleet.counts() == ReplicaCounts(joined=4)
        monitor = fleet.monitor(time.time(), lambda: False)
        with run.manager():
            run.send(10)
            run.until_terminal(10)
            assert fleet.actuator.apply(Decision(action="up", targets={"pdf": 3})).targets == {"pdf": 3}
            eventually(lambda: fleet.actuator.counts("pdf") == ReplicaCounts(joined=3))
            eventually(lambda: {f.name: f.connections for f in run.snapshot().functions}["pdf"] == 3)
            run.send(30)
            results = run.until_terminal(40)
            eventually(lambda: monitor.observe().finished == 40)
            seen = next(look for look in iter(monitor.observe, None) if look.finished == 40)  # one may fail
            fleet.actuator.apply(Decision(action="down", targets={"pdf": 1}))
            eventually(lambda: fleet.actuator.counts("pdf") == ReplicaCounts(joined=1))
        assert {r.outcome for r in results} == {"completed"}, {r.reason for r in results}
        assert run.balance().exact and (seen.arrived, seen.backlog) == (40, 0)
        pdf = next(f for f in seen.functions if f.fleet == "pdf")
        assert pdf.completed == 40 and pdf.concurrency == 3
        # The floor is 12.5 ms; on a busy machine the real work may take longer.
        assert pdf.busy_s is not None and pdf.busy_s >= 40 * 0.0125
        phases = [(e.replica, e.phase) for e in fleet.actuator.events() if e.fleet == "pdf"]
        assert len([1 for _, phase in phases if phase == "requested"]) == 3
        assert len([1 for _, phase in phases if phase == "gone"]) == 2


def test_a_replica_killed_in_mid_request_and_a_control_plane_started_anew_lose_nothing(
    services: Endpoints, gateway: GatewayProcess, tmp_path: Path
) -> None:
    functions = (
        FunctionSpec(name="sha256", service_time_s=0.5),
        FunctionSpec(name="qrcode", service_time_s=0.5, after=("sha256",)),
    )
    with deployed(services, gateway, functions, tmp_path) as (run, fleet):
        fleet.actuator.apply(Decision(action="up", targets={"sha256": 2, "qrcode": 2}))
        eventually(lambda: fleet.counts() == ReplicaCounts(joined=4))
        with run.manager(patience=Patience(timeout_s=WAIT_S)):
            run.send(20)
            run.until_terminal(2)
            killed = replicas(gateway)  # with a backlog, all of them are in mid-request nearly all the time
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            run.until_terminal(6)
            gateway.stop(signal.SIGHUP)
            gateway.start()
            results = run.until_terminal(20)
            eventually(lambda: fleet.counts() == ReplicaCounts(joined=4))
        assert killed
        assert {r.outcome for r in results} == {"completed"}, {r.reason for r in results}
        assert run.balance().exact and run.balance().booked == 20
        assert max(r.attempt for r in run.results) == 2
        gone = [event for event in fleet.actuator.events() if event.phase == "gone"]
        assert {event.reason for event in gone} == {"killed by SIGKILL"} and len(gone) == len(killed)


def replicas(gateway: GatewayProcess) -> list[int]:
    """Pids of all replicas: each is the child of its function's fork server."""
    parents = [process for process in gateway.left() if "functions.fork_server" in process.cmdline()]
    pids = {process.pid for process in parents}
    return [process.pid for process in parents if process.ppid() in pids]
