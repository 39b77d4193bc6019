"""What must hold of the formulas for any input: balance, monotony, special cases, extremes."""

from itertools import pairwise
from math import exp, factorial, inf
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.queueing.erlang import (
    erlang_b,
    erlang_c,
    mmc,
    p_in_system_at_most,
    p_waits_at_most,
    waiting_time_percentile,
)
from controller.queueing.gim import (
    Stream,
    departure_scv,
    gim,
    l_gim_as_printed,
    merge_scv,
    split_scv,
)
from controller.queueing.holt import grid_search, mean_squared_error, smooth
from controller.queueing.mmsk import loss_probability, mmsk, probabilities
from controller.queueing.network import Job, Network, NetworkTopic, decompose, measure
from controller.scalers.lass import Lass, LassParameters


def fewest(arrival_rate: float, time: float) -> int | None:
    """Servers of rate 10 with which 95 % wait no longer than ``time``."""
    return Lass(LassParameters(wait_s=time)).fewest(arrival_rate, 10)


rates = st.floats(0.01, 1000)
scvs = st.floats(0, 5)
shares = st.floats(0, 1)
servers_ = st.integers(1, 30)
queues = st.tuples(rates, rates, servers_, st.integers(1, 80))


# --- M/M/s/K ---------------------------------------------------------------------------------------------------------


@given(queues)
def test_the_probabilities_sum_to_one_and_balance(queue: tuple[float, float, int, int]) -> None:
    arrival_rate, service_rate, servers, capacity = queue
    p = probabilities(*queue)
    assert len(p) == capacity + 1
    assert p.sum() == pytest.approx(1)
    n = np.arange(1, capacity + 1)
    up, down = arrival_rate * p[:-1], np.minimum(n, servers) * service_rate * p[1:]
    normal = p[1:] > 1e-290
    assert up[normal] == pytest.approx(down[normal])


@given(queues)
def test_identities_of_the_steady_state(queue: tuple[float, float, int, int]) -> None:
    arrival_rate, service_rate, servers, capacity = queue
    q = mmsk(*queue)
    assert 0 <= q.p_full <= 1
    assert q.entered_rate <= servers * service_rate * (1 + 1e-12)
    assert q.entered_rate == pytest.approx(arrival_rate * (1 - q.p_full), rel=1e-6, abs=1e-12 * arrival_rate)
    assert q.entered_rate + q.lost_rate == pytest.approx(arrival_rate)
    assert q.in_system - q.waiting == pytest.approx(q.entered_rate / service_rate)
    assert q.in_system <= capacity * (1 + 1e-12)
    assert q.response_time == pytest.approx(q.in_system / q.entered_rate)
    assert q.response_time - q.waiting_time == pytest.approx(1 / service_rate)


@given(queues)
def test_the_printed_closed_form_agrees_away_from_its_pole(queue: tuple[float, float, int, int]) -> None:
    arrival_rate, service_rate, servers, capacity = queue
    a = arrival_rate / service_rate
    rho = a / servers
    assume(servers <= capacity and 0.05 < rho < 0.95 and a < 20)
    p_empty = 1 / (
        1
        + sum(a**n / factorial(n) for n in range(1, servers + 1))
        + a**servers / factorial(servers) * sum(rho ** (n - servers) for n in range(servers + 1, capacity + 1))
    )
    rest = rho ** (capacity - servers)
    waiting = (
        p_empty
        * a**servers
        * rho
        / (factorial(servers) * (1 - rho) ** 2)
        * (1 - rest - (capacity - servers) * rest * (1 - rho))
    )
    found = mmsk(*queue)
    assert found.p_empty == pytest.approx(p_empty)
    assert found.waiting == pytest.approx(waiting, rel=1e-6, abs=1e-9)


@given(queues)
def test_loss_falls_with_servers_and_room_and_grows_with_the_load(queue: tuple[float, float, int, int]) -> None:
    arrival_rate, service_rate, servers, capacity = queue
    loss = loss_probability(*queue)
    slack = 1 + 1e-9
    assert loss_probability(arrival_rate, service_rate, servers + 1, capacity) <= loss * slack
    assert loss_probability(arrival_rate, service_rate, servers, capacity + 1) <= loss * slack
    assert loss_probability(arrival_rate * 1.1, service_rate, servers, capacity) * slack >= loss


@given(queues, st.floats(0.01, 100))
def test_the_unit_of_time_does_not_matter(queue: tuple[float, float, int, int], factor: float) -> None:
    arrival_rate, service_rate, servers, capacity = queue
    one, other = mmsk(*queue), mmsk(arrival_rate * factor, service_rate * factor, servers, capacity)
    assert other.p_full == pytest.approx(one.p_full, rel=1e-9, abs=1e-300)
    assert other.in_system == pytest.approx(one.in_system)
    assert other.waiting == pytest.approx(one.waiting, rel=1e-9, abs=1e-300)
    assert other.response_time * factor == pytest.approx(one.response_time)


@given(rates, rates, servers_)
def test_as_much_room_as_servers_is_erlang_b(arrival_rate: float, service_rate: float, servers: int) -> None:
    found = mmsk(arrival_rate, service_rate, servers, servers)
    assert found.p_full == pytest.approx(erlang_b(arrival_rate / service_rate, servers), rel=1e-9, abs=1e-300)
    assert found.waiting == 0


@given(rates, servers_, st.integers(1, 20))
def test_more_servers_than_room_are_idle(arrival_rate: float, servers: int, capacity: int) -> None:
    assume(servers > capacity)
    found, all_work = mmsk(arrival_rate, 10, servers, capacity), mmsk(arrival_rate, 10, capacity, capacity)
    assert found.p_full == all_work.p_full
    assert found.in_system == all_work.in_system


@given(st.floats(0.05, 0.9), servers_)
def test_much_room_is_m_m_c(utilisation: float, servers: int) -> None:
    bounded, unbounded = mmsk(utilisation * servers, 1, servers, 2000), mmc(utilisation * servers, 1, servers)
    assert bounded.waiting == pytest.approx(unbounded.waiting, rel=1e-9, abs=1e-300)
    assert bounded.response_time == pytest.approx(unbounded.response_time)


@given(st.floats(0.05, 5), st.integers(1, 60))
def test_one_server_is_geometric(rho: float, capacity: int) -> None:
    assume(abs(rho - 1) > 0.01)
    n = np.arange(capacity + 1)
    assert probabilities(rho, 1, 1, capacity) == pytest.approx((1 - rho) * rho**n / (1 - rho ** (capacity + 1)))


@pytest.mark.parametrize("servers", [1, 5, 40])
def test_nothing_jumps_at_full_load(servers: int) -> None:
    at = mmsk(servers, 1, servers, 200)
    for utilisation in (1 - 1e-7, 1 + 1e-7):
        near = mmsk(utilisation * servers, 1, servers, 200)
        for name in ("p_full", "waiting", "in_system", "response_time"):
            assert getattr(near, name) == pytest.approx(getattr(at, name), rel=2e-5)
            assert getattr(near, name) != getattr(at, name)


def test_the_limit_of_the_queue_at_full_load() -> None:
    a, servers, capacity = 5, 5, 60
    found = mmsk(a, 1, servers, capacity)
    room = capacity - servers
    limit = found.p_empty * a**servers / factorial(servers) * room * (room + 1) / 2  # Q4
    assert found.waiting == pytest.approx(limit)


@given(st.floats(1.2, 5), servers_)
def test_overload_of_a_large_queue(rho: float, servers: int) -> None:
    found = mmsk(rho * servers, 1, servers, 5000)
    assert found.p_full == pytest.approx(1 - 1 / rho)
    assert found.waiting == pytest.approx(5000 - servers - 1 / (rho - 1))


@pytest.mark.parametrize("utilisation", [0.1, 0.999, 1.0, 1.001, 30.0])
def test_a_hundred_thousand_servers_and_places(utilisation: float) -> None:
    servers = 100_000
    found = mmsk(utilisation * servers * 7, 7, servers, servers)
    assert found.p_full == pytest.approx(erlang_b(utilisation * servers, servers), rel=1e-8, abs=1e-12)
    p = probabilities(utilisation * 700, 7, 100, servers)
    assert np.isfinite(p).all()
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("queue", "named"),
    [
        ((-1, 1, 1, 1), "arrival_rate=-1"),
        ((inf, 1, 1, 1), "arrival_rate=inf"),
        ((1, 0, 1, 1), "service_rate=0"),
        ((1, float("nan"), 1, 1), "service_rate=nan"),
        ((1e300, 1e-300, 1, 1), "their ratio"),
        ((1, 1, -1, 1), "servers=-1"),
        ((1, 1, 1, 0), "capacity=0"),
        ((1, 1, 1, 10**9), "capacity=1000000000"),
    ],
)
def test_what_is_no_queue_is_named(queue: tuple[float, float, int, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        mmsk(*queue)


# --- Erlang, M/M/c ---------------------------------------------------------------------------------------------------


def test_special_cases_of_erlang() -> None:
    assert [erlang_b(0, c) for c in (0, 1, 5)] == [1, 0, 0]
    assert erlang_b(3, 0) == 1
    assert erlang_b(2, 1) == pytest.approx(2 / 3)
    assert erlang_c(0.3, 1) == pytest.approx(0.3)
    assert erlang_c(0, 4) == 0
    assert erlang_c(4, 4) == erlang_c(9, 4) == 1
    assert mmc(3, 1, 2).response_time == mmc(0, 1, 0).response_time == inf
    assert mmc(0, 4, 2).response_time == 0.25


@given(st.floats(0.01, 0.99), st.integers(1, 300))
def test_waiting_is_likelier_than_being_blocked_and_falls_with_servers(rho: float, servers: int) -> None:
    a = rho * servers
    assert 0 <= erlang_b(a, servers) <= erlang_c(a, servers) <= 1
    assert erlang_b(a, servers + 1) <= erlang_b(a, servers)
    assert erlang_c(a, servers + 1) <= erlang_c(a, servers)


def test_a_hundred_thousand_servers_of_erlang() -> None:
    assert 0 < erlang_b(99_900, 100_000) < erlang_c(99_900, 100_000) < 1
    # Square-root staffing (Halfin, Whitt): c = a + √a makes nearly 0.223 of the events wait.
    assert erlang_c(99_684.3, 100_000) == pytest.approx(0.2234, abs=0.001)


@given(st.floats(0.01, 0.99), servers_, st.floats(0.01, 100), st.floats(0, 0.999))
def test_the_percentile_inverts_the_distribution(rho: float, servers: int, service_rate: float, p: float) -> None:
    arrival_rate = rho * servers * service_rate
    time = waiting_time_percentile(arrival_rate, service_rate, servers, p)
    reached = p_waits_at_most(arrival_rate, service_rate, servers, time)
    assert reached == pytest.approx(p) if time > 0 else reached >= p
    assert p_waits_at_most(arrival_rate, service_rate, servers, -1e-9) == 0


@given(st.floats(0.05, 0.95), servers_)
def test_the_distribution_of_the_wait_has_its_mean(rho: float, servers: int) -> None:
    found = mmc(rho * servers, 1, servers)
    times = np.linspace(0, 60 / (servers * (1 - rho)), 20_001)
    late = np.array([1 - p_waits_at_most(rho * servers, 1, servers, float(t)) for t in times[::100]])
    assert np.trapezoid(late, times[::100]) == pytest.approx(found.waiting_time, rel=0.02)
    assert found.waiting == pytest.approx(rho * servers * found.waiting_time)


@given(st.floats(0.05, 0.95), servers_)
def test_the_distribution_of_the_number_in_the_system(rho: float, servers: int) -> None:
    reference = np.cumsum(probabilities(rho * servers, 1, servers, 2000))
    for n in (0, 1, servers - 2, servers - 1, servers, servers + 7):
        expected = reference[n] if n >= 0 else 0
        assert p_in_system_at_most(rho * servers, servers, n) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.floats(0.1, 500), st.floats(0.001, 1))
def test_servers_for_a_wait_are_enough_and_one_less_is_not(arrival_rate: float, time: float) -> None:
    found = fewest(arrival_rate, time)
    assert found is not None
    assert p_waits_at_most(arrival_rate, 10, found, time) >= 0.95
    assert found == 1 or p_waits_at_most(arrival_rate, 10, found - 1, time) < 0.95
    more = fewest(arrival_rate * 1.2, time)
    assert more is not None
    assert more >= found


def test_overload_has_no_servers_and_no_percentile() -> None:
    assert fewest(2000, 0.1) is None
    assert waiting_time_percentile(10, 10, 1, 0.5) == inf
    assert p_waits_at_most(10, 10, 1, 1e9) == 0


# --- GI/G/m ----------------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 0.99), servers_, rates)
def test_exponential_times_give_m_m_m(rho: float, servers: int, service_rate: float) -> None:
    arrival_rate = rho * servers * service_rate
    exponential = gim(arrival_rate, 1, service_rate, 1, servers)
    assert exponential.in_system == pytest.approx(mmc(arrival_rate, service_rate, servers).in_system)
    assert exponential.response_time == pytest.approx(mmc(arrival_rate, service_rate, servers).response_time)
    steady = gim(arrival_rate, 0, service_rate, 0, servers)
    assert steady.in_system == pytest.approx(arrival_rate / service_rate)


@given(st.floats(0.01, 0.95), scvs, scvs, servers_, st.floats(0.1, 60))
def test_eq_2_knows_no_unit_of_time_but_as_printed_it_does(
    rho: float, arrival_scv: float, service_scv: float, servers: int, factor: float
) -> None:
    arrival_rate = rho * servers
    one = gim(arrival_rate, arrival_scv, 1, service_scv, servers)
    other = gim(arrival_rate * factor, arrival_scv, factor, service_scv, servers)
    assert other.in_system == pytest.approx(one.in_system)
    assert other.response_time * factor == pytest.approx(one.response_time)
    assert one.in_system == pytest.approx(arrival_rate * one.response_time)  # Little
    queue = one.waiting
    printed, scaled = (
        l_gim_as_printed(arrival_rate * f, arrival_scv, f, service_scv, servers) - arrival_rate for f in (1.0, factor)
    )
    assert printed == pytest.approx(queue * arrival_rate, rel=1e-6, abs=1e-9)
    assert scaled == pytest.approx(queue * arrival_rate * factor, rel=1e-6, abs=1e-9 * factor)  # erratum G1


@given(st.floats(0.05, 0.95), servers_, scvs, scvs)
def test_variability_lengthens_the_queue(rho: float, servers: int, arrival_scv: float, service_scv: float) -> None:
    base = gim(rho * servers, arrival_scv, 1, service_scv, servers).waiting
    assert gim(rho * servers, arrival_scv + 1, 1, service_scv, servers).waiting > base
    assert gim(rho * servers, arrival_scv, 1, service_scv + 1, servers).waiting > base


@given(st.floats(0.1, 20), st.integers(1, 20))
def test_consumers_help_less_and_less(a: float, first: int) -> None:
    numbers = [mmc(a, 1, m).in_system for m in range(first, first + 12)]
    finite = [n for n in numbers if n < inf]
    gains = [one - other for one, other in pairwise(finite)]
    assert all(gain >= -1e-12 for gain in gains)
    assert all(one >= other - 1e-12 for one, other in pairwise(gains))
    assert mmc(a, 1, 400).in_system == pytest.approx(a)


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_overload_is_infinite_whatever_the_variability(servers: int) -> None:
    for scv in (0.0, 1.0):
        found = gim(3.0, scv, 1.0, scv, servers)
        assert found.in_system == found.response_time == found.waiting_time == inf
        assert found.utilisation >= 1
        assert l_gim_as_printed(3.0, scv, 1.0, scv, servers) == inf


@given(st.lists(st.tuples(rates, scvs), min_size=1, max_size=6))
def test_merging_is_a_weighted_mean(streams: list[tuple[float, float]]) -> None:
    merged = merge_scv(Stream(*stream) for stream in streams)
    assert merged.rate == pytest.approx(sum(rate for rate, _ in streams))
    slack = 1e-9
    assert min(scv for _, scv in streams) - slack <= merged.scv <= max(scv for _, scv in streams) + slack
    assert merge_scv(Stream(rate, 0.7) for rate, _ in streams).scv == pytest.approx(0.7)
    assert merge_scv([]) == merge_scv([Stream(0, 3)]) == Stream(0, 1)


@given(scvs, scvs, st.floats(0, 3), st.integers(1, 9), shares)
def test_limits_of_departures_and_splits(
    arrival_scv: float, service_scv: float, rho: float, servers: int, share: float
) -> None:
    assert departure_scv(arrival_scv, service_scv, 0, servers) == pytest.approx(arrival_scv)
    assert departure_scv(arrival_scv, service_scv, 1, 1) == pytest.approx(service_scv)
    assert departure_scv(1, 1, rho, servers) == pytest.approx(1)
    full = departure_scv(arrival_scv, service_scv, 1, servers)
    assert departure_scv(arrival_scv, service_scv, 1 + rho, servers) == full
    assert split_scv(1, service_scv, arrival_scv) == pytest.approx(service_scv)
    assert split_scv(0, service_scv, arrival_scv) == pytest.approx(arrival_scv)
    assert split_scv(share, 1, 1) == pytest.approx(1)


# --- the network -----------------------------------------------------------------------------------------------------

job_rates = st.floats(0, 4, allow_subnormal=False)  # the sums of the test itself lose all digits of subnormal rates
jobs = st.lists(st.tuples(st.text("ABCD", min_size=1, max_size=5), job_rates, scvs), min_size=1, max_size=4)
consumers = st.lists(st.integers(1, 9), min_size=4, max_size=4)
TOPICS = {"A": (4.2, 0.33), "B": (3.7, 0.5), "C": (6.7, 0.4), "D": (5.1, 0.5)}
JobTuples = list[tuple[str, float, float]]


def build(job_types: JobTuples, scv: float | None = None) -> Network:
    return Network(
        topics=tuple(
            NetworkTopic(name=name, service_rate=rate, service_scv=own if scv is None else scv)
            for name, (rate, own) in TOPICS.items()
        ),
        jobs=tuple(
            Job(name=str(i), route=tuple(route), arrival_rate=rate, arrival_scv=own if scv is None else scv)
            for i, (route, rate, own) in enumerate(job_types)
        ),
    )


@given(jobs, consumers)
def test_rates_are_visits_times_arrivals(job_types: JobTuples, m: list[int]) -> None:
    found = decompose(build(job_types), m)
    for index, name in enumerate("ABCD"):
        assert found.arrival_rate[index] == pytest.approx(sum(r.count(name) * rate for r, rate, _ in job_types))
    assert found.arrival_rate == decompose(build(job_types), [1, 1, 1, 1]).arrival_rate


@given(jobs, consumers)
def test_poisson_stays_poisson(job_types: JobTuples, m: list[int]) -> None:
    found = decompose(build(job_types, scv=1.0), m)
    assert found.arrival_scv == pytest.approx([1.0] * 4)
    for steps in found.step_scv:
        assert steps == pytest.approx([1.0] * len(steps))


@given(jobs, consumers, st.randoms())
def test_the_order_of_the_jobs_does_not_matter(job_types: JobTuples, m: list[int], random: Random) -> None:
    order = list(range(len(job_types)))
    random.shuffle(order)
    one, other = decompose(build(job_types), m), decompose(build([job_types[i] for i in order]), m)
    assert other.arrival_scv == pytest.approx(one.arrival_scv)
    for place, i in enumerate(order):
        assert other.step_scv[place] == pytest.approx(one.step_scv[i])


@given(jobs, consumers)
def test_the_answer_satisfies_the_equations(job_types: JobTuples, m: list[int]) -> None:
    network = build(job_types)
    found = decompose(network, m)
    for i, route in enumerate(network.routes()):
        for k, j in enumerate(route[:-1]):
            rate = found.arrival_rate[j]
            departing = departure_scv(found.arrival_scv[j], network.topics[j].service_scv, found.utilisation[j], m[j])
            share = network.jobs[i].arrival_rate / rate if rate > 0 else 0
            assert found.step_scv[i][k + 1] == pytest.approx(split_scv(share, departing, found.step_scv[i][k]))


@given(jobs, consumers)
def test_littles_law_for_the_network(job_types: JobTuples, m: list[int]) -> None:
    found = measure(build(job_types), m)
    total = sum(rate for _, rate, _ in job_types)
    if total == 0 or found.work_in_progress == inf:
        assert (found.response_time == inf) == (found.work_in_progress == inf)
        return
    by_job = sum(rate * time for (_, rate, _), time in zip(job_types, found.job_response_time, strict=True))
    assert found.response_time == pytest.approx(by_job / total)
    assert found.work_in_progress == pytest.approx(sum(topic.in_system for topic in found.topics))


def test_only_jobs_that_pass_an_overloaded_topic_take_for_ever() -> None:
    found = measure(build([("AB", 5.0, 1.0), ("CD", 1.0, 1.0)]), [1, 2, 1, 1])
    assert found.response_time == found.work_in_progress == found.job_response_time[0] == inf
    assert found.job_response_time[1] < 1


def test_a_network_without_arrivals_takes_the_service_times() -> None:
    found = measure(build([("AB", 0.0, 1.0)]), [1, 1, 1, 1])
    assert found.work_in_progress == 0
    assert found.response_time == pytest.approx(1 / 4.2 + 1 / 3.7)


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(ValueError, match=r"route of job 0: \['X'\]"):
        build([("AX", 1, 1)])
    with pytest.raises(ValueError, match="arrival_scv=-1"):
        build([("A", 1, -1)])
    with pytest.raises(ValueError, match=r"consumers=\[1, 1\]"):
        decompose(build([("A", 1, 1)]), [1, 1])
    with pytest.raises(ValueError, match=r"jobs \[\]"):
        build([])


# --- Holt ------------------------------------------------------------------------------------------------------------

values = st.floats(0, 1000)
series_ = st.lists(values, min_size=1, max_size=25)


@given(values, st.integers(1, 30), shares, shares)
def test_a_constant_series_goes_on(value: float, length: int, alpha: float, gamma: float) -> None:
    for init in ("zero", "diff"):
        found = smooth([value] * length, alpha, gamma, init)
        assert found.level == pytest.approx(value)
        assert found.trend == pytest.approx(0, abs=1e-9)
        assert found.rate_ahead(5) == pytest.approx(value, abs=1e-8)


@given(values, st.floats(0, 20), st.integers(2, 30), shares, shares)
def test_a_line_is_continued_exactly(start: float, slope: float, length: int, alpha: float, gamma: float) -> None:
    found = smooth([start + slope * t for t in range(length)], alpha, gamma, "diff")
    for steps in (1, 3):
        assert found.ahead(steps) == pytest.approx(start + slope * (length - 1 + steps), abs=1e-6)


@given(series_)
def test_extreme_parameters(series: list[float]) -> None:
    assert smooth(series, 1, 0).ahead() == pytest.approx(series[-1])
    assert smooth(series, 0, 0).ahead() == pytest.approx(series[0])
    assert smooth(series, 1, 1).trend == pytest.approx(series[-1] - series[-2] if len(series) > 1 else 0, abs=1e-9)


@given(series_, shares, shares)
def test_a_rate_is_never_negative(series: list[float], alpha: float, gamma: float) -> None:
    found = smooth(series, alpha, gamma, "diff")
    assert found.rate_ahead(3) == max(0.0, found.ahead(3))


@given(series_)
def test_no_pair_of_the_grid_is_better_than_the_best(series: list[float]) -> None:
    grid = [0.1, 0.5, 0.9]
    best = grid_search(series, reversed(grid), iter(grid))
    if best.mean_squared_error is None:
        assert (best.alpha, best.gamma, len(series)) == (0.1, 0.1, 1)
        return
    for alpha in grid:
        for gamma in grid:
            error = mean_squared_error(series, alpha, gamma)
            assert error is not None
            assert error >= best.mean_squared_error * (1 - 1e-9) - 1e-9


@given(values, st.integers(2, 12))
def test_ties_go_to_the_lowest_pair(value: float, length: int) -> None:
    best = grid_search([value] * length, [0.3, 0.7, 0.1], [0.9, 0.2])
    assert (best.alpha, best.gamma) == (0.1, 0.2)


def test_what_cannot_be_smoothed_is_named() -> None:
    with pytest.raises(ValueError, match=r"alpha=1\.1"):
        smooth([1.0], 1.1, 0.5)
    with pytest.raises(ValueError, match="nan"):
        smooth([1.0, float("nan")], 0.5, 0.5)
    with pytest.raises(ValueError, match="empty grid"):
        grid_search([1.0], [], [0.5])


def test_the_waiting_time_distribution_is_exponential_beyond_zero() -> None:
    waits, spare = erlang_c(8.0, 10), 2.0
    for time in (0.0, 0.3, 1.0):
        assert p_waits_at_most(8.0, 1.0, 10, time) == pytest.approx(1 - waits * exp(-spare * time))
