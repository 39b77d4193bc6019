"""Longest processing time first: the readable version by example, the compiled one beside it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.shared.lpt import groups_of, lpt, lpt_for_all
from controller.scalers.shared.lpt_fast import fill


def test_the_heaviest_partition_comes_first_and_goes_to_the_least_loaded_group() -> None:
    assert groups_of(lpt([5, 4, 3, 3, 3], 2), 2) == ((0, 3), (1, 2, 4))
    assert groups_of(lpt([1, 1, 1], 3), 3) == ((0,), (1,), (2,))
    assert groups_of(lpt([1, 1], 3), 3) == ((0,), (1,), ())


def test_among_equally_loaded_groups_the_one_with_fewer_partitions_is_taken() -> None:
    assert groups_of(lpt([2, 1, 1, 0], 2), 2) == ((0, 3), (1, 2))


@given(st.lists(st.integers(0, 6).map(float), min_size=1, max_size=40), st.integers(1, 12))
def test_the_compiled_version_gives_the_same_groups(weights: list[float], most: int) -> None:
    rows = np.empty((most, len(weights)), dtype=np.int64)
    order = sorted(range(len(weights)), key=lambda partition: (-weights[partition], partition))
    fill(np.array(weights), np.array(order, dtype=np.int64), rows)
    assert rows.tolist() == [lpt(weights, groups) for groups in range(1, most + 1)]
    assert lpt_for_all(weights, most).tolist() == rows.tolist()


@pytest.mark.parametrize("partitions", [64, 65])
def test_few_and_many_partitions_are_grouped_alike(partitions: int) -> None:
    weights = np.random.default_rng(1).random(partitions).tolist()
    assert lpt_for_all(weights, 9).tolist() == [lpt(weights, groups) for groups in range(1, 10)]
