"""DwP, deadlines with prediction: AMESoS' forecast, applied after deadlines were missed.

Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2 (comparison); reading A15.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.shared.amesos_epoch import Epoch, EpochParameters, EpochScaler
from controller.scalers.shared.base import CannotDecide, all_reasons
from controller.scalers.shared.parameters import Share
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

    up_share: Share = 0.1
    down_share: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.down_share <= self.up_share < 1:
            shares = f"up_share={self.up_share:g}, down_share={self.down_share:g}"
            raise ValueError(f"{shares}: expected 0 <= down_share <= up_share < 1")


class Dwp(EpochScaler[DwpParameters]):
    """All functions of a pipeline to c' when its deadlines are missed."""

    name: ClassVar[str] = "dwp"
    paper: ClassVar[str] = "Tsenos, Peri, Kalogeraki, DEBS 2022, section 6.2 (comparison)"

    def check(self, observation: FunctionObservation, epoch: Epoch) -> dict[str, Term]:
        """The share of missed deadlines, and the shares that it is compared with."""
        if epoch.missed_share is None:
            raise CannotDecide(f"the share of missed deadlines is unknown{all_reasons(observation.unknown)}")
        p = self.parameters
        return {"missed_share": epoch.missed_share, "up_share": p.up_share, "down_share": p.down_share, "rho": p.rho}

    def decide_function(
        self, function: FunctionStatus, needed: int, _: FunctionObservation, epoch: Epoch
    ) -> tuple[int, dict[str, Term]]:
        """Scale to c' if enough deadlines were missed, or none."""
        assert epoch.missed_share is not None
        p = self.parameters
        return dwp_decision(function.replicas.current, needed, epoch.missed_share, p.up_share, p.down_share)[1], {}
