"""Random: the additional consumers go to topics drawn by lot, which is what the pub/sub paper compares itself with.

Nguyen and Nahrstedt, "Elastic pub/sub", section VI; reading P11. A draw depends on the seed and on how many there were
before, so that the same observation and state give the same answer.
"""

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np

from controller.scalers.allocation import Consumers, one_more, random_path
from controller.scalers.network_scaler import Allocated, NetworkParameters, NetworkScaler, NetworkState
from penstock.contracts import NetworkObservation


@dataclass(frozen=True)
class RandomParameters(NetworkParameters):
    """``budget``: consumers beyond one per topic. ``until_limit``: stepwise, a response time that was measured to keep
    the limit ends it earlier, as in the comparison with MinCost.
    """

    budget: int = 5
    until_limit: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget < 0:
            raise ValueError(f"budget={self.budget}: expected at least 0")


class RandomAllocation(NetworkScaler[RandomParameters]):
    """A new draw of all additional consumers whenever it is time to reschedule; stepwise, one of them at a time."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "Nguyen, Nahrstedt, Elastic pub/sub, section VI (comparison)"
    Parameters: ClassVar[type[RandomParameters]] = RandomParameters

    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """Spend the whole budget by lot."""
        budget, draws = self.parameters.budget, count(state.draws)
        path = random_path(len(observation.topics), budget, lambda topics: lot(state.seed, next(draws), topics))
        return Allocated(path[-1], {"M": budget, "path": [list(m) for m in path]}, draws=budget)

    def step(self, observation: NetworkObservation, state: NetworkState, now: Consumers) -> Allocated:
        """One more consumer by lot while the budget lasts."""
        p = self.parameters
        response_s = observation.response_time_s
        kept = p.until_limit and response_s is not None and response_s <= p.response_limit_s
        if kept or sum(now) - len(now) >= p.budget:
            return Allocated(now, {"M": p.budget})
        m = one_more(now, lot(state.seed, state.draws, len(now)))
        return Allocated(m, {"M": p.budget, "path": [list(now), list(m)]}, draws=1)


def lot(seed: int, draw: int, topics: int) -> int:
    """The position of a topic, uniformly; each number of a draw has a generator of its own."""
    return int(np.random.default_rng([seed, draw]).integers(topics))
