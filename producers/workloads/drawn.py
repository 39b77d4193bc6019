"""A load drawn by its number: waves, trends, steps, spikes, on-off or a random walk, for tests that no scaler knows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from producers.workloads.contract import Floats, Workload, positive

Shape = Callable[[np.random.Generator, Floats], Floats]
"""Rates in any scale at whole seconds."""
STREAM: Final = 20
"""Keeps the draws of a number apart from those of a run's seed."""


def _wave(rng: np.random.Generator, time_s: Floats) -> Floats:
    """One or two sines around a mean."""
    rate = np.full(len(time_s), rng.uniform(1.0, 2.5))
    for amplitude in (1.0, rng.choice([0.0, 0.5])):
        rate += amplitude * np.sin(2 * np.pi * (time_s / rng.uniform(40, 400) + rng.uniform()))
    return rate


def _trend(rng: np.random.Generator, time_s: Floats) -> Floats:
    """Straight lines between two to five levels."""
    knots = int(rng.integers(2, 6))
    return np.asarray(np.interp(time_s, np.linspace(0, time_s[-1], knots), rng.uniform(0.1, 1.0, knots)))


def _steps(rng: np.random.Generator, time_s: Floats) -> Floats:
    """Levels of 40 to 200 s, without warning."""
    ends_s = np.cumsum(rng.uniform(40, 200, int(time_s[-1] // 40) + 1))
    return np.asarray(rng.uniform(0.1, 1.0, len(ends_s) + 1)[np.searchsorted(ends_s, time_s, side="right")])


def _spikes(rng: np.random.Generator, time_s: Floats) -> Floats:
    """One to six peaks above a constant rate; each rises in a straight line and falls exponentially."""
    rate = np.full(len(time_s), rng.uniform(0.1, 0.6))
    for _ in range(int(rng.integers(1, 7))):
        from_s, rise_s, fall_s = rng.uniform(0, time_s[-1]), rng.uniform(1, 30), rng.uniform(5, 40)
        after_s = time_s - from_s
        rate += rng.uniform(0.3, 1.0) * np.where(
            after_s < 0, np.maximum(0, 1 + after_s / rise_s), np.exp(-np.maximum(0, after_s) / fall_s)
        )
    return rate


def _on_off(rng: np.random.Generator, time_s: Floats) -> Floats:
    """Two levels that take turns of 20 to 90 s."""
    on_s, off_s = rng.uniform(20, 90, 2)
    return np.where((time_s + rng.uniform(0, on_s + off_s)) % (on_s + off_s) < on_s, 1.0, rng.uniform(0.02, 0.4))


def _walk(rng: np.random.Generator, time_s: Floats) -> Floats:
    """The exponential of a first-order autoregression with a correlation time of 20 to 120 s."""
    keep = np.exp(-1 / rng.uniform(20, 120))
    steps = rng.normal(0, 0.4 * np.sqrt(1 - keep**2), len(time_s))
    level = np.empty(len(time_s))
    level[0] = rng.normal(0, 0.4)
    for second in range(1, len(time_s)):
        level[second] = keep * level[second - 1] + steps[second]
    return np.asarray(np.exp(level))


SHAPES: Final[dict[str, Shape]] = {
    "wave": _wave,
    "trend": _trend,
    "steps": _steps,
    "spikes": _spikes,
    "on-off": _on_off,
    "walk": _walk,
}


@dataclass(frozen=True)
class Drawn(Workload):
    """``number`` draws a shape and its parameters; its highest rate is ``peak_per_s``."""

    number: int
    peak_per_s: float = 300.0
    duration_s: float = 600.0

    name: ClassVar[str] = "drawn"
    summary: ClassVar[str] = "a wave, trend, steps, spikes, on-off or random walk, drawn by number"

    def __post_init__(self) -> None:
        positive(peak_per_s=self.peak_per_s, duration_s=self.duration_s)
        if self.number < 0:
            raise ValueError(f"number has to be at least 0, not {self.number}")

    @property
    def shape(self) -> str:
        """The name of its shape."""
        return self._drawn[0]

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate of the second in which each time lies."""
        rates = self._drawn[1]
        second = np.floor(np.asarray(time_s, dtype=np.float64)).astype(np.int64)
        return np.asarray(rates[np.clip(second, 0, len(rates) - 1)])

    @cached_property
    def _drawn(self) -> tuple[str, Floats]:
        rng = np.random.default_rng([STREAM, self.number])
        shape = list(SHAPES)[int(rng.integers(len(SHAPES)))]
        rate = SHAPES[shape](rng, np.arange(np.ceil(self.duration_s), dtype=np.float64))
        rate = np.maximum(0.0, rate * (1 + rng.uniform(0, 0.05) * rng.standard_normal(len(rate))))
        return shape, self.peak_per_s * rate / rate.max()
