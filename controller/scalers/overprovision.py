"""The over-provisioned fleet that the bin-pack paper compares with: always the replicas of the peak.

Ezzeddine, Baude and Huet, CLOSER 2024, section 5: the packing of partitions that each receive their share of the peak
with one second of it waiting (five replicas in both workloads).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.shared.base import BaseScaler, NoState, resize
from controller.scalers.shared.pack import pack
from controller.scalers.shared.packing import Load, bin_size
from controller.scalers.shared.parameters import Candidates, Count, NotNegative, OpenShare, Parameters, Positive
from controller.scalers.shared.stream_scaler import in_partitions
from penstock.contracts import Decision, StreamObservation, Term, hold


@dataclass(frozen=True)
class OverprovisionParameters(Parameters):
    """``peak_rate_per_s`` is the total rate at the peak; ``lag_s``: seconds of it that wait at worst."""

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "peak_rate_per_s": Candidates((0.3, 0.45, 0.6, 0.8, 1.0, 1.2), ("peak_rate_per_s",)),
    }
    peak_rate_per_s: Positive = 350.0
    lag_s: NotNegative = 1.0
    service_rate_per_s: Positive = 200.0
    slo_s: Positive = 0.5
    f_up: OpenShare = 0.9
    max_replicas: Count | None = None


class Overprovision(BaseScaler[OverprovisionParameters, NoState]):
    """A constant fleet, sized for the peak."""

    name: ClassVar[str] = "overprovision"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, section 5 (comparison)"

    def decide(self, observation: StreamObservation, state: NoState) -> tuple[Decision, NoState]:
        """Bring the fleet to the size of the peak and keep it there, whatever lag and rates are."""
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
        why: dict[str, Term] = {
            "peak_rate_per_s": p.peak_rate_per_s,
            "peak_per_partition": [share * p.lag_s, share],
            "replicas": observation.replicas.current,
            "LL_peak": packing.bins,
        }
        return resize(observation, packing.bins, why, in_partitions(packing.groups, partitions)), state
