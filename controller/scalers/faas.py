"""Plain functions as a service, the comparison of Elastic-FaaS: one function, scaled by its provider.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, section V.
"""

from typing import ClassVar

from controller.scalers.shared.base import NoState, resize
from controller.scalers.shared.parameters import Parameters
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step
from penstock.contracts import FleetObservation


class Faas(SingleFleetScaler[Parameters, NoState]):
    """One function at any load."""

    name: ClassVar[str] = "faas"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, section V (comparison)"

    def decide_part(self, part: FleetObservation, state: NoState, _: FleetObservation) -> Step[NoState]:
        """One function."""
        return resize(part, 1, {"NP": part.replicas.current, "NP'": 1}), state
