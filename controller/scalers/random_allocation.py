"""Random: the additional consumers go to topics drawn at random, the comparison of the pub/sub paper.

Nguyen and Nahrstedt, "Elastic pub/sub", section VI; reading P11. A draw depends on the seed and its number only: the
same observation and state give the same answer.
"""

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np

from controller.scalers.min_time import MinTimeParameters
from controller.scalers.shared.allocation import Consumers, one_more, random_path
from controller.scalers.shared.network_scaler import Allocated, NetworkScaler, NetworkState
from penstock.contracts import NetworkObservation


@dataclass(frozen=True)
class RandomParameters(MinTimeParameters):
    """``until_limit``: stepwise, a measured response time within the limit ends it earlier, as in the comparison with
    MinCost.
    """

    until_limit: bool = False


class RandomAllocation(NetworkScaler[RandomParameters]):
    """A new draw of all additional consumers whenever it is time to reschedule; stepwise, one of them at a time."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "Nguyen, Nahrstedt, Elastic pub/sub, section VI (comparison)"

    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """Spend the whole budget on random topics."""
        budget, draws = self.parameters.budget, count(state.draws)
        path = random_path(len(observation.topics), budget, lambda topics: lot(state.seed, next(draws), topics))
        return Allocated(path[-1], {"M": budget, "path": [list(m) for m in path]}, draws=budget)

    def step(self, observation: NetworkObservation, state: NetworkState, now: Consumers) -> Allocated:
        """One more consumer of a random topic while the budget lasts."""
        p = self.parameters
        response_s = observation.response_time_s
        kept = p.until_limit and response_s is not None and response_s <= p.response_limit_s
        if kept or sum(now) - len(now) >= p.budget:
            return Allocated(now, {"M": p.budget})
        m = one_more(now, lot(state.seed, state.draws, len(now)))
        return Allocated(m, {"M": p.budget, "path": [list(now), list(m)]}, draws=1)


def lot(seed: int, draw: int, topics: int) -> int:
    """Draw the position of a topic uniformly, with a new generator for each draw."""
    return int(np.random.default_rng([seed, draw]).integers(topics))
