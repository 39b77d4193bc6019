"""Any consumer: it knows nothing of Penstock, which scales the number of such processes."""

import logging
import os
import signal
import threading

from confluent_kafka import Consumer

SETTINGS = ("KAFKA", "TOPIC", "GROUP", "REPLICA")
kafka, topic, group, replica = (os.environ[f"PENSTOCK_{name}"] for name in SETTINGS)
logging.basicConfig(level=logging.INFO, format="%(message)s")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())

consumer = Consumer(
    {"bootstrap.servers": kafka, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
)
consumer.subscribe([topic])
while not stop.is_set():
    message = consumer.poll(0.2)
    if message is not None and message.error() is None:
        logging.info("%s %d %s", replica, message.partition(), message.value().decode())  # your work
        consumer.commit(message, asynchronous=False)
consumer.close()
