"""Means of simulated queues against their formulas: 20 seeded replications, the formula within the 95 % interval of the
mean (Student's t, 19 degrees of freedom).
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from penstock.runspec import WorkerSpec
from penstock.schedule import Schedule
from simulator.engine import Floats
from simulator.stream import make_engine
from tests.simulator.playing import spec_of
from tests.support.shared_queue import shared_queue

REPLICATIONS = 20
T_19 = 2.093
"""97.5 % point of Student's t with 19 degrees of freedom."""
WARM_UP = 0.1
MU = 200.0


def poisson_s(rate_per_s: float, events: int, rng: np.random.Generator) -> Floats:
    return np.cumsum(rng.exponential(1 / rate_per_s, events))


def holds(formula: float, replication: Callable[[np.random.Generator], float]) -> None:
    """The formula lies in the interval of the replications' mean, which is narrow enough to say something."""
    means = np.array([replication(np.random.default_rng([2024, each])) for each in range(REPLICATIONS)])
    half = T_19 * means.std(ddof=1) / math.sqrt(REPLICATIONS)
    assert half < 0.05 * formula, f"interval of ± {half:g} around {means.mean():g} tells too little"
    assert abs(means.mean() - formula) <= half, f"{means.mean():g} ± {half:g}, formula {formula:g}"


def waits_s(start_s: Floats, arrival_s: Floats) -> float:
    cut = int(WARM_UP * len(arrival_s))
    return float((start_s - arrival_s)[cut:].mean())


def consumer_group(replicas: int, rho: float, law: str, events: int, rng: np.random.Generator, seed: int) -> float:
    """Mean wait of a group with one partition a replica and Poisson arrivals on each."""
    arrival_s = poisson_s(replicas * rho * MU, events, rng)
    schedule = Schedule(
        np.rint(arrival_s * 1e9).astype(np.int64),
        rng.integers(0, replicas, events).astype(np.int16),
        duration_s=float(arrival_s[-1]),
    )
    spec = spec_of(
        seconds=schedule.duration_s,
        worker=WorkerSpec(service_time_s=1 / MU, service_law=law),  # type: ignore[arg-type]
        partitions=replicas,
        initial_replicas=replicas,
        max_replicas=replicas,
        seed=seed,
    )
    engine = make_engine(spec, schedule)
    engine.advance(schedule.duration_s + 60)
    table = engine.results()
    assert len(table) == events
    return waits_s(table.started_s, table.intended_s)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_a_replica_with_a_constant_service_time_is_an_m_d_1_queue(rho: float) -> None:
    formula = rho / (2 * MU * (1 - rho))
    holds(formula, lambda rng: consumer_group(1, rho, "deterministic", 60_000, rng, seed=1))


@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas_with_partitions_of_their_own_are_m_m_1_queues_side_by_side(replicas: int) -> None:
    rho = 0.7
    formula = rho / (MU * (1 - rho))
    holds(
        formula,
        lambda rng: consumer_group(replicas, rho, "exponential", 120_000, rng, seed=int(rng.integers(1 << 30))),
    )


@pytest.mark.parametrize("scv", [0.25, 2.0])
def test_lindley_with_gamma_service_is_an_m_g_1_queue(scv: float) -> None:
    rho = 0.6
    formula = rho * (1 + scv) / (2 * MU * (1 - rho))  # Pollaczek and Khinchine

    def replication(rng: np.random.Generator) -> float:
        arrival_s = poisson_s(rho * MU, 150_000, rng)
        return waits_s(shared_queue(arrival_s, rng.gamma(1 / scv, scv / MU, len(arrival_s)), 1)[0], arrival_s)

    holds(formula, replication)


def test_a_shared_queue_with_exponential_service_is_an_m_m_c_queue() -> None:
    servers, rho = 4, 0.8
    offered = servers * rho
    below = sum(offered**k / math.factorial(k) for k in range(servers))
    all_busy = offered**servers / math.factorial(servers) / (1 - rho)
    formula = all_busy / (below + all_busy) / (servers * MU * (1 - rho))  # Erlang C

    def replication(rng: np.random.Generator) -> float:
        arrival_s = poisson_s(offered * MU, 200_000, rng)
        return waits_s(shared_queue(arrival_s, rng.exponential(1 / MU, len(arrival_s)), servers)[0], arrival_s)

    holds(formula, replication)
