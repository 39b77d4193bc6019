"""A scaler of somebody else's, given as a file: two replicas from the first event on, one again at the last."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from penstock.contracts import Action, Decision, StreamObservation, hold

LAST = 800


@dataclass(frozen=True)
class NoParameters:
    """It has none."""


class Nothing(msgspec.Struct):
    """It remembers nothing."""


class ByLoad:
    """Depends on what has arrived and been done only, so not on how fast a machine is. Plans are uneven on purpose: one
    replica has the first partition, another all the others, which no assignor of Kafka's would do.
    """

    name: ClassVar[str] = "by-load"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "none"
    Parameters: ClassVar[type[NoParameters]] = NoParameters
    State: ClassVar[type[Nothing]] = Nothing
    period_s = 1.0

    def __init__(self, parameters: NoParameters) -> None:
        self.parameters = parameters

    def start(self, seed: int) -> Nothing:
        return Nothing()

    def decide(self, observation: StreamObservation, state: Nothing) -> tuple[Decision, Nothing]:
        fleet, current = observation.fleet, observation.replicas.current
        if observation.arrived is None:
            return hold(fleet, "arrivals are unknown"), state
        wanted = 2 if observation.arrived > 0 and (observation.completed or 0) < LAST else 1
        action: Action = "up" if wanted > current else "down" if wanted < current else "none"
        everything = tuple(each.partition for each in observation.partitions)
        groups = ((everything[0],), everything[1:]) if wanted == 2 else (everything,)
        reason = f"{observation.arrived} arrived"
        decision = Decision(
            action=action, targets={fleet: wanted}, assignment=groups, why={fleet: {"reason": reason, "wanted": wanted}}
        )
        return decision, state
