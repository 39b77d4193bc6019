"""The common part of live actuators: a replica set, and a thread that observes and reconciles."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Generic, Protocol, Self, TypeVar

from penstock.contracts import Phase, ReplicaCounts, ReplicaEvent

END_S: Final = 30.0
"""Replicas that have not ended after this long are reported."""


class AnyReplicaSet(Protocol):
    """The replicas of one fleet or several, whatever their kind."""

    def take_events(self) -> Sequence[ReplicaEvent]:
        """Events since the last call, in order."""

    def phases(self) -> Mapping[str, Phase]:
        """Every replica with its phase."""

    def copy(self) -> Self:
        """A copy to be written down."""


ReplicaSetT = TypeVar("ReplicaSetT", bound=AnyReplicaSet)


class ReconcilingActuator(ABC, Generic[ReplicaSetT]):
    """``apply`` notes targets in the replica set and sets ``_wake``; the thread calls ``step``, at once then and every
    ``step_s`` seconds. Callers hold ``_lock`` while they use the replica set.
    """

    STEP_S: ClassVar[float] = 0.1

    def __init__(self, replicas: ReplicaSetT) -> None:
        self._replicas = replicas
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def step_s(self) -> float:
        """Between two steps."""
        return self.STEP_S

    def events(self) -> Sequence[ReplicaEvent]:
        """Events of replicas since the last call, in order."""
        with self._lock:
            return self._replicas.take_events()

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        with self._lock:
            return self._replicas.phases()

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return ReplicaCounts.count(self.replicas().values())

    def snapshot(self) -> ReplicaSetT:
        """A copy of the replica set, to be written down."""
        with self._lock:
            return self._replicas.copy()

    @abstractmethod
    def step(self) -> None:
        """Observe and reconcile once."""

    @abstractmethod
    def stop_replicas(self, timeout_s: float = END_S) -> None:
        """End every replica; after ``stop``. Raises PenstockError if some stay."""

    def start(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Step once, which finds the replicas of a predecessor, then in a thread, which calls ``after_step``."""
        self.step()
        self._thread = threading.Thread(target=self._work, args=(after_step,), name="actuator", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; replicas stay as they are."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self, after_step: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self.step_s)
            self._wake.clear()
            self.step()
            after_step()
