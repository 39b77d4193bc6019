"""Least-Loaded, the two-dimensional bin packing behind the bin-pack scalers: partitions are items, replicas are bins.

The bin-pack paper names the heuristic (Ajiro and Tanaka 2007) without printing it; readings B1 to B7. This is the
readable version; ``packing_fast`` gives the same groups for many partitions, ``pack`` chooses one of them.
"""

from collections.abc import Sequence
from itertools import count
from math import fsum
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
    """A partition hotter than a bin is cut to it: it fills a bin of its own in that dimension (B6)."""
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
        "rate": lambda item: rates[item],
        "lag": lambda item: lags[item],
        "max": lambda item: max(lags[item] / size.lag, rates[item] / size.rate_per_s),
    }[order]
    items = sorted(range(len(rates)), key=heavy, reverse=True)  # stable, also in reverse: ties keep their order (B4)
    if first is None:
        first = volume_bound(fsum(lags), fsum(rates), size) if mode == "restart" else 1
    for n in count(min(first, most) if most else first):
        attempt = _Attempt(size, n, rank, opens=mode == "open", forces=n == most)
        if all(attempt.place(item, lags[item], rates[item]) for item in items):
            return Packing(tuple(tuple(sorted(group)) for group in attempt.groups), attempt.violates)
    raise AssertionError("unreachable: each truncated item fits an empty bin")


class _Attempt:
    """One attempt with ``n`` empty bins."""

    def __init__(self, size: Bin, n: int, rank: Rank, *, opens: bool, forces: bool) -> None:
        self.size, self.rank, self.opens, self.forces = size, rank, opens, forces
        self.lag_room = [size.lag] * n
        self.rate_room = [size.rate_per_s] * n
        self.groups: list[list[int]] = [[] for _ in range(n)]
        self.violates = False

    def place(self, item: int, lag: float, rate: float) -> bool:
        """Put the item into the emptiest bin with room in both dimensions, lowest index among equals."""
        best = self._emptiest(lag, rate)
        if best is None and self.opens:
            best = len(self.groups)
            self.groups.append([])
            self.lag_room.append(self.size.lag)
            self.rate_room.append(self.size.rate_per_s)
        elif best is None and self.forces:
            best = self._emptiest(float("-inf"), float("-inf"))
            self.violates = True
        if best is None:
            return False
        self.groups[best].append(item)
        self.lag_room[best] -= lag
        self.rate_room[best] -= rate
        return True

    def _emptiest(self, lag: float, rate: float) -> int | None:
        best, most_room = None, float("-inf")
        room = self.rate_room if self.rank == "rate" else self.lag_room if self.rank == "lag" else self._tighter_room()
        for index, value in enumerate(room):
            if (
                value > most_room
                and self.lag_room[index] + TOLERANCE >= lag
                and self.rate_room[index] + TOLERANCE >= rate
            ):
                best, most_room = index, value
        return best

    def _tighter_room(self) -> list[float]:
        return [
            min(lag / self.size.lag, rate / self.size.rate_per_s)
            for lag, rate in zip(self.lag_room, self.rate_room, strict=True)
        ]
