"""The connector of a Kafka topic: a client that has lost its broker is replaced, and each request is brought once."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from functions.dataflow.connectors.kafka import KafkaConnector
from functions.dataflow.request import Delivery
from infra.local.ports import free_port
from penstock.adapters.kafka import make_consumer, make_producer
from penstock.adapters.topics import admin_client
from penstock.records import Result
from penstock.settings import Endpoints
from tests.support.eventually import eventually

pytestmark = pytest.mark.smoke

LEFT = Result(1, "r", "p", "s", "completed", "q", 1, 1, 1, 1, 1, "w")


def send(kafka: str, topic: str, numbers: range) -> None:
    producer = make_producer(kafka)
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(10) == 0


@pytest.mark.parametrize(
    ("lost_after", "seen"),
    [(0, {}), (20, {}), (20, {"0": 40})],
    ids=["before its first answer", "while it reads", "while it reads again what a predecessor has read"],
)
def test_a_new_client_reads_on_where_a_lost_one_stopped(
    services: Endpoints, monkeypatch: pytest.MonkeyPatch, lost_after: int, seen: Mapping[str, int]
) -> None:
    monkeypatch.setattr("penstock.adapters.kafka.STALLED_S", 1.0)
    monkeypatch.setattr("functions.dataflow.connectors.kafka.QUIET_S", 0.2)
    monkeypatch.setattr("functions.dataflow.connectors.kafka.REQUEST_TIMEOUT_S", 0.5)
    kafka, name, nowhere = services.require("kafka"), f"test-lost-{secrets.token_hex(6)}", f"127.0.0.1:{free_port()}"
    admin = admin_client(kafka)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    connector = KafkaConnector(bootstrap=kafka, topic=name, group=name, partitions=1, client_id="c", seen=seen)
    brought: list[bytes] = []

    def receive(deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            brought.append(each.value)
            each.done(LEFT)

    async def until(condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(eventually, condition, lambda: f"{len(brought)} requests were brought")

    def lose() -> None:
        lost = make_consumer(nowhere, name)
        lost.assign([TopicPartition(name, 0, lost_after)])
        connector._consumer = lost

    async def read() -> None:
        send(kafka, name, range(lost_after))
        if not lost_after:
            lose()
        await connector.start(receive, lambda: False)
        if lost_after:
            await until(lambda: len(brought) == lost_after)
            lose()
        lost = connector._consumer
        send(kafka, name, range(lost_after, 40))
        await until(lambda: len(brought) == 40)
        assert connector._consumer is not lost
        await connector.pause()
        await connector.stop()

    asyncio.run(read())
    assert brought == [b"%d" % number for number in range(40)]
    monitor = make_consumer(kafka, name)
    assert monitor.committed([TopicPartition(name, 0)], timeout=10)[0].offset == 40
    monitor.close()
    admin.delete_topics([name])[name].result(10)
