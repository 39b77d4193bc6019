"""BinScale, the successor that the bin-pack authors published as code: Algorithms 1 and 2 with other constants.

Read from the public sources of that controller, 2026: first-fit decreasing by arrival rate, into the bin with most
remaining rate that has room in both dimensions, anew with one bin more where nothing fits. That is Least-Loaded, so
the packing is shared with ``binpack``. What differs is f_up and f_down, the tick of half a second, and the lag that
gathers during a rebalance: an equal share of the total for each partition instead of each partition's own.

The published controller cuts hot partitions in place and goes on with what the first packing cut; here every packing
begins with the loads as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import fsum
from typing import ClassVar

from controller.scalers.binpack import BinpackParameters, carry_out, loads, read_for, sizes
from controller.scalers.binpack_tail import scale_event_consumer_2
from controller.scalers.packing import Load
from controller.scalers.parameters import require_not_negative
from controller.scalers.stream import CannotDecide, RateScaler, RateState
from penstock.contracts import Decision, StreamObservation, hold


def gathered_lag(load: Load, rebalance_time_s: float) -> list[float]:
    """The tail pass: lag_p + λ_total · t_r / P, the same addition for every partition."""
    share = fsum(load.rates_per_s) * rebalance_time_s / len(load.rates_per_s)
    return [lag + share for lag in load.lags]


def propagated_rates(
    entering_per_s: Mapping[str, float], branching: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The graph controller: arrival rate of each consumer group, λ_child = Σ λ_parent · branching factor.

    ``entering_per_s`` is what comes from outside, by group; ``branching`` the factor by parent and child: events that
    the parent sends to the child for each of its own. In topological order. Raises ValueError for a cycle.
    """
    parents: dict[str, dict[str, float]] = {group: {} for group in (*entering_per_s, *branching)}
    for parent, factors in branching.items():
        for child, factor in factors.items():
            parents.setdefault(child, {})[parent] = factor
    try:
        order = tuple(TopologicalSorter(parents).static_order())
    except CycleError as error:
        raise ValueError(f"groups feed each other in a circle: {' → '.join(error.args[1])}") from None
    rates: dict[str, float] = {}
    for group in order:
        rates[group] = entering_per_s.get(group, 0.0) + fsum(rates[p] * f for p, f in parents[group].items())
    return rates


@dataclass(frozen=True)
class BinscaleParameters(BinpackParameters):
    """Constants of the published controller; ``slo_s`` is its wsla, ``rebalance_time_s`` its rebalance time."""

    f_up: float = 0.8
    f_down: float = 0.3
    decision_interval_s: float = 0.5
    rebalance_time_s: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative(rebalance_time_s=self.rebalance_time_s)


class Binscale(RateScaler[BinscaleParameters]):
    """Decide on the lag as it is, carry out on the lag as it will be."""

    name: ClassVar[str] = "binscale"
    paper: ClassVar[str] = "BinScale, after Ezzeddine, Baude, Huet (published code)"
    Parameters: ClassVar[type[BinscaleParameters]] = BinscaleParameters

    def decide(self, observation: StreamObservation, state: RateState) -> tuple[Decision, RateState]:
        """Scale up, down, reassign or leave alone."""
        p = self.parameters
        seen = RateState(state.offsets.updated(observation, p.decision_interval_s), state.skipped)
        try:
            tick = read_for(p, observation, state.offsets)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), seen
        up, down = p.bins()
        totals = gathered_lag(tick.load, p.rebalance_time_s)
        scaling = scale_event_consumer_2(tick.load, totals, tick.current, tick.replicas, up, down, tick.most)
        before = {**loads(tick), **sizes(up, down), "rebalance_time_s": p.rebalance_time_s}
        return carry_out(tick, scaling, seen, before)
