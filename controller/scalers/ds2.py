"""DS2: as many instances as the true rate of one needs for the input, plus a headroom.

Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw and Roscoe, "Three steps is all you need", OSDI 2018. An operator's
input is reckoned from the sources of the graph, not from what arrives at it, so that one step suffices for all.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import msgspec

from controller.scalers.demand import Windows, busy_s, input_rate, read_sources, sources, true_rate_per_s
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_bounds, require_not_negative, require_positive
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    Window,
    hold_part,
    resize_part,
    states_by_fleet,
)
from penstock.contracts import FleetObservation, Term


def instances(input_rate_per_s: float, true_rate_per_s: float, headroom: float) -> int:
    """⌈(1 + f) · input rate / true rate per instance⌉."""
    return ceil((1 + headroom) * input_rate_per_s / true_rate_per_s - TOLERANCE)


@dataclass(frozen=True)
class Ds2Parameters:
    """``headroom`` is f. ``service_rate_per_s`` is the true rate where neither busy time nor a measured rate tell it.
    The paper's interval differs from system to system; a minute is our choice.
    """

    headroom: float = 0.0
    service_rate_per_s: float | None = None
    decision_interval_s: float = 60.0
    min_replicas: int = 1
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(decision_interval_s=self.decision_interval_s)
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)
        require_not_negative(headroom=self.headroom)
        require_bounds(self.min_replicas, self.max_replicas)


class Ds2State(msgspec.Struct, frozen=True):
    """Readings of the sources, of the events done and of the time spent on them."""

    inputs: Windows = msgspec.field(default_factory=dict)
    completions: Window = Window()
    busy: Window = Window()


class Ds2(SingleFleetScaler[Ds2Parameters, Ds2State]):
    """Every operator to its source's rate in one step."""

    name: ClassVar[str] = "ds2"
    paper: ClassVar[str] = "Kalavri et al., OSDI 2018"
    emulates: ClassVar[str] = "DS2"
    Parameters: ClassVar[type[Ds2Parameters]] = Ds2Parameters
    State: ClassVar[type[FleetStates[Ds2State]]] = states_by_fleet(Ds2State)

    def start_part(self) -> Ds2State:
        """No reading yet."""
        return Ds2State()

    def decide_part(
        self, part: FleetObservation, state: Ds2State, observation: FleetObservation
    ) -> tuple[PartDecision, Ds2State]:
        """Input rate by true rate of one instance."""
        p, over_s = self.parameters, self.parameters.decision_interval_s
        of = sources(part, observation)
        seen = Ds2State(
            read_sources(state.inputs, of, part.time_s, over_s),
            state.completions.add(part.time_s, part.completed, over_s),
            state.busy.add(part.time_s, busy_s(part), over_s),
        )
        rate = input_rate(seen.inputs, of, over_s, {**observation.unknown, **part.unknown})
        if isinstance(rate, PartDecision):
            return rate, seen
        true_rate, known_from = true_rate_per_s(part, seen.completions, seen.busy, over_s, p.service_rate_per_s)
        if true_rate is None:
            return hold_part("true rate is unknown: no busy time, no measured rate; set service_rate_per_s"), seen
        needed = instances(rate, true_rate, p.headroom)
        wanted = max(p.min_replicas, min(needed, p.max_replicas or needed))
        why: dict[str, Term] = {
            "input_rate_per_s": rate,
            "true_rate_per_s": true_rate,
            "true_rate_from": known_from,
            "headroom": p.headroom,
            "replicas": part.replicas.current,
            "needed": needed,
            "wanted": wanted,
        }
        return resize_part(part, wanted, why), seen
