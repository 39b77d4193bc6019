"""The network engine against queueing theory and the paper's formulas: 20 seeded replications, 95 % intervals."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from controller.queueing.erlang import mmc
from controller.queueing.gim import gim
from controller.queueing.network import Job, Network, NetworkTopic, measure
from penstock.contracts import Decision
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import JobSpec, NetworkSystem, TopicSpec
from simulator.engine import EventTable
from simulator.network import job_schedule, make_engine

REPLICATIONS = 20
T_19 = 2.093
"""Student's t with 19 degrees of freedom, two-sided 95 %."""

TOPICS = (("A", 4.2, 0.33), ("B", 3.7, 0.5), ("C", 6.7, 0.4), ("D", 5.1, 0.5))
JOBS = (("1", "ABD", 0.33), ("2", "ADD", 0.5), ("3", "CD", 0.25))


def simulate(system: NetworkSystem, consumers: Sequence[int], duration_s: float, seed: int) -> EventTable:
    spec = RunSpec(
        run="r", experiment="e", world="sim", scaler=ScalerSpec(name="x"), seed=seed, duration_s=duration_s,
        initial_replicas=1, max_replicas=20, system=system,
    )  # fmt: skip
    engine = make_engine(spec, job_schedule(system.jobs, duration_s=duration_s, seed=seed))
    targets = {topic.topic: m for topic, m in zip(system.topics, consumers, strict=True)}
    engine.actuator.apply(Decision(action="up", targets=targets))
    engine.advance(100 * duration_s)
    assert engine.left() == 0
    return engine.results()


def interval(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), T_19 * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def station_wait(rate: float, ca2: float, mu: float, cs2: float, servers: int, events: int) -> tuple[float, float]:
    """Mean wait at one topic, and half of its interval; the first tenth is left out."""
    system = NetworkSystem(
        topics=(TopicSpec(topic="t", service_rate_per_s=mu, service_scv=cs2),),
        jobs=(JobSpec(job="j", route=("t",), arrival_rate_per_s=rate, arrival_scv=ca2),),
    )
    waits = []
    for seed in range(REPLICATIONS):
        table = simulate(system, [servers], events / rate, seed)
        waits.append(float((table.started_s - table.received_s)[table.id >= events // 10].mean()))
    return interval(waits)


@pytest.mark.parametrize(("rate", "mu", "servers"), [(0.7, 1.0, 1), (9.0, 3.0, 4), (8.0, 1.0, 10)])
def test_m_m_c(rate: float, mu: float, servers: int) -> None:
    mean, half = station_wait(rate, 1.0, mu, 1.0, servers, 3000)
    assert mean == pytest.approx(mmc(rate, mu, servers).waiting_time, abs=half)
    assert half < 0.2 * mean


@pytest.mark.parametrize("cs2", [0.0, 0.33, 2.0])
def test_m_g_1(cs2: float) -> None:
    mean, half = station_wait(0.6, 1.0, 1.0, cs2, 1, 3000)
    assert mean == pytest.approx(0.6 * (1 + cs2) / (2 * 0.4), abs=half)
    assert half < 0.2 * mean


@pytest.mark.parametrize(
    ("rate", "ca2", "mu", "cs2", "servers", "simulated"),
    [
        (1.6, 0.33, 1.0, 0.5, 2, 0.6397),
        (2.55, 2.0, 1.0, 1.5, 3, 2.9530),
        (4.5, 0.5, 1.0, 0.33, 5, 0.6045),
        (0.9, 0.25, 1.0, 0.4, 1, 2.6992),
    ],
)
def test_gi_g_m_is_within_15_percent_of_the_approximation_and_agrees_with_an_independent_simulation(
    rate: float, ca2: float, mu: float, cs2: float, servers: int, simulated: float
) -> None:
    """``simulated``: of ``tests/golden/sim_check.json``, 2.5 million events each, gamma laws."""
    mean, half = station_wait(rate, ca2, mu, cs2, servers, 3000)
    assert mean == pytest.approx(gim(rate, ca2, mu, cs2, servers).waiting_time, rel=0.15)
    assert mean == pytest.approx(simulated, abs=half + 0.02 * simulated)


@pytest.mark.parametrize(
    ("rates_per_min", "consumers", "simulated_s"),
    [
        ((3.0, 3.5, 3.0), (2, 2, 1, 4), 40.71),
        ((2.0, 2.5, 2.0), (2, 2, 1, 4), 35.52),
        ((3.0, 3.5, 3.0), (2, 1, 1, 4), 49.28),
    ],
)
def test_the_papers_network_is_within_10_percent_of_the_decomposition_and_agrees_with_an_independent_simulation(
    rates_per_min: tuple[float, ...], consumers: tuple[int, ...], simulated_s: float
) -> None:
    """``simulated_s``: spec 5.12 and ``tests/golden/sim_check.json``."""
    system = NetworkSystem(
        topics=tuple(TopicSpec(topic=t, service_rate_per_s=mu / 60, service_scv=c) for t, mu, c in TOPICS),
        jobs=tuple(
            JobSpec(job=j, route=tuple(route), arrival_rate_per_s=rate / 60, arrival_scv=ca2)
            for (j, route, ca2), rate in zip(JOBS, rates_per_min, strict=True)
        ),
    )
    responses_s = []
    for seed in range(REPLICATIONS):
        table = simulate(system, consumers, 12_000.0, seed)
        assert table.terminal is not None
        steady = table.terminal & (table.intended_s > 1200)
        responses_s.append(float((table.finished_s - table.intended_s)[steady].mean()))
    mean_s, half_s = interval(responses_s)
    network = Network(
        topics=tuple(NetworkTopic(name=t, service_rate=mu, service_scv=c) for t, mu, c in TOPICS),
        jobs=tuple(
            Job(name=j, route=tuple(route), arrival_rate=rate, arrival_scv=ca2)
            for (j, route, ca2), rate in zip(JOBS, rates_per_min, strict=True)
        ),
    )
    assert mean_s == pytest.approx(60 * measure(network, consumers).response_time, rel=0.10)
    assert mean_s == pytest.approx(simulated_s, abs=half_s + 0.4)
    assert half_s < 0.05 * mean_s
