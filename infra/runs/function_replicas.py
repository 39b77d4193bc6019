"""Function replicas on this machine: processes of the gateway, which keeps them like a broker keeps its queues."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from controller.fleets.function.provider_api import GatewayError, ProviderApi, RefusedError
from functions.dataflow.http import HttpPool
from functions.fork_protocol import BackendReplica, look
from infra.local.haproxy import fork_servers
from infra.runs.context import RunContext
from infra.runs.faults import Injected
from infra.runs.programs import NO_REPLICA, Replicas
from infra.waiting import wait_until
from penstock.errors import PenstockError
from penstock.openfaas import RUN

if TYPE_CHECKING:
    from infra.local.services import LocalServices

BUSY_S: Final = 2.0
"""How long to look for a replica with a request in flight before an idle one is killed instead."""
POLL_S: Final = 0.001
OF_THE_GATEWAY: Final = ("kill-worker", "freeze-workers", "kill-gateway", "stop-gateway")
"""Faults that break the gateway or its replicas."""
GATEWAY_S: Final = 10.0
"""A gateway that does not answer for so long, before a run, is away."""


class FunctionReplicas(Replicas):
    """Deployed and removed by the controller; broken by signals to their processes."""

    def __init__(self, context: RunContext, services: "LocalServices") -> None:
        self._context, self._services, self._state = context, services, services.state

    def check(self) -> None:
        """Raise PenstockError if the gateway, which may be one of the user's, is away or refuses, or if a fault would
        have to break the user's.
        """
        broken = [fault.kind for fault in self._context.spec.faults if fault.kind in OF_THE_GATEWAY]
        if broken and self._services.has_users_gateway:
            raise PenstockError(
                f"--fault {broken[0]}: PENSTOCK_GATEWAY is yours, and a run breaks only its own programs"
            )
        url = self._context.endpoints.require("gateway")
        HttpPool(url).close()  # the pipeline manager's way to it, which knows no https
        api, trouble = ProviderApi(url), ""

        def answers() -> bool:
            nonlocal trouble
            try:
                api.functions()
            except RefusedError as error:
                raise PenstockError(str(error)) from None
            except GatewayError as error:
                trouble = str(error)
                return False
            return True

        try:
            wait_until(answers, GATEWAY_S, lambda: f"{trouble}; PENSTOCK_GATEWAY is its address")
        finally:
            api.close()

    def close(self) -> None:
        """Delete the run's functions if its controller was killed because a service has died."""
        if not self._context.service_lost or not self._context.answers("gateway"):
            return
        with closing(ProviderApi(self._context.endpoints.require("gateway"))) as api:
            for name in functions_of(api, self._context.spec.run):
                api.delete(name)

    def kill(self) -> Injected:
        """SIGKILL a replica: one with a request in flight, if there is one within ``BUSY_S``."""
        until_s = time.monotonic() + BUSY_S
        while time.monotonic() < until_s:
            for server, name, replica in self._ready():
                if replica.busy and kill_busy(server, name, replica.pid):
                    return Injected(f"{name}, with a request in flight")
            time.sleep(POLL_S)
        for _server, name, replica in self._ready():
            with suppress(psutil.NoSuchProcess):
                psutil.Process(replica.pid).kill()
                return Injected(f"{name}, idle")
        return NO_REPLICA

    def freeze(self) -> Injected:
        """SIGSTOP every replica; SIGCONT ends it."""
        frozen = {}
        for _server, name, replica in self._ready():
            with suppress(psutil.NoSuchProcess):
                frozen[name] = psutil.Process(replica.pid)
                frozen[name].suspend()

        def resume() -> None:
            for process in frozen.values():
                with suppress(psutil.NoSuchProcess):
                    process.resume()

        return Injected(", ".join(frozen), resume) if frozen else NO_REPLICA

    def _ready(self) -> Iterator[tuple[Path, str, BackendReplica]]:
        """Every ready replica: socket of its fork server, name, state."""
        for server in fork_servers(self._state):
            with suppress(OSError):
                for name, replica in look(server).replicas.items():
                    if replica.phase == "ready":
                        yield server, name, replica


def functions_of(api: ProviderApi, run: str) -> list[str]:
    """Names of the functions that a run has deployed. Raises GatewayError."""
    return sorted(name for name, found in api.functions().items() if (found.annotations or {}).get(RUN) == run)


def start_pipeline_manager(context: RunContext) -> None:
    """Start the pipeline manager, which calls the gateway for each request, and wait until it is ready."""
    context.add("dataflow", "functions.dataflow", respawn=True, grace_s=20)
    context.await_file("dataflow", context.directory.path / "dataflow-ready")


def kill_busy(server: Path, name: str, pid: int) -> bool:
    """SIGKILL a replica if it has a request in flight; return whether it was killed.

    The replica is stopped while its fork server is asked, so that a request in flight then is in flight when it dies.
    """
    try:
        process = psutil.Process(pid)
        process.suspend()
        while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            time.sleep(POLL_S)
        busy = False
        try:
            held = look(server).replicas.get(name)
            busy = held is not None and held.busy
        finally:
            process.kill() if busy else process.resume()
    except (psutil.NoSuchProcess, OSError):
        return False
    return busy
