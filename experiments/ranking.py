"""How far two rankings of the same things agree: Kendall's τ, in the form that allows for ties (τ-b, Kendall 1945)."""

from collections.abc import Sequence
from itertools import combinations
from math import sqrt
from typing import Final

EQUAL: Final = 0.02
"""Two scalers are equal in a measure that differs by this share at most: no user would choose by it."""


def compare(one: float, other: float, equal: float = 0.0) -> int:
    """1: ``one`` is larger, −1: smaller, 0: they differ by the share ``equal`` of the larger one at most."""
    near = abs(one - other) <= equal * max(abs(one), abs(other))
    return 0 if near else (one > other) - (one < other)


def kendall_tau(first: Sequence[float], second: Sequence[float], equal: float = 0.0) -> float | None:
    """1: the same order, −1: the opposite one. A pair that is equal in one ranking counts for neither (``equal`` as in
    ``compare``). None where one of the rankings puts nothing before anything. Raises ValueError if they are not of the
    same length.
    """
    return tau(*([compare(a, b, equal) for a, b in combinations(each, 2)] for each in (first, second)))


def tau(first: Sequence[int], second: Sequence[int]) -> float | None:
    """Kendall's τ of the orders of the same pairs in two rankings, each −1, 0 or 1. None where one of them orders none.
    ValueError if they are not of the same length.
    """
    agreement = sum(a * b for a, b in zip(first, second, strict=True))
    ordered = sum(map(abs, first)) * sum(map(abs, second))
    return agreement / sqrt(ordered) if ordered else None
