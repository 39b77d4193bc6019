"""A scaler of somebody else's, given as a file: two replicas until a thousand events have arrived, then one."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from penstock.contracts import Decision, StreamObservation, hold

ENOUGH = 1000


@dataclass(frozen=True)
class NoParameters:
    """It has none."""


class Count(msgspec.Struct):
    """Decisions taken so far, over all lives of the controller."""

    decisions: int = 0


class ByArrivals:
    """Reads nothing but what has arrived, so that it does not depend on how fast a machine is."""

    name: ClassVar[str] = "by-arrivals"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "none"
    Parameters: ClassVar[type[NoParameters]] = NoParameters
    State: ClassVar[type[Count]] = Count
    period_s = 1.0

    def __init__(self, parameters: NoParameters) -> None:
        self.parameters = parameters

    def start(self, seed: int) -> Count:
        return Count()

    def decide(self, observation: StreamObservation, state: Count) -> tuple[Decision, Count]:
        state = Count(state.decisions + 1)
        fleet, current = observation.fleet, observation.replicas.current
        if observation.arrived is None:
            return hold(fleet, "arrivals unknown", decisions=state.decisions), state
        wanted = 2 if observation.arrived < ENOUGH else 1
        action = "up" if wanted > current else "down" if wanted < current else "none"
        why = {fleet: {"decisions": state.decisions}}
        return Decision(action=action, targets={fleet: wanted}, why=why), state  # type: ignore[arg-type]
