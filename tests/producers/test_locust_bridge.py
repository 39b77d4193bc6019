"""What Locust shows is what Penstock measures: histograms through the bridge against exact percentiles."""

import os
import select

import msgspec
import numpy as np
import pytest

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import bucket_of, percentiles_s
from penstock.records import Result
from producers.locust_messages import (
    BUCKETS_PER_LINE,
    Batch,
    Ended,
    Fleet,
    Started,
    Trouble,
    in_lines,
    read_message,
    write_message,
)
from producers.locust_results import Batches

# gevent must not meet the other tests; and those that start Locust must not hand this on to it
os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
import locust.stats
from locust.stats import RequestStats

from producers.locust_bridge import FAILED, METHOD, Bridge, bucket_ms, percentile_ms, rounded_up, use_log_buckets

del os.environ["LOCUST_SKIP_MONKEY_PATCH"]

START_NS = 1_700_000_000 * NANOS_PER_SECOND
PERCENTILES = (50.0, 66.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.9, 100.0)


def result(number: int, latency_s: float, *, finished_ns: int = START_NS, outcome: str = "completed") -> Result:
    return Result(
        id=number, run="r", pipeline="p", stage="payment", outcome=outcome, queue="q",  # type: ignore[arg-type]
        intended_ns=finished_ns - round(latency_s * NANOS_PER_SECOND), sent_ns=0, received_ns=0, started_ns=0,
        finished_ns=finished_ns, worker="w",
    )  # fmt: skip


@pytest.fixture
def log_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locust's own functions come back after the test."""
    for name in ("bucket_response_time", "calculate_response_time_percentile"):
        monkeypatch.setattr(locust.stats, name, getattr(locust.stats, name))
    use_log_buckets()


@pytest.mark.usefixtures("log_buckets")
@pytest.mark.parametrize("count", [1, 7, 100, 1000, 20_000])
def test_locusts_percentiles_are_the_measures_own_within_one_bucket(count: int) -> None:
    draws = np.random.default_rng(count)
    latency_s = draws.lognormal(-2, 1.5, count)
    finished_ns = START_NS + draws.integers(0, 30 * NANOS_PER_SECOND, count)
    stats, batches = RequestStats(), Batches("r", 20_000, slo_s=0.5)
    bridge = Bridge(stats)
    for number, (seconds, finished) in enumerate(zip(latency_s.tolist(), finished_ns.tolist(), strict=True)):
        batches.add(result(number, seconds, finished_ns=finished))
        if number % 333 == 0:
            for batch in batches.drain():
                bridge.add(batch)
    for batch in batches.drain():
        bridge.add(batch)
    exact_s = percentiles_s(np.round(latency_s * NANOS_PER_SECOND) / NANOS_PER_SECOND, PERCENTILES)
    for entry in (stats.total, stats.get("payment", METHOD)):
        assert entry.num_requests == count
        shown_s = np.asarray([entry.get_response_time_percentile(each / 100) for each in PERCENTILES]) / 1000
        # What is shown is the upper bound of a bucket, which a rounding may put into the next one.
        assert (np.abs(bucket_of(shown_s) - bucket_of(exact_s)) <= 1).all()
        assert (shown_s >= exact_s * (1 - 1e-9)).all() and (shown_s <= exact_s * 1.0112).all()
        assert entry.max_response_time == pytest.approx(1000 * latency_s.max(), rel=1e-6)
        assert entry.min_response_time == pytest.approx(1000 * latency_s.min(), rel=1e-6, abs=1e-5)
        assert entry.avg_response_time == pytest.approx(1000 * latency_s.mean(), rel=1e-6)
        assert entry.num_failures == 0, "a late event is none"
    assert sum(stats.total.num_reqs_per_sec.values()) == count
    assert not stats.errors
    assert (bridge.results, bridge.within) == (count, (latency_s <= 0.5).sum())


def test_locusts_own_rounding_is_off_by_more_than_a_bucket() -> None:
    """What the bridge is there for: if Locust were exact one day, the bridge could go."""
    assert abs(bucket_of(locust.stats.bucket_response_time(1049) / 1000) - bucket_of(1.049)) > 1
    ninety_nine = {float(value): 1 for value in range(1, 101)}
    assert locust.stats.calculate_response_time_percentile(ninety_nine, 100, 0.99) == 100  # type: ignore[arg-type]
    assert percentile_ms(ninety_nine, 100, 0.99) == 99


@pytest.mark.parametrize(
    ("value", "shown"),
    [(487.2911, 487.3), (5.234567, 5.235), (12_345.6, 12_350.0), (0.123456, 0.1235), (100.0, 100.0), (0, 0)],
)
def test_milliseconds_have_four_digits(value: float, shown: float) -> None:
    assert rounded_up(value) == shown


@pytest.mark.usefixtures("log_buckets")
def test_the_last_ten_seconds_are_those_of_locusts_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = RequestStats()
    bridge = Bridge(stats)
    now = 1_700_000_000
    monkeypatch.setattr("locust.stats.time.time", lambda: float(now))
    for second in range(30):
        now = 1_700_000_000 + second
        latency_s = 0.1 if second < 15 else 0.3
        bucket = int(bucket_of(latency_s))
        bridge.add(Batch("payment", now, (bucket,), (50,), 50 * latency_s, latency_s, latency_s))
    assert stats.total.get_current_response_time_percentile(0.5) == rounded_up(bucket_ms(300))
    assert stats.total.current_rps == 50
    assert stats.total.get_response_time_percentile(0.4) == rounded_up(bucket_ms(100))


@pytest.mark.usefixtures("log_buckets")
def test_a_result_counts_once_and_what_did_not_complete_is_a_failure_without_a_latency() -> None:
    batches, stats = Batches("r", 20_000, slo_s=0.5), RequestStats()
    batches.add(result(1, 0.1))
    batches.add(result(1, 9.0))
    batches.add(msgspec.structs.replace(result(2, 0.1), terminal=False))
    batches.add(result(3, 0.2, outcome="rejected"))
    bridge = Bridge(stats)
    for batch in batches.drain():
        bridge.add(batch)
    assert (bridge.results, bridge.within) == (2, 1)
    assert (stats.total.num_requests, stats.total.num_failures) == (2, 1)
    assert stats.total.get_response_time_percentile(1.0) == rounded_up(bucket_ms(100))
    assert [error.error for error in stats.errors.values()] == [FAILED]
    assert not list(batches.drain())


def test_a_broad_histogram_goes_in_lines_that_a_pipe_takes_whole() -> None:
    reader, writer = os.pipe()
    buckets, counts = np.arange(1000), np.arange(1, 1001) * 10**6
    os.set_blocking(writer, False)
    sent = [Batch("payment", START_NS, *piece) for piece in in_lines(buckets, counts)]
    assert len(sent) == -(-1000 // BUCKETS_PER_LINE)
    for batch in sent:
        write_message(batch, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.readlines()
    assert max(map(len, lines)) <= select.PIPE_BUF
    assert [read_message(line) for line in lines] == sent
    assert sum(sum(batch.counts) for batch in sent) == counts.sum()


def test_every_message_is_understood_and_other_output_passed_over() -> None:
    reader, writer = os.pipe()
    messages = (Started("runs/x", START_NS, (1, 2)), Fleet(3.1, 2, None), Ended(1.0, 0.002, 7), Trouble("no fleet"))
    for message in messages:
        write_message(message, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert tuple(map(read_message, pipe)) == messages
    assert read_message(b"Exception in thread\n") is None
