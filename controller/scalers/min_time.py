"""MinTime: the least work in progress that a number of additional consumers can buy.

Nguyen and Nahrstedt, "Elastic pub/sub", Algorithm 1; readings P2, P3, P7 to P9.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.queueing.network import Network, measure
from controller.scalers.shared.allocation import Consumers, min_time, most_useful_topic, one_more, overloaded_topics
from controller.scalers.shared.network_scaler import (
    Allocated,
    NetworkParameters,
    NetworkScaler,
    NetworkState,
    steps,
    terms,
)
from controller.scalers.shared.parameters import CountOrZero
from penstock.contracts import NetworkObservation, Term


@dataclass(frozen=True)
class MinTimeParameters(NetworkParameters):
    """``budget`` M: consumers beyond one per topic."""

    budget: CountOrZero = 5


class MinTime(NetworkScaler[MinTimeParameters]):
    """Algorithm 1 from one consumer each on, whenever it is time to reschedule."""

    name: ClassVar[str] = "min-time"
    paper: ClassVar[str] = "Nguyen, Nahrstedt, Elastic pub/sub, Algorithm 1"

    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """Spend the whole budget."""
        network = self.network(observation, state)
        return self._allocated(network, min_time(network, self.parameters.budget))

    def step(self, observation: NetworkObservation, state: NetworkState, now: Consumers) -> Allocated:
        """One more consumer while the budget lasts."""
        network = self.network(observation, state)
        if sum(now) - len(now) >= self.parameters.budget:
            return self._allocated(network, (now,))
        return self._allocated(network, (now, one_more(now, most_useful_topic(network, now))))

    def _allocated(self, network: Network, path: tuple[Consumers, ...]) -> Allocated:
        m = path[-1]
        measured = measure(network, m)
        why: dict[str, Term] = {"M": self.parameters.budget, **steps(network, path), **terms(network, measured)}
        overloaded = overloaded_topics(network, measured)
        if overloaded:
            why["infeasible"] = f"{self.parameters.budget} more consumers leave {', '.join(overloaded)} overloaded"
        return Allocated(m, why)
