"""The two workloads of the bin-pack paper, as knots read from their published curves (events/s, linear in between).

Workload 1 was adapted by its authors from Chindanonda et al. 2020; workload 2 is New York's taxi trips of January 2013
played 40 times as fast.
"""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.runspec import Arrivals
from producers.workloads.contract import Floats, not_negative

# fmt: off
BINPACK_1_PER_S = (
    0, 3, 13, 28, 47, 70, 95, 120, 144, 165, 182, 193, 199, 200, 196, 190, 182, 173, 165, 157, 152, 150, 153, 163,
    179, 200, 222, 243, 260, 271, 275, 271, 259, 241, 220, 198, 177, 161, 152, 151, 161, 182, 212, 247, 283, 314,
    337, 349, 348, 337, 315, 285, 248, 206, 162, 119, 79, 46, 21, 5, 0,
)
NYC_TAXI_PER_S = (
    1, 19, 138, 252, 330, 307, 272, 276, 307, 352, 343, 337, 343, 333, 326, 317, 305, 290, 280, 260, 245, 230,
    204, 182, 164, 145, 132, 125, 113, 104, 99, 92, 90, 89, 84, 81, 81, 75, 71, 70, 69, 70, 76, 78, 83, 88, 94,
    102, 116, 125, 135, 148, 153, 164, 180, 190, 201, 210, 216, 223, 232, 231, 230, 239, 233, 234, 235, 234, 230,
    232, 228, 228, 231, 224, 221, 222, 211, 207, 213, 220, 227, 243, 239, 242, 248, 249, 250, 249, 230, 214, 211,
    204, 200, 194, 187, 180, 178, 171, 174, 186, 186, 185, 186, 178, 164, 149, 133, 127, 125, 115, 103, 94, 83,
    76, 68, 57, 48, 46, 42, 39, 35, 29, 25, 23, 21, 20, 21, 22, 24, 24, 23, 24, 27, 31, 38, 50, 60, 74, 93, 116,
    136, 158, 166, 178, 202, 209, 224, 242, 260, 276, 285, 272, 260, 258, 242, 230, 226, 217, 217, 219, 211, 211,
    223, 228, 231, 233, 231, 234, 237, 227, 229, 240, 234, 231, 236, 233, 237, 243, 237, 237, 241, 231, 223, 220,
    216, 219, 230, 241, 256, 278, 283, 295, 314, 320, 326, 332, 323, 312, 309, 287, 275, 268, 252, 244, 244, 235,
    230, 232, 223, 222, 221, 211, 205, 197, 180, 162, 150, 135, 124, 118, 106, 97, 89, 77, 69, 61, 53, 48, 44, 39,
    35, 33, 29, 27, 27, 27, 28, 28, 26, 25, 25, 28, 35, 45, 53, 65, 84, 108, 129, 151, 162, 181, 207, 221, 238,
    257, 272, 283, 293, 289, 286, 289, 276, 258, 245, 239, 235, 237, 224, 225, 237, 239, 242, 244, 244, 242, 244,
    233, 236, 247, 247, 246, 250, 249, 249, 253, 245, 243, 246, 235, 229, 230, 220, 218, 230, 243, 263, 289, 306,
    323, 343, 352, 355, 364, 355, 351, 349, 332, 320, 312, 297, 291, 296, 289, 292, 302, 297, 288, 282, 261, 247,
    237, 215, 201, 193, 180, 170, 159, 142, 127, 117, 102, 93, 83, 71, 63, 60, 54, 51, 49, 43, 39, 37, 35, 35, 34,
    30, 27, 27, 28, 33, 42, 48, 60, 78, 103, 126, 150, 163, 182, 208, 215,
)
# fmt: on

# A knot is the rate of one whole second and so stands in that second's middle.
BINPACK_1_KNOTS_S = (*(0.5 + 10.0 * knot for knot in range(60)), 599.5)
NYC_TAXI_KNOTS_S = (*(0.5 + 20.0 * knot for knot in range(361)), 7206.5)


@dataclass(frozen=True)
class BinpackWorkload1:
    """600 s, 108,757 events at one value a second, peak 349/s in second 470."""

    name: ClassVar[str] = "binpack-workload-1"
    summary: ClassVar[str] = "the bin-pack paper's workload 1: 600 s, about 109k events, peak 349/s"
    arrivals: ClassVar[Arrivals] = "burst"
    arrivals_fixed: ClassVar[bool] = False

    @property
    def duration_s(self) -> float:
        """600 s."""
        return 600.0

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Linear between the knots, flat before the first and after the last."""
        return np.asarray(np.interp(np.asarray(time_s), BINPACK_1_KNOTS_S, BINPACK_1_PER_S))


@dataclass(frozen=True)
class NycTaxi:
    """7,207 s, 1,310,567 events at one value a second, peak 364/s.

    The series behind the curve moves by some 2.6/s from one second to the next. ``jitter_per_s`` is the standard
    deviation of a normal residual, drawn anew for each whole second from ``jitter_seed`` (never below a rate of 0).
    """

    jitter_per_s: float = 0.0
    jitter_seed: int = 1

    name: ClassVar[str] = "nyc-taxi"
    summary: ClassVar[str] = "the bin-pack paper's workload 2: 7,207 s, about 1.31M events, peak 364/s"
    arrivals: ClassVar[Arrivals] = "burst"
    arrivals_fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        not_negative(jitter_per_s=self.jitter_per_s, jitter_seed=self.jitter_seed)

    @property
    def duration_s(self) -> float:
        """7,207 s."""
        return 7207.0

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Linear between the knots, plus the residual of the second in which each time lies."""
        times_s = np.asarray(time_s, dtype=np.float64)
        curve = np.asarray(np.interp(times_s, NYC_TAXI_KNOTS_S, NYC_TAXI_PER_S))
        if self.jitter_per_s == 0:
            return curve
        residual = _standard_residuals(self.jitter_seed, int(self.duration_s))[times_s.astype(np.int64)]
        return np.asarray(np.maximum(0.0, curve + self.jitter_per_s * residual))


@cache
def _standard_residuals(seed: int, seconds: int) -> Floats:
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(seconds)
