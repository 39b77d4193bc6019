"""DwP, deadlines with prediction: AMESoS' forecast, but scaling when deadlines have been missed already.

Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2 (comparison); reading A15.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.amesos_epoch import Epoch, EpochParameters, EpochScaler
from controller.scalers.single_fleet import PartDecision
from controller.scalers.stream import CannotDecide
from penstock.contracts import Action, FunctionObservation, FunctionStatus, Term


def dwp_decision(c: int, needed: int, missed_share: float, more_than: float, at_most: float) -> tuple[Action, int]:
    """Up when more than a share of the deadlines was missed, down when no more than another one was (A15)."""
    if missed_share > more_than and needed > c:
        return "up", needed
    if missed_share <= at_most and needed < c:
        return "down", needed
    return "none", c


@dataclass(frozen=True)
class DwpParameters(EpochParameters):
    """Shares of an epoch's messages: up if strictly more than ``up_share`` missed, down if at most ``down_share``."""

    up_share: float = 0.1
    down_share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.down_share <= self.up_share < 1:
            raise ValueError(
                f"up_share={self.up_share:g}, down_share={self.down_share:g}: expected 0 <= down_share <= up_share < 1"
            )


class Dwp(EpochScaler[DwpParameters]):
    """All functions of a pipeline to c' when its deadlines are missed."""

    name: ClassVar[str] = "dwp"
    paper: ClassVar[str] = "Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2 (comparison)"
    Parameters: ClassVar[type[DwpParameters]] = DwpParameters

    def check(self, observation: FunctionObservation, epoch: Epoch) -> dict[str, Term]:
        """The share of missed deadlines, and the shares that it is compared with."""
        if epoch.missed_share is None:
            said = "; ".join(f"{field}: {reason}" for field, reason in observation.unknown.items())
            raise CannotDecide("the share of missed deadlines is unknown" + (f" ({said})" if said else ""))
        p = self.parameters
        return {
            "missed_share": epoch.missed_share,
            "up_share": p.up_share,
            "down_share": p.down_share,
            "rho": p.rho,
        }

    def decide_function(
        self,
        function: FunctionStatus,
        needed: int,
        observation: FunctionObservation,  # noqa: ARG002 - the share of the whole pipeline is in ``epoch``
        epoch: Epoch,
    ) -> PartDecision:
        """Scale to c' if enough deadlines were missed, or none."""
        assert epoch.missed_share is not None
        p = self.parameters
        action, target = dwp_decision(function.replicas.current, needed, epoch.missed_share, p.up_share, p.down_share)
        return PartDecision(action, None if action == "none" else target, {"action": action})
