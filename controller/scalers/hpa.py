"""Kubernetes' HorizontalPodAutoscaler, v2, on a metric with an average value as its target.

Read from its controller, 2026. ``controller.scalers.shared.hpa_sync`` computes replicas from the metric.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from controller.scalers.shared.base import CannotDecide, check_known, reason_of, resize
from controller.scalers.shared.demand import busy_s
from controller.scalers.shared.hpa_sync import HpaHistory, HpaRules, recommend
from controller.scalers.shared.parameters import Candidates, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate
from penstock.contracts import FleetObservation


@dataclass(frozen=True)
class HpaParameters(HpaRules):
    """``metric`` backlog: events; utilisation: busy share of a replica; both against ``target_per_replica``. ``rate``:
    arrivals against ``target_rate_per_s``. An HPA has no defaults for targets. Utilisation is a metric of pods, the
    other two are external.
    ``service_rate_per_s`` is for utilisation where the fleet measures neither busy time nor rate.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        **HpaRules.candidates,
        "metric": Candidates(("backlog", "rate")),
        # Its controller reads quantities in thousandths.
        "target_per_replica": Candidates((0.01, 0.03, 0.1, 0.3, 1.0), ("service_rate_per_s", "slo_s"), step=0.001),
        "target_rate_per_s": Candidates((0.3, 0.45, 0.6, 0.75, 0.9), ("service_rate_per_s",), step=0.001),
    }
    metric: Literal["backlog", "rate", "utilisation"] = "backlog"
    target_per_replica: Positive = 10.0
    target_rate_per_s: Positive = 100.0
    service_rate_per_s: Positive | None = None


class HpaState(msgspec.Struct, frozen=True):
    """Readings that the metric is made of, and the HPA's own history."""

    arrivals: Window = Window()
    completions: Window = Window()
    busy: Window = Window()
    history: HpaHistory = HpaHistory()


class Hpa(SingleFleetScaler[HpaParameters, HpaState]):
    """Replicas in proportion to a metric."""

    name: ClassVar[str] = "hpa"
    paper: ClassVar[str] = "Kubernetes HorizontalPodAutoscaler v2"
    emulates: ClassVar[str] = "Kubernetes HPA"

    def read(self, part: FleetObservation, state: HpaState, _: FleetObservation) -> HpaState:
        """The counters of all metrics."""
        return msgspec.structs.replace(
            state,
            arrivals=state.arrivals.add(part.time_s, part.arrived, self.period_s),
            completions=state.completions.add(part.time_s, part.completed, self.period_s),
            busy=state.busy.add(part.time_s, busy_s(part), self.period_s),
        )

    def decide_part(self, part: FleetObservation, state: HpaState, _: FleetObservation) -> Step[HpaState]:
        """Read the metric and take one sync. An HPA without its metric changes nothing."""
        p, target = self.parameters, self.parameters.target_per_replica
        if p.metric == "backlog":
            check_known(part, "backlog")
            total = float(part.backlog or 0)
        elif p.metric == "rate":
            total, target = known_rate(part, "arrived", state.arrivals, self.period_s), p.target_rate_per_s
        else:
            total = self._busy_replicas(part, state)
        replicas, history, why = recommend(
            total, target, part.time_s, part.replicas, p, state.history, of_pods=p.metric == "utilisation"
        )
        return resize(part, replicas, {"metric": p.metric, **why}), msgspec.structs.replace(state, history=history)

    def _busy_replicas(self, part: FleetObservation, state: HpaState) -> float:
        """Σ of the utilisations: busy seconds per second, or completions over the service rate."""
        if "busy_s" in part.unknown:
            raise CannotDecide(f"busy_s is unknown{reason_of(part.unknown, 'busy_s')}")
        if busy_s(part) is not None:
            return known_rate(part, "busy_s", state.busy, self.period_s)
        done = known_rate(part, "completed", state.completions, self.period_s)
        rate = part.service_rate_per_s or self.parameters.service_rate_per_s
        if rate is None:
            raise CannotDecide("utilisation is unknown: no busy time, no measured rate; set service_rate_per_s")
        return done / rate
