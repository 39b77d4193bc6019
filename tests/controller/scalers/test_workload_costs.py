"""What the formulas alone cost on the bin-pack paper's first workload: replica-minutes of its comparison policies.

The controller's clock is virtual and replicas come and go at once; rates are those of the knots in
``producers.workloads``, one value a second.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from controller.scalers.linear import Linear
from controller.scalers.optimal import Optimal, optimal_replicas
from penstock.contracts import PartitionObservation, ReplicaCounts, StreamObservation
from penstock.parameters import make_parameters

FLEET = "payments"
KNOTS = (
    "0 3 13 28 47 70 95 120 144 165 182 193 199 200 196 190 182 173 165 157 152 150 153 163 179 200 222 243 "
    "260 271 275 271 259 241 220 198 177 161 152 151 161 182 212 247 283 314 337 349 348 337 315 285 248 206 "
    "162 119 79 46 21 5 0"
)
TIMES_S = [10.0 * knot + 0.5 for knot in range(60)] + [599.5]
RATES = np.interp(np.arange(600) + 0.0, TIMES_S, [float(value) for value in KNOTS.split()])
PARTITIONS = 5


def replay(kind: type[Any], rates: Sequence[float], **parameters: Any) -> list[int]:
    """Replicas in each second under a scaler that sees the rate of that second; starts with one replica."""
    scaler = kind(make_parameters(kind.name, kind.Parameters, parameters))
    state, replicas, served = scaler.start(1), 1, []
    # Offsets are in millionths of an event so that rates, which are whole numbers of events live, keep their digits.
    ends = np.zeros(PARTITIONS, dtype=np.int64)
    for second, rate in enumerate([0.0, *rates]):
        ends = ends + round(rate / PARTITIONS * 1_000_000)
        seen = StreamObservation(
            time_s=second - 1.0,
            fleet=FLEET,
            replicas=ReplicaCounts(joined=replicas),
            partitions=tuple(PartitionObservation(p, int(end), int(end)) for p, end in enumerate(ends)),
        )
        decision, state = scaler.decide(seen, state)
        replicas = decision.targets.get(FLEET, replicas)
        served.append(replicas)
    return served[1:]


def changes(replicas: Sequence[int]) -> tuple[int, int]:
    """Replicas added and removed."""
    steps = np.diff([1, *replicas])
    return int(steps[steps > 0].sum()), int(-steps[steps < 0].sum())


def test_the_workload_is_the_papers() -> None:
    assert RATES.sum() == pytest.approx(108_750, rel=0.001)


def test_linear_costs_what_its_formula_costs_on_the_authors_series() -> None:
    replicas = replay(Linear, RATES.tolist(), service_rate_per_s=200e6)
    assert sum(replicas) / 60 == pytest.approx(25.12, rel=0.005)
    assert changes(replicas) == (6, 6)


def test_linear_with_hysteresis_costs_more_and_moves_less() -> None:
    replicas = replay(Linear, RATES.tolist(), service_rate_per_s=200e6, hysteresis=True)
    assert sum(replicas) / 60 == pytest.approx(30.60, rel=0.005)
    assert changes(replicas) == (3, 3)


@pytest.mark.parametrize(("capacity", "cost"), [(85.0, 32.65), (90.0, 31.88), (100.0, 28.82)])
def test_optimal_costs_what_its_formula_costs_on_the_authors_series(capacity: float, cost: float) -> None:
    by_formula = [optimal_replicas(rate, PARTITIONS, capacity) for rate in RATES]
    by_scaler = replay(Optimal, RATES.tolist(), rates_per_s=RATES.tolist(), replica_capacity_per_s=capacity)
    assert by_scaler == by_formula
    assert sum(by_formula) / 60 == pytest.approx(cost, rel=0.005)
