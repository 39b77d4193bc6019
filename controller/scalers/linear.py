"""The linear autoscaler that the bin-pack paper compares with: replicas in proportion to the total arrival rate.

Ezzeddine, Baude and Huet, CLOSER 2024, section 5. The formula's symbols are lost in print; reading B14 reproduces the
published costs. Partitions are assigned as Kafka's range assignor would, regardless of their load.
"""

from dataclasses import dataclass
from math import ceil, fsum
from typing import ClassVar, Literal

from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import (
    require_not_negative,
    require_positive,
    require_replicas,
    require_thresholds,
)
from controller.scalers.stream import CannotDecide, RateScaler, RateState, read, resize
from penstock.contracts import Decision, StreamObservation, Term, hold
from penstock.plan import range_groups

Reading = Literal["lag", "rate"]


def replicas_for(total_rate_per_s: float, per_replica: float, interval_s: float = 1.0) -> int:
    """⌈λ·DI / per replica⌉, at least one: DI seconds of arrivals against what one replica may have waiting."""
    return max(1, ceil(total_rate_per_s * interval_s / per_replica - TOLERANCE))


def linear_step(replicas: int, needed_up: int, needed_down: int) -> int:
    """The printed pair of thresholds: up if f_up asks for more, down if f_down asks for fewer."""
    if needed_up > replicas:
        return needed_up
    return min(needed_down, replicas)


@dataclass(frozen=True)
class LinearParameters:
    """``reading`` lag: DI seconds of arrivals against μ·w·f (B14); rate: arrivals per second against μ·f.

    Without ``hysteresis`` f_up is used both ways, which is what the published numbers show.
    """

    service_rate_per_s: float = 200.0
    slo_s: float = 0.5
    f_up: float = 0.9
    f_down: float = 0.4
    hysteresis: bool = False
    reading: Reading = "lag"
    hold_s: float = 0.0
    decision_interval_s: float = 1.0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(
            service_rate_per_s=self.service_rate_per_s,
            slo_s=self.slo_s,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(hold_s=self.hold_s)
        require_thresholds(self.f_up, self.f_down)
        require_replicas(self.max_replicas)

    def capacity(self, fraction: float) -> float:
        """Of one replica at ``fraction``: events that it may have waiting, or events per second, by ``reading``."""
        waiting_s = self.slo_s if self.reading == "lag" else 1.0
        return self.service_rate_per_s * waiting_s * fraction

    def needed(self, total_rate_per_s: float, fraction: float) -> int:
        """Replicas at ``fraction`` of a replica's capacity."""
        interval_s = self.decision_interval_s if self.reading == "lag" else 1.0
        return replicas_for(total_rate_per_s, self.capacity(fraction), interval_s)

    def terms(self) -> dict[str, Term]:
        """What the capacity of a replica is made of: μ, w and DI where the reading has them, f both ways if used."""
        why: dict[str, Term] = {"mu_per_s": self.service_rate_per_s}
        if self.reading == "lag":
            why["w_s"] = self.slo_s
        why |= {"f_up": self.f_up, "capacity_up": self.capacity(self.f_up)}
        if self.hysteresis:
            why |= {"f_down": self.f_down, "capacity_down": self.capacity(self.f_down)}
        if self.reading == "lag":
            why["decision_interval_s"] = self.decision_interval_s
        return why


class Linear(RateScaler[LinearParameters]):
    """Replicas proportional to the total arrival rate."""

    name: ClassVar[str] = "linear"
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, section 5 (comparison)"
    Parameters: ClassVar[type[LinearParameters]] = LinearParameters

    def decide(self, observation: StreamObservation, state: RateState) -> tuple[Decision, RateState]:
        """As many replicas as the total rate asks for, each with a range of partitions."""
        p = self.parameters
        seen = RateState(state.offsets.updated(observation, p.decision_interval_s))
        try:
            tick = read(
                observation,
                state.offsets,
                interval_s=p.decision_interval_s,
                hold_s=p.hold_s,
                max_replicas=p.max_replicas,
                needs_lag=False,
            )
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), seen
        total = fsum(tick.load.rates_per_s)
        up = p.needed(total, p.f_up)
        why: dict[str, Term] = {
            "partitions": list(tick.partitions),
            "rate_per_s": list(tick.load.rates_per_s),
            "total_rate_per_s": total,
            "replicas": tick.replicas,
            **p.terms(),
            "needed_up": up,
        }
        wanted = up
        if p.hysteresis:
            down = p.needed(total, p.f_down)
            why["needed_down"] = down
            wanted = linear_step(tick.replicas, up, down)
        target = min(wanted, tick.most)
        why |= {"wanted": wanted, "most": tick.most}
        return resize(tick, target, range_groups(range(len(tick.partitions)), target), why), seen
