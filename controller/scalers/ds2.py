"""DS2: as many instances as the true rate of one needs for the input, plus a headroom.

Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw and Roscoe, "Three steps is all you need", OSDI 2018. The input rate
of an operator is computed from the sources of the graph, not from its own arrivals: one step suffices for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.base import resize
from controller.scalers.shared.demand import Windows, busy_s, input_rate, read_sources, sources, true_rate_per_s
from controller.scalers.shared.parameters import BoundedParameters, Candidates, NotNegative, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window
from penstock.contracts import FleetObservation, Term


def instances(input_rate_per_s: float, true_rate_per_s: float, headroom: float) -> int:
    """⌈(1 + f) · input rate / true rate per instance⌉."""
    return rounded_up((1 + headroom) * input_rate_per_s / true_rate_per_s)


@dataclass(frozen=True)
class Ds2Parameters(BoundedParameters):
    """``headroom`` is f. ``service_rate_per_s``: the true rate where none is measured. The interval is our choice; the
    paper's differ.
    """

    least_replicas: ClassVar[int] = 0
    candidates: ClassVar[Mapping[str, Candidates]] = {
        "headroom": Candidates((0.0, 0.25, 0.5, 1.0, 2.0)),
        "decision_interval_s": Candidates((2.0, 5.0, 15.0, 60.0)),
    }
    headroom: NotNegative = 0.0
    service_rate_per_s: Positive | None = None
    decision_interval_s: Positive = 60.0


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

    def read(self, part: FleetObservation, state: Ds2State, observation: FleetObservation) -> Ds2State:
        """Counters of the sources and of the fleet."""
        return Ds2State(
            read_sources(state.inputs, sources(part, observation), part.time_s, self.period_s),
            state.completions.add(part.time_s, part.completed, self.period_s),
            state.busy.add(part.time_s, busy_s(part), self.period_s),
        )

    def decide_part(self, part: FleetObservation, state: Ds2State, observation: FleetObservation) -> Step[Ds2State]:
        """Input rate by true rate of one instance."""
        p, over_s = self.parameters, self.period_s
        rate = input_rate(state.inputs, sources(part, observation), over_s, {**observation.unknown, **part.unknown})
        why: dict[str, Term] = {"input_rate_per_s": rate}
        needed = 0  # no input needs no instance, whatever one can do
        if rate > 0:
            true_rate, known_from = true_rate_per_s(part, state.completions, state.busy, over_s, p.service_rate_per_s)
            needed = instances(rate, true_rate, p.headroom)
            why |= {"true_rate_per_s": true_rate, "true_rate_from": known_from, "headroom": p.headroom}
        wanted = p.bounded(needed)
        why |= {"replicas": part.replicas.current, "needed": needed, "wanted": wanted}
        return resize(part, wanted, why), state
