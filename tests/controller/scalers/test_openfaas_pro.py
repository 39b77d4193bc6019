"""OpenFaaS: the formula of Pro with its two types, and CE's alert with its steps and its reset."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.openfaas_ce import OpenfaasCe, ce_step
from controller.scalers.openfaas_pro import OpenfaasPro, pro_replicas
from penstock.errors import PenstockError
from tests.controller.scalers.one_fleet import FLEET, Fleet, make


@pytest.mark.parametrize(
    ("ready", "mean_load", "expected"),
    [(1, 15.0, 4), (3, 5.0, 4), (2, 4.5, 2), (2, 4.6, 3), (4, 0.0, 0), (0, 9.0, 0)],
)
def test_pro_divides_the_load_by_the_share_of_the_target(ready: int, mean_load: float, expected: int) -> None:
    assert pro_replicas(ready, mean_load, 5.0, 0.9) == expected  # 4.5 per replica


def test_type_rps_counts_completed_requests_per_second() -> None:
    fleet = Fleet(make(OpenfaasPro))
    assert fleet.tick(0.0, completed=0).action == "hold"
    assert fleet.tick(10.0, completed=1000).targets == {FLEET: 3}  # 100/s at 45/s


def test_a_function_at_its_limit_never_asks_for_more_by_rps_but_does_by_capacity() -> None:
    by_rps, by_capacity = Fleet(make(OpenfaasPro)), Fleet(make(OpenfaasPro, type="capacity"))
    for tick in range(20):  # one replica that gets 40/s done of 400/s that come
        load = {"completed": 400 * tick, "arrived": 4000 * tick, "backlog": 3600 * tick, "in_flight": 1}
        by_rps.tick(10.0 * tick, **load)
        by_capacity.tick(10.0 * tick, **load)
    assert by_rps.replicas == 1
    assert by_capacity.replicas == 20


def test_pro_stays_between_its_labels_and_wakes_without_ready_replicas() -> None:
    fleet = Fleet(make(OpenfaasPro, type="capacity", min_replicas=2, max_replicas=6), 3)
    assert fleet.tick(0.0, backlog=0).targets == {FLEET: 2}
    assert fleet.tick(10.0, backlog=5000).targets == {FLEET: 6}
    assert Fleet(make(OpenfaasPro, type="capacity"), 0).tick(0.0, backlog=900).targets == {FLEET: 1}


def test_pro_waits_for_a_fleet_that_starts() -> None:
    for kind, load in (("capacity", {"backlog": 100}), ("rps", {"completed": 0})):
        fleet = Fleet(make(OpenfaasPro, type=kind), 10)
        for tick in range(2):
            decision = fleet.tick(10.0 * tick, starting=10, **load)
        assert decision.action == "hold"
        assert fleet.why(decision)["reason"] == "no replica is ready yet"


def test_pro_holds_on_what_is_unknown() -> None:
    for kind, field in (("rps", "completed"), ("capacity", "backlog")):
        decision = Fleet(make(OpenfaasPro, type=kind), 4).tick(0.0, unknown={field: "away"})
        assert decision.action == "hold"
        assert "away" in str(decision.why[FLEET]["reason"])


@pytest.mark.parametrize(
    ("most", "factor", "step"), [(5, 20, 1), (5, 21, 2), (5, 100, 5), (5, 1, 1), (5, 0, 0), (3, 40, 2)]
)
def test_a_step_is_a_share_of_the_maximum(most: int, factor: float, step: int) -> None:
    assert ce_step(most, factor) == step


def ce(rates_per_s: Sequence[float], **parameters: float) -> list[int]:
    """Replicas after each tick of five seconds, at these rates of successful requests."""
    fleet, done, sizes = Fleet(make(OpenfaasCe, **parameters)), 0.0, []
    for tick, rate in enumerate([0.0, *rates_per_s]):
        done += 5 * rate
        fleet.tick(5.0 * tick, completed=round(done))
        sizes.append(fleet.replicas)
    return sizes[1:]


def test_an_alert_fires_after_five_seconds_and_adds_a_step_every_thirty() -> None:
    # Above 5/s from the first tick on; firing from the second, told again after 30 s, 60 s, …
    assert ce([20] * 28) == [1] + [2] * 6 + [3] * 6 + [4] * 6 + [5] * 9


def test_the_rate_is_that_of_the_function_so_replicas_do_not_calm_the_alert() -> None:
    assert ce([6] * 60)[-1] == 5
    assert ce([5] * 60)[-1] == 1


def test_one_quiet_moment_takes_every_replica_but_the_minimum() -> None:
    sizes = ce([20] * 28 + [0, 0, 20, 20])
    # The first quiet five seconds still have 10/s in their window; the alert begins anew with the load.
    assert sizes[27:] == [5, 5, 1, 1, 2]
    assert ce([20] * 28 + [0, 0], min_replicas=2)[-1] == 2


def test_a_short_peak_is_no_alert() -> None:
    assert set(ce([11, 0, 0, 11, 0, 0], for_s=10)) == {1}


def test_the_edition_never_has_more_than_five_and_a_step_of_nothing_resets() -> None:
    assert max(ce([100] * 60, max_replicas=50, factor=100)) == 5
    assert set(ce([100] * 60, factor=0)) == {1}
    fleet = Fleet(make(OpenfaasCe), 9)
    fleet.tick(0.0, completed=0)
    assert fleet.tick(5.0, completed=0).targets == {FLEET: 5}


def test_ce_holds_on_what_is_unknown_and_does_not_resolve() -> None:
    fleet = Fleet(make(OpenfaasCe))
    for tick in range(4):
        fleet.tick(5.0 * tick, completed=500 * tick)
    assert fleet.replicas == 2
    decision = fleet.tick(20.0, unknown={"completed": "prometheus away"})
    assert decision.action == "hold"
    assert "prometheus away" in str(decision.why[FLEET]["reason"])
    assert fleet.tick(25.0, completed=2500).action == "none"


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 3), st.integers(3, 9))
def test_ce_only_adds_a_step_or_resets(rates: list[int], least: int, most: int) -> None:
    sizes = ce(rates, min_replicas=least, max_replicas=most)
    for before, after in zip([least, *sizes], sizes, strict=False):
        assert after in (before, min(before + 1, most, 5), least) or (before < least and after == least)
        assert least <= after <= min(most, 5)


def test_impossible_parameters_are_told() -> None:
    with pytest.raises(PenstockError, match="factor=101"):
        make(OpenfaasCe, factor=101)
    with pytest.raises(PenstockError, match="the Community Edition runs 5 at most"):
        make(OpenfaasCe, min_replicas=6, max_replicas=8)
    with pytest.raises(PenstockError, match="target_proportion=0"):
        make(OpenfaasPro, target_proportion=0)
