"""The over-provisioned fleet that the bin-pack paper compares with: as many replicas as the peak will need, always.

Ezzeddine, Baude and Huet, CLOSER 2024, section 5: the packing of partitions that each receive their share of the peak
with one second of it waiting (five replicas in both workloads).
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.scalers.packing import Load, bin_size, pack
from controller.scalers.parameters import require_not_negative, require_positive, require_replicas, require_share
from penstock.contracts import Decision, StreamObservation, Term, hold


@dataclass(frozen=True)
class OverprovisionParameters:
    """``peak_rate_per_s`` is the total rate to be ready for; ``lag_s`` is how many seconds of it wait at worst."""

    peak_rate_per_s: float = 350.0
    lag_s: float = 1.0
    service_rate_per_s: float = 200.0
    slo_s: float = 0.5
    f_up: float = 0.9
    decision_interval_s: float = 1.0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(
            peak_rate_per_s=self.peak_rate_per_s,
            service_rate_per_s=self.service_rate_per_s,
            slo_s=self.slo_s,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(lag_s=self.lag_s)
        require_share(f_up=self.f_up)
        require_replicas(self.max_replicas)


class OverprovisionState(msgspec.Struct, frozen=True):
    """Nothing to remember."""


class Overprovision:
    """A constant fleet, sized for the peak."""

    name: ClassVar[str] = "overprovision"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, section 5 (comparison)"
    Parameters: ClassVar[type[OverprovisionParameters]] = OverprovisionParameters
    State: ClassVar[type[OverprovisionState]] = OverprovisionState

    def __init__(self, parameters: OverprovisionParameters) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> OverprovisionState:  # noqa: ARG002 - nothing is drawn
        """Nothing to remember."""
        return OverprovisionState()

    def decide(self, observation: StreamObservation, state: OverprovisionState) -> tuple[Decision, OverprovisionState]:
        """Bring the fleet to the size of the peak and keep it there; lag and rates are not looked at."""
        p = self.parameters
        partitions = tuple(partition.partition for partition in observation.partitions)
        if not partitions:
            return hold(observation.fleet, "no partitions known"), state
        share = p.peak_rate_per_s / len(partitions)
        packing = pack(
            Load([share * p.lag_s] * len(partitions), [share] * len(partitions)),
            bin_size(p.service_rate_per_s, p.slo_s, p.f_up),
            most=min(len(partitions), p.max_replicas or len(partitions)),
        )
        assert packing is not None
        replicas = observation.replicas.current
        action = "up" if packing.bins > replicas else "down" if packing.bins < replicas else "none"
        why: dict[str, Term] = {
            "peak_rate_per_s": p.peak_rate_per_s,
            "peak_per_partition": [share * p.lag_s, share],
            "replicas": replicas,
            "LL_peak": packing.bins,
            "action": action,
        }
        if action == "none":
            return Decision(action="none", why={observation.fleet: why}), state
        return Decision(
            action="up" if packing.bins > replicas else "down",
            targets={observation.fleet: packing.bins},
            assignment=tuple(tuple(partitions[position] for position in group) for group in packing.groups),
            why={observation.fleet: why},
        ), state
