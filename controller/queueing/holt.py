"""Holt's double exponential smoothing, as AMESoS forecasts an arrival rate with it.

Tsenos, Peri and Kalogeraki, "AMESoS", DEBS 2022, Eqs (5) to (8); readings H1 to H6.
"""

from collections.abc import Iterable, Sequence
from math import fsum, isfinite
from typing import Literal

import msgspec

Init = Literal["zero", "diff"]
"""Trend at the first value: none, or the difference to the second one (H2)."""

TIE = 1e-12
"""Of the mean square of a series: squared errors that differ by less do so by rounding only."""


class Smoothed(msgspec.Struct, frozen=True, kw_only=True):
    """Level S and trend (per step) after the last value of a series; None after none."""

    level: float | None
    trend: float | None

    def ahead(self, steps: int = 1) -> float:
        """S + h · tr, which a falling trend takes below zero (H1). 0 while there is nothing to go on."""
        if self.level is None or self.trend is None:
            return 0.0
        return self.level + steps * self.trend

    def rate_ahead(self, steps: int = 1) -> float:
        """The forecast of something that cannot be negative: never below 0 (H5)."""
        return max(0.0, self.ahead(steps))


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The best pair of a grid and its mean squared one-step error; None if the series is too short to have one."""

    alpha: float
    gamma: float
    mean_squared_error: float | None


def smooth(series: Sequence[float], alpha: float, gamma: float, init: Init = "zero") -> Smoothed:
    """Level and trend after the whole series, from its first value on (H3: hand in the window that should count).

    Raises ValueError unless 0 ≤ α, γ ≤ 1, Eqs (7) and (8), and all values are finite.
    """
    states = list(_steps(series, alpha, gamma, init))
    level, trend = states[-1] if states else (None, None)
    return Smoothed(level=level, trend=trend)


def mean_squared_error(series: Sequence[float], alpha: float, gamma: float, init: Init = "zero") -> float | None:
    """Mean squared error of the forecasts one step ahead, t = 2 … n (H4); None for fewer than two values."""
    states = list(_steps(series, alpha, gamma, init))
    errors = [value - (level + trend) for value, (level, trend) in zip(series[1:], states[:-1], strict=True)]
    return fsum(error**2 for error in errors) / len(errors) if errors else None


def grid_search(series: Sequence[float], alphas: Iterable[float], gammas: Iterable[float], init: Init = "zero") -> Grid:
    """α and γ of the least mean squared one-step error; ties go to the lowest α, then to the lowest γ (H4)."""
    columns = sorted(gammas)
    pairs = [(alpha, gamma) for alpha in sorted(alphas) for gamma in columns]
    if not pairs:
        raise ValueError("an empty grid: expected at least one alpha and one gamma")
    tie = TIE * fsum(value**2 for value in series) / max(1, len(series))
    best: Grid | None = None
    for alpha, gamma in pairs:
        error = mean_squared_error(series, alpha, gamma, init)
        if best is None or (
            error is not None and best.mean_squared_error is not None and error < best.mean_squared_error - tie
        ):
            best = Grid(alpha=alpha, gamma=gamma, mean_squared_error=error)
    assert best is not None
    return best


def _steps(series: Sequence[float], alpha: float, gamma: float, init: Init) -> Iterable[tuple[float, float]]:
    """(S_t, tr_t) for each value of the series."""
    if not (0 <= alpha <= 1 and 0 <= gamma <= 1):
        raise ValueError(f"alpha={alpha:g}, gamma={gamma:g}: expected 0 to 1")
    if not all(isfinite(value) for value in series):
        raise ValueError(f"series {list(series)}: expected finite numbers")
    if not series:
        return
    level = float(series[0])
    trend = float(series[1] - series[0]) if init == "diff" and len(series) > 1 else 0.0
    yield level, trend
    for value in series[1:]:
        before = level
        level = alpha * value + (1 - alpha) * (before + trend)  # (5)
        trend = gamma * (level - before) + (1 - gamma) * trend  # (6)
        yield level, trend
