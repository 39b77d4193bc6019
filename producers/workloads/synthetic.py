"""Workloads by formula (constant, Poisson, sinusoid, on-off, step), for tests, calibration and steady states."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.runspec import Arrivals
from producers.workloads.contract import Floats, Workload, not_negative, positive


@dataclass(frozen=True)
class Constant(Workload):
    """The same rate all the time."""

    rate_per_s: float
    duration_s: float = 60.0

    name: ClassVar[str] = "constant"
    summary: ClassVar[str] = "the same rate all the time"

    def __post_init__(self) -> None:
        positive(rate_per_s=self.rate_per_s, duration_s=self.duration_s)

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """``rate_per_s``, whatever the time."""
        return np.full(np.shape(time_s), self.rate_per_s)


@dataclass(frozen=True)
class Poisson(Constant):
    """A Poisson process: constant rate, exponential times between events. The schedule's seed draws it."""

    name: ClassVar[str] = "poisson"
    summary: ClassVar[str] = "a Poisson process of constant rate"
    arrivals: ClassVar[Arrivals] = "poisson"
    arrivals_fixed: ClassVar[bool] = True


@dataclass(frozen=True)
class Sinusoid(Workload):
    """``mean_per_s`` + ``amplitude_per_s`` · sin(2πt/``period_s``): begins at the mean and rises."""

    mean_per_s: float
    amplitude_per_s: float
    period_s: float
    duration_s: float = 600.0

    name: ClassVar[str] = "sinusoid"
    summary: ClassVar[str] = "a sine around a mean"

    def __post_init__(self) -> None:
        positive(mean_per_s=self.mean_per_s, period_s=self.period_s, duration_s=self.duration_s)
        not_negative(amplitude_per_s=self.amplitude_per_s)
        if self.amplitude_per_s > self.mean_per_s:
            raise ValueError(
                f"amplitude_per_s {self.amplitude_per_s:g} exceeds mean_per_s {self.mean_per_s:g}: "
                "the rate would be negative"
            )

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The sine at each time."""
        phase = 2 * np.pi * np.asarray(time_s, dtype=np.float64) / self.period_s
        # Where amplitude equals mean, rounding must not make a trough negative.
        return np.asarray(np.maximum(0.0, self.mean_per_s + self.amplitude_per_s * np.sin(phase)))


@dataclass(frozen=True)
class OnOff(Workload):
    """``on_per_s`` for ``on_s`` seconds, then ``off_per_s`` for ``off_s`` seconds, over and over; begins with on."""

    on_per_s: float
    on_s: float
    off_s: float
    off_per_s: float = 0.0
    duration_s: float = 600.0

    name: ClassVar[str] = "on-off"
    summary: ClassVar[str] = "two rates that take turns"

    def __post_init__(self) -> None:
        positive(on_per_s=self.on_per_s, on_s=self.on_s, off_s=self.off_s, duration_s=self.duration_s)
        not_negative(off_per_s=self.off_per_s)

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate of the turn in which each time lies."""
        in_turn_s = np.mod(np.asarray(time_s, dtype=np.float64), self.on_s + self.off_s)
        return np.where(in_turn_s < self.on_s, self.on_per_s, self.off_per_s)


@dataclass(frozen=True)
class Step(Workload):
    """``before_per_s`` until ``at_s``, ``after_per_s`` from then on."""

    before_per_s: float
    after_per_s: float
    at_s: float
    duration_s: float = 120.0

    name: ClassVar[str] = "step"
    summary: ClassVar[str] = "one rate, then another"

    def __post_init__(self) -> None:
        not_negative(before_per_s=self.before_per_s, after_per_s=self.after_per_s)
        positive(at_s=self.at_s, duration_s=self.duration_s)
        if self.at_s >= self.duration_s:
            raise ValueError(f"at_s {self.at_s:g} is not before the end, duration_s {self.duration_s:g}")

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The rate before or after the step."""
        return np.where(np.asarray(time_s, dtype=np.float64) < self.at_s, self.before_per_s, self.after_per_s)
