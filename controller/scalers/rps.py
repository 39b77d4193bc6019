"""Requests per second against a target per replica: the first of the scalers that AMESoS compares itself with.

Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2; reading A16. Every fleet follows its own measured rate, so that the
functions of a pipeline scale one after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.base import CannotDecide, resize
from controller.scalers.shared.parameters import Candidates, Parameters, Positive, PositiveShare
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate
from penstock.contracts import FleetObservation, Term


def replicas_for_load(current_load_per_s: float, target_per_replica_per_s: float) -> int:
    """⌈currentLoad / targetLoadPerReplica⌉, at least one (A16)."""
    return max(1, rounded_up(current_load_per_s / target_per_replica_per_s))


@dataclass(frozen=True)
class RpsParameters(Parameters):
    """The target of a fleet is ``target_by_fleet_per_s``, else ``target_per_replica_per_s``, else ρ times the measured
    service rate, or ``service_rate_per_s`` while none is: offsets of a topic give none. The paper prints no targets; it
    finds them with a load generator that saturates one replica, so ρ is 1 (A18). With AMESoS' and DwP's 0.7 it is
    another scaler.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "target_per_replica_per_s": Candidates((0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), ("service_rate_per_s",)),
        "decision_interval_s": Candidates((0.5, 1.0, 2.5, 5.0, 15.0)),
    }
    target_per_replica_per_s: Positive | None = None
    target_by_fleet_per_s: Mapping[str, Positive] = field(default_factory=dict)
    rho: PositiveShare = 1.0
    service_rate_per_s: Positive | None = None
    decision_interval_s: Positive = 2.5


class RpsState(msgspec.Struct, frozen=True):
    """Arrivals of the last interval, and the last service rate that was measured."""

    arrivals: Window = Window()
    service_rate_per_s: float | None = None


class Rps(SingleFleetScaler[RpsParameters, RpsState]):
    """Replicas in proportion to the rate observed over the last interval."""

    name: ClassVar[str] = "rps"
    paper: ClassVar[str] = "Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2 (comparison)"

    def read(self, part: FleetObservation, state: RpsState, _: FleetObservation) -> RpsState:
        """Arrivals, and the service rate if one is measured."""
        arrivals = state.arrivals.add(part.time_s, part.arrived, self.period_s)
        return RpsState(arrivals, part.service_rate_per_s or state.service_rate_per_s)

    def decide_part(self, part: FleetObservation, state: RpsState, _: FleetObservation) -> Step[RpsState]:
        """As many replicas as the rate of the last interval asks for."""
        p = self.parameters
        load = known_rate(part, "arrived", state.arrivals, p.decision_interval_s)
        target = p.target_by_fleet_per_s.get(part.fleet, p.target_per_replica_per_s)
        why: dict[str, Term] = {"currentLoad_per_s": load}
        rate_per_s = state.service_rate_per_s or p.service_rate_per_s
        if target is None and rate_per_s is not None:
            target = p.rho * rate_per_s
            why |= {"mu_per_s": rate_per_s, "rho": p.rho}
        if target is None and load > 0:
            raise CannotDecide("no target per replica: none is set, and no service rate is set or was measured", **why)
        # No load needs one replica, whatever it can do.
        wanted = 1 if target is None else replicas_for_load(load, target)
        if target is not None:
            why["targetLoadPerReplica_per_s"] = target
        why |= {"current_replicas": part.replicas.current, "desired": wanted}
        return resize(part, wanted, why), state
