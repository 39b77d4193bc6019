"""Fault injection: each fault of a run is done, undone when it lasts, and recorded in faults.jsonl.

A fault that meets something that does not run at that moment, or a fault of its kind that still lasts, has no effect.
"""

import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from infra.local.service import PREFIX
from infra.runs.context import RunContext
from penstock.adapters.process_manager import NotRunningError
from penstock.errors import PenstockError
from penstock.rundir import JsonLines
from penstock.runspec import Fault, FaultKind, FaultRecord


class Injected(NamedTuple):
    """What was hit, or why nothing was, and how the fault ends (None: it does not last)."""

    detail: str
    undo: Callable[[], object] | None = None
    hit: bool = True


Action = Callable[[], Injected]
STOP_TIMEOUT_S: Final = 60.0
"""For the end of a service; it is killed before."""
END_STEP_S: Final = 0.1


class Faults:
    """The faults that a run knows, by kind."""

    def __init__(self, context: RunContext, actions: Mapping[FaultKind, Action]) -> None:
        self._context = context
        self._actions = actions
        self._records = JsonLines(context.directory.faults_file)
        self._lasting: dict[FaultKind, _Lasting] = {}
        self.injected: list[FaultRecord] = []
        """Those so far."""

    def inject(self, fault: Fault) -> None:
        """Inject a fault now; one that lasts is undone later. Raise PenstockError for a kind that the run lacks."""
        at_ns = time.time_ns()
        action = self._actions.get(fault.kind)
        if action is None:
            raise PenstockError(f"--fault {fault}: this run has {', '.join(self._actions)}")
        before = self._lasting.get(fault.kind)
        if before is not None and before.is_alive():
            injected = Injected("the one before still lasts", hit=False)
        else:
            try:
                injected = action()
            except NotRunningError as error:
                injected = Injected(str(error), hit=False)
        if injected.undo is not None:
            self._end(fault.kind)
            self._lasting[fault.kind] = _Lasting(fault.seconds, injected.undo)
        detail, _, hit = injected
        record = FaultRecord(kind=fault.kind, at_ns=at_ns, seconds=fault.seconds, detail=detail, hit=hit)
        self._records.append(record)
        self.injected.append(record)

    @property
    def lasting(self) -> bool:
        """Whether a fault lasts that is not undone yet."""
        return any(fault.is_alive() for fault in list(self._lasting.values()))

    def end(self) -> None:
        """Undo at once whatever still lasts. Raise PenstockError for what could not be undone."""
        with ExitStack() as steps:  # one that fails does not skip others
            for kind in list(self._lasting):
                steps.callback(self._end, kind)

    def _end(self, kind: FaultKind) -> None:
        if kind in self._lasting:
            self._lasting[kind].end(self._context.check_services)
            del self._lasting[kind]

    def close(self) -> None:
        """End all faults and close the record."""
        try:
            self.end()
        finally:
            self._records.close()


class _Lasting(threading.Thread):
    """Undoes a fault once, after some seconds or when it is ended."""

    def __init__(self, seconds: float, undo: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._seconds, self._undo = seconds, undo
        self._over = threading.Event()
        self._failure: PenstockError | None = None
        self.start()

    def run(self) -> None:
        self._over.wait(self._seconds)
        try:
            self._undo()
        except PenstockError as error:
            self._failure = error

    def end(self, check: Callable[[], object]) -> None:
        """Return when the fault is undone. Raise PenstockError if it could not be undone, and what ``check`` raises."""
        self._over.set()
        while self.is_alive():
            check()
            self.join(END_STEP_S)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def stop_service(context: RunContext, service: str) -> Injected:
    """Stop a service; start it again at the end."""
    context.services.stop_service(service, wait=False)
    context.wait_until(lambda: not context.services.has_program(service), service, STOP_TIMEOUT_S)
    return Injected(service, lambda: context.services.start_service(service))


def kill_service(context: RunContext, service: str) -> Injected:
    """SIGKILL a service that the supervisor starts again."""
    context.supervisor.signal(PREFIX + service, signal.SIGKILL)
    return Injected(service)


def kill_part(context: RunContext, part: str) -> Injected:
    """SIGKILL a program of the run, which the supervisor starts again."""
    return Injected(context.kill(part))


def fill_disk(context: RunContext, part: str) -> Injected:
    """Let a program of the run write to no file, as on a full disk, until the end: its files may not grow beyond 0
    bytes (EFBIG). The disk itself and all other processes are not touched. The limit is of this process: one that the
    supervisor starts in its place can write.
    """
    pid = context.pid(part)
    try:
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    except ProcessLookupError:
        raise NotRunningError(f"{context.program(part)}: has just ended") from None

    def make_space() -> None:
        with suppress(ProcessLookupError):  # the process was killed during the fault
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

    return Injected(f"files of the {part}", make_space)
