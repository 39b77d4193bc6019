"""The broker keeps all records of a run, and the first entry of an index does not wait for the file system."""

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from infra.local import kafka as kafka_service
from infra.local.kafka import ALLOCATED_BYTES, allocate_indexes
from infra.local.services import LocalServices
from infra.local.state import StateFolder
from penstock.adapters.kafka import make_consumer
from penstock.adapters.topics import admin_client, create_topics, delete_topics
from penstock.settings import Folders
from tests.support.eventually import eventually
from tests.support.services import on_free_ports

SECTOR_BYTES = 512
SOON_DELETED = """
log.retention.bytes=1048576
log.segment.bytes=1048576
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
"""


def allocated(file: Path) -> int:
    return file.stat().st_blocks * SECTOR_BYTES


def partition(state: StateFolder, name: str, events: bytes) -> Path:
    folder = state.path / "kafka" / "data" / name
    folder.mkdir(parents=True)
    (folder / "0.log").write_bytes(events)
    for suffix in (".index", ".timeindex"):
        with (folder / f"0{suffix}").open("wb") as file:
            file.truncate(10 * 2**20)
    return folder


def test_indexes_of_the_topics_empty_partitions_are_allocated_and_no_others(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    half_made = partition(state, "a-2", b"")
    (half_made / "0.index").write_bytes(b"")
    (half_made / "0.timeindex").unlink()
    fresh, used, foreign = partition(state, "a-0", b""), partition(state, "a-1", b"event"), partition(state, "b-0", b"")
    assert allocate_indexes(state, ["a", "there-is-none"]) == 2
    assert allocated(fresh / "0.index") >= ALLOCATED_BYTES <= allocated(fresh / "0.timeindex")
    assert (fresh / "0.index").read_bytes() == bytes(10 * 2**20)
    assert allocated(used / "0.index") == allocated(foreign / "0.index") == 0


@pytest.mark.live
def test_the_broker_goes_on_as_if_nothing_had_been(local_services: LocalServices) -> None:
    kafka, topic = local_services.endpoints().require("kafka"), "test-indexes"
    admin = admin_client(kafka)
    create_topics(admin, {topic: 2})
    try:
        producer = Producer({"bootstrap.servers": kafka})
        until_s = time.monotonic() + 10
        while allocate_indexes(local_services.state, [topic]) != 4:
            assert time.monotonic() < until_s
            time.sleep(0.05)
        for number in range(400):
            producer.produce(topic, bytes(100), partition=number % 2)
            if number % 10 == 9:
                producer.flush(10)
        consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "enable.partition.eof": False})
        consumer.assign([TopicPartition(topic, 0, 150), TopicPartition(topic, 1, 0)])
        came: list[Message] = []
        while len(came) < 250:
            came += consumer.consume(250 - len(came), timeout=10)
        consumer.close()
        assert min(message.offset() or 0 for message in came if message.partition() == 0) == 150
    finally:
        delete_topics(admin, [topic])


@pytest.mark.smoke
def test_a_broker_with_little_room_keeps_all_records_of_a_run(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_service, "CONFIG", kafka_service.CONFIG + SOON_DELETED)
    services = LocalServices(Folders(state=state_folder), on_free_ports(ready_timeout_s=300))
    try:
        kafka = services.up(("kafka",)).require("kafka")
        admin = admin_client(kafka)
        create_topics(admin, {"run": 1})
        admin.create_topics([NewTopic("other", 1, 1)])["other"].result(10)
        producer = Producer({"bootstrap.servers": kafka})
        consumer = make_consumer(kafka, "test")

        def first(topic: str) -> int:
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[0]

        def more_is_removed(than: int) -> bool:
            return first("other") > than

        removed = 0
        for _ in range(2):  # the second time, each topic has been looked at since the first
            for number in range(10_000):
                producer.produce(("run", "other")[number % 2], bytes(1000), partition=0)
            assert producer.flush(60) == 0
            eventually(partial(more_is_removed, removed), "the broker removes nothing")
            removed = first("other")
        assert first("run") == 0
        consumer.close()
    finally:
        services.down()
