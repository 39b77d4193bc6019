"""Erlang's two formulas and M/M/c: Poisson arrivals, c exponential servers, unlimited room.

Eq (1) of the pub/sub paper is M/M/m's mean number in the system; LaSS sizes functions by M/M/c's waiting time.
"""

from math import exp, inf, isfinite, log

import msgspec

from controller.queueing.mmsk import SYMBOLS, check_rates, check_servers, relative_weights


class Mmc(msgspec.Struct, frozen=True, kw_only=True, rename=SYMBOLS | {"utilisation": "rho"}):
    """The steady state. In overload L and W are infinite and ``utilisation`` is 1 or more.

    L in events, times in the unit of the rates. ``waiting_probability`` is Erlang C.
    """

    waiting_probability: float
    waiting: float
    in_system: float
    waiting_time: float
    response_time: float
    utilisation: float


def erlang_b(offered_load: float, servers: int) -> float:
    """Share of events that find all servers busy when none may wait. ``offered_load`` a = λ/μ.

    By the recursion B_n = a B_{n-1} / (n + a B_{n-1}), in which every value is a probability.
    """
    _check_load(offered_load, servers)
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered_load * blocked / (n + offered_load * blocked)
    return blocked


def erlang_c(offered_load: float, servers: int) -> float:
    """Share of events that have to wait when all may; 1 if the load is as large as the number of servers or larger."""
    _check_load(offered_load, servers)
    if offered_load >= servers:
        return 1.0
    blocked = erlang_b(offered_load, servers)
    return servers * blocked / (servers - offered_load * (1 - blocked))


def mmc(arrival_rate: float, service_rate: float, servers: int) -> Mmc:
    """All measures of M/M/c. Raises ValueError for rates or servers that describe no queue."""
    check_rates(arrival_rate, service_rate)
    check_servers(servers)
    a = arrival_rate / service_rate
    utilisation = a / servers if servers > 0 else inf if a > 0 else 0.0
    waits, spare = erlang_c(a, servers), servers - a
    waiting_time = waits / (spare * service_rate) if spare > 0 else inf
    waiting = waits * a / spare if spare > 0 else inf if a > 0 else 0.0
    return Mmc(
        waiting_probability=waits,
        waiting=waiting,
        in_system=waiting + a,
        waiting_time=waiting_time,
        response_time=waiting_time + 1 / service_rate,
        utilisation=utilisation,
    )


def p_waits_at_most(arrival_rate: float, service_rate: float, servers: int, time: float) -> float:
    """P(W ≤ t) = 1 - C · e^(-(c μ - λ) t) of the time until service begins; 0 where the queue grows without end."""
    spare_rate = _spare_rate(arrival_rate, service_rate, servers)
    if spare_rate <= 0 or time < 0:
        return 0.0
    return 1 - erlang_c(arrival_rate / service_rate, servers) * exp(-spare_rate * time)


def waiting_time_percentile(arrival_rate: float, service_rate: float, servers: int, probability: float) -> float:
    """The smallest t with P(W ≤ t) ≥ ``probability`` (0 … 1, 1 not included); infinite in overload."""
    if not 0 <= probability < 1:
        raise ValueError(f"probability={probability:g}: expected at least 0 and below 1")
    spare_rate = _spare_rate(arrival_rate, service_rate, servers)
    if spare_rate <= 0:
        return inf
    waits = erlang_c(arrival_rate / service_rate, servers)
    if waits <= 1 - probability:
        return 0.0
    return log(waits / (1 - probability)) / spare_rate


def p_in_system_at_most(offered_load: float, servers: int, events: int) -> float:
    """P(N ≤ n) of the number in the system: Σ P_i for i ≤ n, which the authors of LaSS use for the wait."""
    _check_load(offered_load, servers)
    if offered_load == 0:
        return 1.0 if events >= 0 else 0.0
    if offered_load >= servers or events < 0:
        return 0.0
    rho = offered_load / servers
    if events >= servers - 1:
        return 1 - erlang_c(offered_load, servers) * rho ** (events + 1 - servers)
    weights = relative_weights(offered_load, servers, servers)
    total = weights.sum() + weights[-1] * rho / (1 - rho)
    return float(weights[: events + 1].sum() / total)


def _spare_rate(arrival_rate: float, service_rate: float, servers: int) -> float:
    """c μ - λ, of the same sign as c - a; not positive in overload."""
    check_rates(arrival_rate, service_rate)
    check_servers(servers)
    return (servers - arrival_rate / service_rate) * service_rate


def _check_load(offered_load: float, servers: int) -> None:
    if not (isfinite(offered_load) and offered_load >= 0):
        raise ValueError(f"offered_load={offered_load:g}: expected a number of at least 0")
    check_servers(servers)
