"""M/M/s/K over time: its limit is the steady state, its parts are those of simpler formulas."""

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.queueing.mmsk import probabilities
from controller.queueing.mmsk_over_time import LARGEST_STATE, late_probabilities, transition

QUEUES = st.tuples(st.floats(0.1, 300), st.floats(0.5, 20), st.integers(1, 12), st.integers(1, 50))


@settings(max_examples=20, deadline=None)
@given(queue=QUEUES)
def test_after_a_long_time_every_row_is_the_steady_state(queue: tuple[float, float, int, int]) -> None:
    rate, service, servers, capacity = queue
    after = transition(rate, service, servers, capacity, 1e4)
    assert after == pytest.approx(np.tile(probabilities(rate, service, servers, capacity), (capacity + 1, 1)), abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(queue=QUEUES, time=st.floats(0, 3))
def test_twice_the_time_is_the_step_applied_twice(queue: tuple[float, float, int, int], time: float) -> None:
    once = transition(*queue, time)
    assert once.sum(axis=1) == pytest.approx(1)
    assert (once >= 0).all()
    assert once @ once == pytest.approx(transition(*queue, 2 * time), abs=1e-9)


def test_a_queue_for_one_event_without_arrivals_empties_exponentially() -> None:
    assert transition(0.0, 2.0, 1, 1, 0.5)[1, 1] == pytest.approx(exp(-1))
    assert transition(0.0, 2.0, 0, 3, 9.0) == pytest.approx(np.eye(4))
    assert transition(5.0, 2.0, 0, 2, 100.0)[0] == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("servers", [1, 2, 3, 10])
def test_late_is_what_sums_of_exponential_times_say(servers: int) -> None:
    late = late_probabilities(10.0, servers, 50, 0.5)
    rng = np.random.default_rng(1)
    for found in (0, servers, servers + 5, 49):
        waits = max(0, found - servers + 1)
        drawn_s = rng.exponential(0.1, 200_000) + rng.gamma(waits or 1e-9, 1 / (10.0 * servers), 200_000)
        assert late[found] == pytest.approx(float(np.mean(drawn_s > 0.5)), abs=0.005)
    assert late[50] == 1
    assert (np.diff(late) >= -1e-12).all()


def test_without_servers_everything_is_late_and_with_one_for_each_event_nothing_waits() -> None:
    assert late_probabilities(10.0, 0, 3, 0.5) == pytest.approx([1, 1, 1, 1])
    assert late_probabilities(10.0, 9, 3, 0.5) == pytest.approx([exp(-5), exp(-5), exp(-5), 1])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((1.0, 1.0, 1, LARGEST_STATE + 1, 1.0), "capacity=301"),
        ((1.0, 1.0, 1, 5, -1.0), "time=-1"),
        ((-1.0, 1.0, 1, 5, 1.0), "arrival_rate=-1"),
    ],
)
def test_values_that_describe_no_queue_are_refused(values: tuple[float, float, int, int, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        transition(*values)
