"""Consumers per topic of a pub/sub network: the two greedy algorithms, and random draws.

Nguyen and Nahrstedt, "Elastic pub/sub", Algorithms 1 and 2 and the baseline of section VI; readings P2 to P11. Times
are in the unit of the network's rates.
"""

from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from controller.queueing.gim import gim
from controller.queueing.network import Decomposition, Network, NetworkMeasures, decompose, measure

Consumers = tuple[int, ...]
"""m: consumers per topic, in the network's order."""

Cost = Callable[[int, int], float]
"""F_j(m_j), of a topic's position and its number of consumers; convex and increasing."""

TIE = 1e-9
"""Gains that differ by less than this share of the largest are equal (error of the fixed point)."""


def one_each(topic: int, consumers: int) -> float:  # noqa: ARG001 - the same for all topics
    """F_j(m_j) = m_j, as in all of the paper's experiments (P10)."""
    return float(consumers)


class Comparison(NamedTuple):
    """A value per topic, the largest of which gets one more consumer: ``delta_L`` or, in overload, ``rho``."""

    by: str
    values: list[float]


def compare_topics(network: Network, consumers: Consumers, parts: Decomposition) -> Comparison:
    """The gains ν_j [L_j(m_j) - L_j(m_j + 1)] with the arrival scvs at the current m (P8).

    While topics are overloaded, L is infinite before and maybe after: then ρ_j of those, 0 of the others (P7).
    """

    def in_system(j: int, servers: int) -> float:
        topic, rate, scv = network.topics[j], parts.arrival_rate[j], parts.arrival_scv[j]
        return gim(rate, scv, topic.service_rate, topic.service_scv, servers).in_system

    now = [in_system(j, m) for j, m in enumerate(consumers)]
    if inf in now:
        return Comparison("rho", [rho if l_j == inf else 0.0 for rho, l_j in zip(parts.utilisation, now, strict=True)])
    values = [network.topics[j].value * (now[j] - in_system(j, m + 1)) for j, m in enumerate(consumers)]
    return Comparison("delta_L", values)


def most_useful_topic(network: Network, consumers: Consumers, cost: Cost | None = None) -> int:
    """j*: the topic that one more consumer helps most, per unit of ``cost`` if one is given; ties: the first (P9)."""
    by, values = compare_topics(network, consumers, decompose(network, consumers))
    if cost is not None and by == "delta_L":
        values = [gain / _unit_cost(cost, j, m) for j, (gain, m) in enumerate(zip(values, consumers, strict=True))]
    largest = max(values)
    return next(j for j, value in enumerate(values) if value >= largest - TIE * abs(largest))


def min_time(
    network: Network, budget: float, start: Sequence[int] | None = None, cost: Cost = one_each
) -> tuple[Consumers, ...]:
    """Algorithm 1, MinTimeGreedy: the allocations from ``start`` (one consumer each) on, the last is the answer.

    ``budget`` M is the cost allowed beyond ``start`` (P2); the next consumer has to fit into it (P3). Raises ValueError
    for an infinite budget.
    """
    if not isfinite(budget):
        raise ValueError(f"budget={budget:g}: expected a finite number")
    path, spent = [_start(network, start)], 0.0
    while True:
        m = path[-1]
        j = most_useful_topic(network, m)
        spent += _unit_cost(cost, j, m[j])
        if spent > budget:
            return tuple(path)
        path.append(one_more(m, j))


class MinCostPath(NamedTuple):
    """The allocations of Algorithm 2 with the mean response time R of each; ``met``: whether the last one keeps T."""

    path: tuple[Consumers, ...]
    response_times: tuple[float, ...]
    met: bool


def min_cost(
    network: Network,
    response_limit: float,
    start: Sequence[int] | None = None,
    cost: Cost = one_each,
    most_iterations: int = 60,
) -> MinCostPath:
    """Algorithm 2, MinCostGreedy: add consumers while R(m) > T (P4), T being a mean response time (P5).

    A limit below the bare service time is never kept: the last allocation is the one after ``most_iterations``.
    """
    path = [_start(network, start)]
    response_times = [measure(network, path[-1]).response_time]
    while response_times[-1] > response_limit and len(path) <= most_iterations:
        m = path[-1]
        path.append(one_more(m, most_useful_topic(network, m, cost)))
        response_times.append(measure(network, path[-1]).response_time)
    return MinCostPath(tuple(path), tuple(response_times), response_times[-1] <= response_limit)


def random_path(topics: int, extra: int, draw: Callable[[int], int]) -> tuple[Consumers, ...]:
    """The baseline: every further consumer goes to a topic drawn by ``draw(topics)``, uniformly (P11)."""
    path: list[Consumers] = [(1,) * topics]
    for _ in range(extra):
        path.append(one_more(path[-1], draw(topics)))
    return tuple(path)


def one_more(consumers: Consumers, topic: int) -> Consumers:
    """m with one more consumer for a topic."""
    return tuple(m + (j == topic) for j, m in enumerate(consumers))


def overloaded_topics(network: Network, measured: NetworkMeasures) -> list[str]:
    """The topics whose queue grows without end."""
    return [topic.name for topic, at in zip(network.topics, measured.topics, strict=True) if at.in_system == inf]


def _start(network: Network, start: Sequence[int] | None) -> Consumers:
    return (1,) * len(network.topics) if start is None else tuple(start)


def _unit_cost(cost: Cost, topic: int, consumers: int) -> float:
    price = cost(topic, consumers + 1) - cost(topic, consumers)
    if not price > 0:
        raise ValueError(f"consumer {consumers + 1} of topic {topic} costs {price:g}: expected more than nothing")
    return price
