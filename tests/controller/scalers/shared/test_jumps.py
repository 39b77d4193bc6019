"""Jumps of a load: how often they are expected, and the price at which they keep a contract."""

from collections.abc import Iterable
from itertools import pairwise
from math import pi, sin, sqrt

import msgspec
import numpy as np
import pytest

from controller.scalers.shared.jumps import (
    FIRST_JUMP,
    FIRST_JUMP_TICKS,
    JUMP_AIM,
    LEAST_PART,
    MEMORY_TICKS,
    REMEMBERED,
    REPAID_TICKS,
    STEADY_TICKS,
    STEPS,
    UNUSED,
    JumpPrice,
    Jumps,
)
from controller.scalers.shared.newsvendor import AIM, first_price

FIRST = first_price(0.99)


def watched(loads: Iterable[float], ahead: int = 1, announced: float = 0.0) -> Jumps:
    """After these loads, each of which was forecast to be as the one ``ahead`` intervals before."""
    jumps, seen = Jumps(announced=announced), list[float]()
    for tick, load in enumerate(loads, 1):
        jumps = jumps.updated(load, load - seen[-ahead] if len(seen) >= ahead else None, tick, ahead)
        seen.append(load)
    return jumps


WAVE = [100 + 50 * sin(2 * pi * tick / 120) for tick in range(400)]
RAMP = [100 + tick / 3 for tick in range(120)]


@pytest.mark.parametrize("loads", [WAVE, RAMP, [float(2 * tick) for tick in range(60)]])
def test_a_load_that_has_changed_over_many_seconds_is_not_expected_to_jump(loads: list[float]) -> None:
    assert (watched(loads).rate, watched(loads).first) == (0.0, 0.0)


@pytest.mark.parametrize("noise", [0, 1, 3])  # in standard deviations of a Poisson count
@pytest.mark.parametrize("load", [4, 100, 1000])
def test_a_load_that_has_not_changed_may_triple_until_it_was_steady_for_half_an_hour(load: int, noise: int) -> None:
    jumps = Jumps()
    for tick, count in enumerate(np.random.default_rng(1).normal(load, noise * sqrt(load), STEADY_TICKS + 1), 1):
        before, jumps = jumps, jumps.updated(max(0.0, float(count)), None, tick, 1)
    assert before.rate == pytest.approx(1 / FIRST_JUMP_TICKS)
    assert before.reach == before.first == FIRST_JUMP * before.peak
    assert (jumps.rate, jumps.first) == (0.0, 0.0)


def test_only_what_was_seen_counts_from_the_first_jump_on() -> None:
    fell = watched([100.0] * 60 + [40.0] * 10)
    assert (fell.first, fell.reach) == (0.0, 100.0)
    assert watched([100.0] * 60 + [150.0] * 10).reach == 150.0


def test_no_load_is_no_reason_to_expect_one() -> None:
    assert watched([0.0] * 100).reach == 0.0


def test_a_small_shift_is_no_gradual_change() -> None:
    assert watched([400.0] * 60 + [520.0] * 30).unknown
    assert not watched([400.0 + min(tick, 120) for tick in range(150)]).unknown


def test_a_jump_is_expected_again_after_as_long_as_the_first_one_took() -> None:
    jumped = watched([100.0] * 540 + [350.0])
    assert jumped.peak == 350.0
    assert jumped.rate == pytest.approx(2 / (540 + 540), rel=0.01)


def test_a_load_that_fell_is_expected_to_come_back_the_less_the_longer_it_stays_away() -> None:
    after = [watched([300.0] * 60 + [60.0] * seconds).rate for seconds in (1, 60, 600)]
    assert after[0] == pytest.approx(1 / 60, rel=0.05)
    assert after[1] == pytest.approx(1 / 120, rel=0.05)
    assert after[2] < after[1] / 4


def test_the_rate_is_of_the_time_in_which_the_load_is_below_its_peak() -> None:
    on_off = watched(([300.0] * 60 + [60.0] * 60) * 10)
    assert on_off.rate == pytest.approx(1 / 60, rel=0.15)


def test_a_load_is_not_expected_to_jump_as_far_as_it_has_grown() -> None:
    small_jump, growth = [30.0] * 30 + [80.0] * 30, [80.0 + tick for tick in range(300)]
    grown = watched(small_jump + growth)
    assert grown.peak == pytest.approx(379, rel=0.01)
    assert grown.reach == pytest.approx(80, rel=0.1)
    assert watched([*small_jump, *growth, 100.0]).reach == pytest.approx(379, rel=0.02)  # now it fell from there


def test_one_jump_over_several_intervals_counts_once() -> None:
    at_once, over_three = watched([100.0] * 50 + [400.0] * 50), watched([100.0] * 50 + [200.0, 300.0] + [400.0] * 48)
    assert round(at_once.rises) == round(over_three.rises) == 2  # with the one that is expected


def test_what_was_long_ago_fades() -> None:
    fell, jumped = [300.0] * 60 + [60.0] * int(2 * MEMORY_TICKS), [60.0] * 60 + [300.0] * int(2 * MEMORY_TICKS)
    assert watched(fell).peak == 60.0
    assert watched(fell).rate < 1 / MEMORY_TICKS
    assert watched(jumped).rate == pytest.approx(watched(jumped[:100]).rate, rel=0.01)  # neither one more nor one less


def test_as_far_as_the_last_jumps_is_expected_and_no_farther() -> None:
    one_high = [100.0] * 60 + [400.0] * 10
    low = ([100.0] * 60 + [300.0] * 60) * (REMEMBERED // 2)
    assert watched(one_high + low).reach == 400.0  # four falls and four jumps since then
    assert watched(one_high + low + [100.0] * 60).reach == 400.0
    assert watched(one_high + low + [100.0] * 60 + [300.0]).reach == 300.0
    assert watched(one_high + [100.0] * int(MEMORY_TICKS)).reach == 400.0  # only how often fades


def test_an_announced_peak_is_expected_before_any_jump() -> None:
    for loads in ([100.0] * 200, WAVE, [100.0] * (STEADY_TICKS + 1)):
        quiet = watched(loads, announced=400.0)
        assert (quiet.first, quiet.reach) == (0.0, 400.0)
        assert quiet.rate == pytest.approx(1 / FIRST_JUMP_TICKS)
    assert watched([100.0] * 200, announced=90.0).reach == 90.0  # a peak that is there already: no jump is expected


def test_from_the_first_jump_or_fall_on_an_announced_peak_is_expected_as_often_as_it_comes() -> None:
    for loads in ([100.0] * 100 + [300.0], [300.0] * 100 + [100.0]):
        assert watched(loads, announced=300.0).rate == pytest.approx(watched(loads).rate, rel=0.01)
    late = [100.0] * 2000 + [300.0]
    assert watched(late, announced=300.0).rate == pytest.approx(1 / FIRST_JUMP_TICKS, rel=0.01)
    assert watched(late).rate == pytest.approx(1 / 2000, rel=0.01)


def test_what_is_announced_late_keeps_what_was_learned() -> None:
    jumps = watched(([300.0] * 60 + [60.0] * 60) * 4)
    told = msgspec.structs.replace(jumps, announced=500.0)
    assert (told.rate, told.reach) == (jumps.rate, 500.0)


def expecting(late: tuple[float, ...], arrived: float = 200.0) -> JumpPrice:
    """After a minute of the same expectations."""
    price = JumpPrice()
    for _ in range(60):
        price = price.updated(late, arrived)
    return price


FALLING = tuple(64 / 2**step for step in range(len(STEPS)))
"""Late events of jumps by price."""


def test_no_price_is_asked_for_where_jumps_make_few_events_late_and_nothing_is_owed() -> None:
    assert expecting((0.0,) * len(STEPS)).least(0.99, 10_000, 0) == 0.0
    assert JumpPrice().least(0.99, None, None) == 0.0


def test_the_more_of_the_contract_is_used_the_nearer_is_the_first_price() -> None:
    none_by_jumps = expecting((0.0,) * len(STEPS))
    assert none_by_jumps.least(0.99, 10_000, 100) == pytest.approx(FIRST)
    assert none_by_jumps.least(0.99, 10_000, int(100 * UNUSED)) == 0.0
    halfway = none_by_jumps.least(0.99, 10_000, round(100 * (UNUSED + AIM) / 2))
    assert halfway == pytest.approx(FIRST / 2)


def test_the_least_price_leaves_as_many_late_events_to_jumps_as_the_contract_does() -> None:
    allowed = JUMP_AIM * 0.01 * 200
    least = expecting(FALLING).least(0.99, 10_000, int(JUMP_AIM * 100))
    below = max(step for step, late in enumerate(FALLING) if late > allowed)
    assert STEPS[below] < least / FIRST <= STEPS[below + 1]


def test_it_may_be_below_the_first_price_and_is_there_if_the_smallest_makes_too_many_late() -> None:
    """A price below the first one is compared, too: with it, jumps may make far more events late."""
    first = STEPS.index(1.0)
    allowed = JUMP_AIM * 0.01 * 200
    late = tuple(100 * allowed if step < first - 1 else 0.0 for step in range(len(STEPS)))
    least = expecting(late).least(0.99, 10_000, 0) / FIRST
    assert STEPS[0] < least <= STEPS[first - 1] < 1


def test_it_is_the_lower_the_more_of_the_contract_is_left() -> None:
    prices = [expecting(FALLING).least(0.99, 100_000, late) for late in (0, 400, 749, 900, 1200, 5000)]
    assert all(cheap < dear for cheap, dear in pairwise(prices[:4]))
    assert prices == sorted(prices)


def test_what_is_owed_is_repaid_over_minutes_and_never_takes_all() -> None:
    allowed = JUMP_AIM * 0.01 * 200
    owing = int(JUMP_AIM * 1000 + REPAID_TICKS * allowed)  # what would leave nothing at all
    late = tuple(allowed * LEAST_PART * each for each in (8, 4, 2, *[1] * (len(STEPS) - 3)))
    assert expecting(late).least(0.99, 100_000, owing) == pytest.approx(STEPS[3] * FIRST)


def test_what_is_owed_before_anything_is_expected_is_repaid_at_the_largest_price() -> None:
    assert JumpPrice().least(0.99, 300, 3) == pytest.approx(STEPS[-1] * FIRST)
    assert JumpPrice().least(0.99, 300, 2) < FIRST


def test_what_is_left_over_is_spent_more_slowly_than_what_is_owed_is_repaid() -> None:
    even = int(JUMP_AIM * 1000)
    spending, neither, repaying = (
        expecting(FALLING).least(0.99, 100_000, late) for late in (even - 200, even, even + 200)
    )
    assert spending < neither < repaying
    assert repaying / neither > neither / spending


def test_it_has_a_largest_value() -> None:
    for share in (0.99, 0.999):
        least = expecting((100.0,) * len(STEPS)).least(share, 10_000, 5000)
        assert least == pytest.approx(STEPS[-1] * first_price(share))


def test_state_survives_json() -> None:
    for state in (watched([300.0] * 60 + [60.0] * 60), watched([60.0], announced=90.0), expecting(FALLING)):
        assert msgspec.json.decode(msgspec.json.encode(state), type=type(state)) == state
