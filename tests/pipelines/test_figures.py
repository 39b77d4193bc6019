import numpy as np
import pytest

from penstock.measures import bucket_of, bucket_upper_s, percentiles_s
from pipelines.figures import NO_LATENCY, ResultColumns, StageFigures

SECOND = 1_000_000_000


def columns(
    event_id: list[int], finished_ns: list[int], latency_s: list[float], *, stage: str = "payments", slo_s: float = 0.5
) -> ResultColumns:
    """NaN as latency: the event failed."""
    latency = np.asarray(latency_s)
    failed = np.isnan(latency)
    return ResultColumns(
        stage=np.full(len(event_id), stage, dtype=object),
        event_id=np.asarray(event_id, dtype=np.int64),
        finished_ns=np.asarray(finished_ns, dtype=np.int64),
        bucket=np.where(failed, NO_LATENCY, bucket_of(np.nan_to_num(latency))),
        met=latency <= slo_s,
    )


def test_per_second_percentiles_lie_in_the_bucket_of_the_exact_ones_whatever_the_batches() -> None:
    rng = np.random.default_rng(3)
    events = 3000
    finished_ns = rng.integers(100 * SECOND, 104 * SECOND, events)
    latency_s = np.round(rng.lognormal(-2, 1, events), 9)
    order = np.concatenate((rng.permutation(events), rng.integers(0, events, 300)))
    figures = StageFigures()
    for batch, rows in enumerate(np.array_split(order, 9)):
        figures.merge(batch, columns(rows.tolist(), finished_ns[rows].tolist(), latency_s[rows].tolist()))
    assert figures.totals["payments"].completed == events
    for second in range(100, 104):
        exact = latency_s[finished_ns // SECOND == second]
        found = figures.seconds["payments", second].figures
        assert found.completed == len(exact)
        assert found.met == np.count_nonzero(exact <= 0.5)
        np.testing.assert_array_equal(found.percentiles_s(), bucket_upper_s(bucket_of(percentiles_s(exact))))


def test_an_earlier_result_that_comes_later_moves_the_event_to_its_second() -> None:
    figures = StageFigures()
    figures.merge(0, columns([1], [102 * SECOND], [2.0]))
    figures.merge(1, columns([1], [100 * SECOND], [0.1]))
    assert figures.seconds["payments", 102].figures.completed == 0
    assert figures.seconds["payments", 102].figures.percentiles_s() is None
    assert figures.seconds["payments", 100].figures.met == 1
    assert figures.totals["payments"].histogram()[1].tolist() == [1]


def test_a_batch_that_is_run_again_is_left_out() -> None:
    figures = StageFigures()
    batch = columns([1, 2], [100 * SECOND] * 2, [np.nan, np.nan])
    assert figures.merge(4, batch)
    assert not figures.merge(4, batch)
    assert figures.totals["payments"].failed == 2


def test_failures_are_counted_apart_and_have_no_latency() -> None:
    figures = StageFigures()
    figures.merge(0, columns([1, 2, 2, 3, 4], [100 * SECOND] * 5, [0.1, np.nan, np.nan, np.nan, np.nan]))
    total = figures.totals["payments"]
    assert (total.completed, total.failed, total.slo_share) == (1, 3, 1.0)


def test_stages_are_kept_apart() -> None:
    figures = StageFigures()
    figures.merge(0, columns([1], [100 * SECOND], [0.1], stage="resize"))
    figures.merge(1, columns([1], [100 * SECOND], [0.2], stage="encrypt"))
    assert {stage: total.completed for stage, total in figures.totals.items()} == {"resize": 1, "encrypt": 1}


def test_a_second_is_published_once_everything_up_to_its_end_has_been_read() -> None:
    figures = StageFigures()
    figures.merge(0, columns([1], [100 * SECOND], [0.1]))
    second = figures.seconds["payments", 100]
    figures.publish(now_ns=100 * SECOND + 5, complete_until_ns=101 * SECOND - 1)
    assert (second.published_ns, second.updated_ns, figures.incomplete) == (0, 100 * SECOND + 5, True)
    assert figures.newest_published() == {}
    figures.publish(now_ns=102 * SECOND, complete_until_ns=101 * SECOND)
    assert (second.published_ns, second.updated_ns, figures.incomplete) == (102 * SECOND, 100 * SECOND + 5, False)
    assert figures.newest_published() == {"payments": (100, second)}


def test_a_late_result_updates_a_published_second() -> None:
    figures = StageFigures()
    figures.merge(0, columns([1], [100 * SECOND], [0.1]))
    figures.publish(now_ns=102 * SECOND, complete_until_ns=101 * SECOND)
    figures.merge(1, columns([2], [100 * SECOND + 1], [0.3]))
    figures.publish(now_ns=107 * SECOND, complete_until_ns=106 * SECOND)
    second = figures.seconds["payments", 100]
    assert (second.published_ns, second.updated_ns, second.figures.completed) == (102 * SECOND, 107 * SECOND, 2)


def test_no_result_gives_no_figure() -> None:
    figures = StageFigures()
    figures.merge(0, columns([], [], []))
    assert figures.totals == {}
    with pytest.raises(KeyError):
        figures.seconds["payments", 100]
