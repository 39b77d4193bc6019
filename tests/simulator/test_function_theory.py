"""The pipeline engine against queueing theory: 20 seeded replications, the exact value within their 95 % interval."""

import math

import numpy as np
import pytest

from controller.queueing.erlang import mmc
from penstock.distributions import ARRIVALS, draw_s, stream
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSpec, FunctionSystem, ServiceDistribution
from simulator.function import make_engine

REPLICATIONS = 20
T_19 = 2.093
"""Student's t with 19 degrees of freedom, two-sided 95 %."""


def poisson(rate_per_s: float, events: int, seed: int) -> Schedule:
    times_s = np.cumsum(draw_s("exponential", 1 / rate_per_s, 1.0, events, stream(seed, ARRIVALS, 0)))
    return Schedule((times_s * 1e9).astype(np.int64), np.zeros(events, dtype=np.int16), float(times_s[-1]) + 1)


def mean_waits_s(
    rate_per_s: float, mean_s: float, law: ServiceDistribution, scv: float, replicas: int, events: int
) -> tuple[float, float]:
    """Mean of the time in the queue over the replications, half of its 95 % interval; the first tenth is left out."""
    waits = []
    for seed in range(REPLICATIONS):
        spec = RunSpec(
            run="r", experiment="e", world="sim", scaler=ScalerSpec(name="x"), seed=seed, duration_s=1,
            initial_replicas=replicas, max_replicas=replicas,
            system=FunctionSystem(
                functions=(FunctionSpec(name="f", service_time_s=mean_s, service_law=law, service_scv=scv),),
                deadline_s=1.0,
            ),
        )  # fmt: skip
        engine = make_engine(spec, poisson(rate_per_s, events, seed))
        engine.advance(1e7)
        table = engine.results()
        steady = table.id >= events // 10
        waits.append(float((table.started_s - table.received_s)[steady].mean()))
    return float(np.mean(waits)), T_19 * float(np.std(waits, ddof=1)) / math.sqrt(REPLICATIONS)


def pollaczek_khinchine_s(rate_per_s: float, mean_s: float, scv: float) -> float:
    """Mean wait of M/G/1."""
    rho = rate_per_s * mean_s
    return rho * mean_s * (1 + scv) / (2 * (1 - rho))


@pytest.mark.parametrize(("rate_per_s", "mean_s", "replicas"), [(0.7, 1.0, 1), (9.0, 1 / 3, 4), (8.0, 1.0, 10)])
def test_m_m_c(rate_per_s: float, mean_s: float, replicas: int) -> None:
    mean, half = mean_waits_s(rate_per_s, mean_s, "exponential", 1.0, replicas, 3000)
    assert mean == pytest.approx(mmc(rate_per_s, 1 / mean_s, replicas).waiting_time, abs=half)
    assert half < 0.2 * mean


@pytest.mark.parametrize(("law", "scv"), [("deterministic", 0.0), ("gamma", 0.33), ("gamma", 2.0), ("pareto", 0.1)])
def test_m_g_1(law: ServiceDistribution, scv: float) -> None:
    mean, half = mean_waits_s(0.6, 1.0, law, scv, 1, 5000)
    assert mean == pytest.approx(pollaczek_khinchine_s(0.6, 1.0, scv), abs=half)
    assert half < 0.2 * mean


def test_a_second_function_behind_m_m_1_is_m_m_1_again() -> None:
    """Burke: departures are Poisson. Mean response of two stations is the sum of both."""
    responses = []
    for seed in range(REPLICATIONS):
        spec = RunSpec(
            run="r", experiment="e", world="sim", scaler=ScalerSpec(name="x"), seed=seed, duration_s=1,
            system=FunctionSystem(
                functions=(
                    FunctionSpec(name="one", service_time_s=1.0, service_law="exponential"),
                    FunctionSpec(name="two", service_time_s=0.8, service_law="exponential", after=("one",)),
                ),
                deadline_s=1.0,
            ),
        )  # fmt: skip
        engine = make_engine(spec, poisson(0.6, 3000, seed))
        engine.advance(1e7)
        table = engine.results()
        assert table.terminal is not None
        steady = table.terminal & (table.id >= 300)
        responses.append(float((table.finished_s - table.intended_s)[steady].mean()))
    half = T_19 * float(np.std(responses, ddof=1)) / math.sqrt(REPLICATIONS)
    expected = mmc(0.6, 1.0, 1).response_time + mmc(0.6, 1 / 0.8, 1).response_time
    assert float(np.mean(responses)) == pytest.approx(expected, abs=half)
