"""Equations of Elastic-FaaS, which adds whole functions because a provider adds containers to each of them slowly, and
what its two variants have in common.

Kathirvel and Parasuraman, "A QoS-Latency Aware Event Stream Processing with Elastic-FaaS", IJITEE 8(10), 2019; readings
F1 to F14. NP: functions ("processors"), NSP: containers ("sub-processors"), TNSP: containers of all functions, Q:
events waiting, SPc: events that a container finishes within the horizon (F11), c: containers per iteration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, sqrt
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from controller.scalers.bank_scaler import container_rate_per_s
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    hold_part,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, QueueObservation, Term

Number = TypeVar("Number", float, Fraction)
FaasAction = Literal["out", "in", "none"]


def np_expected(q: Number, np: Number, pc: Number) -> Number:
    """Eq (1): functions expected. The current number cancels (F1): it is Q/Pc."""
    return np + (q - np * pc) / pc


def nsp_after(c: Number, n: Number) -> Number:
    """Eq (2): containers after n iterations, if the i-th iteration adds i · c of them."""
    return c * n * (n + 1) / 2


def tnsp_expected(q: Number, tnsp: Number, spc: Number) -> Number:
    """Eq (5): containers expected in all. The current number cancels (F1): it is Q/SPc."""
    return tnsp + (q - tnsp * spc) / spc


def iterations_as_printed(nsp: float, c: float) -> float:
    """Eq (6): iterations until there are ``nsp`` containers; not the inverse of Eq (2) (F3).

    0 where it would be the root of a negative number (F10).
    """
    return sqrt(max(0.0, (2 * nsp - c) / c))


def iterations(nsp: float, c: float) -> float:
    """The inverse of Eq (2): iterations until there are ``nsp`` containers (F3)."""
    return (sqrt(1 + 8 * nsp / c) - 1) / 2


def exceeds_both(time: float, latency: float, provision: float) -> bool:
    """Whether to wait for containers takes longer than L and longer than PPT, strictly (F12)."""
    return time > latency + TOLERANCE and time > provision + TOLERANCE


def rounded_up(functions: float) -> int:
    """Whole functions, at least one (F7)."""
    return max(1, ceil(functions - TOLERANCE))


def scaling_action(np: int, np_expected: int) -> FaasAction:
    """Lines 15 to 18: out, in or none."""
    return "out" if np_expected > np else "in" if np_expected < np else "none"


def ramp(starts: Sequence[float], time: float, per: float, limit: int | None = None, step: int = 1) -> list[int]:
    """Containers of functions at ``time``: one at a function's start and ``step`` more every ``per`` (F14, Table 1)."""
    return [
        0 if time < start else min(1 + step * floor((time - start) / per + TOLERANCE), limit or 10**9)
        for start in starts
    ]


class Monitored(NamedTuple):
    """One run of Monitor: NSP', n, whether it triggers, and NP'."""

    nsp_expected: float
    iterations: float
    triggered: bool
    np_expected: int


@dataclass(frozen=True, kw_only=True)
class ElasticFaasParameters:
    """No value is printed; these are those of our demo with one second as its unit of time (F13).

    ``containers_per_iteration`` c, added every ``iteration_s`` (t_iter, F8); ``max_containers`` MNSP of a function;
    ``latency_s`` L; ``provision_s`` PPT. A container finishes SPc = ``service_rate_per_s`` times ``horizon_s`` events;
    None: the rate observed (in a bank of queues that of their containers) and L. ``decision_interval_s`` is tf.
    ``max_functions`` None: no limit.
    """

    containers_per_iteration: float = 1.0
    iteration_s: float = 2.0
    max_containers: int = 10
    latency_s: float = 10.0
    provision_s: float = 10.0
    service_rate_per_s: float | None = None
    horizon_s: float | None = None
    max_functions: int | None = None
    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        require_positive(
            containers_per_iteration=self.containers_per_iteration,
            iteration_s=self.iteration_s,
            max_containers=self.max_containers,
            decision_interval_s=self.decision_interval_s,
            horizon_s=self.latency_s if self.horizon_s is None else self.horizon_s,
        )
        require_not_negative(latency_s=self.latency_s, provision_s=self.provision_s)
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)
        if self.max_functions is not None:
            require_positive(max_functions=self.max_functions)

    def events_per_container(self, observed_rate_per_s: float | None) -> float | None:
        """SPc; None if no service rate is known."""
        rate = self.service_rate_per_s or observed_rate_per_s
        return rate * (self.latency_s if self.horizon_s is None else self.horizon_s) if rate else None


class FaasState(msgspec.Struct, frozen=True):
    """Nothing to remember: all that counts is in the observation."""


class FunctionScaler(SingleFleetScaler[ElasticFaasParameters, FaasState]):
    """One run of the timer; subclasses say what Monitor expects."""

    Parameters: ClassVar[type[Any]] = ElasticFaasParameters
    State: ClassVar[type[FleetStates[FaasState]]] = states_by_fleet(FaasState)

    def start_part(self) -> FaasState:
        """Nothing."""
        return FaasState()

    def monitor(self, q: float, np: int, spc: float) -> Monitored:
        """What Monitor finds with Q events waiting and NP functions."""
        raise NotImplementedError

    def decide_part(
        self,
        part: FleetObservation,
        state: FaasState,
        observation: FleetObservation,  # noqa: ARG002 - the part is all that it looks at
    ) -> tuple[PartDecision, FaasState]:
        """Read Q and NP, run Monitor, ask for NP' functions."""
        if (unknown := unknown_part(part, "backlog")) is not None:
            return unknown, state
        assert part.backlog is not None
        p, q, np = self.parameters, part.backlog, part.replicas.current  # NP with those that still start (spec 2.9)
        observed = container_rate_per_s(part) if isinstance(part, QueueObservation) else part.service_rate_per_s
        spc = p.events_per_container(observed)
        if spc is None:
            return hold_part("service rate of a container is unknown: SPc cannot be computed"), state
        seen = self.monitor(q, np, spc)
        target = seen.np_expected if p.max_functions is None else min(seen.np_expected, p.max_functions)
        why: dict[str, Term] = {
            "Q": q,
            "SPc": spc,
            "NSP'": seen.nsp_expected,
            "c": p.containers_per_iteration,
            "n": seen.iterations,
            "t_iter": p.iteration_s,
            "L": p.latency_s,
            "PPT": p.provision_s,
            "triggered": seen.triggered,
            "MNSP": p.max_containers,
            "NP": np,
            "NP'": seen.np_expected,
        }
        if target < seen.np_expected:
            why["most"] = p.max_functions
        return resize_part(part, target, why | {"scaler": scaling_action(np, target)}), state
