"""The worker without a broker: what is left to commit after a rebalance."""

import asyncio
from collections.abc import Mapping
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
    monkeypatch.setattr(GroupConsumer, "_learn_of_topic", lambda _: None)
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
