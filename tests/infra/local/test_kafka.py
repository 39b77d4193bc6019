"""The first entry of a partition's index must not wait for the file system."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from infra.local.kafka import ALLOCATED_BYTES, allocate_indexes
from infra.local.services import LocalServices
from infra.local.state import StateFolder
from penstock.adapters.topics import admin_client, create_topics, delete_topics

SECTOR_BYTES = 512


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
