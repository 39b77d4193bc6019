"""Kubernetes' HorizontalPodAutoscaler, v2, on a metric with an average value as its target.

Read from its controller (replica calculator, stabilisation and scale-up policies with their defaults), 2026. The stage
from metric to replicas, ``recommend``, is also the one that KEDA hands its metrics to.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal, NamedTuple

import msgspec

from controller.scalers.demand import busy_s, true_rate_per_s
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
from penstock.contracts import FleetObservation, ReplicaCounts, Term

Metric = Literal["backlog", "rate", "utilisation"]
RatioOver = Literal["ready", "existing"]

UP_FACTOR = 2
"""Scale-up policies of an HPA that names none: within a sync period at most 100 % more …"""
UP_PODS = 4
"""… or four pods more, whichever is the larger."""


class HpaRules(NamedTuple):
    """What an HPA is told. ``target`` is the metric's average value per replica."""

    target: float
    min_replicas: int
    max_replicas: int | None
    tolerance: float = 0.1
    stabilisation_s: float = 300.0
    ratio_over: RatioOver = "ready"


class HpaHistory(msgspec.Struct, frozen=True):
    """Recommendations within the stabilisation window, oldest first, as (time in s, replicas)."""

    recommendations: tuple[tuple[float, int], ...] = ()


class Recommendation(NamedTuple):
    """Replicas that the HPA sets, what it remembers, and its arithmetic."""

    replicas: int
    history: HpaHistory
    why: dict[str, Term]


def recommend(
    total: float, time_s: float, replicas: ReplicaCounts, rules: HpaRules, history: HpaHistory
) -> Recommendation:
    """One sync: ratio and tolerance, ⌈Σ / target⌉, stabilisation, scale-up limit, bounds.

    A number outside the bounds is brought back without a look at the metric. Zero replicas count as below the minimum:
    a fleet that somebody scaled to zero is not to be given to this function.
    """
    current = replicas.current
    bounded = max(current, rules.min_replicas)
    bounded = min(bounded, rules.max_replicas or bounded)
    if bounded != current:
        return Recommendation(bounded, history, {"replicas": current, "bounded": bounded})
    # A new HPA counts the number it finds as a recommendation: nothing shrinks in its first minutes.
    known = history.recommendations or ((time_s, current),)
    counted = replicas.joined if rules.ratio_over == "ready" else current
    why: dict[str, Term] = {"sum": total, "target": rules.target, "replicas": current, rules.ratio_over: counted}
    desired = desired_replicas(total, current, counted, rules, why)
    window = tuple(each for each in known if time_s - each[0] < rules.stabilisation_s - TOLERANCE_S)
    window = (*window, (time_s, desired))
    highest = max(recommended for _, recommended in window)
    stabilised = desired if desired > current else min(current, highest)
    limit = max(current * UP_FACTOR, current + UP_PODS)
    wanted = max(rules.min_replicas, min(stabilised, limit, rules.max_replicas or limit))
    why |= {
        "desired": desired,
        "stabilisation_s": rules.stabilisation_s,
        "recommendations_in_window": len(window),
        "highest_in_window": highest,
        "up_factor": UP_FACTOR,
        "up_pods": UP_PODS,
        "scale_up_limit": limit,
        "min_replicas": rules.min_replicas,
        "max_replicas": rules.max_replicas,
        "wanted": wanted,
    }
    return Recommendation(wanted, HpaHistory(window), why)


def desired_replicas(total: float, current: int, counted: int, rules: HpaRules, why: dict[str, Term]) -> int:
    """Before stabilisation and bounds: the current number where the ratio is within the tolerance of 1.

    With nothing counted there is no ratio: nothing to do without load, else as many as the metric asks for.
    """
    if counted:
        ratio = total / (rules.target * counted)
        why |= {"ratio": ratio, "tolerance": rules.tolerance, "deviation": abs(1 - ratio)}
        within = abs(1 - ratio) <= rules.tolerance + TOLERANCE
    else:
        within = total == 0
    why["within_tolerance"] = within
    return current if within else ceil(total / rules.target - TOLERANCE)


@dataclass(frozen=True)
class HpaParameters:
    """``metric`` backlog: events; utilisation: busy share of a replica; both against ``target_per_replica``. ``rate``:
    arrivals against ``target_rate_per_s``. An HPA has no defaults for targets.

    ``ratio_over``: the tolerance compares with the ready replicas, or with all that exist, as the controller does for
    external metrics. ``service_rate_per_s`` is for utilisation where the fleet measures neither busy time nor rate.
    """

    metric: Metric = "backlog"
    target_per_replica: float = 10.0
    target_rate_per_s: float = 100.0
    service_rate_per_s: float | None = None
    tolerance: float = 0.1
    stabilisation_s: float = 300.0
    ratio_over: RatioOver = "ready"
    decision_interval_s: float = 15.0
    min_replicas: int = 1
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(
            target_per_replica=self.target_per_replica,
            target_rate_per_s=self.target_rate_per_s,
            decision_interval_s=self.decision_interval_s,
        )
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)
        require_not_negative(tolerance=self.tolerance, stabilisation_s=self.stabilisation_s)
        require_bounds(self.min_replicas, self.max_replicas, least=1)

    def rules(self) -> HpaRules:
        """What the HPA is told."""
        return HpaRules(
            self.target_rate_per_s if self.metric == "rate" else self.target_per_replica,
            self.min_replicas,
            self.max_replicas,
            self.tolerance,
            self.stabilisation_s,
            self.ratio_over,
        )


class HpaState(msgspec.Struct, frozen=True):
    """Readings that the metric is made of, and the HPA's own history."""

    arrivals: Window = Window()
    completions: Window = Window()
    busy: Window = Window()
    history: HpaHistory = HpaHistory()


class Hpa(SingleFleetScaler[HpaParameters, HpaState]):
    """Replicas so that each has the target's share of the metric."""

    name: ClassVar[str] = "hpa"
    paper: ClassVar[str] = "Kubernetes HorizontalPodAutoscaler v2"
    emulates: ClassVar[str] = "Kubernetes HPA"
    Parameters: ClassVar[type[HpaParameters]] = HpaParameters
    State: ClassVar[type[FleetStates[HpaState]]] = states_by_fleet(HpaState)

    def start_part(self) -> HpaState:
        """Nothing read, nothing recommended."""
        return HpaState()

    def decide_part(
        self,
        part: FleetObservation,
        state: HpaState,
        observation: FleetObservation,  # noqa: ARG002 - a part is enough
    ) -> tuple[PartDecision, HpaState]:
        """Read the metric and take one sync. An HPA without its metric changes nothing."""
        p = self.parameters
        seen = msgspec.structs.replace(
            state,
            arrivals=state.arrivals.add(part.time_s, part.arrived, p.decision_interval_s),
            completions=state.completions.add(part.time_s, part.completed, p.decision_interval_s),
            busy=state.busy.add(part.time_s, busy_s(part), p.decision_interval_s),
        )
        total = self._total(part, seen)
        if isinstance(total, PartDecision):
            return total, seen
        replicas, history, why = recommend(total, part.time_s, part.replicas, p.rules(), state.history)
        decision = resize_part(part, replicas, {"metric": p.metric, **why})
        return decision, msgspec.structs.replace(seen, history=history)

    def _total(self, part: FleetObservation, seen: HpaState) -> float | PartDecision:
        """Σ of the metric over the replicas, or why it is unknown."""
        p = self.parameters
        if p.metric == "backlog":
            return unknown_part(part, "backlog") or float(part.backlog or 0)
        if p.metric == "rate":
            arrivals = seen.arrivals.rate_per_s(p.decision_interval_s)
            if arrivals is None:
                return unknown_part(part, "arrived") or hold_part("no arrival rate yet: this is the first reading")
            return unknown_part(part, "arrived") or arrivals
        return self._busy_replicas(part, seen)

    def _busy_replicas(self, part: FleetObservation, seen: HpaState) -> float | PartDecision:
        """Σ of the utilisations: busy seconds per second, or completions over what a busy replica gets done."""
        p = self.parameters
        if "busy_s" in part.unknown:
            return hold_part(f"busy_s is unknown ({part.unknown['busy_s']})")
        if busy_s(part) is not None:
            busy = seen.busy.rate_per_s(p.decision_interval_s)
            return hold_part("no utilisation yet: this is the first reading") if busy is None else busy
        unknown = unknown_part(part, "completed")
        if unknown is not None:
            return unknown
        done = seen.completions.rate_per_s(p.decision_interval_s)
        rate, _ = true_rate_per_s(part, Window(), Window(), p.decision_interval_s, p.service_rate_per_s)
        if done is None:
            return hold_part("no utilisation yet: this is the first reading")
        if rate is None:
            return hold_part("utilisation is unknown: nothing tells busy time or service rate; set service_rate_per_s")
        return done / rate
