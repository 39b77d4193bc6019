"""The largest differencing method: groups of nearly equal weight, nearer to it than longest processing time first.

Karmarkar and Karp, "The differencing method of set partitioning" (1982), for any number of groups.
"""

import heapq
from collections.abc import Sequence

from controller.scalers.shared.lpt import group_numbers


def differencing(weights: Sequence[float], groups: int) -> list[int]:
    """The group of each partition. Of all partial groupings, the two whose groups differ most are joined, the largest
    groups of one with the smallest of the other, until one is left. Ties: more partitions count as larger.
    """
    empty = [(0.0, ())] * (groups - 1)
    left = [(-weight, p, [(weight, (p,)), *empty]) for p, weight in enumerate(weights)]
    heapq.heapify(left)
    while len(left) > 1:
        _, tie, first = heapq.heappop(left)
        pairs = zip(first, reversed(left[0][2]), strict=True)
        joined = [(weight + other, members + others) for (weight, members), (other, others) in pairs]
        joined.sort(key=lambda group: (-group[0], -len(group[1])))
        heapq.heapreplace(left, (joined[-1][0] - joined[0][0], tie, joined))
    return group_numbers([members for _, members in left[0][2]], len(weights))
