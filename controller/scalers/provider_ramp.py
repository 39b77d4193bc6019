"""The provider's scaling inside one function: one container more at equal intervals while events wait.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, Table 1 and lines 20 to 26; a linear ramp (F14). It runs
on an inner fleet, the containers of one function.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.queueing.rounding import TOLERANCE, rounded_down
from controller.scalers.shared.base import resize
from controller.scalers.shared.demand import in_system, waiting
from controller.scalers.shared.parameters import Count, CountOrZero, NotNegative, Parameters, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step
from penstock.contracts import FleetObservation, Term


@dataclass(frozen=True, kw_only=True)
class ProviderRampParameters(Parameters):
    """``step`` containers more every ``ramp_s`` while events wait, up to ``max_containers``.

    After ``idle_s`` without any event as many go again, down to ``min_containers``; None: they stay. With 0 the next
    event that waits brings the first container at once.
    """

    ramp_s: Positive = 2.0
    step: Count = 1
    max_containers: Count = 30
    min_containers: CountOrZero = 1
    idle_s: NotNegative | None = None


class RampState(msgspec.Struct, frozen=True):
    """When the last interval began, and since when there is no event (None: there is one)."""

    interval_s: float | None = None
    idle_since_s: float | None = None


class ProviderRamp(SingleFleetScaler[ProviderRampParameters, RampState]):
    """A linear ramp of containers."""

    name: ClassVar[str] = "provider-ramp"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, Table 1 (the provider's side)"

    def decide_part(self, part: FleetObservation, state: RampState, _: FleetObservation) -> Step[RampState]:
        """The first container at once, then one step an interval. Intervals that no tick fell into bring nothing."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        if state.interval_s is None:
            return resize(part, max(p.min_containers, current), {"containers": current}), RampState(interval_s=now_s)
        wait, present = waiting(part), in_system(part)
        idle_since_s = None if present else now_s if state.idle_since_s is None else state.idle_since_s
        intervals = rounded_down((now_s - state.interval_s) / p.ramp_s)
        began_s = state.interval_s + max(0, intervals) * p.ramp_s
        why: dict[str, Term] = {
            "containers": current,
            "waiting": wait,
            "in_system": present,
            "intervals": intervals,
        }
        target = max(p.min_containers, current)
        if wait and current == 0:
            target, began_s = max(1, target), now_s
        elif intervals > 0 and wait:
            target = max(target, min(current + p.step, p.max_containers))
        elif intervals > 0 and idle_since_s is not None and p.idle_s is not None:
            why["idle_for_s"] = now_s - idle_since_s
            if now_s - idle_since_s >= p.idle_s - TOLERANCE:
                target = max(p.min_containers, current - p.step)
        return resize(part, target, why), RampState(began_s, idle_since_s)
