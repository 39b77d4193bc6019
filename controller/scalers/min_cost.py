"""MinCost: the fewest consumers with which the mean response time keeps a limit.

Nguyen and Nahrstedt, "Elastic pub/sub", Algorithm 2; readings P4 to P9. The model decides whether the limit is kept;
stepwise the measurement does, as in the paper's experiment. The model is some percent above the measurement, which may
therefore stop one iteration earlier.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.queueing.network import measure
from controller.scalers.shared.allocation import (
    Consumers,
    min_cost,
    most_useful_topic,
    one_each,
    one_more,
    overloaded_topics,
)
from controller.scalers.shared.base import CannotDecide
from controller.scalers.shared.network_scaler import (
    MINUTE_S,
    Allocated,
    NetworkParameters,
    NetworkScaler,
    NetworkState,
    steps,
    terms,
)
from controller.scalers.shared.parameters import CountOrZero, Positive
from penstock.contracts import NetworkObservation, Term


@dataclass(frozen=True)
class MinCostParameters(NetworkParameters):
    """``response_limit_s`` is T. At most ``most_iterations`` consumers are added to one of each topic, since a limit
    below the bare service time is never kept.
    """

    response_limit_s: Positive = 50.0
    most_iterations: CountOrZero = 20


class MinCost(NetworkScaler[MinCostParameters]):
    """Algorithm 2 from one consumer each on, whenever it is time to reschedule."""

    name: ClassVar[str] = "min-cost"
    paper: ClassVar[str] = "Nguyen, Nahrstedt, Elastic pub/sub, Algorithm 2"

    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """Add consumers until the model's response time keeps the limit."""
        p = self.parameters
        network = self.network(observation, state)
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
        network = self.network(observation, state)
        m = one_more(now, most_useful_topic(network, now, one_each))
        return Allocated(m, why | {**steps(network, (now, m)), **terms(network, measure(network, m))})
