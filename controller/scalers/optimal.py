"""The clairvoyant policy of the bin-pack paper.

Ezzeddine, Baude and Huet, CLOSER 2024, section 5. "Optimal" is given the rate of each second and pays nothing
for a rebalance: a reference for costs, possible in a simulator only. Reading B15: 85 events per replica.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.queueing.rounding import rounded_down
from controller.scalers.shared.base import BaseScaler, NoState, resize
from controller.scalers.shared.parameters import Count, NotNegative, Parameters, Positive
from penstock.contracts import Decision, StreamObservation, Term, hold
from penstock.plan import range_groups


def optimal_replicas(total_rate_per_s: float, partitions: int, capacity: float) -> int:
    """Replicas for ``partitions`` that share a rate equally when one replica carries ``capacity`` events/s."""
    if total_rate_per_s <= 0 or partitions == 0:
        return 1
    fit = rounded_down(capacity / (total_rate_per_s / partitions))
    together = min(max(fit, 1), partitions)
    return -(-partitions // together)


@dataclass(frozen=True)
class OptimalParameters(Parameters):
    """``rates_per_s`` is the total arrival rate of the run, one value per decision interval from its start."""

    rates_per_s: tuple[NotNegative, ...] = ()
    replica_capacity_per_s: Positive = 85.0
    max_replicas: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rates_per_s:
            raise ValueError(
                "rates_per_s is empty: optimal is clairvoyant and needs the series of total arrival rates, "
                "which only --world sim can give it"
            )


class Optimal(BaseScaler[OptimalParameters, NoState]):
    """As many replicas as the rate of the second that begins will need."""

    name: ClassVar[str] = "optimal"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, section 5 (comparison); clairvoyant, sim only"
    clairvoyant: ClassVar[bool] = True

    def decide(self, observation: StreamObservation, state: NoState) -> tuple[Decision, NoState]:
        """The fleet for this second of the series; after its end its last value holds."""
        p = self.parameters
        partitions = tuple(partition.partition for partition in observation.partitions)
        if not partitions:
            return hold(observation.fleet, "no partitions known"), state
        second = min(max(0, rounded_down(observation.time_s / p.decision_interval_s)), len(p.rates_per_s) - 1)
        rate, replicas = p.rates_per_s[second], observation.replicas.current
        wanted = optimal_replicas(rate, len(partitions), p.replica_capacity_per_s)
        target = min(wanted, p.max_replicas or wanted)
        why: dict[str, Term] = {
            "total_rate_per_s": rate,
            "replica_capacity_per_s": p.replica_capacity_per_s,
            "replicas": replicas,
            "wanted": wanted,
        }
        return resize(observation, target, why, range_groups(partitions, target)), state
