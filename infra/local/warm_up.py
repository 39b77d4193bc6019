"""A broker that has just started is cold: its first requests of each kind load classes and are interpreted. The first
run after a start would meet that in its first seconds, the second run of a comparison would not.
"""

import secrets
import time
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.topics import admin_client, create_topics, delete_topics

PARTITIONS: Final = 5
EVENTS: Final = 2_000
EVENT_BYTES: Final = 400
COMMIT_EVERY: Final = 20
PATIENCE_S: Final = 10.0


def warm_up(bootstrap: str) -> int:
    """Produce, consume and commit on a topic of its own, in requests as small as a run's; how many events came back."""
    topic = f"warm-up-{secrets.token_hex(4)}"
    admin = admin_client(bootstrap)
    create_topics(admin, {topic: PARTITIONS})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 2,  # a broker that has only just come up makes it ask twice, of which it would warn
            }
        )
        value = secrets.token_bytes(EVENT_BYTES)
        for event in range(EVENTS):
            producer.produce(topic, value, partition=event % PARTITIONS)
            if event % 10 == 0:
                producer.flush(PATIENCE_S)
        producer.flush(PATIENCE_S)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        came, until_s = 0, time.monotonic() + PATIENCE_S
        while came < EVENTS and time.monotonic() < until_s:
            came += len(consumer.consume(COMMIT_EVERY, timeout=0.5))
            read = [place for place in consumer.position(consumer.assignment()) if place.offset > 0]
            if read:
                consumer.commit(offsets=read, asynchronous=False)
        return came
    finally:
        consumer.close()
        delete_topics(admin, [topic])
