"""LaSS: the fewest containers with which 95 % of the requests start within 100 ms, by the waiting time of M/M/c.

Wang, Ali-Eldin, Shenoy, "LaSS: Running Latency Sensitive Serverless Computations at the Edge", HPDC 2021; constants and
the switch to the short window from the authors' code. Their fair shares and smaller containers are left out: a decision
is a number of replicas.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import ClassVar

import msgspec

from controller.queueing.erlang import erlang_c, p_waits_at_most
from controller.scalers.shared.base import CannotDecide, resize
from controller.scalers.shared.parameters import Candidates, Count, OpenShare, Parameters, Positive
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window, known_rate
from penstock.contracts import FleetObservation, Term


def lass_rate(long_per_s: float, short_per_s: float, burst_factor: float = 2.0) -> float:
    """The rate over the long window, unless the one over the short window is at least so many times as high."""
    return short_per_s if short_per_s >= burst_factor * long_per_s else long_per_s


@dataclass(frozen=True)
class LassParameters(Parameters):
    """``wait_s`` is t, to be kept with ``probability``. ``service_rate_per_s`` None: as measured by the monitor.

    Where not even ``most`` containers keep it, ``most`` is the answer.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "wait_s": Candidates((0.02, 0.1, 0.3, 1.0), ("wait_s",)),
        "probability": Candidates((0.95, 0.99, 0.999)),
        "long_window_s": Candidates((10.0, 30.0, 120.0)),
        "short_window_s": Candidates((2.0, 5.0, 10.0)),
        "burst_factor": Candidates((1.2, 2.0)),
        "decision_interval_s": Candidates((1.0, 5.0)),
    }
    wait_s: Positive = 0.1
    probability: OpenShare = 0.95
    long_window_s: Positive = 120.0
    short_window_s: Positive = 10.0
    burst_factor: Positive = 2.0
    most: Count = 100
    service_rate_per_s: Positive | None = None
    decision_interval_s: Positive = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.short_window_s > self.long_window_s:
            raise ValueError(
                f"short_window_s={self.short_window_s:g}: expected at most long_window_s={self.long_window_s:g}"
            )


class LassState(msgspec.Struct, frozen=True):
    """Arrivals of the long window, and the last service rate that was measured."""

    arrivals: Window = Window()
    service_rate_per_s: float | None = None


class Lass(SingleFleetScaler[LassParameters, LassState]):
    """M/M/c sizing of every fleet by its own rate."""

    name: ClassVar[str] = "lass"
    paper: ClassVar[str] = "Wang, Ali-Eldin, Shenoy, HPDC 2021; compared with in Tsenos et al., DEBS 2022"

    def read(self, part: FleetObservation, state: LassState, _: FleetObservation) -> LassState:
        """Arrivals, and the service rate if one is measured."""
        arrivals = state.arrivals.add(part.time_s, part.arrived, self.parameters.long_window_s)
        return LassState(arrivals, part.service_rate_per_s or state.service_rate_per_s)

    def decide_part(self, part: FleetObservation, state: LassState, _: FleetObservation) -> Step[LassState]:
        """The fewest containers that keep the waiting time at the rate measured."""
        p = self.parameters
        long_per_s = known_rate(part, "arrived", state.arrivals, p.long_window_s)
        short_per_s = known_rate(part, "arrived", state.arrivals, p.short_window_s)
        mu = p.service_rate_per_s or state.service_rate_per_s
        lam = lass_rate(long_per_s, short_per_s, p.burst_factor)
        why: dict[str, Term] = {
            "long_window_s": p.long_window_s,
            "rate_long_per_s": long_per_s,
            "short_window_s": p.short_window_s,
            "rate_short_per_s": short_per_s,
            "burst_factor": p.burst_factor,
            "lambda_per_s": lam,
        }
        if mu is None and lam == 0:  # one container keeps any waiting time, however long a request takes
            return resize(part, 1, why | {"c": 1, "current_replicas": part.replicas.current}), state
        if mu is None:
            raise CannotDecide("service rate is unknown: none is set, and none was measured yet", **why)
        fewest = self.fewest(lam, mu)
        c = p.most if fewest is None else fewest
        why |= {
            "mu_per_s": mu,
            **self.waiting(lam, mu, c),
            "wanted_probability": p.probability,
            "one_less": c - 1,
            "P_one_less": self.probability(lam, mu, c - 1) if c > 1 else 0.0,
            "current_replicas": part.replicas.current,
        }
        if fewest is None:
            why["capped"] = f"not even {p.most} containers keep the waiting time"
        return resize(part, c, why), state

    def fewest(self, lam: float, mu: float) -> int | None:
        """The smallest c up to the most with the probability as high as wanted; None if there is none."""
        p = self.parameters
        candidates = range(max(1, floor(lam / mu)), p.most + 1)  # fewer are in overload
        return next((c for c in candidates if self.probability(lam, mu, c) >= p.probability), None)

    def waiting(self, lam: float, mu: float, c: int) -> dict[str, Term]:
        """The waiting time's probability with c containers, as terms in the order in which it is computed."""
        return {
            "utilisation": lam / (c * mu),
            "C": erlang_c(lam / mu, c),
            "t_s": self.parameters.wait_s,
            "c": c,
            "P_W_at_most_t": self.probability(lam, mu, c),
        }

    def probability(self, lam: float, mu: float, c: int) -> float:
        """P(W ≤ t) = 1 - C(c, λ/μ) e^(-(cμ - λ)t), 0 in overload."""
        return p_waits_at_most(lam, mu, c, self.parameters.wait_s)
