"""The sender's account of what became of each event, its figures and its metrics."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from producers.delivery import DeliveryLog, figures_of
from producers.exposition import SenderMetrics

START_NS = 1_700_000_000_000_000_000


@pytest.fixture
def log() -> DeliveryLog:
    """Five events a millisecond apart: acknowledged, acknowledged late, failed, unreported, never handed over."""
    schedule = Schedule(np.arange(5) * 1_000_000, np.array([0, 1, 0, 1, 0], dtype=np.int16), 1.0)
    spec = RunSpec(
        run="r", experiment="e", world="local", scaler=ScalerSpec(name="none"), duration_s=1.0, start_ns=START_NS
    )
    made = DeliveryLog(spec, schedule)
    for event_id, delay_ns in enumerate((100_000, 30_000_000, 0, 2_000_000)):
        made.sent_ns[event_id] = START_NS + event_id * 1_000_000 + delay_ns
    for event_id, offset in ((0, 7), (1, 3)):
        made.acked_ns[event_id] = made.sent_ns[event_id] + 4_000_000
        made.offset[event_id] = offset
    made.errors[2] = "Local: Message timed out"
    made.reached = 4
    return made


def test_scheduled_is_acknowledged_plus_never_sent(log: DeliveryLog) -> None:
    figures = figures_of(log.table(unsent=""))
    assert (figures.scheduled, figures.issued, figures.acknowledged, figures.failed) == (5, 4, 2, 2)
    assert figures.never_sent == figures.scheduled - figures.acknowledged
    assert figures.issued_share == 0.8
    assert (figures.send_delay_p50_s, figures.send_delay_p99_s, figures.send_delay_max_s) == (0.0001, 0.03, 0.03)


def test_a_sender_that_issued_nothing_knows_no_delay(log: DeliveryLog) -> None:
    for event_id in range(5):
        log.sent_ns[event_id] = 0
    assert figures_of(log.table(unsent="")).send_delay_p99_s is None


def test_unknown_is_null_and_every_event_that_was_not_acknowledged_has_its_reason(
    log: DeliveryLog, tmp_path: Path
) -> None:
    log.write(tmp_path / "delivery.parquet", unsent="not sent: stopped")
    rows = pq.read_table(tmp_path / "delivery.parquet").to_pydict()
    assert rows["id"] == [0, 1, 2, 3, 4]
    assert rows["partition"] == [0, 1, 0, 1, 0]
    assert [sent_ns is None for sent_ns in rows["sent_ns"]] == [False, False, False, False, True]
    assert [acked_ns is None for acked_ns in rows["acked_ns"]] == [False, False, True, True, True]
    assert rows["offset"] == [7, 3, None, None, None]
    assert rows["error"] == [
        None, None, "Local: Message timed out", "no delivery report before the sender ended", "not sent: stopped",
    ]  # fmt: skip


def test_metrics_count_each_event_once_however_often_they_are_scraped(log: DeliveryLog) -> None:
    registry = CollectorRegistry()
    registry.register(SenderMetrics(log))
    generate_latest(registry)
    text = generate_latest(registry).decode()
    for line in (
        'penstock_events_sent_total{run="r"} 4.0',
        'penstock_events_acknowledged_total{run="r"} 2.0',
        'penstock_events_send_failed_total{run="r"} 1.0',
        'penstock_send_delay_seconds_bucket{le="0.0001",run="r"} 2.0',
        'penstock_send_delay_seconds_bucket{le="0.0025",run="r"} 3.0',
        'penstock_send_delay_seconds_bucket{le="+Inf",run="r"} 4.0',
        'penstock_send_delay_seconds_count{run="r"} 4.0',
    ):
        assert line in text.splitlines()
