"""The arithmetic of newsvendors against samples of the distributions that it approximates."""

import numpy as np
import pytest

from controller.scalers.shared.newsvendor import at_least, gamma_above


@pytest.mark.parametrize("scv", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("part", [0.5, 1.0, 1.5, 3.0])
def test_tail_of_a_gamma_distribution_is_near_that_of_a_sample(scv: float, part: float) -> None:
    sample = np.random.default_rng(3).gamma(1 / scv, 40 * scv, 200_000)
    assert gamma_above(40.0, scv * 40**2, 40 * part) == pytest.approx(float(np.mean(sample > 40 * part)), abs=0.01)


def test_tail_of_a_gamma_distribution_at_its_ends() -> None:
    assert gamma_above(10.0, 4.0, 0.0) == 1
    assert gamma_above(10.0, 4.0, -5.0) == 1
    assert gamma_above(10.0, 0.0, 9.0) == 1
    assert gamma_above(10.0, 0.0, 11.0) == 0


@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.3), (2.0, 2.0), (2.0, 5.0), (4.0, 1.0)])
def test_counts_are_poisson_or_negative_binomial(mean: float, variance: float) -> None:
    draws, excess = np.random.default_rng(4), variance / mean - 1
    if excess > 0:
        sample = draws.negative_binomial(mean / excess, 1 / (1 + excess), 200_000)
    else:
        sample = draws.poisson(mean, 200_000)
    expected = [float(np.mean(sample >= k)) for k in range(1, 9)]
    assert at_least(mean, variance, 8) == pytest.approx(expected, abs=0.005)


def test_no_count_at_all_is_never_above_zero() -> None:
    assert at_least(0.0, 0.0, 2) == (0.0, 0.0)
