"""Bursts that are answered when they are seen: the sample beside closed forms and beside random bursts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.shared.lpt import group_numbers, lpt
from controller.scalers.shared.newsvendor import expected_above
from controller.scalers.shared.recourse import (
    FEW_PARTITIONS,
    SCENARIOS,
    Load,
    Service,
    late_when_packed,
    normals,
    weights,
)

SERVICE = Service(whole=100.0, before=25.0, after=65.0)
"""200 events/s, a limit of 0.5 s, an answer after 0.125 s that stops the group for 0.05 s."""


def equal(partitions: int, mean: float, variance: float = 100.0) -> Load:
    return Load(mean, variance, np.full(partitions, 1 / partitions))


def test_the_sums_of_the_sample_have_the_moments_of_a_normal_one_up_to_the_seventh() -> None:
    sums = normals(5)[:, 0]
    assert weights().sum() == pytest.approx(1.0)
    moments = [float(weights() @ sums**power) for power in range(1, 8)]
    assert moments == pytest.approx([0, 1, 0, 3, 0, 15, 0], abs=1e-9)


@pytest.mark.parametrize("partitions", [1, 5, 16, 40])
def test_the_sample_is_balanced_and_always_the_same(partitions: int) -> None:
    sample = normals(partitions)
    assert sample.shape[0] == SCENARIOS and sample.shape[1] > partitions
    assert np.array_equal(sample, normals(partitions))
    assert np.array_equal(sample[SCENARIOS // 2 :], -sample[: SCENARIOS // 2])
    assert (sample[:, 1:] ** 2).mean(axis=0) == pytest.approx(np.ones(sample.shape[1] - 1))


@given(
    loads=st.lists(st.floats(0, 90), min_size=1, max_size=9),
    most=st.integers(1, 11),
    capacity=st.floats(0, 150),
)
def test_what_is_late_after_packing_is_that_of_longest_processing_time_first(
    loads: list[float], most: int, capacity: float
) -> None:
    found = late_when_packed(np.array([loads, loads[::-1]]), most, capacity)
    assert found.shape == (2, most)
    for groups in range(1, most + 1):
        sums = np.bincount(lpt(loads, groups), loads, groups)
        assert found[0, groups - 1] == pytest.approx(np.maximum(0.0, sums - capacity).sum(), abs=1e-6)
    assert found[0] == pytest.approx(found[1], abs=1e-6)


@pytest.mark.parametrize("mean", [60.0, 85.0, 100.0, 130.0])
def test_one_replica_without_an_answer_is_late_as_in_the_closed_form(mean: float) -> None:
    late, _ = Load(mean, 225.0, np.ones(1)).late(np.zeros((1, 1), np.int64), 1, SERVICE)
    assert weights() @ late[0] == pytest.approx(expected_above(mean, 225.0, SERVICE.whole), abs=0.06 * 15)


def simulated(load: Load, groups: int, answered_by: int) -> tuple[float, float]:
    """Mean late events without an answer and with one, over random bursts; each replica serves its partitions one
    after the other, in random order.
    """
    draw = np.random.default_rng(2)
    partitions, kept, answered = len(load.shares), 0.0, 0.0
    group_of = lpt(load.shares.tolist(), groups)
    times = 4000
    for _ in range(times):
        total = max(0, round(draw.normal(load.mean, np.sqrt(load.variance))))
        burst, served = draw.multinomial(total, load.shares), np.zeros(groups)
        left = np.zeros(partitions)
        for p in draw.permutation(partitions).tolist():
            done = min(burst[p], max(0.0, SERVICE.before - served[group_of[p]]))
            served[group_of[p]] += done
            left[p] = burst[p] - done
        kept += np.maximum(0.0, np.bincount(group_of, burst, groups) - SERVICE.whole).sum()
        new = lpt(left.tolist(), answered_by)
        answered += np.maximum(0.0, np.bincount(new, left, answered_by) - SERVICE.after).sum()
    return kept / times, answered / times


@pytest.mark.parametrize(
    ("mean", "groups", "answered_by"), [(170.0, 2, 2), (250.0, 3, 3), (250.0, 3, 4), (320.0, 4, 4)]
)
@pytest.mark.parametrize("partitions", [5, 24])
def test_late_events_before_and_after_the_answer_are_those_of_random_bursts(
    mean: float, groups: int, answered_by: int, partitions: int
) -> None:
    load = equal(partitions, mean)
    group_of = np.array([lpt(load.shares.tolist(), groups)])
    late, answered = load.late(group_of, 6, SERVICE)
    expected = simulated(load, groups, answered_by)
    found = weights() @ late[0], weights() @ answered[0, :, answered_by - 1]
    assert (partitions <= FEW_PARTITIONS) == (partitions == 5)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=0.35, abs=2.0)


@given(
    partitions=st.sampled_from([3, 5, 16, 17, 40]),
    mean=st.floats(0, 900),
    before=st.floats(0, 90),
    most=st.integers(1, 12),
)
def test_more_replicas_before_a_burst_or_in_its_answer_never_make_more_events_late(
    partitions: int, mean: float, before: float, most: int
) -> None:
    load = equal(partitions, mean)
    group_of = np.array([lpt([1.0] * partitions, groups) for groups in range(1, min(most, partitions) + 1)])
    _, answered = load.late(group_of, most, Service(100.0, before, 90.0 - before))
    assert answered.min() >= 0
    by_answer = np.tensordot(answered, weights(), axes=(1, 0))
    assert (np.diff(by_answer, axis=1) <= 1e-6).all()


def test_a_partition_without_a_group_is_late_with_no_replica_of_another() -> None:
    shares = np.full(40, 1 / 40)
    held = np.array([group_numbers([range(20)], 40), group_numbers([range(40)], 40)])
    late, _ = Load(400.0, 0.0, shares).late(held, 4, SERVICE)
    assert (late[0] < late[1]).all()
