"""KEDA's scaling: 0 ↔ 1 by polling its trigger; 1 ↔ N by a HorizontalPodAutoscaler that it creates.

Read from KEDA's scale executor and documentation, 2026. The HPA asks for the metric at each of its syncs; the polling
interval is for activation only.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec

from controller.scalers.shared.base import TOLERANCE_S
from controller.scalers.shared.hpa_sync import HpaHistory, HpaRules, recommend
from controller.scalers.shared.parameters import NotNegative, Positive
from penstock.contracts import ReplicaCounts, Term


@dataclass(frozen=True, kw_only=True)
class KedaParameters(HpaRules):
    """A ScaledObject with KEDA's defaults, and its HPA. ``min_replicas`` and ``max_replicas`` are minReplicaCount and
    maxReplicaCount; the HPA itself never goes below one.
    """

    least_replicas: ClassVar[int] = 0
    poll_interval_s: Positive = 30.0
    cooldown_s: NotNegative = 300.0
    min_replicas: int = 0
    max_replicas: int | None = 100


class Trigger(NamedTuple):
    """Answer of a KEDA scaler: metric for the HPA, target per replica, and whether there is work."""

    metric: float
    target: float
    active: bool


class KedaState(msgspec.Struct, frozen=True):
    """When KEDA last polled, and when it last found the trigger active; the HPA's history."""

    polled_s: float | None = None
    active_s: float | None = None
    history: HpaHistory = HpaHistory()


def keda_step(
    trigger: Trigger, time_s: float, replicas: ReplicaCounts, parameters: KedaParameters, state: KedaState
) -> tuple[int, KedaState, dict[str, Term]]:
    """One sync of the HPA, and KEDA's poll if it is due: replicas wanted, the state after it, and the arithmetic.

    Only a poll scales from or to zero. To zero: when the trigger was inactive for longer than the cooldown, or never
    active.
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
        return max(1, parameters.min_replicas) if wakes else 0, after, why
    if polls and not trigger.active and parameters.min_replicas == 0:
        quiet_s = None if active_s is None else time_s - active_s
        why |= {"quiet_s": quiet_s, "cooldown_s": parameters.cooldown_s}
        if quiet_s is None or quiet_s > parameters.cooldown_s + TOLERANCE_S:
            return 0, after, why
    wanted, history, terms = recommend(trigger.metric, trigger.target, time_s, replicas, parameters, state.history)
    return wanted, msgspec.structs.replace(after, history=history), why | terms
