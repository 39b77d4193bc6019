"""The port through which an experiment drives a world: sim, local or kubernetes."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, RunSpec

Progress = Callable[[str], None]
"""Called with one short line whenever there is something to tell the person who waits."""


class PreparedRun(Protocol):
    """One run of a world, all ready to serve."""

    def start(self) -> RunSpec:
        """Fix the run's start (a whole second, a little ahead), tell everybody; returns the spec with ``start_ns``."""
        ...

    def wait_until(self, offset_s: float) -> None:
        """Let the run go on to this offset on the world's clock. PenstockError if a part of it died for good."""
        ...

    def inject(self, fault: Fault) -> None:
        """Do something bad now. Returns once it has begun; what lasts ends by itself."""
        ...

    def drain(self) -> int:
        """Return when every acknowledged event has its result, or nothing has moved for long: how many are left."""
        ...

    def collect(self) -> None:
        """Stop the run's processes in order; write deliveries, ledger, raw results and metrics into its directory."""
        ...

    def close(self) -> None:
        """Stop what still belongs to this run and remove its topics and ledger."""
        ...


class World(PreparedRun, Protocol):
    """One run at a time: prepare, start, (inject), wait, drain, collect, close.

    ``with`` brings up what all runs share (services) and, at the end, takes down what was not up before. ``close``
    may be called at any point, also after Ctrl-C, and leaves nothing of the run behind.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Topics, queues, ledgers, fleets with their initial replicas, controller and analytics: all ready to serve.

        The directory has ``run.json`` and the schedule.
        """
        ...


class OneRunWorld:
    """What worlds share: all but ``prepare`` is for the run that was prepared."""

    run: PreparedRun | None = None

    def start(self) -> RunSpec:
        """See ``PreparedRun``, as for all that follows."""
        return self._current.start()

    def wait_until(self, offset_s: float) -> None:
        """Let the run go on."""
        self._current.wait_until(offset_s)

    def inject(self, fault: Fault) -> None:
        """Do something bad."""
        self._current.inject(fault)

    def drain(self) -> int:
        """Events left."""
        return self._current.drain()

    def collect(self) -> None:
        """Write what the run has made."""
        self._current.collect()

    def close(self) -> None:
        """Idempotent."""
        if self.run is not None:
            self.run.close()
            self.run = None

    @property
    def _current(self) -> PreparedRun:
        if self.run is None:
            raise PenstockError("this world has no run: prepare one first")
        return self.run
