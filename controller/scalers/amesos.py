"""AMESoS: replicas from a forecast of the arrival rate, when the 90th percentile of the laxity asks for a change.

Tsenos, Peri, Kalogeraki, "AMESoS", DEBS 2022, Algorithm 1 and section 5; readings A1 to A14. Monitors and simulators
compute the laxities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf
from types import MappingProxyType
from typing import ClassVar, Literal

from controller.scalers.shared.amesos_epoch import Epoch, EpochParameters, EpochScaler
from controller.scalers.shared.base import CannotDecide, reason_of
from controller.scalers.shared.parameters import Finite
from penstock.contracts import Action, FunctionObservation, FunctionStatus, Term

Thresholds = Literal["coherent", "printed"]
Direction = Literal["guarantee", "literal"]
Method = Literal["nearest", "linear"]

THRESHOLDS_S: Mapping[Thresholds, Mapping[str, float]] = MappingProxyType(
    {
        "coherent": {"document": 0.2, "synthetic": 0.5, "matrix": 1.3},
        "printed": {"document": 0.2, "synthetic": 1.3, "matrix": 0.5},
    }
)
"""Thresholds of the paper's three pipelines. As printed, the synthetic one could never scale down: its laxity cannot
exceed 0.8 s. With the two swapped, each is about half of the largest laxity of its pipeline (A9)."""


def laxity_90(samples_s: Sequence[float], direction: Direction = "guarantee", method: Method = "nearest") -> float:
    """laxity_{i,90} of one epoch in s; +inf without any sample, so that only a scale-down can follow (A7).

    ``guarantee``: what 90 % of the messages reach or exceed, the 10th percentile in ascending order (A5). ``literal``:
    the 90th in ascending order. ``nearest`` rank or ``linear`` interpolation between ranks (A6).
    """
    if not samples_s:
        return inf
    ascending, n = sorted(samples_s), len(samples_s)
    tenths = 1 if direction == "guarantee" else 9
    if method == "nearest":
        return ascending[max(1, -(-tenths * n // 10)) - 1]  # element ⌈q·n⌉, counted from 1, in whole numbers
    position = (n - 1) * tenths / 10
    below = floor(position)
    above = min(below + 1, n - 1)
    # Equal neighbours must give their own value exactly, so add to the lower one instead of weighing both.
    return ascending[below] + (position - below) * (ascending[above] - ascending[below])


def scale_decision(c: int, needed: int, laxity_90_s: float, threshold_s: float) -> tuple[Action, int]:
    """The two conditions of Algorithm 1 (A8), all strict: no action at the threshold and in the mixed cases."""
    if laxity_90_s < threshold_s and needed > c:
        return "up", needed
    if laxity_90_s > threshold_s and needed < c:
        return "down", needed
    return "none", c


@dataclass(frozen=True)
class AmesosParameters(EpochParameters):
    """``threshold_s`` None: that of the paper's pipeline with this name, in the assignment that ``thresholds`` names.

    ``direction`` and ``method`` are the readings of the 90th percentile (A5, A6).
    """

    threshold_s: Finite | None = None
    thresholds: Thresholds = "coherent"
    direction: Direction = "guarantee"
    method: Method = "nearest"

    def threshold_for(self, pipeline: str) -> float | None:
        """The threshold of a pipeline, None if none is set and none is known."""
        if self.threshold_s is not None:
            return self.threshold_s
        return THRESHOLDS_S[self.thresholds].get(pipeline)


class Amesos(EpochScaler[AmesosParameters]):
    """Algorithm 1 for every function of a pipeline in every epoch."""

    name: ClassVar[str] = "amesos"
    paper: ClassVar[str] = "Tsenos, Peri, Kalogeraki, DEBS 2022, Algorithm 1"

    def check(self, observation: FunctionObservation, _: Epoch) -> dict[str, Term]:
        """The pipeline's threshold."""
        threshold_s = self.parameters.threshold_for(observation.pipeline)
        if threshold_s is None:
            raise CannotDecide(
                f"no threshold for pipeline {observation.pipeline!r}: set amesos.threshold_s, below its deadline minus "
                "its processing time"
            )
        return {"threshold_s": threshold_s}

    def decide_function(
        self, function: FunctionStatus, needed: int, observation: FunctionObservation, _: Epoch
    ) -> tuple[int, dict[str, Term]]:
        """Scale to c' if the laxity of this function's messages allows or demands it."""
        p, threshold_s = self.parameters, self.parameters.threshold_for(observation.pipeline)
        assert threshold_s is not None
        if "laxity_s" in function.unknown:
            raise CannotDecide(f"laxity is unknown{reason_of(function.unknown, 'laxity_s')}")
        lowest_s = laxity_90(function.laxity_s, p.direction, p.method)
        laxity: Term = lowest_s if function.laxity_s else "+inf: no message (A7)"
        target = scale_decision(function.replicas.current, needed, lowest_s, threshold_s)[1]
        return target, {"messages": len(function.laxity_s), "laxity_90_s": laxity}
