"""A workload to start from: a rate that rises in a straight line."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.producers.workloads.contract import Floats, Workload, not_negative, positive


@dataclass(frozen=True)
class Ramp(Workload):
    """From ``from_per_s`` to ``to_per_s`` within ``duration_s``."""

    from_per_s: float
    to_per_s: float
    duration_s: float = 60.0

    name: ClassVar[str] = "ramp"
    summary: ClassVar[str] = "a rate that rises in a straight line"

    def __post_init__(self) -> None:
        not_negative(from_per_s=self.from_per_s, to_per_s=self.to_per_s)
        positive(duration_s=self.duration_s)

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The line between the two rates."""
        share = np.asarray(time_s, dtype=np.float64) / self.duration_s
        return self.from_per_s + share * (self.to_per_s - self.from_per_s)
