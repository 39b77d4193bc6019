"""What the provider of functions does by itself: ramps, row by row as Elastic-FaaS printed them, and in the engine."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fleets.queue.container_ramp import (
    check_system,
    containers_after,
    next_step_s,
    timeline,
)
from penstock.errors import PenstockError
from penstock.systems import QueueSystem
from tests.simulator.queue_playing import FLEET, bank, resized, schedule_at, servers

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "faas.json").read_text())
TABLE_1 = GOLDEN["given"]["table1"]["rows"]
RAMPS = [case for case in GOLDEN["derived"] if case["fn"] == "faas.ramp"]

TWO_UNITS = QueueSystem(
    service_rate_per_s=1.0, ramp_s=2.0, max_containers=30, provision_s=0.0, pool_initial=0, forwarding="pull"
)


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"t={row[0]}")
def test_three_functions_grow_as_in_table_1(row: list[int]) -> None:
    time, *functions, total = row
    assert list(timeline(TWO_UNITS, (0, 10, 20), time)) == functions
    assert sum(functions) == total


def test_the_simulated_functions_grow_as_in_table_1() -> None:
    engine = bank(TWO_UNITS, schedule_at([], 60), initial_replicas=1)
    seen = []
    for time, *_ in TABLE_1:
        engine.advance(float(time))
        if time in (10, 20):
            engine.actuator.apply(resized(1 + time // 10))
        seen.append([time, *servers(engine).values()])
    assert seen == [[time, *(count for count in functions if count)] for time, *functions, _ in TABLE_1]
    assert seen[-1] == [28, 15, 10, 5]


def test_one_function_takes_58_units_to_30_containers_and_three_at_once_18() -> None:
    assert [containers_after(TWO_UNITS, time) for time in (57.9, 58, 100)] == [29, 30, 30]
    assert sum(timeline(TWO_UNITS, (0, 0, 0), 18)) == 30


@pytest.mark.parametrize("case", RAMPS, ids=lambda case: case["id"])
def test_ramps_meet_the_derived_vectors(case: dict[str, Any]) -> None:
    given_ = case["in"]
    system = QueueSystem(service_rate_per_s=1, ramp_s=given_["per"], max_containers=given_["limit"] or 10**6)
    assert list(timeline(system, given_["starts"], given_["t"])) == case["out"]


EIGHTHS_S = st.integers(0, 40).map(lambda eighths: eighths / 8)
"""Times that add up without rounding, so that "at that very time" means the same to formula and engine."""


@given(
    first_s=EIGHTHS_S,
    ramp_s=EIGHTHS_S.filter(bool),
    step=st.integers(1, 4),
    most=st.integers(1, 12),
    checks=st.lists(st.integers(0, 480).map(lambda eighths: eighths / 8), min_size=1, max_size=5),
)
def test_the_engine_has_the_containers_of_the_formula_at_any_time(
    first_s: float, ramp_s: float, step: int, most: int, checks: list[float]
) -> None:
    system = QueueSystem(
        service_rate_per_s=1, first_container_s=first_s, ramp_s=ramp_s, ramp_step=step, max_containers=most
    )
    engine = bank(system, schedule_at([], 100), initial_replicas=1)
    for time_s in sorted(checks):
        engine.advance(time_s)
        assert servers(engine) == {f"{FLEET}-1": containers_after(system, time_s)}


@given(step=st.integers(1, 5), most=st.integers(1, 20))
def test_steps_bring_the_containers_and_then_no_more(step: int, most: int) -> None:
    system = QueueSystem(service_rate_per_s=1, ramp_step=step, max_containers=most, first_container_s=3, ramp_s=2)
    steps_s: list[float] = []
    while (next_s := next_step_s(system, steps_s[-1] if steps_s else 0.0)) is not None:
        steps_s.append(next_s)
    assert steps_s == [3.0 + 2.0 * each for each in range(len(steps_s))]
    assert [containers_after(system, each) for each in steps_s] == [
        min(most, 1 + each * step) for each in range(len(steps_s))
    ]
    assert containers_after(system, steps_s[-1]) == most


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service_rate_per_s", 0),
        ("ramp_s", 0),
        ("forward_interval_s", -1),
        ("first_container_s", -1),
        ("provision_s", -0.5),
        ("max_containers", 0),
        ("ramp_step", 0),
        ("capacity", 0),
        ("main_capacity", -1),
        ("pool_initial", -1),
        ("service_scv", float("nan")),
    ],
)
def test_a_bank_that_cannot_be_is_told_by_its_field(field: str, value: float) -> None:
    with pytest.raises(PenstockError, match=field):
        check_system(QueueSystem(**{"service_rate_per_s": 1.0, field: value}))  # type: ignore[arg-type]
