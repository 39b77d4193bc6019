"""The linear autoscaler that the bin-pack paper compares with: replicas in proportion to the total arrival rate.

Ezzeddine, Baude and Huet, CLOSER 2024, section 5. The formula's symbols are lost in print; reading B14 reproduces the
published costs. Partitions are assigned as Kafka's range assignor would, regardless of their load.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from typing import ClassVar, Literal

from controller.queueing.rounding import rounded_up
from controller.scalers.binpack import BinpackParameters
from controller.scalers.shared.parameters import Candidates, Positive
from controller.scalers.shared.stream_scaler import RateState, StreamScaler, StreamTick
from penstock.contracts import Decision, Term
from penstock.plan import range_groups

Reading = Literal["lag", "rate"]


def replicas_for(total_rate_per_s: float, per_replica: float, lag_s: float = 1.0) -> int:
    """⌈λ·lag_s / per replica⌉, at least one: arrivals of ``lag_s`` over the events that may wait for one replica."""
    return max(1, rounded_up(total_rate_per_s * lag_s / per_replica))


def linear_step(replicas: int, needed_up: int, needed_down: int) -> int:
    """The printed pair of thresholds: up if f_up asks for more, down if f_down asks for fewer."""
    if needed_up > replicas:
        return needed_up
    return min(needed_down, replicas)


@dataclass(frozen=True)
class LinearParameters(BinpackParameters):
    """``reading`` lag: the arrivals of ``lag_s``, one second whatever the decision interval, against μ·w·f (B14); rate:
    arrivals per second against μ·f. Without ``hysteresis`` f_up is used both ways, as the published numbers show.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        **BinpackParameters.candidates,
        "hysteresis": Candidates((False, True)),
        "reading": Candidates(("lag", "rate")),
    }
    hysteresis: bool = False
    lag_s: Positive = 1.0
    reading: Reading = "lag"

    def capacity(self, fraction: float) -> float:
        """Of one replica at ``fraction``: events that it may have waiting, or events per second, by ``reading``."""
        waiting_s = self.slo_s if self.reading == "lag" else 1.0
        return self.service_rate_per_s * waiting_s * fraction

    def needed(self, total_rate_per_s: float, fraction: float) -> int:
        """Replicas at ``fraction`` of a replica's capacity."""
        lag_s = self.lag_s if self.reading == "lag" else 1.0
        return replicas_for(total_rate_per_s, self.capacity(fraction), lag_s)

    def terms(self) -> dict[str, Term]:
        """The terms of a replica's capacity: μ, w and ``lag_s`` where the reading has them, f both ways if used."""
        why: dict[str, Term] = {"mu_per_s": self.service_rate_per_s}
        if self.reading == "lag":
            why["w_s"] = self.slo_s
        why |= {"f_up": self.f_up, "capacity_up": self.capacity(self.f_up)}
        if self.hysteresis:
            why |= {"f_down": self.f_down, "capacity_down": self.capacity(self.f_down)}
        if self.reading == "lag":
            why["lag_s"] = self.lag_s
        return why


class Linear(StreamScaler[LinearParameters, RateState]):
    """Replicas proportional to the total arrival rate."""

    name: ClassVar[str] = "linear"
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, section 5 (comparison)"
    needs_lag: ClassVar[bool] = False
    groups_partitions: ClassVar[bool] = False

    def decide_tick(self, tick: StreamTick, state: RateState) -> tuple[Decision, RateState]:
        """As many replicas as the total rate needs, each with a range of partitions."""
        p, total = self.parameters, fsum(tick.load.rates_per_s)
        wanted = p.needed(total, p.f_up)
        why: dict[str, Term] = {
            "partitions": list(tick.partitions),
            "rate_per_s": list(tick.load.rates_per_s),
            "total_rate_per_s": total,
            "replicas": tick.replicas,
            **p.terms(),
            "needed_up": wanted,
        }
        if p.hysteresis:
            why["needed_down"] = down = p.needed(total, p.f_down)
            wanted = linear_step(tick.replicas, wanted, down)
        target = min(wanted, tick.most)
        groups = range_groups(range(len(tick.partitions)), target)
        return tick.resized(target, groups, why | {"wanted": wanted, "most": tick.most}), state
