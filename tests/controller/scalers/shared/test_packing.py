"""Least-Loaded: its properties, its edges, and that the compiled version gives the groups of the readable one."""

from math import floor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.queueing.rounding import TOLERANCE
from controller.scalers.optimal import optimal_replicas
from controller.scalers.shared.pack import pack
from controller.scalers.shared.packing import Bin, Load, bin_size, least_loaded, truncate
from controller.scalers.shared.packing_fast import least_loaded_fast
from tests.controller.scalers.exact_packing import fewest_bins

UP = bin_size(200, 0.5, 0.9)
DOWN = bin_size(200, 0.5, 0.4)

whole = st.integers(0, 250).map(float)
tied = st.sampled_from([0.0, 10.0, 30.0, 45.0, 60.0, 90.0, 180.0])
any_rate = st.floats(0, 250, allow_nan=False)
sizes = st.sampled_from([UP, DOWN])


@st.composite
def loads(draw: st.DrawFn, most: int = 9) -> Load:
    number = draw(st.sampled_from([whole, tied, any_rate]))
    parts = draw(st.lists(st.tuples(st.one_of(number, st.just(0.0)), number), max_size=most))
    return Load([lag for lag, _ in parts], [rate for _, rate in parts])


@given(loads(), sizes)
def test_every_partition_is_packed_once_and_no_bin_is_overfull(load: Load, size: Bin) -> None:
    packing = least_loaded(load, size)
    lags, rates = truncate(load, size)
    assert sorted(item for group in packing.groups for item in group) == list(range(len(lags)))
    assert 1 <= packing.bins <= max(1, len(lags))
    assert not packing.violates
    for group in packing.groups:
        assert sum(lags[item] for item in group) <= size.lag + 2 * TOLERANCE
        assert sum(rates[item] for item in group) <= size.rate_per_s + 2 * TOLERANCE


@given(loads(most=7), sizes)
def test_no_packing_beats_the_exact_minimum(load: Load, size: Bin) -> None:
    assert fewest_bins(load, size) <= least_loaded(load, size).bins


@given(loads(most=12), sizes)
def test_starting_at_the_volume_bound_changes_nothing(load: Load, size: Bin) -> None:
    assert least_loaded(load, size) == least_loaded(load, size, first=1)


@given(loads(most=60), sizes, st.none() | st.integers(1, 20))
def test_the_fast_version_equals_the_readable_one(load: Load, size: Bin, most: int | None) -> None:
    assert least_loaded_fast(load, size, most=most) == least_loaded(load, size, first=1, most=most)


@given(st.integers(0, 2**32 - 1), st.sampled_from([(20, 10), (20, 40), (60, 2), (20, 0), (0, 10)]), sizes)
def test_the_fast_version_equals_the_readable_one_with_many_partitions(
    seed: int, mix: tuple[int, int], size: Bin
) -> None:
    numbers = iter(_uniform(seed, 600))
    load = Load([next(numbers) * mix[1] for _ in range(300)], [next(numbers) * mix[0] for _ in range(300)])
    assert least_loaded_fast(load, size) == least_loaded(load, size)


def _uniform(seed: int, count: int) -> list[float]:
    values = []
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(seed / 2**64)
    return values


@given(loads(most=60), sizes, st.integers(1, 20))
def test_fewer_than_gives_up_exactly_when_that_many_are_needed(load: Load, size: Bin, limit: int) -> None:
    whole_answer = least_loaded(load, size)
    expected = whole_answer if whole_answer.bins < limit else None
    assert least_loaded_fast(load, size, fewer_than=limit) == expected


@given(loads(), sizes, st.sampled_from([0.5, 2.0, 4.0]))
def test_scaling_loads_and_capacity_together_changes_nothing(load: Load, size: Bin, factor: float) -> None:
    # Powers of two scale exactly; differences near the absolute tolerance are not what is tested.
    assume(all(value == round(value) for values in load for value in values))
    scaled = Load([lag * factor for lag in load.lags], [rate * factor for rate in load.rates_per_s])
    assert least_loaded(scaled, Bin(size.lag * factor, size.rate_per_s * factor)) == least_loaded(load, size)


@given(loads(), sizes, st.integers(1, 9))
def test_a_cap_is_kept_and_says_when_it_hurts(load: Load, size: Bin, most: int) -> None:
    free, capped = least_loaded(load, size), least_loaded(load, size, most=most)
    assert capped.bins <= most
    assert capped.violates == (free.bins > most)
    assert sorted(item for group in capped.groups for item in group) == list(range(len(load.lags)))


@given(loads(), sizes, st.integers(0, 8), st.booleans())
def test_a_partition_above_capacity_shares_with_no_load_of_that_kind(
    load: Load, size: Bin, position: int, in_lag: bool
) -> None:
    assume(position < len(load.lags))
    hot = list(load.lags if in_lag else load.rates_per_s)
    hot[position] = 1000.0
    load = Load(hot, load.rates_per_s) if in_lag else Load(load.lags, hot)
    (group,) = [group for group in least_loaded(load, size).groups if position in group]
    assert all(hot[other] <= 2 * TOLERANCE for other in group if other != position)


def test_no_load_needs_one_bin_and_no_partitions_too() -> None:
    assert least_loaded(Load([0] * 5, [0] * 5), UP).groups == ((0, 1, 2, 3, 4),)
    assert least_loaded(Load([], []), UP).groups == ((),)
    assert least_loaded_fast(Load([], []), UP) == least_loaded(Load([], []), UP)


@pytest.mark.parametrize("rate", [17.0, 36.0, 45.0, 60.0, 90.0, 91.0, 180.0])
@pytest.mark.parametrize("partitions", [1, 4, 5, 9])
def test_equal_partitions_fill_bins_evenly(rate: float, partitions: int) -> None:
    together = floor(UP.rate_per_s / rate)
    expected = -(-partitions // together)
    assert least_loaded(Load([0] * partitions, [rate] * partitions), UP).bins == expected
    assert optimal_replicas(rate * partitions, partitions, UP.rate_per_s) == expected


@pytest.mark.parametrize(("above", "bins"), [(-0.01, 1), (0.0, 1), (1e-10, 1), (0.01, 2)])
def test_a_bin_is_full_at_its_size_and_not_before(above: float, bins: int) -> None:
    assert least_loaded(Load([45, 45 + above], [0, 0]), UP).bins == bins
    assert least_loaded(Load([0, 0], [90, 90 + above]), UP).bins == bins


def test_pack_takes_the_fast_version_for_many_partitions() -> None:
    load = Load([5.0] * 500, [10.0] * 500)
    assert pack(load, UP) == least_loaded(load, UP)
    assert pack(load, UP, fewer_than=5) is None
