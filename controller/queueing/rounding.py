"""Whole numbers of replicas from quotients of doubles: 200 · 0.9 · 0.5 need not be exactly 90. Numbers for JSON."""

from math import ceil, floor, inf
from typing import Any

TOLERANCE = 1e-9
"""Two quantities that differ by no more than this are equal."""


def rounded_up(quotient: float) -> int:
    """⌈quotient⌉, where a rounding error above a whole number does not count."""
    return ceil(quotient - TOLERANCE)


def rounded_down(quotient: float) -> int:
    """⌊quotient⌋, where a rounding error below a whole number does not count."""
    return floor(quotient + TOLERANCE)


def finite(value: Any) -> Any:
    """A number, or plain data with numbers, that JSON can hold: infinity as the text "inf"."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return "inf" if value == inf else value
