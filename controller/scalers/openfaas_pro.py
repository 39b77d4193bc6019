"""OpenFaaS Pro's autoscaler: ⌈ready · mean load / (target · proportion)⌉.

From its documentation, 2026. Type rps counts the requests that were completed, so that a function at its limit does
not look busier than one just below it: the trap of this type. Type capacity counts requests in flight.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

import msgspec

from controller.scalers.demand import in_system, unknown_in_system
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_bounds, require_positive
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    Window,
    hold_part,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, Term

ScaleType = Literal["rps", "capacity"]


def pro_replicas(ready: int, mean_load: float, target: float, proportion: float) -> int:
    """The documented formula."""
    return ceil(ready * mean_load / (target * proportion) - TOLERANCE)


@dataclass(frozen=True)
class OpenfaasProParameters:
    """The labels of a function with their defaults. ``target_rate_per_s`` is the target of type rps,
    ``target_in_flight`` that of type capacity. The interval is not documented: 10 s is our choice.
    """

    type: ScaleType = "rps"
    target_rate_per_s: float = 50.0
    target_in_flight: float = 50.0
    target_proportion: float = 0.9
    decision_interval_s: float = 10.0
    min_replicas: int = 1
    max_replicas: int | None = 20

    def __post_init__(self) -> None:
        require_positive(
            target_rate_per_s=self.target_rate_per_s,
            target_in_flight=self.target_in_flight,
            target_proportion=self.target_proportion,
            decision_interval_s=self.decision_interval_s,
        )
        require_bounds(self.min_replicas, self.max_replicas, least=1)


class OpenfaasProState(msgspec.Struct, frozen=True):
    """Readings of the requests completed."""

    completions: Window = Window()


class OpenfaasPro(SingleFleetScaler[OpenfaasProParameters, OpenfaasProState]):
    """Load per replica against a target."""

    name: ClassVar[str] = "openfaas-pro"
    paper: ClassVar[str] = "OpenFaaS Pro autoscaler"
    emulates: ClassVar[str] = "OpenFaaS Pro"
    Parameters: ClassVar[type[OpenfaasProParameters]] = OpenfaasProParameters
    State: ClassVar[type[FleetStates[OpenfaasProState]]] = states_by_fleet(OpenfaasProState)

    def start_part(self) -> OpenfaasProState:
        """No reading yet."""
        return OpenfaasProState()

    def decide_part(
        self,
        part: FleetObservation,
        state: OpenfaasProState,
        observation: FleetObservation,  # noqa: ARG002 - a part is enough
    ) -> tuple[PartDecision, OpenfaasProState]:
        """The load of the type, then the formula and the bounds."""
        p = self.parameters
        seen = OpenfaasProState(state.completions.add(part.time_s, part.completed, p.decision_interval_s))
        load = self._load(part, seen.completions)
        if isinstance(load, PartDecision):
            return load, seen
        ready = part.replicas.joined
        mean_load = load / max(1, ready)
        target = p.target_rate_per_s if p.type == "rps" else p.target_in_flight
        desired = pro_replicas(ready, mean_load, target, p.target_proportion)
        wanted = max(p.min_replicas, min(desired, p.max_replicas or desired))
        why: dict[str, Term] = {
            "type": p.type,
            "load": load,
            "replicas": part.replicas.current,
            "ready": ready,
            "mean_load": mean_load,
            "target": target,
            "target_proportion": p.target_proportion,
            "desired": desired,
            "wanted": wanted,
        }
        return resize_part(part, wanted, why), seen

    def _load(self, part: FleetObservation, completions: Window) -> float | PartDecision:
        if self.parameters.type == "capacity":
            return unknown_in_system(part) or float(in_system(part))
        unknown = unknown_part(part, "completed")
        if unknown is not None:
            return unknown
        rate = completions.rate_per_s(self.parameters.decision_interval_s)
        return hold_part("no rate yet: this is the first reading") if rate is None else rate
