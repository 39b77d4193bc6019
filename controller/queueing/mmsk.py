"""M/M/s/K: Poisson arrivals, s exponential servers, room for K events in the whole system (reading Q1).

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", section III; readings Q1 to Q7. The probabilities come from the
balance equations by running products instead of the printed closed forms, which overflow for a few hundred servers and
are 0/0 at ρ = 1 (Q4).
"""

from math import floor, inf, isfinite

import msgspec
import numpy as np
import numpy.typing as npt

Probabilities = npt.NDArray[np.float64]

LARGEST_CAPACITY = 10_000_000
"""All P_n are kept in one array of doubles."""


SYMBOLS = {
    "p_empty": "P_0",
    "p_full": "P_K",
    "entered_rate": "lambda_e",
    "lost_rate": "lambda_lost",
    "waiting_probability": "C",
    "waiting": "L_q",
    "in_system": "L",
    "waiting_time": "W_q",
    "response_time": "W",
}
"""Measures under the papers' symbols."""


class Mmsk(msgspec.Struct, frozen=True, kw_only=True, rename=SYMBOLS | {"offered_load": "rho"}):
    """The steady state, in JSON under the paper's symbols. Rates per unit of time, times in that unit, L in events.

    ``offered_load`` is ρ = λ/(s μ) of every formula and may exceed 1; ``utilisation`` is λ_e/(s μ), the share of time
    that a server works (Q3). ``waiting_time`` and ``response_time`` are of events that enter; infinite without servers.
    """

    p_empty: float
    p_full: float
    entered_rate: float
    lost_rate: float
    waiting: float
    in_system: float
    waiting_time: float
    response_time: float
    offered_load: float
    utilisation: float


def mmsk(arrival_rate: float, service_rate: float, servers: int, capacity: int) -> Mmsk:
    """All measures of M/M/s/K. ``service_rate`` is of one server.

    Without servers the queue is full and the wait infinite (Q6); of more than K servers only K can work (Q7). Without
    arrivals an event would be served at once: W = 1/μ. Raises ValueError for values that describe no queue.
    """
    p = probabilities(arrival_rate, service_rate, servers, capacity)
    a, n, p_full = arrival_rate / service_rate, np.arange(capacity + 1), float(p[-1])
    # λ (1 - P_K) loses digits where nearly everything is lost; what enters is also what the busy servers finish.
    busy = float(p @ np.minimum(n, servers))
    waiting = float(p @ np.maximum(n - servers, 0))
    entered_rate = busy * service_rate
    waiting_time = inf if servers == 0 else waiting / entered_rate if entered_rate > 0 else 0.0
    return Mmsk(
        p_empty=float(p[0]),
        p_full=p_full,
        entered_rate=entered_rate,
        lost_rate=arrival_rate * p_full,
        waiting=waiting,
        in_system=busy + waiting,
        waiting_time=waiting_time,
        response_time=waiting_time + 1 / service_rate,
        offered_load=a / servers if servers > 0 else inf if a > 0 else 0.0,
        utilisation=busy / servers if servers > 0 else 0.0,
    )


def probabilities(arrival_rate: float, service_rate: float, servers: int, capacity: int) -> Probabilities:
    """P_0 … P_K as an array of K + 1 numbers that sum to 1; those too small for a double are 0."""
    check(arrival_rate, service_rate, servers, capacity)
    a = arrival_rate / service_rate
    p: Probabilities = np.zeros(capacity + 1)
    if a == 0:
        p[0] = 1
    elif servers == 0:
        p[capacity] = 1
    else:
        weights = relative_weights(a, servers, capacity)
        p = weights / weights.sum()
    return p


def relative_weights(a: float, servers: int, up_to: int) -> Probabilities:
    """w_0 … w_up_to with w_n = w_{n-1} · a / min(n, s), the largest of them 1. For a > 0 and s > 0.

    The factors fall with n: w has one peak. Products from the peak outwards never exceed 1, so nothing overflows.
    """
    factors = a / np.minimum(np.arange(1, up_to + 1), servers)
    peak = up_to if a >= servers else min(up_to, floor(a))
    below = np.cumprod(1 / factors[:peak][::-1])[::-1]
    above = np.cumprod(factors[peak:])
    return np.concatenate((below, [1.0], above))


def loss_probability(arrival_rate: float, service_rate: float, servers: int, capacity: int) -> float:
    """P_K: the share of events that find the queue full."""
    return float(probabilities(arrival_rate, service_rate, servers, capacity)[-1])


def check(arrival_rate: float, service_rate: float, servers: int, capacity: int) -> None:
    """Raise ValueError, with the name and the value, unless these describe a queue."""
    check_rates(arrival_rate, service_rate)
    check_servers(servers)
    if not 1 <= capacity <= LARGEST_CAPACITY:
        raise ValueError(f"capacity={capacity}: expected 1 to {LARGEST_CAPACITY} events in the system")


def check_rates(arrival_rate: float, service_rate: float) -> None:
    """Raise ValueError unless the arrival rate is at least 0, the service rate above 0 and their ratio finite."""
    if not (isfinite(arrival_rate) and arrival_rate >= 0):
        raise ValueError(f"arrival_rate={arrival_rate:g}: expected a number of at least 0")
    if not (isfinite(service_rate) and service_rate > 0):
        raise ValueError(f"service_rate={service_rate:g}: expected a number above 0")
    if not isfinite(arrival_rate / service_rate):
        raise ValueError(f"arrival_rate={arrival_rate:g}, service_rate={service_rate:g}: their ratio is too large")


def check_servers(servers: int) -> None:
    """Raise ValueError for a negative number of servers."""
    if servers < 0:
        raise ValueError(f"servers={servers}: expected at least 0")
