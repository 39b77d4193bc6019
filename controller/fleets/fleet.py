"""The port between the controller's process and a kind of fleet, and who is there for which kind."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, Protocol

import msgspec

from penstock.clock import Clock
from penstock.contracts import Actuator, FleetObservation, Monitor, ReplicaCounts
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem


class Fleet(Protocol):
    """Replicas of a live run with all that looks after them. A fleet class is built as
    ``cls(directory, spec, endpoints, clock, state)``; ``state`` is a predecessor's ``snapshot``, None for the first.
    """

    @property
    def offers(self) -> type[FleetObservation]:
        """The kind of observation that its monitor gives."""
        ...

    @property
    def actuator(self) -> Actuator:
        """What carries decisions out."""
        ...

    def start(self, after_step: Callable[[], None]) -> None:
        """Find the replicas of a predecessor, then begin to work; ``after_step`` is called when something may have
        happened to a replica, from any thread.
        """
        ...

    def bring_up(self) -> None:
        """Ask for the initial replicas, unless a predecessor has done so; return at once."""
        ...

    def ready(self) -> bool:
        """Whether all that was asked for serves."""
        ...

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> Monitor[FleetObservation]:
        """The monitor of a run that starts at ``origin_s``, with its connections made. It sees nothing while ``blind``
        says so.
        """
        ...

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        ...

    def snapshot(self) -> msgspec.Raw:
        """JSON of all that a successor needs."""
        ...

    def stop(self) -> None:
        """End what ``start`` began; the replicas stay."""
        ...

    def stop_replicas(self) -> None:
        """End every replica; after ``stop``."""
        ...


FLEETS: Final[Mapping[type[msgspec.Struct], str]] = {
    StreamSystem: "controller.fleets.stream:StreamFleet",
    QueueSystem: "controller.fleets.queue:QueueFleet",
    FunctionSystem: "controller.fleets.function:FunctionFleet",
    NetworkSystem: "controller.fleets.network:NetworkFleet",
}
"""Who is there for which system; imported only when it is wanted."""


def make_fleet(
    directory: RunDirectory,
    spec: RunSpec,
    endpoints: Endpoints,
    clock: Clock,
    state: msgspec.Raw | None,
    **options: Any,
) -> Fleet:
    """The fleet of a run's system. ``options`` are of the class alone."""
    module, _, name = FLEETS[type(spec.system)].partition(":")
    fleet: Fleet = getattr(import_module(module), name)(directory, spec, endpoints, clock, state, **options)
    return fleet
