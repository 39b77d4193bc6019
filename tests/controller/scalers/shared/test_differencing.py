"""The largest differencing method: what every grouping promises, and how near it comes to the best one."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.shared.differencing import differencing
from controller.scalers.shared.lpt import lpt


def largest(weights: Sequence[float], group_of: Sequence[int], groups: int) -> float:
    return float(np.bincount(group_of, weights, groups).max())


@given(st.lists(st.integers(0, 100), min_size=1, max_size=16), st.integers(1, 16))
def test_every_partition_has_one_group_and_no_group_is_empty_without_need(weights: list[int], groups: int) -> None:
    group_of = differencing(weights, groups)
    assert len(group_of) == len(weights)
    assert set(group_of) <= set(range(groups))
    assert group_of == differencing(weights, groups)
    if min(weights) > 0:
        assert len(set(group_of)) == min(groups, len(weights))
    if not any(weights):
        assert len(set(group_of)) == min(groups, len(weights))


def test_the_example_of_the_method() -> None:
    group_of = differencing([8, 7, 6, 5, 4], 2)  # 16 and 14, where longest processing time first has 17 and 13
    assert largest([8, 7, 6, 5, 4], group_of, 2) == 16
    assert largest([8, 7, 6, 5, 4], lpt([8, 7, 6, 5, 4], 2), 2) == 17


def test_the_largest_group_is_nearer_to_the_best_than_by_longest_processing_time() -> None:
    rng = np.random.default_rng(1)
    excess = {differencing: 0.0, lpt: 0.0}
    for _ in range(100):
        weights, groups = rng.integers(5, 60, 6).tolist(), int(rng.integers(2, 4))
        best = min(largest(weights, each, groups) for each in product(range(groups), repeat=len(weights)))
        for method in excess:
            excess[method] += largest(weights, method(weights, groups), groups) / best - 1
    assert excess[differencing] < 0.75 * excess[lpt]
