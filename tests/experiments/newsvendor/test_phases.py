"""The tick phase by rule: rebalances fall where they cost no time of a burst."""

import pytest

from experiments.newsvendor.phases import EARLY_S, tick_phase_s


@pytest.mark.parametrize(
    ("start_up_s", "rebalance_s", "stop_s", "phase_s"),
    [
        (0.0, 0.05, 0.0, EARLY_S),
        (10.0, 0.05, 0.7, EARLY_S),
        (1.2, 0.09, 0.7, 0.71),
        (10.0, 0.09, 0.7, 0.81),
        (1.2, 0.5, 0.7, 0.3),
    ],
)
def test_the_phase_is_early_for_what_is_quick_and_else_where_rebalances_are_idle(
    start_up_s: float, rebalance_s: float, stop_s: float, phase_s: float
) -> None:
    assert tick_phase_s(slo_s=0.5, start_up_s=start_up_s, rebalance_s=rebalance_s, stop_s=stop_s) == phase_s


@pytest.mark.parametrize(("start_up_s", "rebalance_s"), [(1.2, 0.09), (3.0, 0.08), (10.0, 0.09)])
def test_no_rebalance_of_a_decision_meets_a_burst_before_its_limit(start_up_s: float, rebalance_s: float) -> None:
    phase_s = tick_phase_s(slo_s=0.5, start_up_s=start_up_s, rebalance_s=rebalance_s, stop_s=0.7)
    for after_s in (0.0, start_up_s, rebalance_s + 0.7):
        from_s = (phase_s + after_s) % 1.0
        assert from_s >= 0.5
        assert from_s + rebalance_s <= 1.0
