"""``lpt_for_all`` for thousands of partitions, compiled with numba: the same groups."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.compiled import njit

Ints = npt.NDArray[np.int64]


def _fill(weights: npt.NDArray[np.float64], order: Ints, rows: Ints) -> None:
    """Row n − 1: the group of each partition among n groups. The groups are a binary heap, the least loaded on top."""
    for row in range(len(rows)):
        groups = row + 1
        loads, counts, heap = np.zeros(groups), np.zeros(groups, np.int64), np.arange(groups)
        for partition in order:
            group = heap[0]
            rows[row, partition] = group
            loads[group] += weights[partition]
            counts[group] += 1
            place = 0
            while True:
                child = 2 * place + 1
                if child >= groups:
                    break
                least = heap[child]
                if child + 1 < groups:
                    other = heap[child + 1]
                    if (loads[other], counts[other], other) < (loads[least], counts[least], least):
                        child, least = child + 1, other
                if (loads[group], counts[group], group) < (loads[least], counts[least], least):
                    break
                heap[place] = least
                place = child
            heap[place] = group


fill: Callable[..., None] = njit(cache=True)(_fill)
