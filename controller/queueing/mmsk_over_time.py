"""M/M/s/K before its steady state, and who is late in it: a queue of so many events, so many servers, so many seconds.

``controller.queueing.mmsk`` has the steady state of the same chain. Probabilities over time come from uniformisation
(Jensen, "Markoff chains as an aid in the study of Markoff processes", 1953): all terms are positive, nothing cancels.
"""

from math import exp, isfinite

import numpy as np
import numpy.typing as npt

from controller.queueing.mmsk import Probabilities, check

Matrix = npt.NDArray[np.float64]

LARGEST_STATE = 300
"""Largest K: a matrix of (K + 1)² doubles is kept for each rate and number of servers."""

STEP = 0.25
"""Largest mean number of jumps of the chain in the step that is squared."""
TERMS = 12
"""Of the series of that step: what is left out is below 1e-16."""


def transition(arrival_rate: float, service_rate: float, servers: int, capacity: int, time: float) -> Matrix:
    """P(n events now → m events after ``time``) in row n and column m, K + 1 each. ``service_rate`` is of one server.

    Raises ValueError for values that describe no queue, a negative time, or more than ``LARGEST_STATE`` events.
    """
    check(arrival_rate, service_rate, servers, capacity)
    if capacity > LARGEST_STATE:
        raise ValueError(f"capacity={capacity}: expected at most {LARGEST_STATE} events for probabilities over time")
    if not (isfinite(time) and time >= 0):
        raise ValueError(f"time={time:g}: expected a number of at least 0")
    leaving = service_rate * np.minimum(np.arange(1, capacity + 1), servers)
    most = arrival_rate + float(leaving[-1])
    if most * time == 0:
        return np.eye(capacity + 1)
    halvings = max(0, int(np.ceil(np.log2(most * time / STEP))))
    jump = np.diag(np.full(capacity, arrival_rate), 1) + np.diag(leaving, -1)
    jump = (jump + np.diag(most - jump.sum(axis=1))) / most
    mean = most * time / 2**halvings
    term = np.eye(capacity + 1) * exp(-mean)
    result: Matrix = term.copy()
    for number in range(1, TERMS + 1):
        term = term @ jump * (mean / number)
        result += term
    for _ in range(halvings):
        result = result @ result
    result /= result.sum(axis=1, keepdims=True)
    return result


def late_probabilities(service_rate: float, servers: int, capacity: int, limit: float) -> Probabilities:
    """P(rejected, or not finished within ``limit``) of an event that finds 0 … K events; 1 for K, which is full.

    The event waits for n - s + 1 ends of service at rate s μ, then for its own. All are late without servers.
    """
    check(0.0, service_rate, servers, capacity)
    if not limit >= 0:
        raise ValueError(f"limit={limit:g}: expected a number of at least 0")
    busy = min(servers, capacity)
    late: Probabilities = np.ones(capacity + 1)
    if busy == 0:
        return late
    late[:busy] = exp(-service_rate * limit)
    waits = np.arange(1, capacity - busy + 1)  # ends of service before one's own, of events that find s … K - 1
    if len(waits) == 0:
        late[capacity] = 1.0
        return late
    if busy == 1:
        late[busy:-1] = 1 - _at_least(service_rate * limit, waits + 1)
    else:
        # P(E_j + X > w) = P(E_j > w) + e^(-μw) (r/(r-μ))^j P(E'_j ≤ w), E'_j with rate r - μ instead of r = s μ.
        others = (busy - 1) * service_rate
        within = _at_least(others * limit, waits)
        factor = waits * np.log(busy / (busy - 1)) - service_rate * limit
        with np.errstate(divide="ignore"):
            own = np.exp(factor + np.log(within))
        late[busy:-1] = 1 - _at_least(busy * service_rate * limit, waits) + own
    np.clip(late, 0.0, 1.0, out=late)
    return late


def _at_least(mean: float, counts: npt.NDArray[np.int64]) -> Probabilities:
    """P(a Poisson count of this mean ≥ each), as sums of positive terms: small ones keep their digits."""
    if mean == 0:
        return np.where(counts <= 0, 1.0, 0.0)
    last = int(max(counts[-1], mean) + 40 + 10 * np.sqrt(mean))
    logs = np.arange(last + 1) * np.log(mean) - mean
    logs[1:] -= np.cumsum(np.log(np.arange(1, last + 1)))
    tails = np.cumsum(np.exp(logs)[::-1])[::-1]
    found: Probabilities = np.minimum(1.0, tails[counts])
    return found
