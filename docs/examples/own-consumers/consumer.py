"""A consumer of your own that follows Penstock's plans; `penstock control … -- python consumer.py` starts it."""

import logging
import os
import signal
import threading
from contextlib import suppress

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaError

from penstock.adapters.kafka_security import kafka_python_settings
from penstock.consumers.assignor import PlanAssignor
from penstock.consumers.membership import Membership

SETTINGS = ("KAFKA", "TOPIC", "GROUP", "REPLICA", "CONTROLLER")
kafka, topic, group, replica, controller = (os.environ[f"PENSTOCK_{name}"] for name in SETTINGS)
logging.basicConfig(level=logging.INFO, format="%(message)s")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())

assignor = PlanAssignor(controller, group, replica)
consumer = KafkaConsumer(
    **kafka_python_settings(kafka), group_id=group, client_id=replica, partition_assignment_strategy=[assignor],
    enable_auto_commit=False, auto_offset_reset="earliest", session_timeout_ms=6000, heartbeat_interval_ms=500,
)  # fmt: skip
membership = Membership(controller, group, assignor, rejoin=consumer._coordinator.request_rejoin, may_ask=lambda: True)


class Rebalances(ConsumerRebalanceListener):
    """Tells the controller what this consumer holds."""

    def on_partitions_revoked(self, revoked):
        """Nothing to do: what was handed out is committed before the next poll, in which this is called."""

    def on_partitions_assigned(self, assigned):  # noqa: ARG002
        """Report, and ask for another rebalance if a newer plan is known already."""
        membership.report("joined", [each.partition for each in consumer.assignment()])
        membership.assigned()


membership.report("started")
consumer.subscribe([topic], listener=Rebalances())
while not stop.is_set():
    for records in consumer.poll(timeout_ms=200, max_records=20).values():
        for record in records:
            logging.info("%s %d %s", replica, record.partition, record.value.decode())  # your work
    with suppress(KafkaError):  # a rebalance was faster: whoever has these partitions now gets them again
        consumer.commit()
membership.report("leaving")
consumer.close()
membership.report("left")
membership.close(timeout_s=2)
