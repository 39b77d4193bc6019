"""Algorithm 2 of the bin-pack autoscaler: Algorithm 1 decides whether to scale, a packing that includes the arrivals
during the rebalance decides to how many replicas.

Ezzeddine, Baude and Huet, CLOSER 2024, section 4.1; Equations (6) and (7), readings B11 and B12.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.binpack import (
    BinpackParameters,
    BinpackState,
    Scaling,
    decision_for,
    packing_terms,
    scale_event_consumer,
)
from controller.scalers.shared.pack import pack
from controller.scalers.shared.packing import Bin, Load
from controller.scalers.shared.parameters import NotNegative
from controller.scalers.shared.stream_scaler import StreamScaler, StreamTick
from penstock.contracts import Decision, Groups, Term


def total_lag(load: Load, rebalance_time_s: float) -> list[float]:
    """Events waiting plus those that arrive during a rebalance: Equations (6) and (7)."""
    return [lag + rate * rebalance_time_s for lag, rate in zip(load.lags, load.rates_per_s, strict=True)]


def scale_event_consumer_2(
    load: Load, total_lags: Sequence[float], current: Groups, replicas: int, up: Bin, down: Bin, most: int | None = None
) -> Scaling:
    """Algorithm 2 as printed: ``scaleNeeded`` on the existing lag, then ``doScale`` on the total lag.

    The answer's flag is the action; ``why["flag"]`` is the recommendation of ``scaleNeeded``.
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
        why |= packing_terms("LL_total_down", enough)
        if enough.bins < replicas:
            return Scaling("DOWN", enough.bins, enough.groups, why)
        return Scaling(None, replicas, current, why)
    packed = pack(total, up, most=most)
    assert packed is not None
    why |= packing_terms("LL_total_up", packed, most)
    if packed.bins > replicas:
        return Scaling("UP", packed.bins, packed.groups, why)
    return Scaling("REASS", replicas, packed.groups, why)


@dataclass(frozen=True)
class BinpackTailParameters(BinpackParameters):
    """Algorithm 1's, and the time that a rebalance takes, t_r (99th percentile in the paper: 50 ms)."""

    rebalance_time_s: NotNegative = 0.05


class BinpackTail(StreamScaler[BinpackTailParameters, BinpackState]):
    """Algorithm 2, scaleEventConsumer2."""

    name: ClassVar[str] = "binpack-tail"
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, Algorithm 2"

    def total_lags(self, load: Load) -> list[float]:
        """The lag of each partition after the rebalance."""
        return total_lag(load, self.parameters.rebalance_time_s)

    def decide_tick(self, tick: StreamTick, state: BinpackState) -> tuple[Decision, BinpackState]:
        """Scale up, down, reassign or leave alone, by Algorithm 2."""
        p, totals = self.parameters, self.total_lags(tick.load)
        up, down = p.bins()
        scaling = scale_event_consumer_2(tick.load, totals, tick.current, tick.replicas, up, down, tick.most)
        before: dict[str, Term] = {"bin_up": list(up), "bin_down": list(down), "rebalance_time_s": p.rebalance_time_s}
        return decision_for(tick, scaling, state, before)
