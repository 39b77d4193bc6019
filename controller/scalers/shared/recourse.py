"""Bursts that can still be answered when they are seen, by another grouping or by more replicas.

A decision is scored on bursts to come, and each of those will be answered in its turn: a two-stage programme with
recourse, Dantzig, "Linear programming under uncertainty", Management Science 1 (1955). The bursts are a fixed sample of
normal ones, so that the same estimates always have the same score.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NODES: Final = 4
"""Sums of a burst in the sample, an even number: those of Gauss–Hermite quadrature, with its weights."""
SPLITS: Final = 5
"""Splits over the partitions for each of these sums."""
SCENARIOS: Final = NODES * SPLITS
FEW_PARTITIONS: Final = 16
"""Up to so many, the best grouping for each burst is found. Beyond, a partition is so small beside a replica that
events can be split as if each of them could be served anywhere.
"""


class Service(NamedTuple):
    """Events of a burst that a replica finishes in time: without an answer, before the answer, and after it."""

    whole: float
    before: float
    after: float


class Load(NamedTuple):
    """The sum of a burst, and the part of its events that falls on each partition."""

    mean: float
    variance: float
    shares: Floats

    def sample(self, shares: Floats, normal: Floats) -> Floats:
        """Events of these parts of each burst, shape (SCENARIOS, parts); they do not have to sum to a burst."""
        noise = np.sqrt(self.mean * shares * np.maximum(0.0, 1 - shares)) * normal[:, 1 : len(shares) + 1]
        return np.asarray(np.maximum(0.0, shares * (self.mean + np.sqrt(self.variance) * normal[:, :1]) + noise))

    def late(self, group_of: Ints, most: int, service: Service) -> tuple[Floats, Floats]:
        """Late events of each burst of the sample under each grouping of the partitions, one row of ``group_of`` each:
        without an answer, shape (groupings, SCENARIOS), and after the answer by 1, 2 … ``most`` replicas, shape
        (groupings, SCENARIOS, most).
        """
        if len(self.shares) <= FEW_PARTITIONS:
            return self._late_of_few(group_of, most, service)
        return self._late_of_many(group_of, most, service)

    def _late_of_few(self, group_of: Ints, most: int, service: Service) -> tuple[Floats, Floats]:
        """A replica serves its partitions one after the other: by number in half of the sample, else in reverse."""
        partitions, half = len(self.shares), SCENARIOS // 2
        normal = normals(partitions)
        split = np.sqrt(self.mean * self.shares) * normal[:, 1 : partitions + 1]
        split -= self.shares * split.sum(axis=1, keepdims=True)
        bursts = np.maximum(0.0, (self.mean + np.sqrt(self.variance) * normal[:, :1]) * self.shares + split)
        same = group_of[:, :, None] == group_of[:, None, :]
        earlier = (same & (np.arange(partitions)[:, None] < np.arange(partitions))).astype(np.float64)
        until = bursts + np.concatenate((bursts[:half] @ earlier, bursts[half:] @ earlier.transpose(0, 2, 1)), axis=1)
        late = np.clip(until - service.whole, 0.0, bursts).sum(axis=2)
        left = np.clip(until - service.before, 0.0, bursts)
        return late, late_when_packed(left.reshape(-1, partitions), most, service.after).reshape(*late.shape, most)

    def _late_of_many(self, group_of: Ints, most: int, service: Service) -> tuple[Floats, Floats]:
        """After an answer, all replicas are equally busy. A partition that is too large for one is late by itself."""
        sizes = np.maximum(group_of.max(axis=1) + 1, 1)
        first, groups = sizes.cumsum() - sizes, int(sizes.sum())
        number = np.where(group_of < 0, groups, group_of + first[:, None])
        parts = np.tile(self.shares, len(group_of))
        shares = np.bincount(number.ravel(), parts, groups + 1)[:groups].astype(np.float64, copy=False)
        load = self.sample(shares, normals(groups))
        late = np.add.reduceat(np.maximum(0.0, load - service.whole), first, axis=1).T
        left = np.add.reduceat(np.maximum(0.0, load - service.before), first, axis=1).T
        alone = self.sample(self.shares, normals(len(self.shares))) - service.before - service.after
        least = np.maximum(0.0, alone).sum(axis=1)[:, None]
        return late, np.maximum(least, left[:, :, None] - service.after * np.arange(1, most + 1))


def normals(least: int) -> Floats:
    """Standard normal numbers, shape (SCENARIOS, at least ``least`` + 1), the first column for the sum of a burst. The
    second half of the rows is minus the first.
    """
    return _normals(max(16, 1 << least.bit_length()))


@lru_cache(maxsize=16)
def _normals(columns: int) -> Floats:
    nodes, _ = np.polynomial.hermite_e.hermegauss(NODES)
    half = np.random.default_rng(1).standard_normal((columns, SCENARIOS // 2)).T
    half /= np.sqrt((half**2).mean(axis=0))
    half[:, 0] = nodes[: NODES // 2].repeat(SPLITS)
    return np.asarray(np.concatenate((half, -half)))


@lru_cache(maxsize=1)
def weights() -> Floats:
    """Of the bursts in the sample; their sum is 1."""
    _, weights = np.polynomial.hermite_e.hermegauss(NODES)
    half = weights[: NODES // 2].repeat(SPLITS)
    return np.asarray(np.concatenate((half, half)) / half.sum() / 2)


def late_when_packed(loads: Floats, most: int, capacity: float) -> Floats:
    """Events beyond the capacity of each group, by row of ``loads`` and by 1, 2 … ``most`` groups: longest processing
    time first.
    """
    rows, partitions = loads.shape
    falling = -np.sort(-loads, axis=1)
    packed = np.where(np.arange(most) <= np.arange(most)[:, None], 0.0, np.inf)[None].repeat(rows, 0).reshape(-1, most)
    each = np.arange(len(packed))
    for place in range(partitions):
        packed[each, packed.argmin(axis=1)] += falling[:, place].repeat(most)
    packed[np.isinf(packed)] = 0.0
    late: Floats = np.maximum(0.0, packed - capacity).sum(axis=1).reshape(rows, most)
    return late
