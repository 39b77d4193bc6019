"""A broker that has just started is cold: its first requests of each kind load classes and are interpreted. The first
run after a start would meet that in its first seconds, the second run of a comparison would not.
"""

import secrets
import time
from typing import Final

from penstock.adapters.kafka import assign_from_start, make_consumer, make_producer
from penstock.adapters.topics import admin_client, create_topics, delete_topics

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
    consumer = make_consumer(bootstrap, topic)
    try:
        producer = make_producer(bootstrap, acks="all", enable_idempotence=True, linger_ms=1)
        value = secrets.token_bytes(EVENT_BYTES)
        for event in range(EVENTS):
            producer.produce(topic, value, partition=event % PARTITIONS)
            if event % 10 == 0:
                producer.flush(PATIENCE_S)
        producer.flush(PATIENCE_S)
        assign_from_start(consumer, topic, range(PARTITIONS))
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
