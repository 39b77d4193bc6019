"""The multi-queue paper's comparison: one queue whose function grows by itself, and never a second one.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, section VI, Table 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.scalers.parameters import require_positive
from penstock.contracts import Action, Decision, QueueObservation


@dataclass(frozen=True, kw_only=True)
class SingleQueueParameters:
    """How often it looks."""

    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        require_positive(decision_interval_s=self.decision_interval_s)


class SingleQueueState(msgspec.Struct, frozen=True):
    """Nothing to remember."""


class SingleQueue:
    """One queue, whatever comes."""

    name: ClassVar[str] = "single-queue"
    fleets: ClassVar[type[QueueObservation]] = QueueObservation
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic Multi-M/M/s/K 2019, Table 1 (comparison)"
    Parameters: ClassVar[type[SingleQueueParameters]] = SingleQueueParameters
    State: ClassVar[type[SingleQueueState]] = SingleQueueState

    def __init__(self, parameters: SingleQueueParameters) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> SingleQueueState:  # noqa: ARG002 - nothing is drawn
        """Nothing."""
        return SingleQueueState()

    def decide(self, observation: QueueObservation, state: SingleQueueState) -> tuple[Decision, SingleQueueState]:
        """One queue."""
        n = observation.replicas.current
        action: Action = "none" if n == 1 else "up" if n < 1 else "down"
        why = {observation.fleet: {"queues": n, "wanted": 1, "action": action}}
        return Decision(action=action, targets={observation.fleet: 1}, why=why), state
