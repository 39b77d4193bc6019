"""No scaler: replicas by the clock, as some of the papers' tables have them.

To be named as ``experiments/timetable.py:Timetable``.

Elastic-FaaS, Table 1, has functions that start at 0, 10 and 20; Elastic Multi-M/M/s/K, Figure 3, one queue or two from
the beginning on.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.single_fleet import (
    TOLERANCE_S,
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    resize_part,
    states_by_fleet,
)
from penstock.contracts import FleetObservation


@dataclass(frozen=True, kw_only=True)
class TimetableParameters:
    """One replica at first, and one more every ``interval_s`` up to ``replicas``; with 0 all of them at once."""

    replicas: int = 3
    interval_s: float = 10.0
    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        require_positive(replicas=self.replicas, decision_interval_s=self.decision_interval_s)
        require_not_negative(interval_s=self.interval_s)


class TimetableState(msgspec.Struct, frozen=True):
    """Nothing to remember."""


class Timetable(SingleFleetScaler[TimetableParameters, TimetableState]):
    """As many as are due by now, whatever comes."""

    name: ClassVar[str] = "timetable"
    paper: ClassVar[str] = "none: what a table prints, by the clock"
    Parameters: ClassVar[type[TimetableParameters]] = TimetableParameters
    State: ClassVar[type[FleetStates[TimetableState]]] = states_by_fleet(TimetableState)

    def start_part(self) -> TimetableState:
        """Nothing."""
        return TimetableState()

    def decide_part(
        self,
        part: FleetObservation,
        state: TimetableState,
        observation: FleetObservation,  # noqa: ARG002 - each fleet by itself
    ) -> tuple[PartDecision, TimetableState]:
        """Those due."""
        p = self.parameters
        due = p.replicas if p.interval_s == 0 else 1 + int((part.time_s + TOLERANCE_S) / p.interval_s)
        return resize_part(part, min(due, p.replicas), {"due": due, "replicas": p.replicas}), state
