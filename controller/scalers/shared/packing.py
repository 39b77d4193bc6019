"""Least-Loaded, the two-dimensional bin packing behind the bin-pack scalers: partitions are items, replicas are bins.

The bin-pack paper names the heuristic (Ajiro and Tanaka 2007) without printing it; readings B1 to B7. This is the
readable version; ``packing_fast`` gives the same groups for many partitions, ``pack`` chooses one of them.
"""

from collections.abc import Sequence
from itertools import count
from math import fsum, inf
from typing import Literal, NamedTuple

from controller.queueing.rounding import TOLERANCE, rounded_up
from penstock.contracts import Groups

Order = Literal["rate", "lag", "max"]
Rank = Literal["rate", "lag", "min"]
Mode = Literal["restart", "open"]


class Bin(NamedTuple):
    """What one replica may carry: events of lag, events per second."""

    lag: float
    rate_per_s: float


class Load(NamedTuple):
    """Lag (events) and arrival rate (events/s) of each partition, by position."""

    lags: Sequence[float]
    rates_per_s: Sequence[float]


class Packing(NamedTuple):
    """Positions of the partitions by bin. ``violates``: more bins would have been needed than were allowed."""

    groups: Groups
    violates: bool = False

    @property
    def bins(self) -> int:
        """Number of bins, |G|."""
        return len(self.groups)


def bin_size(service_rate_per_s: float, slo_s: float, fraction: float) -> Bin:
    """A bin at ``f_up`` or ``f_down``: μ·w·f events of lag and μ·f events/s (B7), not rounded down (B8)."""
    return Bin(lag=service_rate_per_s * slo_s * fraction, rate_per_s=service_rate_per_s * fraction)


def truncate(load: Load, size: Bin) -> Load:
    """Loads cut to the size of a bin. A partition that exceeds the bin fills it in that dimension (B6)."""
    most_lag, most_rate = size
    return Load(
        [lag if lag < most_lag else most_lag for lag in load.lags],
        [rate if rate < most_rate else most_rate for rate in load.rates_per_s],
    )


def volume_bound(lag: float, rate_per_s: float, size: Bin) -> int:
    """The fewest bins that can hold truncated loads of these sums: a search may begin here.

    A bin takes at most TOLERANCE beyond its size; a second one is allowed for rounding.
    """
    by_lag = lag / (size.lag + 2 * TOLERANCE)
    by_rate = rate_per_s / (size.rate_per_s + 2 * TOLERANCE)
    return max(1, rounded_up(max(by_lag, by_rate)))


def least_loaded(
    load: Load,
    size: Bin,
    *,
    first: int | None = None,
    most: int | None = None,
    order: Order = "rate",
    rank: Rank = "rate",
    mode: Mode = "restart",
) -> Packing:
    """Least-Loaded (Ajiro and Tanaka 2007): heaviest partition first, each to the emptiest bin with room for it.

    If one fits nowhere, all are packed again into one bin more (``mode`` "open": one bin is added, packing continues).
    ``first`` is the number of bins to begin with (the volume bound unless given; 1 for open). With ``most`` bins
    reached, an item that fits nowhere goes to the emptiest bin. ``order`` and ``rank`` are the dimensions that sort
    items and bins ("max", "min": the tighter of both).
    """
    lags, rates = truncate(load, size)
    heavy = {
        "rate": rates.__getitem__,
        "lag": lags.__getitem__,
        "max": lambda item: max(lags[item] / size.lag, rates[item] / size.rate_per_s),
    }[order]
    items = sorted(range(len(rates)), key=heavy, reverse=True)  # stable, also in reverse: ties keep their order (B4)
    if first is None:
        first = volume_bound(fsum(lags), fsum(rates), size) if mode == "restart" else 1
    for n in count(min(first, most) if most else first):
        packing = _packed(items, lags, rates, size, n, rank, opens=mode == "open", forces=n == most)
        if packing is not None:
            return packing
    raise AssertionError("unreachable: each truncated item fits an empty bin")


def _packed(
    items: Sequence[int],
    lags: Sequence[float],
    rates: Sequence[float],
    size: Bin,
    n: int,
    rank: Rank,
    *,
    opens: bool,
    forces: bool,
) -> Packing | None:
    """One attempt with ``n`` empty bins; None if an item fits nowhere. Each item goes to the emptiest bin with room in
    both dimensions, lowest index among equals.
    """
    lag_room, rate_room = [size.lag] * n, [size.rate_per_s] * n
    room = {"rate": rate_room, "lag": lag_room, "min": [1.0] * n}[rank]
    groups: list[list[int]] = [[] for _ in range(n)]
    violates = False
    for item in items:
        lag, rate, best, most_room = lags[item], rates[item], -1, -inf
        for index, value in enumerate(room):
            if value > most_room and lag_room[index] + TOLERANCE >= lag and rate_room[index] + TOLERANCE >= rate:
                best, most_room = index, value
        if best < 0 and opens:
            best = len(groups)
            groups.append([])
            lag_room.append(size.lag)
            rate_room.append(size.rate_per_s)
            if rank == "min":
                room.append(1.0)
        elif best < 0 and forces:
            best, violates = room.index(max(room)), True
        if best < 0:
            return None
        groups[best].append(item)
        lag_room[best] -= lag
        rate_room[best] -= rate
        if rank == "min":
            room[best] = min(lag_room[best] / size.lag, rate_room[best] / size.rate_per_s)
    return Packing(tuple([tuple(sorted(group)) for group in groups]), violates)
