"""A live fleet: its port for the controller, and the base class of all kinds."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from controller.fleets.actuator import ReconcilingActuator
from penstock.clock import Clock
from penstock.contracts import Actuator, FleetObservation, Monitor, ReplicaCounts
from penstock.errors import PenstockError
from penstock.fleet_kinds import kind_of
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import System

ActuatorT = TypeVar("ActuatorT", bound=ReconcilingActuator[Any])


class ControlledFleet(Protocol):
    """What a controller needs of any live fleet."""

    @property
    def actuator(self) -> Actuator:
        """Carries decisions out."""

    def start(self, after_step: Callable[[], None]) -> None:
        """Find the replicas of a predecessor, then begin to work; ``after_step`` is called when something may have
        happened to a replica, from any thread.
        """

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> Monitor[FleetObservation]:
        """The monitor of a run that starts at ``origin_s``, connected. While ``blind()`` it observes nothing."""

    def stop(self) -> None:
        """End what ``start`` began; the replicas stay."""


class Fleet(ABC, Generic[ActuatorT]):
    """The replicas of a live run under one actuator. A class is built as ``cls(directory, spec, endpoints, clock,
    state)``; ``state`` is the ``snapshot`` of a predecessor, None for the first. PenstockError for a system that is not
    of the kind ``System``.
    """

    System: ClassVar[type[System]]
    actuator: ActuatorT

    def __init__(self, spec: RunSpec, endpoints: Endpoints, clock: Clock) -> None:
        if not isinstance(spec.system, self.System):
            found, expected = type(spec.system).__name__, self.System.__name__
            raise PenstockError(f"{spec.run}: its fleet is {found}, a {expected} was expected")
        self._spec, self._endpoints, self._clock = spec, endpoints, clock

    def start(self, after_step: Callable[[], None]) -> None:
        """Find the replicas of a predecessor, then reconcile; ``after_step`` is called after each step."""
        self.actuator.start(after_step)

    @abstractmethod
    def bring_up(self) -> None:
        """Request the initial replicas, unless a predecessor has done so; return at once."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether all requested replicas serve. PenstockError if they never will."""

    @property
    def refusal(self) -> str:
        """Why the fleet cannot be controlled any more, also during the run; empty while it can."""
        return ""

    @abstractmethod
    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> Monitor[Any]:
        """See ``ControlledFleet.monitor``."""

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return self.actuator.counts()

    def snapshot(self) -> msgspec.Raw:
        """JSON of the state that a successor needs."""
        return msgspec.Raw(msgspec.json.encode(self.actuator.snapshot()))

    def stop(self) -> None:
        """End the actuator; replicas stay as they are."""
        self.actuator.stop()

    def stop_replicas(self) -> None:
        """End every replica; after ``stop``. Raises PenstockError if some stay."""
        self.actuator.stop_replicas()


def make_fleet(
    directory: RunDirectory,
    spec: RunSpec,
    endpoints: Endpoints,
    clock: Clock,
    state: msgspec.Raw | None,
    **options: Any,
) -> Fleet[Any]:
    """The fleet of a run's system. ``options`` are of the class alone."""
    fleet: Fleet[Any] = kind_of(spec.system).load("fleet")(directory, spec, endpoints, clock, state, **options)
    return fleet
