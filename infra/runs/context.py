"""What the components of one run share: description, directory, clients, and the run's programs."""

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from infra.kubernetes.services import ClusterServices
from infra.local.services import LocalServices
from infra.local.state import tail
from infra.waiting import wait_until
from penstock.adapters.process_manager import PATIENCE_S, NotRunningError, Program, Supervisor
from penstock.adapters.topics import admin_client
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec

READY_TIMEOUT_S: Final = 180.0
REMOVE_TIMEOUT_S: Final = 90.0
"""For the end of programs; each has its grace until it is killed."""
CHECK_S: Final = 1.0
"""Between two checks of the services."""
NOTICED_S: Final = 0.5
"""The supervisor has noticed the end of a process after this long."""
PARTS: Final = ("sender", "controller", "pipelines", "dataflow", "forwarder", "cut-workers", "cut-controller")
"""Programs of a run that are not replicas, in the order in which they are removed."""


class RunContext:
    """One run, and its programs on the supervisor, named ``<run>:<part>``. Errors are PenstockErrors.

    Every wait of a run is one of its methods, so that a service that dies ends the run soon, whatever it waits for.
    """

    detours: Mapping[str, str] = MappingProxyType({})
    """Variables of the controller that lead through a proxy."""

    def __init__(
        self,
        services: LocalServices | ClusterServices,
        spec: RunSpec,
        directory: RunDirectory,
        needed: Collection[str],
    ) -> None:
        self.services = services
        self._needed = needed
        self.spec = spec
        self.directory = RunDirectory(directory.path.absolute())
        self.endpoints = services.endpoints()
        self.supervisor = Supervisor(self.endpoints.require("supervisor"), PATIENCE_S)
        self.admin = admin_client(self.endpoints.require("kafka"))
        self.environment = services.environment()
        self._processes: dict[str, int | None] = {}
        self._next_check_s = 0.0
        self._seen_dead = False
        self._refused = False
        self.service_lost = False
        """Whether a service has died, which was raised once: what is left to do is to end the run."""

    def program(self, part: str) -> str:
        """Name of a part's program."""
        return f"{self.spec.run}:{part}"

    def log(self, part: str) -> Path:
        """Log file of a part."""
        return self.directory.logs_folder / f"{part}.log"

    def add(self, part: str, module: str, *options: str, respawn: bool, grace_s: float) -> None:
        """Start ``python -m module --run DIRECTORY``."""
        self.supervisor.add(
            Program(
                name=self.program(part),
                command=(sys.executable, "-m", module, "--run", str(self.directory.path), *options),
                folder=self.directory.path,
                log=self.log(part),
                env={**self.environment, **(self.detours if part == "controller" else {})},
                respawn=respawn,
                grace_s=grace_s,
            )
        )
        self._processes[part] = self._process(part)

    def remove(self, part: str) -> None:
        """Stop a part; nothing to do if it does not exist."""
        name = self.program(part)
        self.supervisor.remove(name, wait=False)
        self.wait_until(lambda: name not in self.supervisor.programs(name), part, REMOVE_TIMEOUT_S)

    def send_signal(self, part: str, number: signal.Signals) -> None:
        """Send a signal to a part. NotRunningError if it has no process now."""
        self.supervisor.signal(self.program(part), number)

    def kill(self, part: str) -> str:
        """SIGKILL a part, which the supervisor starts again; return its name."""
        self.send_signal(part, signal.SIGKILL)
        return part

    def pid(self, part: str) -> int:
        """Process id of a part. NotRunningError if it has no process now."""
        if (pid := self._process(part)) is None:
            raise NotRunningError(f"{self.program(part)}: does not run")
        return pid

    def check_services(self) -> None:
        """Raise PenstockError for a needed service that has died, seen twice: one that is being started is stopped for
        a moment. The run's programs are killed then: they would wait for the service before they end. PenstockError
        also if the controller has written that the run is refused. Each is raised once; the run has to be ended then.
        """
        if self.service_lost or time.monotonic() < self._next_check_s:
            return
        self._next_check_s = time.monotonic() + CHECK_S
        self.check_refusal()
        try:
            self.services.check(self._needed)
        except PenstockError:
            if self._seen_dead:
                self.service_lost = True
                self._kill_all()
                raise
            self._seen_dead = True
        else:
            self._seen_dead = False

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """A PenstockError of the block is raised as that of a service, if one has died: the other is its symptom."""
        try:
            yield
        except PenstockError:
            for wait_s in (NOTICED_S, CHECK_S):
                if self.service_lost:
                    break
                time.sleep(wait_s)
                self._next_check_s = 0.0
                self.check_services()
                if not self._seen_dead:
                    break
            raise

    def answers(self, service: str) -> bool:
        """Whether a service can be asked while the run ends: all can until one has died."""
        return not self.service_lost or self.services.answers(service)

    def alive(self, part: str) -> bool:
        """Whether a part runs or is about to be started again. Raises PenstockError if a service has died."""
        self.check_services()
        program = self.supervisor.programs(self.program(part)).get(self.program(part))
        return program is not None and program.state not in ("stopped", "failed")

    def check_refusal(self) -> None:
        """Raise PenstockError with the reason that the controller has written why the run cannot be carried out. Raised
        once.
        """
        refusal = self.directory.refusal_file
        if not self._refused and refusal.exists() and (why := refusal.read_text()):
            self._refused = True
            raise PenstockError(why)

    def check_started(self) -> None:
        """Raise PenstockError for a part whose first process has ended. The supervisor starts it again and again; while
        the run is being started, that leads nowhere.
        """
        for part, pid in self._processes.items():
            if pid is None or self._process(part) != pid:
                raise self.died(part)

    def _process(self, part: str) -> int | None:
        program = self.supervisor.programs(self.program(part)).get(self.program(part))
        return None if program is None else program.pid

    def replicas(self) -> list[str]:
        """Names of the running programs that are replicas."""
        parts = {self.program(part) for part in PARTS}
        programs = self.supervisor.programs(f"{self.spec.run}:")
        return sorted(name for name, program in programs.items() if name not in parts and program.pid is not None)

    def _kill_all(self) -> None:
        with suppress(PenstockError):  # the supervisor itself has died
            for name in self.supervisor.programs(f"{self.spec.run}:"):
                with suppress(PenstockError):  # it has just ended
                    self.supervisor.remove(name, wait=False)
                    self.supervisor.signal(name, signal.SIGKILL)

    def remove_all(self) -> None:
        """Stop every program of the run."""
        prefix = f"{self.spec.run}:"
        for name in self.supervisor.programs(prefix):
            self.supervisor.remove(name, wait=False)
        self.wait_until(lambda: not self.supervisor.programs(prefix), "run", REMOVE_TIMEOUT_S)

    def await_file(self, part: str, file: Path) -> None:
        """Wait until a part has written a file. Raise PenstockError if any part ends before, or the run is refused."""

        def written() -> bool:
            self.check_refusal()
            self.check_started()
            return file.exists()

        self.wait_until(written, part, timeout_s=READY_TIMEOUT_S)

    def wait_until(self, done: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until ``done``. Raise PenstockError after ``timeout_s``, or if a service has died."""
        text = f"{what}: not done after {timeout_s:g} s; see {self.directory.logs_folder}"

        def done_or_dead() -> bool:
            self.check_services()
            return done()

        wait_until(done_or_dead, timeout_s, lambda: text, poll_s=0.05)

    def died(self, part: str) -> PenstockError:
        """The error for a part that ended unexpectedly, with the end of its log."""
        log = self.log(part)
        return PenstockError(f"{part} ended unexpectedly; the end of {log}:\n{tail(log)}")
