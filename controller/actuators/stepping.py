"""What the actuators of live worlds share: a roster, and a thread that looks and does what is to be done."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from penstock.contracts import Phase, ReplicaEvent


class AnyRoster(Protocol):
    """What a roster tells of its replicas."""

    def happened(self) -> list[ReplicaEvent]:
        """Everything since the last call, in order."""
        ...

    def phases(self) -> dict[str, Phase]:
        """Every replica with its phase."""
        ...


RosterT = TypeVar("RosterT", bound=AnyRoster)


class SteppingActuator(ABC, Generic[RosterT]):
    """``apply`` notes what is wanted in the roster and sets ``_wake``; the thread calls ``step``, at once then and
    every ``STEP_S`` seconds. Whoever touches the roster holds ``_lock``.
    """

    STEP_S: ClassVar[float] = 0.1

    def __init__(self, roster: RosterT) -> None:
        self._roster = roster
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        with self._lock:
            return self._roster.happened()

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        with self._lock:
            return self._roster.phases()

    @abstractmethod
    def step(self) -> None:
        """Look once and do what is to be done."""

    def start(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Step in a thread of its own; ``after_step`` runs there too."""
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
            self._wake.wait(self.STEP_S)
            self._wake.clear()
            self.step()
            after_step()
