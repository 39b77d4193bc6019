"""Knative's autoscaler: two windows, panic, limits of a step, and the way to zero; 70 requests per replica."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.kpa import Kpa, KpaParameters, average, demand
from penstock.errors import PenstockError
from tests.controller.scalers.one_fleet import FLEET, Fleet, make


def play(fleet: Fleet, since_s: float, until_s: float, in_system: int) -> list[int]:
    """Two-second ticks with the same number of requests in the system; the replicas after each."""
    sizes = []
    for tick in range(round((until_s - since_s) / 2)):
        fleet.tick(since_s + 2 * tick, backlog=in_system)
        sizes.append(fleet.replicas)
    return sizes


def test_a_window_is_the_average_of_its_samples() -> None:
    samples = tuple((2.0 * t, float(t)) for t in range(31))
    assert average(samples, 60.0, 60.0) == 15.5  # 1 … 30: the sample of 60 s ago is out
    assert average(samples, 60.0, 6.0) == 29.0
    assert average(((0.0, 5.0),), 0.0, 6.0) == 5.0


@pytest.mark.parametrize(
    ("stable", "panic", "ready", "expected"),
    [
        (700.0, 700.0, 10, (10, 10, 10, 10)),
        (701.0, 0.0, 10, (11, 0, 11, 5)),  # not below half of the ready ones
        (0.0, 0.0, 5, (0, 0, 2, 2)),
        (0.0, 0.0, 1, (0, 0, 0, 0)),
        (0.5, 140.0, 1, (1, 2, 1, 2)),
        (100_000.0, 7.0, 1, (1429, 1, 1000, 1)),
    ],
)
def test_demand_is_the_average_over_the_target_within_one_steps_limits(
    stable: float, panic: float, ready: int, expected: tuple[int, int, int, int]
) -> None:
    assert demand(stable, panic, ready, KpaParameters()) == expected


def test_panic_follows_the_six_second_window_at_once() -> None:
    fleet = Fleet(make(Kpa))
    play(fleet, 0, 60, 50)
    assert fleet.replicas == 1
    decision = fleet.tick(60.0, backlog=1000)
    # (50 + 50 + 1000) / 3 = 366.7 in the panic window, six replicas; the stable window alone would ask for two
    assert fleet.why(decision)["in_panic"] is True
    assert decision.targets == {FLEET: 6}


def test_within_panic_nothing_shrinks_and_a_stable_window_after_it_does() -> None:
    fleet = Fleet(make(Kpa))
    play(fleet, 0, 10, 10)
    play(fleet, 10, 16, 1400)
    peak = fleet.replicas
    assert peak == 20
    sizes = play(fleet, 16, 90, 10)
    # Twice the ready replicas were last wanted at 12 s (14 of 7); 74 s is the first tick more than 60 s after that.
    assert sizes[:29] == [peak] * 29
    assert sizes[29:32] == [10, 5, 2]


def test_a_step_out_of_panic_halves_at_most() -> None:
    fleet = Fleet(make(Kpa), 1)
    play(fleet, 0, 60, 1)
    fleet.replicas = 16
    sizes = play(fleet, 60, 70, 1)
    assert sizes == [8, 4, 2, 1, 1]


@pytest.mark.parametrize(("in_system", "panics"), [(209, False), (210, False), (211, True)])
def test_the_threshold_compares_whole_replicas(in_system: int, panics: bool) -> None:
    # Two are ready: panic from ⌈x / 70⌉ ≥ 4 on, that is from more than 210 on.
    fleet = Fleet(make(Kpa, stable_window_s=20, panic_window_percentage=10), 1)
    fleet.tick(0.0, backlog=1)
    fleet.replicas = 2
    assert fleet.why(fleet.tick(2.0, backlog=in_system))["in_panic"] is panics


def test_an_autoscaler_that_starts_on_several_replicas_starts_in_panic() -> None:
    several, one = Fleet(make(Kpa), 6), Fleet(make(Kpa), 1)
    assert set(play(several, 0, 60, 1)) == {6}
    assert several.why(several.tick(60.0, backlog=1))["in_panic"] is True
    assert several.tick(62.0, backlog=1).targets == {FLEET: 3}
    assert one.why(one.tick(0.0, backlog=1))["in_panic"] is False


def test_the_last_replica_goes_30_seconds_after_the_stable_window_is_empty() -> None:
    fleet = Fleet(make(Kpa))
    fleet.tick(0.0, backlog=5)
    sizes = play(fleet, 2, 100, 0)
    # The sample of 0 s leaves the window at 60 s; the tick of 90 s is the first one 30 s later.
    assert sizes.index(0) == (90 - 2) / 2
    assert set(sizes[sizes.index(0) :]) == {0}
    assert fleet.tick(100.0, backlog=1).targets == {FLEET: 1}


def test_a_minimum_keeps_replicas_and_a_maximum_caps_them() -> None:
    kept = Fleet(make(Kpa, min_replicas=2), 2)
    assert set(play(kept, 0, 200, 0)) == {2}
    assert Fleet(make(Kpa, max_replicas=3)).tick(0.0, backlog=10_000).targets == {FLEET: 3}


def test_requests_that_are_worked_on_count_as_those_that_wait() -> None:
    assert Fleet(make(Kpa)).tick(0.0, backlog=100, in_flight=110).targets == {FLEET: 3}


def test_without_data_nothing_changes() -> None:
    fleet = Fleet(make(Kpa), 5)
    decision = fleet.tick(0.0, unknown={"backlog": "scrape failed"})
    assert decision.action == "hold"
    assert "scrape failed" in str(fleet.why(decision)["reason"])


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(0, 3), st.none() | st.integers(3, 30))
def test_within_bounds_and_never_fewer_while_in_panic(loads: list[int], least: int, most: int | None) -> None:
    fleet = Fleet(make(Kpa, min_replicas=least, **({} if most is None else {"max_replicas": most})), max(1, least))
    panicked = False
    for tick, load in enumerate(loads):
        before = fleet.replicas
        decision = fleet.tick(2.0 * tick, backlog=load)
        assert least <= fleet.replicas <= (most or 10_000)
        panics = bool(fleet.why(decision)["in_panic"])
        if panicked and panics:
            assert fleet.replicas >= before
        panicked = panics


def test_impossible_parameters_are_told() -> None:
    with pytest.raises(PenstockError, match="max_scale_down_rate=1: expected a number above 1"):
        make(Kpa, max_scale_down_rate=1)
    with pytest.raises(PenstockError, match="stable_window_s=0"):
        make(Kpa, stable_window_s=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stable_window_s", 5.0),
        ("stable_window_s", 6.5),
        ("stable_window_s", 3601.0),
        ("panic_window_percentage", 0.9),
        ("panic_window_percentage", 101.0),
        ("panic_threshold", 1.0),
        ("target_concurrency", 0.009),
        ("target_utilisation", 1.1),
        ("grace_s", 0.0),
    ],
)
def test_settings_that_knative_refuses_are_refused(name: str, value: float) -> None:
    with pytest.raises(PenstockError, match=f"kpa.{name}={value:g}|{name}={value:g}: expected "):
        make(Kpa, **{name: value})


def test_the_least_target_is_that_of_knative() -> None:
    assert KpaParameters(target_concurrency=0.01).target == 0.01


@pytest.mark.parametrize(("stable_s", "percentage", "panic_s"), [(60.0, 10.0, 6.0), (6.0, 100.0, 6.0), (6.0, 1.0, 1.0)])
def test_the_panic_window_is_the_newest_part_of_the_stable_one(
    stable_s: float, percentage: float, panic_s: float
) -> None:
    assert KpaParameters(stable_window_s=stable_s, panic_window_percentage=percentage).panic_window_s == panic_s
