"""Algorithm 2 of the bin-pack autoscaler: Algorithm 1 decides whether to scale; a packing that already counts the
events that will gather during the rebalance decides to what.

Ezzeddine, Baude and Huet, CLOSER 2024, section 4.1; Equations (6) and (7), readings B11 and B12.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.binpack import (
    BinpackParameters,
    Scaling,
    carry_out,
    loads,
    read_for,
    scale_event_consumer,
    sizes,
)
from controller.scalers.packing import Bin, Load, pack
from controller.scalers.parameters import require_not_negative
from controller.scalers.stream import CannotDecide, RateScaler, RateState
from penstock.contracts import Decision, Groups, StreamObservation, hold


def total_lag(load: Load, rebalance_time_s: float) -> list[float]:
    """Events waiting plus those that arrive during a rebalance: Equations (6) and (7)."""
    return [lag + rate * rebalance_time_s for lag, rate in zip(load.lags, load.rates_per_s, strict=True)]


def scale_event_consumer_2(
    load: Load,
    total_lags: Sequence[float],
    current: Groups,
    replicas: int,
    up: Bin,
    down: Bin,
    most: int | None = None,
) -> Scaling:
    """Algorithm 2 as printed: ``scaleNeeded`` on the existing lag, then ``doScale`` on the total lag.

    The answer's flag is what is done; ``why["flag"]`` is what ``scaleNeeded`` recommended.
    """
    needed = scale_event_consumer(load, current, replicas, up, down, most)
    if needed.flag is None:
        return needed
    return do_scale(needed, Load(total_lags, load.rates_per_s), current, replicas, up, down, most)


def do_scale(
    needed: Scaling, total: Load, current: Groups, replicas: int, up: Bin, down: Bin, most: int | None
) -> Scaling:
    """Procedure doScale: a reassignment may become a scale-up, a scale-down may be dropped (B12)."""
    why = needed.why | {"total_lag": list(total.lags)}
    if needed.flag == "DOWN":
        enough = pack(total, down, most=most, fewer_than=replicas)
        if enough is None:
            return Scaling(None, replicas, current, why | {"LL_total_down": f"≥ {replicas}"})
        why |= {"LL_total_down": enough.bins, "LL_total_down_groups": list(enough.groups)}
        if enough.bins < replicas:
            return Scaling("DOWN", enough.bins, enough.groups, why)
        return Scaling(None, replicas, current, why)
    packed = pack(total, up, most=most)
    assert packed is not None
    why |= {"LL_total_up": packed.bins, "LL_total_up_groups": list(packed.groups)}
    if packed.violates:
        why |= {"capped": f"{most} replicas are not enough"}
    if packed.bins > replicas:
        return Scaling("UP", packed.bins, packed.groups, why)
    return Scaling("REASS", replicas, packed.groups, why)


@dataclass(frozen=True)
class BinpackTailParameters(BinpackParameters):
    """Algorithm 1's, and the time that a rebalance takes, t_r (99th percentile in the paper: 50 ms)."""

    rebalance_time_s: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(rebalance_time_s=self.rebalance_time_s)


class BinpackTail(RateScaler[BinpackTailParameters]):
    """Algorithm 2, scaleEventConsumer2."""

    name: ClassVar[str] = "binpack-tail"
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, Algorithm 2"
    Parameters: ClassVar[type[BinpackTailParameters]] = BinpackTailParameters

    def decide(self, observation: StreamObservation, state: RateState) -> tuple[Decision, RateState]:
        """Scale up, down, reassign or leave alone, by Algorithm 2."""
        p = self.parameters
        seen = RateState(state.offsets.updated(observation, p.decision_interval_s), state.skipped)
        try:
            tick = read_for(p, observation, state.offsets)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), seen
        up, down = p.bins()
        totals = total_lag(tick.load, p.rebalance_time_s)
        scaling = scale_event_consumer_2(tick.load, totals, tick.current, tick.replicas, up, down, tick.most)
        return carry_out(
            tick, scaling, seen, {**loads(tick), **sizes(up, down), "rebalance_time_s": p.rebalance_time_s}
        )
