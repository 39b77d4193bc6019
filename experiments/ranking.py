"""How far two rankings of the same things agree: Kendall's τ, in the form that allows for ties (τ-b, Kendall 1945)."""

from collections.abc import Sequence
from itertools import combinations
from math import sqrt


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """1: the same order, −1: the opposite one. A pair that is equal in one ranking counts for neither. None where one
    of the rankings puts nothing before anything. Raises ValueError if they are not of the same length.
    """
    agreement = 0
    ordered_by_first = ordered_by_second = 0
    for (a, b), (c, d) in combinations(zip(first, second, strict=True), 2):
        by_first, by_second = (a > c) - (a < c), (b > d) - (b < d)
        agreement += by_first * by_second
        ordered_by_first += by_first != 0
        ordered_by_second += by_second != 0
    if not (ordered_by_first and ordered_by_second):
        return None
    return agreement / sqrt(ordered_by_first * ordered_by_second)
