"""LaSS: the fewest containers with which 95 % of the requests start within 100 ms, by the waiting time of M/M/c.

Wang, Ali-Eldin, Shenoy, "LaSS: Running Latency Sensitive Serverless Computations at the Edge", HPDC 2021; constants and
the switch to the short window from the authors' code. Fair shares and smaller containers for an overloaded cluster are
no part of this scaler: a decision here is a number of replicas, and the cap is the actuator's.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.queueing.erlang import erlang_c, fewest_servers, p_waits_at_most
from controller.scalers.parameters import require_positive, require_share
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    Window,
    hold_part,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, Term


def lass_rate(long_per_s: float, short_per_s: float, burst_factor: float = 2.0) -> float:
    """The rate over the long window, unless the one over the short window is at least so many times as high."""
    return short_per_s if short_per_s >= burst_factor * long_per_s else long_per_s


@dataclass(frozen=True)
class LassParameters:
    """``wait_s`` is t, to be kept with ``probability``. ``service_rate_per_s`` None: as measured by the monitor.

    Where not even ``most`` containers keep it, ``most`` is the answer.
    """

    wait_s: float = 0.1
    probability: float = 0.95
    long_window_s: float = 120.0
    short_window_s: float = 10.0
    burst_factor: float = 2.0
    most: int = 100
    service_rate_per_s: float | None = None
    decision_interval_s: float = 5.0

    def __post_init__(self) -> None:
        require_positive(
            wait_s=self.wait_s,
            long_window_s=self.long_window_s,
            short_window_s=self.short_window_s,
            burst_factor=self.burst_factor,
            decision_interval_s=self.decision_interval_s,
        )
        require_share(probability=self.probability)
        if self.short_window_s > self.long_window_s:
            raise ValueError(
                f"short_window_s={self.short_window_s:g}: expected at most long_window_s={self.long_window_s:g}"
            )
        if self.most < 1:
            raise ValueError(f"most={self.most}: expected at least 1")
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)


class LassState(msgspec.Struct, frozen=True):
    """Arrivals of the long window, and the last service rate that was measured."""

    arrivals: Window = Window()
    service_rate_per_s: float | None = None


class Lass(SingleFleetScaler[LassParameters, LassState]):
    """M/M/c sizing of every fleet by its own rate."""

    name: ClassVar[str] = "lass"
    paper: ClassVar[str] = "Wang, Ali-Eldin, Shenoy, HPDC 2021; compared with in Tsenos et al., DEBS 2022"
    Parameters: ClassVar[type[LassParameters]] = LassParameters
    State: ClassVar[type[FleetStates[LassState]]] = states_by_fleet(LassState)

    def start_part(self) -> LassState:
        """No reading yet."""
        return LassState()

    def decide_part(
        self,
        part: FleetObservation,
        state: LassState,
        observation: FleetObservation,  # noqa: ARG002 - its own rate only
    ) -> tuple[PartDecision, LassState]:
        """The fewest containers that keep the waiting time at the rate measured."""
        p = self.parameters
        seen = LassState(
            state.arrivals.add(part.time_s, part.arrived, p.long_window_s),
            part.service_rate_per_s or state.service_rate_per_s,
        )
        unknown = unknown_part(part, "arrived")
        if unknown is not None:
            return unknown, seen
        long_per_s = seen.arrivals.rate_per_s(p.long_window_s)
        short_per_s = seen.arrivals.rate_per_s(p.short_window_s)
        if long_per_s is None or short_per_s is None:
            return hold_part("no rate yet: this is the first reading of the arrivals"), seen
        mu = p.service_rate_per_s or seen.service_rate_per_s
        lam = lass_rate(long_per_s, short_per_s, p.burst_factor)
        why: dict[str, Term] = {
            "long_window_s": p.long_window_s,
            "rate_long_per_s": long_per_s,
            "short_window_s": p.short_window_s,
            "rate_short_per_s": short_per_s,
            "burst_factor": p.burst_factor,
            "lambda_per_s": lam,
        }
        if mu is None:
            return hold_part("service rate is unknown: none is set, and none was measured yet", **why), seen
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
        return resize_part(part, c, why), seen

    def fewest(self, lam: float, mu: float) -> int | None:
        """The smallest c up to the most with P(W ≤ t) as high as wanted; None if there is none."""
        p = self.parameters
        return fewest_servers(lam, mu, p.wait_s, p.probability, p.most)

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
