"""Longest processing time first (Graham 1969): partitions by falling weight, each to the least loaded group."""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.scalers.shared.pack import FEW_PARTITIONS

Ints = npt.NDArray[np.int64]


def lpt(weights: Sequence[float], groups: int) -> list[int]:
    """The group of each partition. Ties: lower partition; fewer partitions in the group, then the lower group."""
    return _lpt(weights, _falling(weights), groups)


def lpt_for_all(weights: Sequence[float], most: int) -> Ints:
    """``lpt`` for 1 to ``most`` groups: one row each."""
    order = _falling(weights)
    if len(weights) <= FEW_PARTITIONS:
        return np.array([_lpt(weights, order, groups) for groups in range(1, most + 1)], dtype=np.int64)
    # Importing the compiled version takes a second; fleets of ordinary size do not need it.
    from controller.scalers.shared.lpt_fast import fill

    rows: Ints = np.empty((most, len(weights)), dtype=np.int64)
    fill(np.asarray(weights, dtype=np.float64), np.asarray(order, dtype=np.int64), rows)
    return rows


def groups_of(group_of: Sequence[int] | npt.NDArray[Any], groups: int) -> tuple[tuple[int, ...], ...]:
    """The partitions of each group, in order."""
    members: list[list[int]] = [[] for _ in range(groups)]
    for partition, group in enumerate(group_of):
        members[group].append(partition)
    return tuple(map(tuple, members))


def group_numbers(groups: Sequence[Sequence[int]], partitions: int) -> list[int]:
    """The group of each partition, −1 for none."""
    group_of = [-1] * partitions
    for number, group in enumerate(groups):
        for partition in group:
            group_of[partition] = number
    return group_of


def _falling(weights: Sequence[float]) -> list[int]:
    return sorted(range(len(weights)), key=lambda partition: (-weights[partition], partition))


def _lpt(weights: Sequence[float], order: Sequence[int], groups: int) -> list[int]:
    loads = [(0.0, 0, group) for group in range(groups)]
    group_of = [0] * len(weights)
    for partition in order:
        load, count, group = loads[0]
        group_of[partition] = group
        heapq.heapreplace(loads, (load + weights[partition], count + 1, group))
    return group_of
