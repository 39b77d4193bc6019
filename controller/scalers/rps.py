"""Requests per second against a target per replica: the first of the scalers that AMESoS compares itself with.

Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2; reading A16. Every fleet follows its own measured rate, so that the
functions of a pipeline scale one after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

import msgspec

from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_positive
from controller.scalers.single_fleet import (
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


def replicas_for_load(current_load_per_s: float, target_per_replica_per_s: float) -> int:
    """⌈currentLoad / targetLoadPerReplica⌉, at least one (A16)."""
    return max(1, ceil(current_load_per_s / target_per_replica_per_s - TOLERANCE))


@dataclass(frozen=True)
class RpsParameters:
    """The target is what a load generator found one replica to carry. Not given for a fleet, neither by
    ``target_by_fleet_per_s`` nor by ``target_per_replica_per_s``, it is ρ times the measured service rate of a replica,
    with the utilisation that AMESoS and DwP aim at, so that the three differ in what they look at only (our choice: the
    paper prints no targets, and at the service rate itself a queue would never be worked off).
    """

    target_per_replica_per_s: float | None = None
    target_by_fleet_per_s: Mapping[str, float] = field(default_factory=dict)
    rho: float = 0.7
    decision_interval_s: float = 2.5

    def __post_init__(self) -> None:
        require_positive(decision_interval_s=self.decision_interval_s)
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho={self.rho:g}: expected a number above 0 and up to 1")
        if self.target_per_replica_per_s is not None:
            require_positive(target_per_replica_per_s=self.target_per_replica_per_s)
        by_fleet = self.target_by_fleet_per_s
        require_positive(**{f"target_by_fleet_per_s.{fleet}": target for fleet, target in by_fleet.items()})


class RpsState(msgspec.Struct, frozen=True):
    """Arrivals of the last interval, and the last service rate that was measured."""

    arrivals: Window = Window()
    service_rate_per_s: float | None = None


class Rps(SingleFleetScaler[RpsParameters, RpsState]):
    """Replicas in proportion to the rate observed over the last interval."""

    name: ClassVar[str] = "rps"
    paper: ClassVar[str] = "Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2 (comparison)"
    Parameters: ClassVar[type[RpsParameters]] = RpsParameters
    State: ClassVar[type[FleetStates[RpsState]]] = states_by_fleet(RpsState)

    def start_part(self) -> RpsState:
        """No reading yet."""
        return RpsState()

    def decide_part(
        self,
        part: FleetObservation,
        state: RpsState,
        observation: FleetObservation,  # noqa: ARG002 - own rate only
    ) -> tuple[PartDecision, RpsState]:
        """As many replicas as the rate of the last interval asks for."""
        p = self.parameters
        seen = RpsState(
            state.arrivals.add(part.time_s, part.arrived, p.decision_interval_s),
            part.service_rate_per_s or state.service_rate_per_s,
        )
        unknown = unknown_part(part, "arrived")
        if unknown is not None:
            return unknown, seen
        load = seen.arrivals.rate_per_s(p.decision_interval_s)
        if load is None:
            return hold_part("no rate yet: this is the first reading of the arrivals"), seen
        target = p.target_by_fleet_per_s.get(part.fleet, p.target_per_replica_per_s)
        why: dict[str, Term] = {"currentLoad_per_s": load}
        if target is None and seen.service_rate_per_s is not None:
            target = p.rho * seen.service_rate_per_s
            why |= {"mu_per_s": seen.service_rate_per_s, "rho": p.rho}
        if target is None:
            return hold_part("no target per replica: none is set, and no service rate was measured yet", **why), seen
        wanted = replicas_for_load(load, target)
        why |= {"targetLoadPerReplica_per_s": target, "current_replicas": part.replicas.current, "desired": wanted}
        return resize_part(part, wanted, why), seen
