"""What the HPA makes of the façade's values: its formula, written down here, follows the scaler's decision."""

import math

from hypothesis import given
from hypothesis import strategies as st

from controller.keda.hpa import metric_value


def hpa(value: float, current: int, tolerance: float = 0.1, *, until_1_32: bool = False) -> int:
    """Replicas that the HPA sets for an average-value metric with target 1; KEDA cuts the value to thousandths. Until
    Kubernetes 1.32 it compared in another way, which rounds differently at the very edge.
    """
    milli = int(value * 1000)
    ratio = milli / (1000 * current)
    within = abs(1.0 - ratio) <= tolerance if until_1_32 else 1.0 - tolerance <= ratio <= 1.0 + tolerance
    return current if within else math.ceil(milli / 1000)


def settled(wanted: int, current: int, tolerance: float = 0.1, *, until_1_32: bool = False) -> int:
    """Where repeated evaluations end; an oscillation fails."""
    seen = [current]
    while len(seen) < 10:
        value = metric_value(wanted, seen[-1], tolerance).value
        following = hpa(value, seen[-1], tolerance, until_1_32=until_1_32)
        if following == seen[-1]:
            return following
        seen.append(following)
    raise AssertionError(f"{current} → {wanted} oscillates: {seen}")


def test_a_plain_value_is_swallowed_from_ten_replicas_on() -> None:
    assert [hpa(current + 1, current) for current in (9, 10, 15)] == [10, 10, 15]


def test_up_to_eighteen_replicas_the_decision_is_carried_out_exactly() -> None:
    for wanted in range(1, 19):
        assert {settled(wanted, current) for current in range(1, 19)} == {wanted}


@given(st.integers(1, 500), st.integers(1, 500), st.sampled_from([0.0, 0.05, 0.1, 0.2]), st.booleans())
def test_it_settles_where_wanted_or_within_the_tolerance_above(
    wanted: int, current: int, tolerance: float, until_1_32: bool
) -> None:
    found = settled(wanted, current, tolerance, until_1_32=until_1_32)
    assert wanted <= found <= math.floor(wanted / (1 - tolerance) + 1e-9) + 1
    if abs(wanted / current - 1) > tolerance + 0.003 or tolerance == 0:
        assert found == wanted


def test_a_step_up_overshoots_by_one_and_comes_back() -> None:
    first = metric_value(11, 10, 0.1)
    assert hpa(first.value, 10) == 12
    assert "10 → 11 is within the HPA's tolerance of 10%" in first.nudged
    assert hpa(metric_value(11, 12, 0.1).value, 12) == 11


def test_where_the_hpa_has_no_tolerance_the_value_is_plain() -> None:
    assert metric_value(101, 100, 0.0).value == 101
    assert metric_value(101, 100, 0.0).nudged == ""


def test_a_fleet_at_zero_gets_the_plain_value() -> None:
    assert metric_value(3, 0, 0.1).value == 3
