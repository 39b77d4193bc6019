"""The interface of a world: sim, local or kubernetes."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, Verdict
from penstock.runspec import Fault, RunSpec

Progress = Callable[[str], None]
"""Called with one short line about a step that takes a while."""


class PreparedRun(Protocol):
    """One run of a world, ready to serve."""

    def start(self) -> RunSpec:
        """Set the start (a whole second, a little ahead), notify all processes; return the spec with ``start_ns``."""

    def wait_until(self, offset_s: float) -> None:
        """Let the run continue to this offset on the world's clock. PenstockError if a part has died."""

    def inject(self, fault: Fault) -> None:
        """Inject a fault now. Returns once it has begun; a fault that lasts ends by itself."""

    def drain(self) -> int:
        """Wait until every acknowledged event has its result or nothing moves any more; return how many are left."""

    def collect(self) -> None:
        """Stop the run's processes in order; write deliveries, ledger, raw results and metrics into its directory."""

    def close(self) -> None:
        """Stop what still belongs to this run; delete its topics and ledger."""


class World(AbstractContextManager["World"]):
    """One run at a time: prepare it; start, (inject), wait, drain, collect it as ``run``; close.

    ``with`` starts the shared services, and stops them at the end unless some were up before. ``close`` may be called
    at any point, also after Ctrl-C, and leaves nothing of the run behind.
    """

    _run: PreparedRun | None = None

    @abstractmethod
    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Make topics, queues, fleet with initial replicas, controller and analytics ready to serve.

        The directory has ``run.json`` and the schedule.
        """

    @property
    def run(self) -> PreparedRun:
        """The prepared run."""
        if self._run is None:
            raise PenstockError("this world has no run: prepare one first")
        return self._run

    def close(self) -> None:
        """Close the run, if there is one."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def judged(self, verdict: Verdict, reasons: Sequence[str]) -> None:
        """Tell the verdict of the collected run to those who watch it; nothing in a world without any."""
        del verdict, reasons

    def left_behind(self, run: str) -> Sequence[str]:
        """What a closed run has left: programs, topics, queues, keys. Nothing in a world without any."""
        del run
        return ()
