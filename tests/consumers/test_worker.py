"""The worker without a broker: what is left to commit after a rebalance, and the time that it reports."""

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaTimeoutError
from pydantic import SecretStr

from consumers.group import GroupConsumer
from consumers.worker import Worker
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from tests.consumers.test_commit_tracker import RESULT, deliver, offsets

SPEC = RunSpec(run="r", experiment="test", world="local", scaler=ScalerSpec(name="linear"), duration_s=1.0)
NOWHERE = Endpoints(
    kafka="127.0.0.1:1", redis=SecretStr("redis://127.0.0.1:1/0"), controller="", signing_key=SecretStr("00" * 32)
)
MS = 1_000_000
STAYS, GOES = TopicPartition(SPEC.events_topic, 0), TopicPartition(SPEC.events_topic, 1)


class Coordinator:
    """The group's coordinator at the broker, which does not answer."""

    async def _commit_offsets_sync_async(self, offsets: Mapping[TopicPartition, Any], timeout_ms: int) -> None:
        raise KafkaTimeoutError(f"{len(offsets)} offsets within {timeout_ms} ms")


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A member of the group, whose consumer is real but for its connections."""
    for name in ("__init__", "subscribe"):
        monkeypatch.setattr(KafkaConsumer, name, lambda *_, **__: None)
    for name in ("_choose_waits", "_learn_of_topic"):
        monkeypatch.setattr(GroupConsumer, name, lambda _: None)
    made = Worker(SPEC, "w-0", NOWHERE)
    made._consumer = made._connect()
    made._consumer._coordinator = Coordinator()
    made._consumer.assignment = lambda: {STAYS, GOES}
    return made


def test_a_commit_that_fails_in_a_rebalance_is_made_up_for_where_the_partition_stays(worker: Worker) -> None:
    tracker, consumer = worker._tracker, worker._consumer
    for source in (STAYS, GOES):
        tracker.publish(source, 41, RESULT)
        deliver(tracker, source, 41)
    asyncio.run(consumer.on_partitions_revoked({STAYS, GOES}))
    consumer.assignment = lambda: {STAYS}
    asyncio.run(consumer.on_partitions_assigned({STAYS}))
    assert tracker.unsettled
    assert offsets(tracker) == {STAYS: 42}


def test_a_stop_ends_with_the_first_event_that_waited_for_it(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[int] = []
    monkeypatch.setattr(worker._membership, "report_again", stops.append)
    worker._assigned({STAYS})
    assert worker._resumed_at_ns is None  # its first assignment stopped nothing
    for received_ms, sent_ms in ((30, -20), (30, 20), (None, None)):
        worker._revoked()
        worker._assigned({STAYS, GOES})
        stopped_ns, resumed_ns = worker._stopped_at_ns, worker._resumed_at_ns
        assert stopped_ns is not None
        assert resumed_ns is not None
        if received_ms is None or sent_ms is None:
            worker._revoked()  # no event until the next rebalance
        else:
            worker._end_stop(resumed_ns + received_ms * MS, resumed_ns + sent_ms * MS)
            worker._end_stop(resumed_ns + 99 * MS, 0)
        later_ns = 30 * MS if sent_ms == -20 else 0
        assert stops.pop() == resumed_ns - stopped_ns + later_ns
        assert stops == []


@pytest.fixture
def serve(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Serves one event that was sent, as it was intended to be, so many ms ago."""
    record = SimpleNamespace(value=b"", partition=0, timestamp=0, timestamp_type=1)
    item = SimpleNamespace(booking=None, result=lambda *_, **__: None)
    worker._validator = SimpleNamespace(validate=lambda _: item)  # type: ignore[assignment]
    for name in ("_settle", "_publish"):
        monkeypatch.setattr(worker, name, lambda *_, **__: None)

    def served(sent_ms_ago: int) -> None:
        item.sent_ns = item.intended_ns = time.time_ns() - sent_ms_ago * MS
        worker._serve([record])

    return served


def test_events_that_wait_for_no_reason_take_the_workers_time_and_others_their_delivery(
    worker: Worker, serve: Callable[[int], None]
) -> None:
    serve(30)
    assert worker._stalled_ns == 0
    [delivery_ns] = worker._deliveries_ns
    assert delivery_ns >= 30 * MS
    time.sleep(0.02)
    serve(500)  # it had waited while the worker was free
    assert worker._stalled_ns >= 20 * MS
    assert len(worker._deliveries_ns) == 1


def test_what_a_rebalance_stops_is_not_counted_twice(worker: Worker, serve: Callable[[int], None]) -> None:
    worker._assigned({STAYS})
    serve(30)
    worker._revoked()
    worker._assigned({STAYS, GOES})
    time.sleep(0.02)
    serve(500)
    assert worker._stalled_ns == 0
