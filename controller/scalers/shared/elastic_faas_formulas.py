"""Equations of Elastic-FaaS, and the base class of its two variants.

Elastic-FaaS adds whole functions, because a provider adds containers to each of them slowly.

Kathirvel and Parasuraman, "A QoS-Latency Aware Event Stream Processing with Elastic-FaaS", IJITEE 8(10), 2019; readings
F1 to F14. NP: functions ("processors"), NSP: containers ("sub-processors"), TNSP: containers of all functions, Q:
events that wait or are in service, SPc: events that a container finishes within the horizon (F11), c: containers per
iteration.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal, NamedTuple

from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.base import CannotDecide, NoState, resize
from controller.scalers.shared.demand import in_system
from controller.scalers.shared.parameters import Count, NotNegative, Parameters, Positive
from controller.scalers.shared.queue_scaler import container_rate_per_s
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step
from penstock.contracts import FleetObservation, QueueObservation, Term


def nsp_after(c: float, n: float) -> float:
    """Eq (2): containers after n iterations, if the i-th iteration adds i · c of them."""
    return c * n * (n + 1) / 2


def iterations_as_printed(nsp: float, c: float) -> float:
    """Eq (6): iterations until there are ``nsp`` containers; not the inverse of Eq (2) (F3).

    0 where it would be the root of a negative number (F10).
    """
    return sqrt(max(0.0, (2 * nsp - c) / c))


def iterations(nsp: float, c: float) -> float:
    """The inverse of Eq (2): iterations until there are ``nsp`` containers (F3)."""
    return (sqrt(1 + 8 * nsp / c) - 1) / 2


def exceeds_both(time: float, latency: float, provision: float) -> bool:
    """Whether the containers take strictly longer than L and longer than PPT (F12)."""
    return time > latency + TOLERANCE and time > provision + TOLERANCE


def scaling_action(np: int, np_expected: int) -> Literal["out", "in", "none"]:
    """Lines 15 to 18: out, in or none."""
    return "out" if np_expected > np else "in" if np_expected < np else "none"


class Monitored(NamedTuple):
    """The result of Monitor: NSP', n, whether it triggers, and NP'."""

    nsp_expected: float
    iterations: float
    triggered: bool
    np_expected: int


@dataclass(frozen=True, kw_only=True)
class ElasticFaasParameters(Parameters):
    """No value is printed; these are our demo's, with one second as the unit of time (F13).

    ``containers_per_iteration`` c, added every ``iteration_s`` (t_iter, F8); ``max_containers`` MNSP of a function;
    ``latency_s`` L; ``provision_s`` PPT. A container finishes SPc = ``service_rate_per_s`` times ``horizon_s`` events;
    None: the observed rate (in a queue fleet that of the containers) and L. ``decision_interval_s`` is tf.
    ``max_functions`` None: no limit.
    """

    containers_per_iteration: Positive = 1.0
    iteration_s: Positive = 2.0
    max_containers: Count = 10
    latency_s: NotNegative = 10.0
    provision_s: NotNegative = 10.0
    service_rate_per_s: Positive | None = None
    horizon_s: Positive | None = None
    max_functions: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon_s is None and self.latency_s == 0:
            raise ValueError("horizon_s=0 (latency_s): expected a number above 0")


class FunctionScaler(SingleFleetScaler[ElasticFaasParameters, NoState]):
    """One run of the timer of Algorithm 1; a subclass has its procedure Monitor."""

    run_monitor: ClassVar[Callable[..., Monitored]]

    def decide_part(self, part: FleetObservation, state: NoState, _: FleetObservation) -> Step[NoState]:
        """Read Q and NP, run Monitor, ask for NP' functions."""
        # Q has the unacknowledged events, which still need capacity; NP includes functions that start.
        p, q, np = self.parameters, in_system(part), part.replicas.current
        observed = container_rate_per_s(part) if isinstance(part, QueueObservation) else part.service_rate_per_s
        rate_per_s = p.service_rate_per_s or observed
        if not rate_per_s:
            raise CannotDecide("service rate of a container is unknown: SPc cannot be computed")
        spc = rate_per_s * (p.horizon_s or p.latency_s)
        seen = self.run_monitor(
            q,
            np,
            spc=spc,
            c=p.containers_per_iteration,
            mnsp=p.max_containers,
            latency=p.latency_s,
            provision=p.provision_s,
            t_iter=p.iteration_s,
        )
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
        return resize(part, target, why | {"scaler": scaling_action(np, target)}), state
