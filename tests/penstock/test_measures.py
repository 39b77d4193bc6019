"""Measures against small cases worked by hand, and the properties that reports rely on."""

import math
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import ReplicaEvent
from penstock.measures import (
    BUCKET_FLOOR_S,
    BUCKET_RATIO,
    LATE_SHARE,
    NEVER,
    PERCENTILES,
    Bools,
    Floats,
    Ints,
    bootstrap_interval,
    bucket_of,
    bucket_upper_s,
    completions,
    conservation,
    histogram,
    histogram_percentiles,
    late_spans,
    merged,
    missed_seconds,
    nearest_ranks,
    percentiles_s,
    replica_seconds,
    replicas_over_time,
    scale_counts,
    slo_share,
)

latencies = st.lists(st.floats(1e-7, 1e4), min_size=1, max_size=200).map(np.asarray)


def ids(*values: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.asarray(values, dtype=np.int64)


@given(latencies)
def test_histogram_percentiles_lie_in_the_bucket_of_the_exact_ones(latency_s: Floats) -> None:
    exact = percentiles_s(latency_s)
    buckets, counts = histogram(latency_s)
    assert histogram_percentiles(buckets, counts).tolist() == bucket_of(exact).tolist()


@given(latencies, latencies)
def test_histograms_of_two_halves_add_up_to_the_histogram_of_the_whole(a: Floats, b: Floats) -> None:
    whole = dict(zip(*(part.tolist() for part in histogram(np.concatenate([a, b]))), strict=True))
    halves: dict[int, int] = {}
    for part in (a, b):
        for bucket, count in zip(*histogram(part), strict=True):
            halves[int(bucket)] = halves.get(int(bucket), 0) + int(count)
    assert halves == whole


def test_a_bucket_holds_its_upper_bound_and_not_the_next_value() -> None:
    for bucket in (1, 2, 500, 1400):
        upper = float(bucket_upper_s(bucket))
        assert bucket_of(upper) == bucket
        assert bucket_of(upper * 1.001) == bucket + 1


def test_values_at_or_below_the_floor_and_negative_ones_are_in_bucket_zero() -> None:
    assert bucket_of([BUCKET_FLOOR_S, 0.0, -3.0]).tolist() == [0, 0, 0]
    assert bucket_upper_s(0) == BUCKET_FLOOR_S
    assert BUCKET_RATIO == 1.01


def test_percentiles_are_nearest_rank() -> None:
    values = np.arange(1.0, 101.0)
    assert percentiles_s(values, PERCENTILES).tolist() == [50, 90, 95, 99, 100]
    assert np.isnan(percentiles_s(np.empty(0))).all()


def test_the_earliest_terminal_result_of_an_event_counts_and_the_others_are_redeliveries() -> None:
    found = completions(
        event_id=ids(7, 3, 7),
        intended_ns=ids(0, 0, 0),
        sent_ns=ids(10, 20, 10),
        started_ns=ids(30, 40, 35),
        finished_ns=ids(2_000_000_000, 500_000_000, 1_000_000_000),
    )
    assert found.event_id.tolist() == [3, 7]
    assert found.latency_s.tolist() == [0.5, 1.0]
    assert found.redelivered == 1


def test_slo_share_counts_equality_as_met_and_lost_events_as_missed() -> None:
    latency_s = np.asarray([0.5, 0.50001, 0.1])
    assert slo_share(latency_s, 0.5) == pytest.approx(2 / 3)
    assert slo_share(latency_s, 0.5, due=4) == 0.5
    assert math.isnan(slo_share(np.empty(0), 0.5))


SECOND = 1_000_000_000
START_NS = 7 * SECOND


def missed(
    events: list[tuple[float, float]],
    unfinished: list[tuple[float, float]] | None = None,
    *,
    slo_s: float = 0.5,
    duration_s: float = 6.0,
) -> list[int]:
    """The seconds missed by completed events of (intended, finished) s and by others of (intended, ended) s."""

    def at_ns(pairs: list[tuple[float, float]]) -> Ints:
        times = [[NEVER if at_s == math.inf else START_NS + round(at_s * SECOND) for at_s in pair] for pair in pairs]
        return np.asarray(times, dtype=np.int64).reshape(-1, 2).T

    intended, finished = at_ns(events)
    done = completions(np.arange(len(events)), intended, intended, intended, finished)
    found = missed_seconds(done, at_ns(unfinished or []), slo_s=slo_s, start_ns=START_NS, duration_s=duration_s)
    assert len(found) == math.ceil(duration_s)
    return np.flatnonzero(found).tolist()


def test_a_second_missed_the_slo_if_more_than_one_in_a_hundred_of_its_events_did() -> None:
    quick, late = (1.0, 1.1), (1.0, 1.6)
    assert missed([quick] * 99 + [late]) == missed([(0.0, 0.1)] * 99 + [(0.0, 0.6)]) == []
    assert missed([quick] * 98 + [late] * 2) == [1]
    assert missed([quick] * 98 + [late]) == [1]
    assert missed([(1.0, 1.5)]) == [] and missed([(1.0, 1.501)]) == [1]


def test_seconds_of_a_stall_missed_the_slo_although_nothing_completed_in_them() -> None:
    stalled = [(at_s, 4.5) for at_s in (0.0, 1.0, 2.0, 3.0, 4.0)]
    assert missed(stalled) == [0, 1, 2, 3, 4]
    assert missed([(1.9, 4.5), (0.0, 0.1)]) == [1, 2, 3, 4]
    assert missed([(0.2, 2.9), (5.1, 5.2)]) == [0, 1, 2]
    assert missed([(0.2, 2.9), (1.5, 1.6)]) == [0, 2]


def test_a_second_without_an_event_or_with_one_that_is_in_time_did_not_miss_the_slo() -> None:
    assert missed([(0.0, 0.1), (5.0, 5.1)]) == []
    assert missed([(0.0, 3.5)], slo_s=4.0) == []


def test_an_event_that_never_ends_misses_every_second_in_which_nothing_completes() -> None:
    assert missed([(4.0, 4.1)], [(2.5, math.inf)]) == [2, 3, 5]
    assert missed([], [(2.5, 2.6)]) == [2]
    assert missed([], [(2.5, 3.0)]) == [2, 3]


def test_no_more_seconds_are_missed_than_the_schedule_has() -> None:
    assert missed([(5.9, 9.5), (-0.5, 0.5)]) == [0, 5]
    assert missed([(0.0, 8.0)], [(7.0, math.inf)], duration_s=2.5) == [0, 1, 2]
    assert missed([], [(-3.0, -2.0)]) == missed([(-3.0, -2.0)]) == []


LIFE = [
    ReplicaEvent("f", "f-1", "requested", 0),
    ReplicaEvent("f", "f-2", "requested", 2 * SECOND),
    ReplicaEvent("f", "f-2", "joined", 3 * SECOND),
    ReplicaEvent("f", "f-2", "draining", 5 * SECOND),
    ReplicaEvent("f", "f-2", "gone", 6 * SECOND),
]


def test_replica_time_runs_from_requested_to_gone_within_the_run() -> None:
    assert replica_seconds(LIFE, 0, 10 * SECOND) == 10 + 4
    assert replica_seconds(LIFE, 3 * SECOND, 10 * SECOND) == 7 + 3
    assert replica_seconds(LIFE, 0, 4 * SECOND) == 4 + 2


def test_replicas_over_time_is_a_step_function() -> None:
    times, counts = replicas_over_time(LIFE)
    assert times.tolist() == [0, 2 * SECOND, 6 * SECOND]
    assert counts.tolist() == [1, 2, 1]


def test_scale_counts_give_actions_and_replicas() -> None:
    counts = scale_counts([("up", 1, 3), ("none", 3, 3), ("down", 3, 2), ("reassign", 2, 2), ("up", 2, 2)])
    assert (counts.up_actions, counts.replicas_added, counts.down_actions, counts.replicas_removed) == (1, 2, 1, 1)
    assert counts.reassignments == 1


def test_conservation_of_a_run_in_which_nothing_went_wrong() -> None:
    balance = conservation(
        scheduled=4,
        acknowledged=ids(0, 1, 2, 3),
        booked=ids(0, 1, 2, 3),
        results={"completed": ids(0, 1, 2, 3)},
        result_rows=5,
    )
    assert balance.exact
    assert balance.redelivered == 1
    assert not msgspec.structs.replace(balance, lost=1).exact
    assert not msgspec.structs.replace(balance, agree=False).exact


@pytest.mark.parametrize(
    ("acknowledged", "booked", "completed", "what"),
    [
        ((0, 1, 2), (0, 1), (0, 1), "acknowledged without a result: 1"),
        ((0, 1), (0, 1), (0, 1, 2), "result without acknowledgement: 1"),
        ((0, 1, 2), (0, 1), (0, 1, 2), "completed but not in the ledger: 1"),
        ((0, 1), (0, 1, 2), (0, 1), "in the ledger without a completed result: 1"),
    ],
)
def test_counts_that_disagree_are_named_with_their_first_ids(
    acknowledged: tuple[int, ...], booked: tuple[int, ...], completed: tuple[int, ...], what: str
) -> None:
    balance = conservation(
        scheduled=3,
        acknowledged=ids(*acknowledged),
        booked=ids(*booked),
        results={"completed": ids(*completed)},
        result_rows=len(completed),
    )
    assert not balance.exact
    assert any(text.startswith(what) and "2" in text for text in balance.disagreements)


event_ids = st.lists(st.integers(-3, 12)).map(lambda values: np.asarray(values, dtype=np.int64))


@given(st.integers(0, 9), event_ids, event_ids, event_ids, event_ids)
def test_balances_count_distinct_ids_whatever_is_there_twice_or_foreign(
    scheduled: int, acknowledged: Ints, booked: Ints, completed: Ints, failed: Ints
) -> None:
    """Against the plain definition, in sets."""
    schedule, ledger = set(range(scheduled)), set(booked.tolist())
    acked, done = (set(values.tolist()) & schedule for values in (acknowledged, completed))
    only_failed = (set(failed.tolist()) & schedule) - done
    answered = done | only_failed
    balance = conservation(
        scheduled=scheduled,
        acknowledged=acknowledged,
        booked=booked,
        results={"completed": completed, "failed": failed},
        result_rows=len(completed) + len(failed),
    )
    assert balance.booked == len(ledger)
    assert (balance.acknowledged, balance.never_sent) == (len(acked), scheduled - len(acked))
    assert (balance.completed, balance.failed) == (len(done), len(only_failed))
    assert balance.lost == len(acked - answered)
    assert balance.redelivered == len(completed) + len(failed) - len(answered)
    assert balance.agree == (acked == answered and ledger == done)


@given(st.integers(1, 10**7), st.sampled_from([*PERCENTILES, 0.1, 99.99, 100.0]))
def test_the_rank_of_a_percentile_is_the_least_that_covers_its_share(count: int, percentile: float) -> None:
    (rank,) = nearest_ranks(count, (percentile,)).tolist()
    share = Decimal(str(percentile)) / 100
    assert rank >= share * count
    assert rank == 1 or rank - 1 < share * count


def test_events_known_to_be_waiting_are_in_flight_and_not_lost() -> None:
    balance = conservation(
        scheduled=3, acknowledged=ids(0, 1, 2), booked=ids(0), results={"completed": ids(0)}, result_rows=1, in_flight=2
    )
    assert (balance.in_flight, balance.lost, balance.agree) == (2, 0, True)
    answered = conservation(
        scheduled=1, acknowledged=ids(0), booked=ids(0), results={"completed": ids(0)}, result_rows=1, in_flight=2
    )
    assert (answered.completed, answered.in_flight, answered.lost, answered.agree) == (1, 0, 0, True)


def test_five_ids_of_those_that_disagree_are_named() -> None:
    balance = conservation(scheduled=6, acknowledged=ids(*range(6)), booked=ids(), results={}, result_rows=0)
    assert balance.disagreements == ("acknowledged without a result: 6 (first ids 0, 1, 2, 3, 4)",)
    assert (balance.completed, balance.lost, balance.foreign, balance.in_flight) == (0, 6, 0, 0)


def test_a_bootstrap_interval_contains_the_mean_and_is_the_same_each_time() -> None:
    values = [0.971, 0.973, 0.978]
    low, high = bootstrap_interval(values)
    assert low <= sum(values) / 3 <= high
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval([0.9]) == (0.9, 0.9)


def test_late_times_that_follow_each_other_closely_are_one_period() -> None:
    assert merged([(1.0, 1.5), (4.5, 5.0), (8.1, 9.0)]) == [(1.0, 5.0), (8.1, 9.0)]
    assert merged([]) == []


def late_spans_second_by_second(intended_s: Floats, late: Bools) -> list[tuple[float, float]]:
    """The definition, word for word."""
    second = np.floor(intended_s)
    spans = []
    for each in np.unique(second).tolist():
        times_s = intended_s[(second == each) & late]
        if len(times_s) > LATE_SHARE * np.count_nonzero(second == each):
            spans.append((float(times_s.min()), float(times_s.max())))
    return spans


@given(st.integers(0, 1200), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_late_spans_are_those_of_every_second_by_itself(events: int, share: float, seed: int) -> None:
    draws = np.random.default_rng(seed)
    intended_s, late = draws.uniform(-1, 4, events), draws.random(events) < share**6
    assert late_spans(intended_s, late) == late_spans_second_by_second(intended_s, late)


def test_a_second_is_disturbed_by_more_than_one_late_event_in_a_hundred() -> None:
    intended_s = np.arange(300) / 100
    late = np.isin(np.arange(300), (110, 250, 251))
    assert late_spans(intended_s, late) == [(2.5, 2.51)]


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements that are calculated with."""

    elements = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.elements += max(np.size(each) for each in inputs)
        plain = [each.view(np.ndarray) if isinstance(each, Counted) else each for each in inputs]
        found = getattr(ufunc, method)(*plain, **options)
        return found.view(Counted) if isinstance(found, np.ndarray) else found


def test_late_spans_look_at_an_event_as_often_however_many_seconds_there_are() -> None:
    intended_s = np.arange(1000.0).view(Counted)
    Counted.elements = 0
    assert len(late_spans(intended_s, np.ones(1000, dtype=np.bool_))) == 1000
    assert 0 < Counted.elements < 20 * len(intended_s)
