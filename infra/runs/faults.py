"""Fault injection: each fault of a run is done, undone when it lasts, and recorded in faults.jsonl."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from infra.runs.context import RunContext
from penstock.errors import PenstockError
from penstock.rundir import JsonLines
from penstock.runspec import Fault, FaultKind, FaultRecord


class Injected(NamedTuple):
    """What was hit, and how the fault ends (None: it does not last)."""

    detail: str
    undo: Callable[[], object] | None = None


Action = Callable[[], Injected]


class Faults:
    """The faults that a run knows, by kind."""

    def __init__(self, context: RunContext, actions: Mapping[FaultKind, Action]) -> None:
        self._actions = actions
        self._records = JsonLines(context.directory.faults_file)
        self._timers: list[threading.Timer] = []
        self.injected: list[FaultRecord] = []
        """Those so far."""

    def inject(self, fault: Fault) -> None:
        """Inject a fault now; one that lasts is undone later. Raise PenstockError for a kind that the run lacks."""
        at_ns = time.time_ns()
        action = self._actions.get(fault.kind)
        if action is None:
            raise PenstockError(f"--fault {fault}: this run has {', '.join(self._actions)}")
        injected = action()
        if injected.undo is not None:
            timer = threading.Timer(fault.seconds, injected.undo)
            timer.daemon = True
            self._timers.append(timer)
            timer.start()
        record = FaultRecord(kind=fault.kind, at_ns=at_ns, seconds=fault.seconds, detail=injected.detail)
        self._records.append(record)
        self.injected.append(record)

    def end(self) -> None:
        """Undo at once whatever still lasts."""
        while self._timers:
            timer = self._timers.pop()
            if timer.is_alive():
                timer.cancel()
                timer.function(*timer.args, **timer.kwargs)
            timer.join()

    def close(self) -> None:
        """End all faults and close the record."""
        try:
            self.end()
        finally:
            self._records.close()


def stop_service(context: RunContext, service: str) -> Action:
    """Stop a service; start it again at the end."""

    def stop() -> Injected:
        context.services.stop_service(service)
        return Injected(service, lambda: context.services.start_service(service))

    return stop


def kill_part(context: RunContext, part: str) -> Action:
    """SIGKILL a program of the run, which the supervisor starts again."""
    return lambda: Injected(context.kill(part))
