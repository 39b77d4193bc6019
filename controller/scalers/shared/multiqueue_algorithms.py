"""A main queue that feeds sub-queues: Algorithms 1 and 2 of Elastic Multi-M/M/s/K, line by line.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, section IV; readings Q1 to Q18. Pure functions: the scalers,
the simulator and the forwarder call the same ones. ``printed=True`` gives an algorithm as it is in
print, otherwise the recommended readings hold.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal, NamedTuple

import msgspec

from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.parameters import Count, NotNegative, Parameters

Action = Literal["scale_out", "scale_out_empty_pool", "reduce", "scale_in", "hold_last", "cancel", "none"]


class SubQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-queue as Algorithm 1 sees it: P_K, containers S, λ. ``ratio`` None: not generated in this cycle."""

    queue: str
    p_k: float
    servers: int
    arrival_rate_per_s: float
    removable: bool = False
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class Limits(Parameters):
    """maxPk, minPk, minLambda and maxS of Algorithm 1 as printed, with one second as the unit of time (Q2)."""

    max_p_k: float = 0.7
    min_p_k: float = 0.4
    min_arrival_rate_per_s: NotNegative = 100.0
    max_servers: Count = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.min_p_k <= self.max_p_k <= 1:
            raise ValueError(f"max_p_k={self.max_p_k:g}, min_p_k={self.min_p_k:g}: expected 0 ≤ min_p_k ≤ max_p_k ≤ 1")


class Cycle(NamedTuple):
    """What one cycle of Algorithm 1 did, and queues and pool after it.

    ``moved`` is the queue that was taken from the pool, halved or removed.
    """

    action: Action
    queues: tuple[SubQueue, ...]
    pool: tuple[str, ...]
    moved: str | None = None


Ratios = Callable[[Sequence[SubQueue]], list[float]]
"""Shares of the arrivals, in the order of the queues."""


# --- Algorithm 1 -----------------------------------------------------------------------------------------------------


def lambda_ratios(p_ks: Sequence[float]) -> list[float]:
    """generateLambdaRatio: the share of each queue, the larger the less it loses; they sum to 1.

    A single queue gets everything, and equal shares go to queues that lose nothing (Q11).
    """
    n, total = len(p_ks), fsum(p_ks)
    if n <= 1 or total == 0:
        return [1 / n for _ in p_ks]
    deltas = [total - p_k for p_k in p_ks]
    whole = fsum(deltas)
    return [delta / whole for delta in deltas]


def by_current_p_k(queues: Sequence[SubQueue]) -> list[float]:
    """The ratios as printed: from P_K of this cycle alone (Q12)."""
    return lambda_ratios([q.p_k for q in queues])


def averages(queues: Sequence[SubQueue]) -> tuple[float, float]:
    """avgPk and avgS of monitorQueues. sumS is computed there, too, and never used (Q17)."""
    n = len(queues)
    return fsum(q.p_k for q in queues) / n, fsum(q.servers for q in queues) / n


def scaler_cycle(
    queues: Sequence[SubQueue],
    pool: Sequence[str],
    limits: Limits,
    *,
    printed: bool = False,
    ratios: Ratios = by_current_p_k,
    settled_p_k: float | None = None,
) -> Cycle:
    """Algorithm 1, scaler(). At least one queue, in order of creation. Averages within 1e-9 of a limit are on it.

    ``settled_p_k`` is not the paper's: an average over several cycles, which for a scale-in must be low as well.
    """
    avg_p_k, avg_servers = averages(queues)
    if avg_p_k > limits.max_p_k + TOLERANCE:  # strict (Q18)
        if not printed and any(q.removable for q in queues):
            queues = cancel_scale_in(queues, ratios)  # Q9
        if avg_servers == limits.max_servers:  # equality: each has all the containers it may have (Q8)
            return scale_out(queues, pool, ratios)
        return Cycle("none", tuple(queues), tuple(pool))
    if max(avg_p_k, settled_p_k or 0.0) < limits.min_p_k - TOLERANCE:
        return init_scale_in(queues, pool, limits, printed=printed, ratios=ratios)
    return Cycle("cancel", cancel_scale_in(queues, ratios), tuple(pool))


def scale_out(queues: Sequence[SubQueue], pool: Sequence[str], ratios: Ratios) -> Cycle:
    """The first queue of the pool is taken into service (Q10). Nothing happens if the pool is empty."""
    if not pool:
        return Cycle("scale_out_empty_pool", tuple(queues), ())
    new = SubQueue(queue=pool[0], p_k=0.0, servers=0, arrival_rate_per_s=0.0)
    return Cycle("scale_out", with_ratios([*queues, new], ratios), tuple(pool[1:]), new.queue)


def init_scale_in(
    queues: Sequence[SubQueue], pool: Sequence[str], limits: Limits, *, printed: bool, ratios: Ratios
) -> Cycle:
    """Halve the rate of one queue, and remove it once its rate is at or below minLambda, all in one cycle."""
    if len(queues) == 1 and not printed:
        return Cycle("hold_last", tuple(queues), tuple(pool))  # Q13
    avg_p_k, _ = averages(queues)
    marked = next((i for i, q in enumerate(queues) if q.removable), None)
    if marked is None:
        marked = next(i for i, q in enumerate(queues) if q.p_k <= avg_p_k + TOLERANCE)  # Q15
    half = queues[marked].arrival_rate_per_s / 2
    r = msgspec.structs.replace(queues[marked], removable=True, arrival_rate_per_s=half)
    if half <= limits.min_arrival_rate_per_s:  # inclusive (Q18)
        rest = [q for i, q in enumerate(queues) if i != marked]
        return Cycle("scale_in", with_ratios(rest, ratios), (*pool, r.queue), r.queue)
    return Cycle("reduce", (*queues[:marked], r, *queues[marked + 1 :]), tuple(pool), r.queue)


def cancel_scale_in(queues: Sequence[SubQueue], ratios: Ratios) -> tuple[SubQueue, ...]:
    """No queue is removable any more, and the ratios are generated anew."""
    return with_ratios([msgspec.structs.replace(q, removable=False) for q in queues], ratios)


def with_ratios(queues: Sequence[SubQueue], ratios: Ratios) -> tuple[SubQueue, ...]:
    """The queues with newly generated ratios."""
    return tuple(msgspec.structs.replace(q, ratio=ratio) for q, ratio in zip(queues, ratios(queues), strict=True))


# --- Algorithm 2 ---------------------------------------------------------------------------------------------------


def forward(main_rate_per_s: float, queues: Sequence[SubQueue], *, printed: bool = False) -> list[float]:
    """Algorithm 2: each queue's part of the main rate. A ratio of None counts as 0.

    Printed: nothing is forwarded unless a queue is removable, whose share of the rest is lost. Read here (Q14): the
    removable queue gets its own rate, the others share the rest by their ratios, equally if those are 0.
    """
    r = next((q for q in queues if q.removable), None)
    if printed:
        if r is None:
            return [q.arrival_rate_per_s for q in queues]
        rest = main_rate_per_s - r.arrival_rate_per_s
        return [q.arrival_rate_per_s if q is r else (q.ratio or 0.0) * rest for q in queues]
    rest = max(0.0, main_rate_per_s - (r.arrival_rate_per_s if r else 0.0))
    others = [q for q in queues if q is not r]
    total = fsum(q.ratio or 0.0 for q in others)

    def share(q: SubQueue) -> float:
        return (q.ratio or 0.0) / total if total > 0 else 1 / len(others)

    return [q.arrival_rate_per_s if q is r else rest * share(q) for q in queues]


def routing_shares(main_rate_per_s: float, queues: Sequence[SubQueue]) -> dict[str, float]:
    """Algorithm 2 as a share of the arrivals per queue, adding up to 1; for a main rate of 0 that of a tiny one."""
    r = next((q for q in queues if q.removable), None)
    if r is None:
        rates = forward(1.0, queues)
    elif main_rate_per_s > max(r.arrival_rate_per_s, sys.float_info.min):  # parts of less than that may all be 0
        rates = forward(main_rate_per_s, queues)
    else:
        rates = [float(q is r) for q in queues]
    total = fsum(rates)
    return {q.queue: rate / total for q, rate in zip(queues, rates, strict=True)}
