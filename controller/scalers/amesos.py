"""AMESoS: replicas from a forecast of the arrival rate, when the 90th percentile of the laxity says that it is time.

Tsenos, Peri, Kalogeraki, "AMESoS", DEBS 2022, Algorithm 1 and section 5; readings A1 to A14.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import ClassVar, Literal

from controller.scalers.amesos_epoch import Epoch, EpochParameters, EpochScaler
from controller.scalers.amesos_laxity import Direction, Method, laxity_90
from controller.scalers.single_fleet import PartDecision, hold_part
from controller.scalers.stream import CannotDecide
from penstock.contracts import Action, FunctionObservation, FunctionStatus, Term

Thresholds = Literal["coherent", "printed"]

THRESHOLDS_S: Mapping[Thresholds, Mapping[str, float]] = MappingProxyType(
    {
        "coherent": {"document": 0.2, "synthetic": 0.5, "matrix": 1.3},
        "printed": {"document": 0.2, "synthetic": 1.3, "matrix": 0.5},
    }
)
"""Thresholds of the paper's three pipelines. As printed, the synthetic one could never scale down: its laxity cannot
exceed 0.8 s. With the two swapped, each is about half of the largest laxity of its pipeline (A9)."""


def scale_decision(c: int, needed: int, laxity_90_s: float, threshold_s: float) -> tuple[Action, int]:
    """The two conditions of Algorithm 1 (A8), all strict: at the threshold, and in the mixed cases, nothing is done."""
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

    threshold_s: float | None = None
    thresholds: Thresholds = "coherent"
    direction: Direction = "guarantee"
    method: Method = "nearest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold_s is not None and not isfinite(self.threshold_s):
            raise ValueError(f"threshold_s={self.threshold_s:g}: expected a finite number")

    def threshold_for(self, pipeline: str) -> float | None:
        """The threshold of a pipeline, None if none is set and none is known."""
        if self.threshold_s is not None:
            return self.threshold_s
        return THRESHOLDS_S[self.thresholds].get(pipeline)


class Amesos(EpochScaler[AmesosParameters]):
    """Algorithm 1 for every function of a pipeline in every epoch."""

    name: ClassVar[str] = "amesos"
    paper: ClassVar[str] = "Tsenos, Peri, Kalogeraki, DEBS 2022, Algorithm 1"
    Parameters: ClassVar[type[AmesosParameters]] = AmesosParameters

    def check(self, observation: FunctionObservation, epoch: Epoch) -> dict[str, Term]:  # noqa: ARG002
        """The pipeline's threshold."""
        threshold_s = self.parameters.threshold_for(observation.pipeline)
        if threshold_s is None:
            raise CannotDecide(
                f"no threshold for pipeline {observation.pipeline!r}: set amesos.threshold_s, below its deadline minus "
                "its processing time"
            )
        return {"threshold_s": threshold_s}

    def decide_function(
        self,
        function: FunctionStatus,
        needed: int,
        observation: FunctionObservation,
        epoch: Epoch,  # noqa: ARG002 - the forecast is in ``needed``
    ) -> PartDecision:
        """Scale to c' if the laxity of this function's messages allows or demands it."""
        p = self.parameters
        threshold_s = p.threshold_for(observation.pipeline)
        assert threshold_s is not None
        if "laxity_s" in function.unknown:
            return hold_part(f"laxity is unknown ({function.unknown['laxity_s']})")
        lowest_s = laxity_90(function.laxity_s, p.direction, p.method)
        action, target = scale_decision(function.replicas.current, needed, lowest_s, threshold_s)
        why: dict[str, Term] = {
            "messages": len(function.laxity_s),
            "laxity_90_s": lowest_s if function.laxity_s else "+inf: no message (A7)",
            "action": action,
        }
        return PartDecision(action, None if action == "none" else target, why)
