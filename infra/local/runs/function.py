"""A run on a pipeline of functions: requests through Kafka, the pipeline manager in front of the gateway."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

from functions.brood import Hatchling, look
from infra.local.haproxy import warm_parents
from infra.local.runs.outcomes import OutcomesRun
from infra.local.services import LocalServices
from penstock.runspec import FaultKind
from penstock.topics import create_topics

READY_FILE = "dataflow-ready"

BUSY_S: Final = 2.0
"""How long a request in hand is waited for before an idle replica is killed instead."""
LOOK_S: Final = 0.001


class FunctionRun(OutcomesRun):
    """The gateway is a service, like a broker: it keeps the functions, which the controller deploys and removes."""

    needs = (*OutcomesRun.needs, "gateway")
    parts = (*OutcomesRun.parts, "dataflow")
    controller_options = ("--stop-replicas",)

    def make_channels(self) -> None:
        """Requests and results."""
        create_topics(self.admin, {self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1})

    def add_parts(self) -> None:
        """The pipeline manager."""
        self.add("dataflow", "functions.dataflow", respawn=True, grace_s=20)
        self.await_file("dataflow", self.directory.path / READY_FILE)

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """Those of every run, and the pipeline manager's."""
        return {**super().actions(), "kill-dataflow": lambda _: self.kill("dataflow")}

    def _kill_worker(self, _: float) -> str:
        """In mid-request, if one is in hand anywhere within ``BUSY_S``."""
        until_s = time.monotonic() + BUSY_S
        while time.monotonic() < until_s:
            for parent, name, replica in self._ready():
                if replica.busy and kill_busy(parent, name, replica.pid):
                    return f"{name}, with a request in hand"
            time.sleep(LOOK_S)
        for _parent, name, replica in self._ready():
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(replica.pid).kill()
                return f"{name}, which was idle"
        return "no worker was running"

    def _freeze_workers(self, seconds: float) -> str:
        """Replicas are processes of the gateway's, not of the supervisor."""
        frozen = {}
        for _parent, name, replica in self._ready():
            with contextlib.suppress(psutil.NoSuchProcess):
                frozen[name] = psutil.Process(replica.pid)
                frozen[name].suspend()

        def thaw() -> None:
            for process in frozen.values():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()

        self._later(seconds, thaw)
        return ", ".join(frozen)

    def _ready(self) -> Iterator[tuple[Path, str, Hatchling]]:
        """Every replica that serves, with the socket of its warm parent."""
        assert isinstance(self.services, LocalServices)
        for parent in warm_parents(self.services.state):
            with contextlib.suppress(OSError):
                for name, replica in look(parent).replicas.items():
                    if replica.phase == "ready":
                        yield parent, name, replica


def kill_busy(parent: Path, name: str, pid: int) -> bool:
    """SIGKILL a replica if it has a request in hand: it is held still while its warm parent is asked, so that what it
    has in hand then is in hand when it dies. Whether it was killed.
    """
    try:
        process = psutil.Process(pid)
        process.suspend()
        while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
            time.sleep(LOOK_S)
        busy = False
        try:
            held = look(parent).replicas.get(name)
            busy = held is not None and held.busy
        finally:
            process.kill() if busy else process.resume()
    except (psutil.NoSuchProcess, OSError):
        return False
    return busy
