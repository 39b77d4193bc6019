"""What a provider does inside one function: one container more at equal intervals while events wait.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, Table 1 and lines 20 to 26; a linear ramp (F14). It runs
on an inner fleet, the containers of one function.
"""

from dataclasses import dataclass
from math import floor
from typing import Any, ClassVar

import msgspec

from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, Term


@dataclass(frozen=True, kw_only=True)
class ProviderRampParameters:
    """``step`` containers more every ``ramp_s`` while there is backlog, up to ``max_containers``.

    After ``idle_s`` without backlog as many go again, down to one; None: they stay.
    """

    ramp_s: float = 2.0
    step: int = 1
    max_containers: int = 30
    idle_s: float | None = None
    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        require_positive(
            ramp_s=self.ramp_s,
            step=self.step,
            max_containers=self.max_containers,
            decision_interval_s=self.decision_interval_s,
        )
        if self.idle_s is not None:
            require_not_negative(idle_s=self.idle_s)


class RampState(msgspec.Struct, frozen=True):
    """When the last interval began, and since when there is no backlog (None: there is)."""

    interval_s: float | None = None
    idle_since_s: float | None = None


class ProviderRamp(SingleFleetScaler[ProviderRampParameters, RampState]):
    """A linear ramp of containers."""

    name: ClassVar[str] = "provider-ramp"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, Table 1 (the provider's side)"
    Parameters: ClassVar[type[Any]] = ProviderRampParameters
    State: ClassVar[type[FleetStates[RampState]]] = states_by_fleet(RampState)

    def start_part(self) -> RampState:
        """A function that is about to start."""
        return RampState()

    def decide_part(
        self,
        part: FleetObservation,
        state: RampState,
        observation: FleetObservation,  # noqa: ARG002 - the part is all that it looks at
    ) -> tuple[PartDecision, RampState]:
        """The first container at once, then one step an interval. Intervals that no tick fell into bring nothing."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        if state.interval_s is None:
            return resize_part(part, max(1, current), {"containers": current}), RampState(interval_s=now_s)
        if (unknown := unknown_part(part, "backlog")) is not None:
            return unknown, state
        assert part.backlog is not None
        waiting = part.backlog > 0
        idle_since_s = None if waiting else now_s if state.idle_since_s is None else state.idle_since_s
        intervals = floor((now_s - state.interval_s) / p.ramp_s + TOLERANCE)
        began_s = state.interval_s + max(0, intervals) * p.ramp_s
        why: dict[str, Term] = {"containers": current, "backlog": part.backlog, "intervals": intervals}
        target = max(1, current)
        if intervals > 0 and waiting:
            target = max(target, min(current + p.step, p.max_containers))
        elif intervals > 0 and idle_since_s is not None and p.idle_s is not None:
            why["idle_for_s"] = now_s - idle_since_s
            if now_s - idle_since_s >= p.idle_s - TOLERANCE:
                target = max(1, current - p.step)
        return resize_part(part, target, why), RampState(began_s, idle_since_s)
