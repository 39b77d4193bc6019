"""What is learned of the load of a consumer group."""

import numpy as np
import pytest

from controller.scalers.shared.estimates import AHEAD_VARIANCE_GAIN, Estimates
from penstock.contracts import ARRIVAL_SLOTS

PARTITIONS = 5


def test_bursts_and_smooth_arrivals_are_told_apart() -> None:
    burst, smooth = Estimates(), Estimates()
    for _ in range(60):
        burst = burst.updated([[*(0,) * 17, 30, 0, 0]] * PARTITIONS, 1)
        smooth = smooth.updated([[2] * ARRIVAL_SLOTS] * PARTITIONS, 1)
    assert burst.burstiness() > 0.95
    assert smooth.burstiness() == 0.0
    assert burst.since_burst() == pytest.approx(1 - 17.5 / ARRIVAL_SLOTS)


def test_the_forecast_follows_a_ramp() -> None:
    estimates = Estimates()
    for second in range(80):
        estimates = estimates.updated([[*(0,) * 19, 100 + 2 * second]], 3)
    assert estimates.forecast(0) == pytest.approx(100 + 2 * 80, abs=2)
    assert estimates.forecast(2) == pytest.approx(100 + 2 * 82, abs=3)


@pytest.mark.parametrize("noisy", [False, True])
def test_a_smooth_load_is_forecast_by_its_latest_trend_and_a_noisy_one_is_not(noisy: bool) -> None:
    rng, estimates, errors = np.random.default_rng(1), Estimates(), []
    for second in range(240):
        mean = 200 + 100 * np.sin(second / 30)
        due = estimates.steady.due(11), estimates.quick.due(11)
        arrived = int(rng.poisson(mean)) if noisy else round(mean)
        estimates = estimates.updated([[*(0,) * 19, arrived]], 11)
        if second >= 60:
            errors.append([(arrived - (each or 0)) ** 2 for each in due])
    steady, quick = np.mean(errors, axis=0)
    assert (quick < steady / 2) == (estimates.better == estimates.quick) == (not noisy)


def test_the_next_interval_alone_has_the_steady_forecast() -> None:
    estimates = Estimates()
    for second in range(120):
        estimates = estimates.updated([[*(0,) * 19, round(200 + 100 * np.sin(second / 30))]], 1)
    assert estimates.quick.ahead_variance < estimates.steady.ahead_variance / 2
    assert estimates.better == estimates.steady


def test_shares_of_a_skewed_topic_are_learned() -> None:
    estimates = Estimates()
    for _ in range(100):
        estimates = estimates.updated([[*(0,) * 19, 60], [*(0,) * 19, 20], [*(0,) * 19, 20]], 1)
    assert estimates.shares == pytest.approx((0.6, 0.2, 0.2), abs=0.01)


def test_a_load_that_was_announced_is_no_surprise() -> None:
    def surprised(announced: float) -> bool:
        estimates = Estimates()
        for load in [100] * 60 + [300]:
            estimates = estimates.announced(announced).updated([[*(0,) * 19, load]], 3)
        return estimates.ticks <= estimates.surprised_until

    assert [surprised(peak) for peak in (0.0, 200.0, 300.0)] == [True, True, False]


def test_an_announcement_can_be_repeated_and_withdrawn() -> None:
    with_peak = Estimates().announced(300.0)
    assert with_peak.announced(300.0) is with_peak
    assert with_peak.announced(0.0) == Estimates()


def test_a_jump_to_the_peak_is_remembered() -> None:
    estimates = Estimates()
    for second in range(60):
        estimates = estimates.updated([[*(0,) * 19, 300 if second % 20 == 19 else 50]], 1)
    assert estimates.jumps.rate > 0.02
    assert 270 < estimates.jumps.peak <= 300


def test_a_jump_is_the_new_level_and_no_error_of_the_forecast() -> None:
    estimates = Estimates()
    for _ in range(30):
        estimates = estimates.updated([[*(0,) * 19, 100]], 1)
    steady = estimates.variance
    estimates = estimates.updated([[*(0,) * 19, 300]], 1)
    assert estimates.forecast(0) == pytest.approx(300)
    assert steady < 20
    assert estimates.variance == pytest.approx(300)  # of a count, not of an error of 200


def test_one_error_of_a_steady_load_is_not_the_usual_one() -> None:
    estimates = Estimates()
    for _ in range(30):
        estimates = estimates.updated([[*(0,) * 19, 300]], 1)
    assert estimates.ahead_variance == 0
    estimates = estimates.updated([[*(0,) * 19, 60]], 1)
    assert estimates.ahead_variance == pytest.approx(AHEAD_VARIANCE_GAIN * 240**2)


def test_the_error_of_a_jump_says_nothing_about_later_bursts_where_each_can_be_answered() -> None:
    known, unknown = Estimates(), Estimates()
    for second in range(60):
        slots = [[*(0,) * 19, 300 if second >= 30 else 60]]
        known, unknown = known.updated(slots, 1, in_time=True), unknown.updated(slots, 1)
        if second == 30:
            assert known.jumps.jumped and known.jumps == unknown.jumps
    assert known.ahead_variance < 1
    assert unknown.ahead_variance > 100
