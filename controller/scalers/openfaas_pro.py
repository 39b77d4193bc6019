"""OpenFaaS Pro's autoscaler: ⌈ready · mean load / (target · proportion)⌉.

From its documentation, 2026. Type rps counts completed requests: a function in overload looks like one just below its
limit. Type capacity counts requests in flight.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.base import CannotDecide, resize
from controller.scalers.shared.demand import in_system
from controller.scalers.shared.parameters import BoundedParameters, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate
from penstock.contracts import FleetObservation, Term


def pro_replicas(ready: int, mean_load: float, target: float, proportion: float) -> int:
    """The documented formula."""
    return rounded_up(ready * mean_load / (target * proportion))


@dataclass(frozen=True)
class OpenfaasProParameters(BoundedParameters):
    """The labels of a function with their defaults. ``target_rate_per_s`` is the target of type rps,
    ``target_in_flight`` that of type capacity. The interval is not documented: 10 s is our choice.
    """

    type: Literal["rps", "capacity"] = "rps"
    target_rate_per_s: Positive = 50.0
    target_in_flight: Positive = 50.0
    target_proportion: Positive = 0.9
    decision_interval_s: Positive = 10.0
    max_replicas: int | None = 20


class OpenfaasProState(msgspec.Struct, frozen=True):
    """Readings of the requests completed."""

    completions: Window = Window()


class OpenfaasPro(SingleFleetScaler[OpenfaasProParameters, OpenfaasProState]):
    """Load per replica against a target."""

    name: ClassVar[str] = "openfaas-pro"
    paper: ClassVar[str] = "OpenFaaS Pro autoscaler"
    emulates: ClassVar[str] = "OpenFaaS Pro"

    def read(self, part: FleetObservation, state: OpenfaasProState, _: FleetObservation) -> OpenfaasProState:
        """The requests completed."""
        return OpenfaasProState(state.completions.add(part.time_s, part.completed, self.period_s))

    def decide_part(
        self, part: FleetObservation, state: OpenfaasProState, _: FleetObservation
    ) -> Step[OpenfaasProState]:
        """The load of the type, then the formula and the bounds."""
        p = self.parameters
        if p.type == "rps":
            load, target = known_rate(part, "completed", state.completions, self.period_s), p.target_rate_per_s
        else:
            load, target = float(in_system(part)), p.target_in_flight
        ready = part.replicas.joined
        if ready == 0 and part.replicas.current:
            # The formula would ask for none, and take away what is about to come.
            raise CannotDecide("no replica is ready yet", load=load, replicas=part.replicas.current)
        mean_load = load / max(1, ready)
        desired = pro_replicas(ready, mean_load, target, p.target_proportion)
        wanted = p.bounded(desired)
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
        return resize(part, wanted, why), state
