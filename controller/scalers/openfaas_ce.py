"""OpenFaaS Community Edition: an alert on the rate of successful requests adds a step; its end resets to the minimum.

Read from the gateway's alert handler and the Prometheus and Alertmanager configuration of its chart, 2026. The traps
are those of a threshold on the whole function: the rate is not divided by the replicas, so that the alert fires on
until the maximum is reached, and one quiet moment takes everything away.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import msgspec

from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_bounds, require_not_negative, require_positive
from controller.scalers.single_fleet import (
    TOLERANCE_S,
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

CE_MAX_REPLICAS = 5
"""The edition's own limit: a larger maximum is cut to it."""


def ce_step(max_replicas: int, factor: float) -> int:
    """⌈max / 100 · factor⌉: a step is a share of the maximum, whatever the load."""
    return ceil(max_replicas / 100 * factor - TOLERANCE)


@dataclass(frozen=True)
class OpenfaasCeParameters:
    """``factor`` in percent of the maximum. ``for_s`` is how long the rate must be above before the alert fires,
    ``repeat_s`` how often Alertmanager tells it again while it fires; each time adds a step.
    """

    alert_rate_per_s: float = 5.0
    rate_window_s: float = 10.0
    for_s: float = 5.0
    repeat_s: float = 30.0
    factor: float = 20.0
    decision_interval_s: float = 5.0
    min_replicas: int = 1
    max_replicas: int = CE_MAX_REPLICAS

    def __post_init__(self) -> None:
        require_positive(
            alert_rate_per_s=self.alert_rate_per_s,
            rate_window_s=self.rate_window_s,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(for_s=self.for_s, repeat_s=self.repeat_s)
        if not 0 <= self.factor <= 100:
            raise ValueError(f"factor={self.factor:g}: expected a share of the maximum in percent, 0 to 100")
        require_bounds(self.min_replicas, self.max_replicas, least=1)
        if self.min_replicas > CE_MAX_REPLICAS:
            raise ValueError(f"min_replicas={self.min_replicas}: the Community Edition runs {CE_MAX_REPLICAS} at most")

    @property
    def most(self) -> int:
        """The maximum that is in force."""
        return min(self.max_replicas, CE_MAX_REPLICAS)


class OpenfaasCeState(msgspec.Struct, frozen=True):
    """Since when the rate is above (None: it is not), and when the firing alert was last told (None: not firing)."""

    completions: Window = Window()
    above_s: float | None = None
    told_s: float | None = None


class OpenfaasCe(SingleFleetScaler[OpenfaasCeParameters, OpenfaasCeState]):
    """Steps while an alert fires, the minimum when it is resolved."""

    name: ClassVar[str] = "openfaas-ce"
    paper: ClassVar[str] = "OpenFaaS Community Edition"
    emulates: ClassVar[str] = "OpenFaaS CE"
    Parameters: ClassVar[type[OpenfaasCeParameters]] = OpenfaasCeParameters
    State: ClassVar[type[FleetStates[OpenfaasCeState]]] = states_by_fleet(OpenfaasCeState)

    def start_part(self) -> OpenfaasCeState:
        """No reading, no alert."""
        return OpenfaasCeState()

    def decide_part(
        self,
        part: FleetObservation,
        state: OpenfaasCeState,
        observation: FleetObservation,  # noqa: ARG002 - a part is enough
    ) -> tuple[PartDecision, OpenfaasCeState]:
        """Evaluate the alert; when it is told or resolved, do what the gateway does."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        seen = msgspec.structs.replace(state, completions=state.completions.add(now_s, part.completed, p.rate_window_s))
        rate = seen.completions.rate_per_s(p.rate_window_s)
        unknown = unknown_part(part, "completed")
        if unknown is not None or rate is None:
            return unknown or hold_part("no rate yet: this is the first reading"), seen
        why: dict[str, Term] = {"rate_per_s": rate, "alert_rate_per_s": p.alert_rate_per_s, "replicas": current}
        if rate <= p.alert_rate_per_s:
            quiet = msgspec.structs.replace(seen, above_s=None, told_s=None)
            if state.told_s is None:
                return resize_part(part, self._bounded(current), {**why, "alert": "inactive"}), quiet
            return resize_part(part, p.min_replicas, {**why, "alert": "resolved"}), quiet
        above_s = now_s if state.above_s is None else state.above_s
        seen = msgspec.structs.replace(seen, above_s=above_s)
        why["above_for_s"] = now_s - above_s
        if now_s - above_s < p.for_s - TOLERANCE_S:
            return resize_part(part, self._bounded(current), {**why, "alert": "pending"}), seen
        if state.told_s is not None and now_s - state.told_s < p.repeat_s - TOLERANCE_S:
            return resize_part(part, self._bounded(current), {**why, "alert": "firing, told before"}), seen
        step = ce_step(p.most, p.factor)
        # A gateway whose step is nothing takes a firing alert for a resolved one.
        wanted = min(current + step, p.most) if step else p.min_replicas
        why |= {"alert": "firing", "step": step, "most": p.most}
        return resize_part(part, self._bounded(wanted), why), msgspec.structs.replace(seen, told_s=now_s)

    def _bounded(self, replicas: int) -> int:
        """The provider cuts any number to the function's bounds."""
        return min(max(replicas, self.parameters.min_replicas), self.parameters.most)
