"""A scaler of somebody else's, given as a file: one replica for every ten events that wait."""

import math
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from penstock.contracts import Action, Decision, FleetObservation, hold

EVENTS_A_REPLICA = 10


@dataclass(frozen=True)
class NoParameters:
    """It has none."""


class Nothing(msgspec.Struct):
    """It remembers nothing."""


class ByBacklog:
    """Holds while the backlog is unknown."""

    name: ClassVar[str] = "by-backlog"
    fleets: ClassVar[type[FleetObservation]] = FleetObservation
    paper: ClassVar[str] = "none"
    Parameters: ClassVar[type[NoParameters]] = NoParameters
    State: ClassVar[type[Nothing]] = Nothing
    period_s = 1.0

    def __init__(self, parameters: NoParameters) -> None:
        self.parameters = parameters

    def start(self, seed: int) -> Nothing:
        return Nothing()

    def decide(self, observation: FleetObservation, state: Nothing) -> tuple[Decision, Nothing]:
        fleet, current = observation.fleet, observation.replicas.current
        if observation.backlog is None:
            return hold(fleet, "the backlog is unknown"), state
        wanted = max(1, math.ceil(observation.backlog / EVENTS_A_REPLICA))
        action: Action = "up" if wanted > current else "down" if wanted < current else "none"
        return Decision(action=action, targets={fleet: wanted}, why={fleet: {"wanted": wanted}}), state
