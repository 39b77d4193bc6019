"""Controller, replicas and sender of a run as programs of the supervisor."""

import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from infra.runs.context import RunContext
from infra.runs.faults import Injected
from penstock.adapters.process_manager import NotRunningError
from penstock.errors import PenstockError

NO_REPLICA: Final = Injected("no worker was running", hit=False)


class ControllerProgram:
    """The controller as a program; it reads the run's start from the run directory."""

    def __init__(self, context: RunContext, *options: str) -> None:
        self._context = context
        self._options = options

    def start(self) -> None:
        """Start the controller, which brings up the replicas."""
        self._context.add("controller", "controller.main", *self._options, respawn=True, grace_s=30)

    def await_ready(self) -> None:
        """Wait until the initial replicas serve."""
        self._context.await_file("controller", self._context.directory.controller_ready_file)

    def notify_start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Stop the controller; idempotent."""
        self._context.remove("controller")

    close = stop

    def kill(self) -> Injected:
        """SIGKILL the controller, which the supervisor starts again."""
        return Injected(self._context.kill("controller"))

    def blind(self) -> Injected:
        """Let the controller's monitor see nothing."""
        file = self._context.directory.blind_file
        file.touch()
        return Injected("monitor", lambda: file.unlink(missing_ok=True))


class Replicas:
    """Replicas that need no care of the run: the controller or the gateway ends them."""

    def check(self) -> None:
        """Raise PenstockError if what they need is not there. Called before anything is made."""

    def prepare(self) -> None:
        """Called before the controller starts."""

    def save_logs(self) -> None:
        """Write the logs that are not in the run directory yet."""

    def remove(self) -> None:
        """End all replicas; the controller has ended before."""

    def close(self) -> None:
        """End all replicas, whatever has happened; idempotent."""


class ProgramReplicas(Replicas):
    """Replicas as programs of the supervisor."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def remove(self) -> None:
        """End all replicas side by side."""
        for name in self._context.replicas():
            self._context.supervisor.remove(name, wait=False)
        self._context.wait_until(lambda: not self._context.replicas(), "replicas", timeout_s=30)

    def kill(self) -> Injected:
        """SIGKILL the first replica."""
        replicas = self._context.replicas()
        if not replicas:
            return NO_REPLICA
        self._context.supervisor.signal(replicas[0], signal.SIGKILL)
        return Injected(replicas[0])

    def kill_all(self) -> Injected:
        """SIGKILL every replica."""
        replicas = self._context.replicas()
        self._signal(replicas, signal.SIGKILL)
        return Injected(", ".join(replicas)) if replicas else NO_REPLICA

    def freeze(self) -> Injected:
        """SIGSTOP every replica; SIGCONT ends it."""
        replicas = self._context.replicas()
        self._signal(replicas, signal.SIGSTOP)
        thaw = partial(self._signal, replicas, signal.SIGCONT)
        return Injected(", ".join(replicas), thaw) if replicas else NO_REPLICA

    def _signal(self, replicas: Sequence[str], number: signal.Signals) -> None:
        for name in replicas:
            with suppress(NotRunningError):  # it has ended, or is started again
                self._context.supervisor.signal(name, number)


class SenderProgram:
    """The open-loop sender (``producers.send``) as a program."""

    lead_s = 3.0
    """From the decision to start to offset 0: the sender loads its schedule and signs ahead meanwhile."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def start(self) -> None:
        """Start the sender."""
        self._context.add("sender", "producers.send", respawn=False, grace_s=60)

    def stop(self) -> None:
        """Send nothing more; the sender still waits for its delivery reports."""
        with suppress(PenstockError):  # it has ended
            self._context.supervisor.signal(self._context.program("sender"), signal.SIGTERM)

    def check(self) -> None:
        """Raise PenstockError if the sender ended without delivery reports."""
        if not self._context.alive("sender") and not self._context.directory.delivery_file.is_file():
            raise self._context.died("sender")

    def wait(self, timeout_s: float) -> None:
        """Wait until the delivery reports are written. Raise PenstockError if there are none."""
        self._context.wait_until(lambda: not self._context.alive("sender"), "sender", timeout_s)
        self.check()
