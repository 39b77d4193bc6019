"""What KEDA does with any of its triggers: 0 ↔ 1 itself, by polling; 1 ↔ N by a HorizontalPodAutoscaler it creates.

Read from KEDA's scale executor and its documentation, 2026. The HPA asks KEDA for the metric at each of its own syncs;
the polling interval is that of activation only.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from controller.scalers.hpa import HpaHistory, HpaRules, RatioOver, recommend
from controller.scalers.parameters import require_bounds, require_not_negative, require_positive
from controller.scalers.single_fleet import TOLERANCE_S
from penstock.contracts import ReplicaCounts, Term


@dataclass(frozen=True, kw_only=True)
class KedaParameters:
    """A ScaledObject with KEDA's defaults. ``decision_interval_s`` is the HPA's, ``min_replicas`` and ``max_replicas``
    are minReplicaCount and maxReplicaCount; the HPA itself never goes below one.
    """

    poll_interval_s: float = 30.0
    cooldown_s: float = 300.0
    tolerance: float = 0.1
    stabilisation_s: float = 300.0
    ratio_over: RatioOver = "ready"
    decision_interval_s: float = 15.0
    min_replicas: int = 0
    max_replicas: int | None = 100

    def __post_init__(self) -> None:
        require_positive(poll_interval_s=self.poll_interval_s, decision_interval_s=self.decision_interval_s)
        require_not_negative(cooldown_s=self.cooldown_s, tolerance=self.tolerance, stabilisation_s=self.stabilisation_s)
        require_bounds(self.min_replicas, self.max_replicas)

    def rules(self, target: float) -> HpaRules:
        """The HPA that KEDA creates for a trigger with this target."""
        return HpaRules(
            target,
            max(1, self.min_replicas),
            self.max_replicas,
            self.tolerance,
            self.stabilisation_s,
            self.ratio_over,
        )


class Trigger(NamedTuple):
    """What a KEDA scaler answers: the metric for the HPA, its target per replica, and whether there is work at all."""

    metric: float
    target: float
    active: bool


class KedaState(msgspec.Struct, frozen=True):
    """When KEDA last polled, and when it last found the trigger active; the HPA's history."""

    polled_s: float | None = None
    active_s: float | None = None
    history: HpaHistory = HpaHistory()


class KedaStep(NamedTuple):
    """Replicas wanted, the state after it, and the arithmetic."""

    replicas: int
    state: KedaState
    why: dict[str, Term]


def keda_step(
    trigger: Trigger, time_s: float, replicas: ReplicaCounts, parameters: KedaParameters, state: KedaState
) -> KedaStep:
    """One sync of the HPA, and KEDA's poll if it is due.

    Only a poll brings a fleet from zero, or to zero: the latter when the trigger was inactive for longer than the
    cooldown, and at once if it never was active. Above zero the number is the HPA's.
    """
    polls = state.polled_s is None or time_s - state.polled_s >= parameters.poll_interval_s - TOLERANCE_S
    active_s = time_s if polls and trigger.active else state.active_s
    after = KedaState(time_s if polls else state.polled_s, active_s, state.history)
    why: dict[str, Term] = {
        "metric": trigger.metric,
        "target": trigger.target,
        "active": trigger.active,
        "polled": polls,
        "replicas": replicas.current,
    }
    if replicas.current == 0:
        wakes = polls and (trigger.active or parameters.min_replicas > 0)
        return KedaStep(max(1, parameters.min_replicas) if wakes else 0, after, why)
    if polls and not trigger.active and parameters.min_replicas == 0:
        quiet_s = None if active_s is None else time_s - active_s
        why |= {"quiet_s": quiet_s, "cooldown_s": parameters.cooldown_s}
        if quiet_s is None or quiet_s > parameters.cooldown_s + TOLERANCE_S:
            return KedaStep(0, after, why)
    wanted, history, terms = recommend(
        trigger.metric, time_s, replicas, parameters.rules(trigger.target), state.history
    )
    return KedaStep(wanted, msgspec.structs.replace(after, history=history), why | terms)
