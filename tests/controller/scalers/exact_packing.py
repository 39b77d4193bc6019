"""Packings to compare with: the exact minimum of the bin-pack paper's Equation (5), and a variant of Least-Loaded."""

from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.packing import Bin, Load, least_loaded, truncate


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


def least_loaded_both(load: Load, size: Bin) -> int:
    """A variant seen in later work: pack by lag and by rate and take the larger count."""
    return max(least_loaded(load, size, order=key, rank=key).bins for key in ("lag", "rate"))
