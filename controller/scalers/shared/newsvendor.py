"""The arithmetic that all newsvendors share: the price of a late event, and the mean of what exceeds a capacity.

The loss function is that of Arrow, Harris and Marschak, "Optimal Inventory Policy", Econometrica 19 (1951);
docs/newsvendor.md explains the principle.
"""

from math import erfc, exp, pi, sqrt
from typing import Final

import msgspec

SETTLING_TICKS: Final = 50
"""Ticks in which estimates take larger steps, 1/t."""
FIRST_PRICE: Final = 0.0025
PRICE_GAIN: Final = 0.012
LEAST_PRICE: Final = 0.03
LARGEST_PRICE: Final = 5.0
AIM: Final = 0.9
"""Of the late events that the contract allows, the part that the price aims at."""


class Price(msgspec.Struct, frozen=True):
    """λ, found while the contract is kept or missed. ``value``: replica-intervals per late event; None at the start.

    ``finished``, ``late``: the last counts. ``usual``: finished events per interval, smoothed. ``owed``: steps that
    were too large for one interval, so that late events in a clump raise the price as much as single ones.
    """

    value: float | None = None
    usual: float = 0.0
    readings: int = 0
    owed: float = 0.0
    finished: int | None = None
    late: int | None = None

    def beginning(self, value: float) -> "Price":
        """With a first value, within the limits."""
        return msgspec.structs.replace(self, value=clip(value, LEAST_PRICE, LARGEST_PRICE))

    def updated(self, finished: int | None, late: int | None, slo_share: float, gain: float = PRICE_GAIN) -> "Price":
        """With new counts; unknown ones leave the price as it is. ``gain``: relative change per interval and step."""
        allowed = AIM * (1 - slo_share)
        value = self.value if self.value is not None else FIRST_PRICE / allowed**0.75
        if finished is None or late is None or self.finished is None or self.late is None:
            return msgspec.structs.replace(self, value=value, finished=finished, late=late)
        done, missed = max(0, finished - self.finished), max(0, late - self.late)
        usual = self.usual + 0.02 * (done - self.usual)
        if self.readings < SETTLING_TICKS:
            usual = max(usual, done)
        excess = self.owed + (missed / allowed - done) / max(1.0, usual)
        step = clip(excess, -1.5, 25.0)
        value = clip(value * exp(gain * step), LEAST_PRICE, LARGEST_PRICE)
        owed = max(0.0, excess - step) if value < LARGEST_PRICE else 0.0
        return Price(value, usual, self.readings + 1, owed, finished, late)


def clip(value: float, least: float, most: float) -> float:
    """The number within the limits."""
    return max(least, min(value, most))


def expected_above(mean: float, variance: float, capacity: float) -> float:
    """E[(D − C)⁺] of a normal demand D: σ·(φ(z) − z·(1 − Φ(z))) with z = (C − mean)/σ."""
    deviation = sqrt(max(variance, 1e-9))
    z = (capacity - mean) / deviation
    return deviation * max(0.0, exp(-z * z / 2) / sqrt(2 * pi) - z * erfc(z / sqrt(2)) / 2)
