"""The clairvoyant policy of the bin-pack paper, and the exact minimum of Equation (5) for small instances.

Ezzeddine, Baude and Huet, CLOSER 2024, sections 4 and 5. "Optimal" knows the rate of each second beforehand and pays
nothing for a rebalance: a reference for costs, possible in a simulator only. Reading B15: 85 events per replica.
"""

from dataclasses import dataclass
from math import floor, inf, isfinite
from typing import ClassVar

import msgspec

from controller.scalers.packing import TOLERANCE, Bin, Load, truncate
from controller.scalers.parameters import require_positive, require_replicas
from penstock.contracts import Decision, StreamObservation, Term, hold
from penstock.plan import range_groups


def optimal_replicas(total_rate_per_s: float, partitions: int, capacity: float) -> int:
    """Replicas for ``partitions`` that share a rate equally when one replica carries ``capacity`` events/s."""
    if total_rate_per_s <= 0 or partitions == 0:
        return 1
    fit = floor(capacity / (total_rate_per_s / partitions) + TOLERANCE)
    together = min(max(fit, 1), partitions)
    return -(-partitions // together)


def fewest_bins(load: Load, size: Bin) -> int:
    """The exact minimum of Equation (5) on truncated loads, by depth-first search, for a dozen partitions at most."""
    lags, rates = truncate(load, size)
    items = sorted(zip(lags, rates, strict=True), key=lambda item: -max(item[0] / size.lag, item[1] / size.rate_per_s))
    best = max(1, len(items))

    def search(index: int, rooms: list[Bin]) -> None:
        nonlocal best
        if len(rooms) >= best:
            return
        if index == len(items):
            best = max(1, len(rooms))
            return
        lag, rate = items[index]
        for room in sorted(set(rooms)):
            if room.lag + TOLERANCE >= lag and room.rate_per_s + TOLERANCE >= rate:
                others = list(rooms)
                others.remove(room)
                search(index + 1, [*others, Bin(room.lag - lag, room.rate_per_s - rate)])
        search(index + 1, [*rooms, Bin(size.lag - lag, size.rate_per_s - rate)])

    search(0, [])
    return best


@dataclass(frozen=True)
class OptimalParameters:
    """``rates_per_s`` is the total arrival rate of the run, one value per decision interval from its start."""

    rates_per_s: tuple[float, ...] = ()
    replica_capacity_per_s: float = 85.0
    decision_interval_s: float = 1.0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        if not self.rates_per_s:
            raise ValueError(
                "rates_per_s is empty: optimal is clairvoyant and needs the series of total arrival rates, "
                "which only --world sim can give it"
            )
        for second, rate in enumerate(self.rates_per_s):
            if not (isfinite(rate) and rate >= 0):
                raise ValueError(f"rates_per_s[{second}]={rate:g}: expected a number of at least 0")
        require_positive(
            replica_capacity_per_s=self.replica_capacity_per_s, decision_interval_s=self.decision_interval_s
        )
        require_replicas(self.max_replicas)


class OptimalState(msgspec.Struct, frozen=True):
    """Nothing to remember."""


class Optimal:
    """As many replicas as the rate of the second that begins will need."""

    name: ClassVar[str] = "optimal"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, section 5 (comparison); clairvoyant, sim only"
    clairvoyant: ClassVar[bool] = True
    Parameters: ClassVar[type[OptimalParameters]] = OptimalParameters
    State: ClassVar[type[OptimalState]] = OptimalState

    def __init__(self, parameters: OptimalParameters) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> OptimalState:  # noqa: ARG002 - nothing is drawn
        """Nothing to remember."""
        return OptimalState()

    def decide(self, observation: StreamObservation, state: OptimalState) -> tuple[Decision, OptimalState]:
        """The fleet for this second of the series; its last value goes on after its end."""
        p = self.parameters
        partitions = tuple(partition.partition for partition in observation.partitions)
        if not partitions:
            return hold(observation.fleet, "no partitions known"), state
        second = min(max(0, int(observation.time_s / p.decision_interval_s)), len(p.rates_per_s) - 1)
        rate = p.rates_per_s[second]
        wanted = optimal_replicas(rate, len(partitions), p.replica_capacity_per_s)
        target = int(min(wanted, p.max_replicas or inf))
        replicas = observation.replicas.current
        why: dict[str, Term] = {
            "total_rate_per_s": rate,
            "replica_capacity_per_s": p.replica_capacity_per_s,
            "replicas": replicas,
            "wanted": wanted,
        }
        if target == replicas:
            return Decision(action="none", why={observation.fleet: {**why, "action": "none"}}), state
        action = "up" if target > replicas else "down"
        return Decision(
            action="up" if target > replicas else "down",
            targets={observation.fleet: target},
            assignment=range_groups(partitions, target),
            why={observation.fleet: {**why, "action": action}},
        ), state
