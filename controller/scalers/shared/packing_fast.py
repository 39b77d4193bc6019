"""Least-Loaded for thousands of partitions: the same groups as ``packing.least_loaded``, compiled with numba.

Bins are kept in an array ordered by remaining rate, so that the bin an item goes to is found near its front, and the
search for the number of bins begins at a bound below which every attempt fails.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.packing import Bin, Load, Packing, volume_bound
from penstock.compiled import njit

Floats = npt.NDArray[np.float64]


def least_loaded_fast(
    load: Load, size: Bin, *, most: int | None = None, fewer_than: int | None = None
) -> Packing | None:
    """The result of ``least_loaded(load, size, most=most)``; None if it has ``fewer_than`` bins or more.

    Numbers of bins are tried one by one: a count that fails says nothing about the next, so bisection would be wrong.
    """
    lags = np.minimum(np.asarray(load.lags, dtype=np.float64), size.lag)
    rates = np.minimum(np.asarray(load.rates_per_s, dtype=np.float64), size.rate_per_s)
    order = np.argsort(-rates, kind="stable")
    items = (lags[order], rates[order])
    bin_of_item = np.zeros(len(rates), dtype=np.int32)
    n = max(volume_bound(float(lags.sum()), float(rates.sum()), size), occupied_bound(*items, size))
    while True:
        if fewer_than is not None and n >= fewer_than:
            return None
        n = min(n, most) if most is not None else n
        placed, forced = attempt(*items, n, size.lag, size.rate_per_s, n == most, bin_of_item)
        if placed == len(rates):
            return Packing(_groups(order, bin_of_item, n), violates=forced > 0)
        n += 1


def occupied_bound(lags: Floats, rates: Floats, size: Bin) -> int:
    """A second lower bound on the bins of Least-Loaded, tight when some partitions have a lag near a whole bin.

    An empty bin ranks above every bin that carries some rate. So the first n items of positive rate open the n bins,
    and a later one only fits if its lag goes with the smallest lag among them. More bins only make that easier.
    """
    opening = int(np.count_nonzero(size.rate_per_s - rates < size.rate_per_s))
    if opening == 0:
        return 1
    most_room = size.lag - np.minimum.accumulate(lags[:opening])
    later = np.append(np.maximum.accumulate(lags[::-1])[::-1], 0.0)[1 : opening + 1]
    works = most_room + TOLERANCE >= later
    return int(np.argmax(works)) + 1 if works.any() else opening + 1


def _attempt(
    lags: Floats,
    rates: Floats,
    n: int,
    lag_size: float,
    rate_size: float,
    forces: bool,
    bin_of_item: npt.NDArray[np.int32],
) -> tuple[int, int]:
    """Pack items (by falling rate) into ``n`` bins and fill in ``bin_of_item``, up to the first that finds no room.

    Returns how many were placed and how many of these by force: into the emptiest bin, although they do not fit.
    """
    items = len(rates)
    forced = 0
    lag_room = np.full(n, lag_size)
    rate_room = np.full(n, rate_size)
    ranking = np.empty(n, dtype=np.int32)
    opened = 0
    while opened < n and opened < items and rate_size - rates[opened] < rate_size:
        lag_room[opened] = lag_size - lags[opened]
        rate_room[opened] = rate_size - rates[opened]
        bin_of_item[opened] = opened
        opened += 1
    place = 0
    for index in range(opened, n):
        ranking[place] = index
        place += 1
    end = opened
    while end > 0:  # the bin opened last has the most room; equal ones stay in order
        begin = end - 1
        while begin > 0 and rate_room[begin - 1] == rate_room[end - 1]:
            begin -= 1
        for index in range(begin, end):
            ranking[place] = index
            place += 1
        end = begin

    for item in range(opened, items):
        lag = lags[item]
        place = 0
        while place < n and lag_room[ranking[place]] + TOLERANCE < lag:
            place += 1
        if place == n or rate_room[ranking[place]] + TOLERANCE < rates[item]:
            if not forces:
                return item, forced
            place = 0
            forced += 1
        chosen = ranking[place]
        left = rate_room[chosen] - rates[item]
        rate_room[chosen] = left
        lag_room[chosen] -= lag
        bin_of_item[item] = chosen
        low, high = place + 1, n
        while low < high:
            middle = (low + high) >> 1
            other = ranking[middle]
            if rate_room[other] > left or (rate_room[other] == left and other < chosen):
                low = middle + 1
            else:
                high = middle
        # Unsigned indices spare numba the check for negative ones, and the loop becomes one memmove.
        for index in range(np.uint64(place), np.uint64(low - 1)):
            ranking[index] = ranking[index + np.uint64(1)]
        ranking[low - 1] = chosen
    return items, forced


def _groups(order: npt.NDArray[Any], bin_of_item: npt.NDArray[np.int32], n: int) -> tuple[tuple[int, ...], ...]:
    bin_of_position = np.empty_like(bin_of_item)
    bin_of_position[order] = bin_of_item
    by_bin = np.argsort(bin_of_position, kind="stable").tolist()
    ends = np.cumsum(np.bincount(bin_of_position, minlength=n)).tolist()
    return tuple(tuple(by_bin[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True))


attempt: Callable[..., tuple[int, int]] = njit(cache=True)(_attempt)
