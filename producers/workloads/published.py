"""The two workloads of the bin-pack paper, as knots read from their published curves (events/s, linear in between).

Workload 1 was adapted by its authors from Chindanonda et al. 2020; workload 2 is New York's taxi trips of January 2013
at 40 times their speed. The knots are CSV files beside this one; a knot is the rate of one whole second and so stands
in that second's middle.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.runspec import Arrivals
from producers.workloads.contract import Floats, Workload, not_negative


@cache
def _knots(name: str) -> Floats:
    """Time in s and rate per s of each knot, shape (2, knots)."""
    return np.loadtxt(Path(__file__).with_name(f"{name}.csv"), delimiter=",", skiprows=1, unpack=True)


@dataclass(frozen=True)
class BinpackWorkload1(Workload):
    """600 s, 108,757 events at one value a second, peak 349/s in second 470."""

    name: ClassVar[str] = "binpack-workload-1"
    duration_s: ClassVar[float] = 600.0
    summary: ClassVar[str] = "the bin-pack paper's workload 1: 600 s, about 109k events, peak 349/s"
    arrivals: ClassVar[Arrivals] = "burst"

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Linear between the knots, flat before the first and after the last."""
        return np.asarray(np.interp(np.asarray(time_s), *_knots(self.name)))


@dataclass(frozen=True)
class NycTaxi(Workload):
    """7,207 s, 1,310,567 events at one value a second, peak 364/s.

    The series behind the curve moves by some 2.6/s from one second to the next. ``jitter_per_s`` is the standard
    deviation of a normal residual, drawn anew for each whole second from ``jitter_seed`` (never below a rate of 0).
    """

    jitter_per_s: float = 0.0
    jitter_seed: int = 1

    name: ClassVar[str] = "nyc-taxi"
    duration_s: ClassVar[float] = 7207.0
    summary: ClassVar[str] = "the bin-pack paper's workload 2: 7,207 s, about 1.31M events, peak 364/s"
    arrivals: ClassVar[Arrivals] = "burst"

    def __post_init__(self) -> None:
        not_negative(jitter_per_s=self.jitter_per_s, jitter_seed=self.jitter_seed)

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Linear between the knots, plus the residual of the second in which each time lies."""
        times_s = np.asarray(time_s, dtype=np.float64)
        curve = np.asarray(np.interp(times_s, *_knots(self.name)))
        if self.jitter_per_s == 0:
            return curve
        residual = _standard_residuals(self.jitter_seed, int(self.duration_s))[times_s.astype(np.int64)]
        return np.asarray(np.maximum(0.0, curve + self.jitter_per_s * residual))


@cache
def _standard_residuals(seed: int, seconds: int) -> Floats:
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(seconds)
