"""Plain functions as a service, with which Elastic-FaaS compares: one function, and its provider does the rest.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, section V.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from controller.scalers.elastic_faas_formulas import FaasState
from controller.scalers.parameters import require_positive
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    resize_part,
    states_by_fleet,
)
from penstock.contracts import FleetObservation


@dataclass(frozen=True, kw_only=True)
class FaasParameters:
    """How often it looks."""

    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        require_positive(decision_interval_s=self.decision_interval_s)


class Faas(SingleFleetScaler[FaasParameters, FaasState]):
    """One function, whatever comes."""

    name: ClassVar[str] = "faas"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, section V (comparison)"
    Parameters: ClassVar[type[Any]] = FaasParameters
    State: ClassVar[type[FleetStates[FaasState]]] = states_by_fleet(FaasState)

    def start_part(self) -> FaasState:
        """Nothing."""
        return FaasState()

    def decide_part(
        self,
        part: FleetObservation,
        state: FaasState,
        observation: FleetObservation,  # noqa: ARG002 - the part is all that it looks at
    ) -> tuple[PartDecision, FaasState]:
        """One function."""
        return resize_part(part, 1, {"NP": part.replicas.current, "NP'": 1}), state
