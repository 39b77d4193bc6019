"""The multi-queue paper's comparison: one queue at any load.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, section VI, Table 1.
"""

from typing import ClassVar

from controller.scalers.shared.base import BaseScaler, NoState
from controller.scalers.shared.parameters import Parameters
from penstock.contracts import Action, Decision, QueueObservation


class SingleQueue(BaseScaler[Parameters, NoState]):
    """One queue at any load."""

    name: ClassVar[str] = "single-queue"
    fleets: ClassVar[type[QueueObservation]] = QueueObservation
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic Multi-M/M/s/K 2019, Table 1 (comparison)"

    def decide(self, observation: QueueObservation, state: NoState) -> tuple[Decision, NoState]:
        """One queue."""
        n = observation.replicas.current
        action: Action = "none" if n == 1 else "up" if n < 1 else "down"
        why = {observation.fleet: {"queues": n, "wanted": 1, "action": action}}
        return Decision(action=action, targets={observation.fleet: 1}, why=why), state
