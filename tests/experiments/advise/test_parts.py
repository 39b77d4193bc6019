"""The excerpt of a long first part stands for all of it, and each part has enough events for a proof."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from experiments.advise.parts import (
    EXCERPT_S,
    LEAD_IN_VARIES_S,
    Span,
    confirming_of,
    excerpt_of,
    lead_in_of,
    least_events,
    varied_s,
)
from experiments.advise.request import AdviceRequest
from experiments.advise.session import prepare
from penstock.errors import PenstockError
from penstock.schedule import Schedule

RatesFile = Callable[[Iterable[float]], Path]


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
    ("span", "varied", "lead_in"),
    [
        ((300, 600), 0, (240, 300)),
        ((300, 600), 59, (181, 300)),
        ((0, 300), 10, (0, 70)),
        ((20, 300), 10, (20, 90)),
        ((0, 40), 0, (0, 40)),
        ((0, 40), 30, (0, 30)),
        ((80, 200), 26, (26, 80)),
    ],
    ids=[
        "the minute before",
        "almost two minutes before",
        "begin of the trace",
        "less than a minute before",
        "a short part",
        "a short part by another seed",
        "no longer than what is before",
    ],
)
def test_the_lead_in_is_the_time_before_or_the_parts_own_first_seconds(span: Span, varied: int, lead_in: Span) -> None:
    assert lead_in_of(span, varied) == lead_in


@pytest.mark.parametrize("interval_s", [2, 5, 10, 15, 30, 60])
def test_ticks_of_any_usual_interval_meet_a_load_at_another_time_by_each_seed(interval_s: int) -> None:
    for first in range(1, 100):
        proving, all_of_them = ({varied_s(first + number) % interval_s for number in range(n)} for n in (3, 9))
        assert len(proving) == min(3, interval_s) and len(all_of_them) >= min(9, interval_s)
    assert all(0 <= varied_s(seed) < LEAD_IN_VARIES_S for seed in range(1000))


def test_the_same_events_are_counted_by_each_seed(rates_file: RatesFile, tmp_path: Path) -> None:
    """The lead-in differs, the part does not."""
    request = AdviceRequest(trace=rates_file([100.0] * 150 + [300.0] * 150), slo=0.5, scalers="rps")
    rest = prepare(request, tmp_path).parts["rest"]
    assert len({each.lead_in_s for each in rest.arrivals.values()}) > 1
    for file, lead_in_s in rest.arrivals.values():
        schedule = Schedule.read(file)
        assert schedule.duration_s == lead_in_s + 150
        offset_s = schedule.intended_offset_ns / 1e9
        assert (offset_s < lead_in_s).sum() == pytest.approx(100 * lead_in_s, rel=0.02)
        assert (offset_s >= lead_in_s).sum() == pytest.approx(300 * 150, rel=0.02)


@pytest.mark.parametrize(("seconds", "seeds"), [(600, 18), (2400, 9), (21_600, 6)], ids=["short", "long", "excerpt"])
def test_more_seeds_confirm_on_short_parts(rates_file: RatesFile, tmp_path: Path, seconds: int, seeds: int) -> None:
    session = prepare(AdviceRequest(trace=rates_file([20.0] * seconds), slo=0.5, scalers="rps"), tmp_path)
    assert list(session.parts["rest"].arrivals) == list(range(1, seeds + 1))
    assert confirming_of(session.request, session.parts) == list(range(4, seeds + 1))


@pytest.mark.parametrize(("wanted", "least"), [(0.99, 100), (0.9, 10), (0.999, 1000), (0.95, 20), (0.5, 2)])
def test_one_late_event_of_the_fewest_just_keeps_the_share(wanted: float, least: int) -> None:
    assert least_events(wanted) == least


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([0.0] * 60 + [300.0] * 60, "the first part (0 to 60 s) has 0 events"),
        ([300.0] * 60 + [0.0] * 60, "the rest (60 to 120 s) has 0 events"),
        ([0.5] * 60 + [300.0] * 60, "can be proven on 100 at least; give another --chosen-on, or a longer trace"),
    ],
    ids=["none at first", "none at last", "few"],
)
def test_a_part_without_enough_events_is_refused(
    tmp_path: Path, rates_file: RatesFile, rates: list[float], said: str
) -> None:
    with pytest.raises(PenstockError) as refused:
        prepare(AdviceRequest(trace=rates_file(rates), slo=0.5, scalers="linear"), tmp_path)
    assert said in str(refused.value).replace("\u00a0", " ")


@pytest.mark.parametrize(("rate_per_s", "used"), [(0.02, False), (0.1, True)])
def test_an_excerpt_without_enough_events_is_not_used(
    tmp_path: Path, rates_file: RatesFile, rate_per_s: float, used: bool
) -> None:
    request = AdviceRequest(trace=rates_file([rate_per_s] * 6 * EXCERPT_S), slo=0.5, scalers="linear", seeds=1)
    assert ("excerpt" in prepare(request, tmp_path).parts) is used
