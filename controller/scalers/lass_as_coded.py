"""LaSS as its authors' code computes it: the waiting time by counting the requests that are there already.

A request waits at most t if it finds at most ⌊t c μ + c - 1⌋ requests, all served at the mean rate. The code for
containers of different size has an integer division that makes t 0 s: 95 % of the requests must not wait at all. Wang,
Ali-Eldin, Shenoy, HPDC 2021, and their fork of OpenWhisk.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.queueing.erlang import p_in_system_at_most
from controller.queueing.rounding import rounded_down
from controller.scalers.lass import Lass, LassParameters
from penstock.contracts import Term


def p_waits_as_coded(arrival_rate: float, service_rate: float, servers: int, time: float) -> float:
    """Σ P_n for n up to ⌊t c μ + c - 1⌋ of M/M/c; 0 in overload."""
    before = requests_before(service_rate, servers, time)
    return p_in_system_at_most(arrival_rate / service_rate, servers, before)


def requests_before(service_rate: float, servers: int, time: float) -> int:
    """⌊t c μ + c - 1⌋: as many may be there already for a request to wait no longer than t."""
    return rounded_down(time * servers * service_rate + servers - 1)


@dataclass(frozen=True)
class LassAsCodedParameters(LassParameters):
    """``whole_numbers``: with the division of whole numbers (t = 0); without it, the code for equal containers."""

    whole_numbers: bool = True


class LassAsCoded(Lass):
    """M/M/c sizing of every fleet by its own rate, with the authors' sum for the waiting time."""

    name: ClassVar[str] = "lass-as-coded"
    Parameters: ClassVar[type[LassAsCodedParameters]] = LassAsCodedParameters

    def __init__(self, parameters: LassAsCodedParameters) -> None:
        super().__init__(parameters)
        self.time_s = 0.0 if parameters.whole_numbers else parameters.wait_s

    def waiting(self, lam: float, mu: float, c: int) -> dict[str, Term]:
        """The sum that stands for P(W ≤ t), with the t that the code really uses."""
        return {
            "utilisation": lam / (c * mu),
            "wait_s": self.parameters.wait_s,
            "t_used_s": self.time_s,
            "n_before": requests_before(mu, c, self.time_s),
            "c": c,
            "P_W_at_most_t": self.probability(lam, mu, c),
        }

    def probability(self, lam: float, mu: float, c: int) -> float:
        """The sum that stands for P(W ≤ t)."""
        return p_waits_as_coded(lam, mu, c, self.time_s)
