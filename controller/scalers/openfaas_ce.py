"""OpenFaaS Community Edition: an alert on the rate of successful requests adds a step; its end resets to the minimum.

Read from the gateway's alert handler and the Prometheus and Alertmanager configuration of its chart, 2026. Known
problems: the rate is not divided by the replicas, so that the alert fires until the maximum is reached, and one quiet
moment resets to the minimum.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.base import TOLERANCE_S, resize
from controller.scalers.shared.parameters import BoundedParameters, NotNegative, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate
from penstock.contracts import FleetObservation, Term

CE_MAX_REPLICAS = 5
"""The edition's own limit: a larger maximum is cut to it."""


def ce_step(max_replicas: int, factor: float) -> int:
    """⌈max / 100 · factor⌉: a step is a share of the maximum, whatever the load."""
    return rounded_up(max_replicas / 100 * factor)


@dataclass(frozen=True)
class OpenfaasCeParameters(BoundedParameters):
    """``factor`` in percent of the maximum. ``for_s`` is how long the rate must be above before the alert fires,
    ``repeat_s`` how often Alertmanager repeats it while it fires; each time adds a step.
    """

    alert_rate_per_s: Positive = 5.0
    rate_window_s: Positive = 10.0
    for_s: NotNegative = 5.0
    repeat_s: NotNegative = 30.0
    factor: float = 20.0
    decision_interval_s: Positive = 5.0
    max_replicas: int = CE_MAX_REPLICAS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.factor <= 100:
            raise ValueError(f"factor={self.factor:g}: expected a share of the maximum in percent, 0 to 100")
        if self.min_replicas > CE_MAX_REPLICAS:
            raise ValueError(f"min_replicas={self.min_replicas}: the Community Edition runs {CE_MAX_REPLICAS} at most")

    @property
    def most(self) -> int:
        """The maximum that is in force."""
        return min(self.max_replicas, CE_MAX_REPLICAS)

    def bounded(self, replicas: int) -> int:
        """The provider cuts any number to the function's bounds."""
        return min(max(replicas, self.min_replicas), self.most)


class OpenfaasCeState(msgspec.Struct, frozen=True):
    """Since when the rate is above (None: it is not), and the last notification of the alert (None: not firing)."""

    completions: Window = Window()
    above_s: float | None = None
    notified_s: float | None = None


class OpenfaasCe(SingleFleetScaler[OpenfaasCeParameters, OpenfaasCeState]):
    """Steps while an alert fires, the minimum when it is resolved."""

    name: ClassVar[str] = "openfaas-ce"
    paper: ClassVar[str] = "OpenFaaS Community Edition"
    emulates: ClassVar[str] = "OpenFaaS CE"

    def read(self, part: FleetObservation, state: OpenfaasCeState, _: FleetObservation) -> OpenfaasCeState:
        """The requests completed."""
        completions = state.completions.add(part.time_s, part.completed, self.parameters.rate_window_s)
        return msgspec.structs.replace(state, completions=completions)

    def decide_part(self, part: FleetObservation, state: OpenfaasCeState, _: FleetObservation) -> Step[OpenfaasCeState]:
        """Evaluate the alert; on a notification or its end, act as the gateway does."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        rate = known_rate(part, "completed", state.completions, p.rate_window_s)
        why: dict[str, Term] = {"rate_per_s": rate, "alert_rate_per_s": p.alert_rate_per_s, "replicas": current}
        if rate <= p.alert_rate_per_s:
            quiet = msgspec.structs.replace(state, above_s=None, notified_s=None)
            if state.notified_s is None:
                return resize(part, p.bounded(current), {**why, "alert": "inactive"}), quiet
            return resize(part, p.min_replicas, {**why, "alert": "resolved"}), quiet
        above_s = now_s if state.above_s is None else state.above_s
        state = msgspec.structs.replace(state, above_s=above_s)
        why["above_for_s"] = now_s - above_s
        if now_s - above_s < p.for_s - TOLERANCE_S:
            return resize(part, p.bounded(current), {**why, "alert": "pending"}), state
        if state.notified_s is not None and now_s - state.notified_s < p.repeat_s - TOLERANCE_S:
            return resize(part, p.bounded(current), {**why, "alert": "firing, told before"}), state
        step = ce_step(p.most, p.factor)
        # A gateway whose step is nothing takes a firing alert for a resolved one.
        wanted = min(current + step, p.most) if step else p.min_replicas
        why |= {"alert": "firing", "step": step, "most": p.most}
        return resize(part, p.bounded(wanted), why), msgspec.structs.replace(state, notified_s=now_s)
