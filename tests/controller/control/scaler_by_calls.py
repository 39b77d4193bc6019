"""A scaler of somebody else's, given as a file: as many replicas of a function as it had calls."""

from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.shared.base import NoState, check_known, resize
from controller.scalers.shared.parameters import Parameters
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step
from penstock.contracts import FleetObservation


@dataclass(frozen=True)
class ByCallsParameters(Parameters):
    """Decides quickly."""

    decision_interval_s: float = 0.25


class ByCalls(SingleFleetScaler[ByCallsParameters, NoState]):
    """Depends on what has arrived only, so not on how fast a machine is."""

    name: ClassVar[str] = "by-calls"
    paper: ClassVar[str] = "none"

    def decide_part(self, part: FleetObservation, state: NoState, _: FleetObservation) -> Step[NoState]:
        check_known(part, "arrived")
        assert part.arrived is not None
        return resize(part, part.arrived, {"reason": f"{part.arrived} arrived", "arrived": part.arrived}), state
