"""Kendall's τ."""

import pytest

from experiments.ranking import kendall_tau


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ((1, 2, 3, 4), (10, 20, 30, 40), 1.0),
        ((1, 2, 3, 4), (4, 3, 2, 1), -1.0),
        ((1, 2, 3, 4), (1, 2, 4, 3), 4 / 6),
        ((1, 1, 2), (1, 2, 3), 2 / 6**0.5),
        ((1, 1, 2, 2), (5, 5, 6, 6), 1.0),
    ],
)
def test_it_is_the_share_of_pairs_in_the_same_order_less_those_in_the_opposite_one(
    first: tuple[int, ...], second: tuple[int, ...], tau: float
) -> None:
    assert kendall_tau(first, second) == pytest.approx(tau)
    assert kendall_tau(second, first) == pytest.approx(tau)


def test_a_ranking_that_orders_nothing_agrees_with_none() -> None:
    assert kendall_tau((1, 1, 1), (1, 2, 3)) is None
    assert kendall_tau((), ()) is None
    assert kendall_tau((1,), (2,)) is None


def test_rankings_of_different_things_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        kendall_tau((1, 2), (1, 2, 3))
