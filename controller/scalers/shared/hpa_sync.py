"""One sync of Kubernetes' HorizontalPodAutoscaler, from a metric to replicas; KEDA passes its metrics to it as well.

Read from its controller, 1.34, in 2026. It has two paths: one for an HPA without ``spec.behavior``, which is KEDA's
default, and one for an HPA with it. Only the second has policies; only the first follows a peak that has passed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec

from controller.queueing.rounding import TOLERANCE, rounded_up
from controller.scalers.shared.base import TOLERANCE_S, CannotDecide
from controller.scalers.shared.parameters import BoundedParameters, Candidates, NotNegative, Positive
from penstock.contracts import ReplicaCounts, Term

UP_FACTOR = 2
UP_PODS = 4
"""Scale-up limit of a sync: twice the replicas, or without behavior four, with its default policies four more, if that
is more.
"""


@dataclass(frozen=True, kw_only=True)
class HpaRules(BoundedParameters):
    """Settings of an HPA. ``behavior``: it has a ``spec.behavior``, with the default policies and no scale-up window.
    ``stabilisation_s``: the window, behavior's for scale-down or the controller's. ``policy_period_s``: of the default
    policies, which count from the replicas at its beginning; syncs that come early share a period.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        # A window of an HPA's own is part of its behavior, in whole seconds.
        "behavior": Candidates((True,)),
        "stabilisation_s": Candidates((0.0, 30.0, 120.0, 300.0), step=1.0),
        "min_replicas": Candidates((0.2, 0.4, 0.6, 0.8), ("max_replicas",)),
    }
    tolerance: NotNegative = 0.1
    stabilisation_s: NotNegative = 300.0
    behavior: bool = False
    policy_period_s: Positive = 15.0
    decision_interval_s: Positive = 15.0


class HpaHistory(msgspec.Struct, frozen=True):
    """Recommendations within the stabilisation window, oldest first, as (time in s, replicas): as computed from the
    metric, before stabilisation, limit and bounds. ``changes``: what was added (or removed, negative) within the period
    of the policies, likewise.
    """

    recommendations: tuple[tuple[float, int], ...] = ()
    changes: tuple[tuple[float, int], ...] = ()


class Recommendation(NamedTuple):
    """Replicas that the HPA sets, what it remembers, and its arithmetic."""

    replicas: int
    history: HpaHistory
    why: dict[str, Term]


def recommend(
    total: float,
    target: float,
    time_s: float,
    replicas: ReplicaCounts,
    rules: HpaRules,
    history: HpaHistory,
    *,
    of_pods: bool = False,
) -> Recommendation:
    """One sync: ratio and tolerance, ⌈Σ / target⌉, stabilisation, scale-up limit, bounds. ``target``: the metric's
    average value per replica. ``of_pods``: pods have the metric, so that the ratio is over the ready ones; an external
    metric is divided by all that exist.

    A number outside the bounds is brought within them regardless of the metric. No HPA goes below one, and none scales
    from zero. Raises CannotDecide for a metric of pods none of which is ready.
    """
    current, least = replicas.current, max(1, rules.min_replicas)
    if current == 0:
        return Recommendation(0, history, {"scaling_disabled_at": 0})
    bounded = min(max(current, least), rules.max_replicas or max(current, least))
    if bounded != current:
        return Recommendation(bounded, history, {"replicas": current, "bounded": bounded})
    # A new HPA counts the number it finds as a recommendation: nothing shrinks in its first minutes.
    known = history.recommendations or ((time_s, current),)
    counted = replicas.joined if of_pods else current
    if not counted:
        raise CannotDecide("no replica is ready: pods have no metric yet", replicas=current)
    why: dict[str, Term] = {"sum": total, "target": target, "replicas": current}
    why["ready" if of_pods else "existing"] = counted
    desired = desired_replicas(total, target, current, counted, rules.tolerance, why)
    window = tuple(each for each in known if time_s - each[0] < rules.stabilisation_s - TOLERANCE_S)
    window = (*window, (time_s, desired))
    highest = max(recommended for _, recommended in window)
    stabilised = max(desired, min(current, highest)) if rules.behavior else highest
    changes = tuple(each for each in history.changes if time_s - each[0] < rules.policy_period_s - TOLERANCE_S)
    before = current - sum(change for _, change in changes)
    limit = max(before * UP_FACTOR, before + UP_PODS, current) if rules.behavior else max(current * UP_FACTOR, UP_PODS)
    wanted = max(least, min(stabilised, limit, rules.max_replicas or limit))
    if rules.behavior and wanted != current:
        changes = (*changes, (time_s, wanted - current))
    why |= {
        "desired": desired,
        "stabilisation_s": rules.stabilisation_s,
        "recommendations_in_window": len(window),
        "highest_in_window": highest,
        "behavior": rules.behavior,
        "stabilised": stabilised,
        "up_factor": UP_FACTOR,
        **({"replicas_before": before, "up_pods": UP_PODS} if rules.behavior else {"up_to_pods": UP_PODS}),
        "scale_up_limit": limit,
        "min_replicas": least,
        "max_replicas": rules.max_replicas,
        "wanted": wanted,
    }
    return Recommendation(wanted, HpaHistory(window, changes), why)


def desired_replicas(
    total: float, target: float, current: int, counted: int, tolerance: float, why: dict[str, Term]
) -> int:
    """Replicas before stabilisation and bounds: the current number if the ratio is within the tolerance of 1.

    ``counted``: those with the metric, at least one. Where they ask for more, the others count as pods without load: if
    the ratio is then within the tolerance, or below 1, nothing changes (calcPlainMetricReplicas).
    """
    ratio = total / (target * counted)
    why |= {"ratio": ratio, "tolerance": tolerance}
    if counted < current and ratio > 1:
        why["ratio_of_all"] = of_all = total / (target * current)
        stays = of_all <= 1 + tolerance + TOLERANCE
    else:
        why["deviation"] = abs(1 - ratio)
        stays = abs(1 - ratio) <= tolerance + TOLERANCE
    why["within_tolerance"] = stays
    return current if stays else rounded_up(total / target)
