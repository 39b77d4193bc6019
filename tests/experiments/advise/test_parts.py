"""The excerpt of a long first part stands for all of it."""

import itertools

import numpy as np
import pytest

from experiments.advise.parts import EXCERPT_S, Span, excerpt_of, lead_in_of


def test_a_short_load_has_none() -> None:
    assert excerpt_of(np.ones(3 * EXCERPT_S - 1)) == []


@pytest.mark.parametrize(("seconds", "length_s"), [(10_800, 3600), (86_400, 7200)])
def test_it_is_whole_blocks_in_order_of_time(seconds: int, length_s: int) -> None:
    spans = excerpt_of(np.random.default_rng(1).uniform(0, 100, seconds))
    assert sum(to_s - from_s for from_s, to_s in spans) == length_s
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert spans[-1][1] <= seconds


def test_spikes_are_as_frequent_as_in_the_whole() -> None:
    rate_per_s = np.full(43_200, 100.0)
    spikes = np.zeros(43_200, bool)
    for hour in range(12):
        spikes[3600 * hour + 1000 : 3600 * hour + 1060] = True
    rate_per_s[spikes] = 700.0
    taken = np.concatenate([spikes[from_s:to_s] for from_s, to_s in excerpt_of(rate_per_s)])
    assert taken.sum() == 60, "one of twelve in a twelfth of the time"


@pytest.mark.parametrize(
    ("span", "lead_in"),
    [((300, 600), (240, 300)), ((0, 300), (0, 60)), ((20, 300), (20, 80)), ((0, 40), (0, 40))],
    ids=["the minute before", "begin of the trace", "less than a minute before", "a short part"],
)
def test_the_lead_in_is_the_minute_before_or_the_first_one(span: Span, lead_in: Span) -> None:
    assert lead_in_of(span) == lead_in
