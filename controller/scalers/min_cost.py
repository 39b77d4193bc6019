"""MinCost: the fewest consumers with which the mean response time keeps a limit.

Nguyen and Nahrstedt, "Elastic pub/sub", Algorithm 2; readings P4 to P9. Whether the limit is kept is the model's
verdict; stepwise it is the measurement's, as in the paper's experiment, which may stop an iteration earlier because the
model is some percent above what is measured.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.queueing.network import measure
from controller.scalers.allocation import Consumers, min_cost, most_useful_topic, one_each, one_more, overloaded_topics
from controller.scalers.network_scaler import (
    MINUTE_S,
    Allocated,
    NetworkParameters,
    NetworkScaler,
    NetworkState,
    network_per_minute,
    steps,
    terms,
)
from controller.scalers.stream import CannotDecide
from penstock.contracts import NetworkObservation, Term


@dataclass(frozen=True)
class MinCostParameters(NetworkParameters):
    """``response_limit_s`` is T. No more than ``most_iterations`` consumers are added to the first of each topic, be
    the limit kept or not: one below the bare service time never is.
    """

    response_limit_s: float = 50.0
    most_iterations: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_iterations < 0:
            raise ValueError(f"most_iterations={self.most_iterations}: expected at least 0")


class MinCost(NetworkScaler[MinCostParameters]):
    """Algorithm 2 from one consumer each on, whenever it is time to reschedule."""

    name: ClassVar[str] = "min-cost"
    paper: ClassVar[str] = "Nguyen, Nahrstedt, Elastic pub/sub, Algorithm 2"
    Parameters: ClassVar[type[MinCostParameters]] = MinCostParameters

    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """Add consumers until the model's response time keeps the limit."""
        p = self.parameters
        network = network_per_minute(observation, state, p)
        found = min_cost(network, p.response_limit_s / MINUTE_S, most_iterations=p.most_iterations)
        m = found.path[-1]
        measured = measure(network, m)
        why: dict[str, Term] = {
            "T_s": p.response_limit_s,
            **steps(network, found.path),
            "iterations": len(found.path) - 1,
            **terms(network, measured),
        }
        if not found.met:
            overloaded = overloaded_topics(network, measured)
            leaves = f", {', '.join(overloaded)} still overloaded" if overloaded else ""
            why["infeasible"] = f"the limit is not kept with {p.most_iterations} more consumers{leaves}"
        return Allocated(m, why)

    def step(self, observation: NetworkObservation, state: NetworkState, now: Consumers) -> Allocated:
        """One more consumer while the measured response time is above the limit."""
        p = self.parameters
        if observation.response_time_s is None:
            raise CannotDecide("response time is unknown: no job has finished within the window")
        why: dict[str, Term] = {"T_s": p.response_limit_s}
        if observation.response_time_s <= p.response_limit_s:
            return Allocated(now, why)
        if sum(now) - len(now) >= p.most_iterations:
            return Allocated(now, why | {"infeasible": f"{p.most_iterations} more consumers do not keep the limit"})
        network = network_per_minute(observation, state, p)
        m = one_more(now, most_useful_topic(network, now, one_each))
        return Allocated(m, why | {**steps(network, (now, m)), **terms(network, measure(network, m))})
