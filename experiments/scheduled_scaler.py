"""A scaler that follows a schedule whatever the load, for papers' tables that need fixed replicas.

Use it as ``experiments/scheduled_scaler.py:ScheduledScaler``; its parameters are ``timetable.…``. Elastic-FaaS, Table
1, has functions that start at 0, 10 and 20; Elastic Multi-M/M/s/K, Figure 3, one queue or two from the start.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.shared.base import TOLERANCE_S, NoState, resize
from controller.scalers.shared.parameters import Count, NotNegative, Parameters
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step
from penstock.contracts import FleetObservation


@dataclass(frozen=True, kw_only=True)
class ScheduleParameters(Parameters):
    """One replica at first, and one more every ``interval_s`` up to ``replicas``; with 0 all of them at once."""

    replicas: Count = 3
    interval_s: NotNegative = 10.0


class ScheduledScaler(SingleFleetScaler[ScheduleParameters, NoState]):
    """As many replicas as are due by now."""

    name: ClassVar[str] = "timetable"
    paper: ClassVar[str] = "none: replicas by a schedule"

    def decide_part(self, part: FleetObservation, state: NoState, _: FleetObservation) -> Step[NoState]:
        """The replicas that are due."""
        p = self.parameters
        due = p.replicas if p.interval_s == 0 else 1 + int((part.time_s + TOLERANCE_S) / p.interval_s)
        return resize(part, min(due, p.replicas), {"due": due, "replicas": p.replicas}), state
