"""Sending to RabbitMQ: the same open loop with a client that publishes to queues; publisher confirms are the reports.

An event that a full queue refuses is rejected: an outcome like any other, with a Result. It is not sent again.
"""

import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from penstock.adapters.amqp import (
    Link,
    Management,
    ManagementError,
    PublishOutcome,
    connection_name,
    main_queue,
    prefix,
    topic_queue,
)
from penstock.adapters.result_topic import ResultTopic
from penstock.errors import PenstockError
from penstock.records import event_decoder, rejected
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem
from producers.sender import Report, Sender
from producers.shard import WHOLE, Shard

MOST_UNCONFIRMED: Final = 200_000
"""Events in flight at most; a broker that is so far behind makes events late."""
FLUSH_S: Final = 30.0
NAME: Final = "sender"


RECEIPT: Final[Any] = SimpleNamespace(offset=lambda: None)
"""The message in the report of a confirmed event: queues have no offsets."""


class RabbitClient:
    """The sender's client, as confluent_kafka's Producer, on a link. ``queues``: the queue of each partition's events.
    What was in flight when the link went down is published again (at least once).
    """

    def __init__(self, spec: RunSpec, queues: Sequence[str], endpoints: Endpoints) -> None:
        self.rejected = 0
        self._spec = spec
        self._queues = queues
        self._link = Link(endpoints.require("rabbitmq"), connection_name(spec.run, NAME))
        self._results = ResultTopic(endpoints.require("kafka"), spec.results_topic, f"{spec.run}-{NAME}")
        self._again: deque[tuple[str, bytes, Any]] = deque()

    def open(self, timeout_s: float) -> None:
        """Connect ahead of the first event. Raises PenstockError."""
        self._link.open(timeout_s)

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Report, /) -> None:
        """Publish one event to its partition's queue. BufferError while the link is down, or too far behind."""
        del topic, key
        if self._again or self._link.unconfirmed >= MOST_UNCONFIRMED:
            raise BufferError
        if not self._publish(self._queues[partition], value, on_delivery):
            raise BufferError

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int, /) -> int:
        """Publish several events of a partition; how many. Those that could not be have an "_error"."""
        published = 0
        for message in messages:
            try:
                self.produce(topic, message["value"], message["key"], partition, message["callback"])
            except BufferError as error:
                message["_error"] = error
            else:
                published += 1
        return published

    def poll(self, timeout_s: float, /) -> None:
        """Send, receive and report."""
        self._link.serve(timeout_s)
        while self._again and self._link.up:
            self._publish(*self._again.popleft())
        self._results.poll(0)

    def flush(self, timeout_s: float, /) -> int:
        """Wait for reports; how many are still to come."""
        until = time.monotonic() + timeout_s
        while (left := self._link.unconfirmed + len(self._again)) and time.monotonic() < until:
            self.poll(0.05)
        return left

    def purge(self) -> None:
        """Publish nothing again."""
        self._again.clear()

    def close(self) -> None:
        """Wait until the Results of rejected events are out, and disconnect."""
        if left := self._results.flush(FLUSH_S):
            logging.getLogger(__name__).error("%d Results of rejected events are not out: Kafka is away", left)
        self._link.close()

    def _publish(self, queue: str, value: bytes, on_delivery: Report) -> bool:
        report = partial(self._report, queue, value, on_delivery)
        return self._link.publish(queue, value, report, published_ns=time.time_ns())

    def _report(self, queue: str, value: bytes, on_delivery: Any, outcome: PublishOutcome) -> None:
        if outcome == "lost":
            self._again.append((queue, value, on_delivery))
            return
        if outcome == "unroutable":
            on_delivery(SimpleNamespace(str=lambda: f"there is no queue {queue}"), None)
            return
        if outcome == "full":
            self._reject(queue, value)
        on_delivery(None, RECEIPT)

    def _reject(self, queue: str, value: bytes) -> None:
        event, at_ns = event_decoder.decode(value), time.time_ns()
        self.rejected += 1
        place = queue.removeprefix(prefix(event.run))
        names = {"run": event.run, "pipeline": event.pipeline, "queue": place, "worker": NAME}
        self._results.publish(rejected(event, **names, at_ns=at_ns, reason="full"))


class RabbitSender(Sender):
    """Sends one run's schedule, or a shard of it, to its main queue, or to the first topic of each event's job type."""

    def __init__(
        self, spec: RunSpec, schedule: Schedule, signing_key: bytes, endpoints: Endpoints, shard: Shard = WHOLE
    ) -> None:
        self._endpoints = endpoints
        self._queues = queues_of(spec, schedule)
        self._client = RabbitClient(spec, self._queues, endpoints)
        super().__init__(spec, schedule, signing_key, self._client, shard)

    def check_topic(self, timeout_s: float = 10.0) -> None:
        """Connect ahead of the first event. Raises PenstockError if the broker or a queue is not there."""
        until_s = time.monotonic() + timeout_s
        self._client.open(timeout_s)
        missing = set(self._queues)
        with closing(Management(self._endpoints.require("rabbitmq_management"))) as management:
            while missing:
                try:
                    missing = set(self._queues).difference(management.names("queues", self.log.run))
                except ManagementError:  # a broker that has just been started serves it a little later
                    if time.monotonic() > until_s:
                        raise
                if missing and time.monotonic() > until_s:
                    raise PenstockError(
                        f"RabbitMQ has no queue {', '.join(sorted(missing))}: the controller makes the queues of a run "
                        "before its sender starts"
                    )
                time.sleep(0.1)

    def run(self) -> None:
        """Send everything at its time; wait until every event has its confirm, and its Result if it was rejected."""
        super().run()
        self._client.close()


def queues_of(spec: RunSpec, schedule: Schedule) -> list[str]:
    """The queue of each partition of the schedule. Raises PenstockError for a job type that the network has not."""
    partitions = int(schedule.partition.max(initial=0)) + 1
    if not isinstance(spec.system, NetworkSystem):
        return [main_queue(spec.run)] * partitions
    if partitions > len(spec.system.jobs):
        raise PenstockError(
            f"the schedule has job type {partitions - 1}, the network has {len(spec.system.jobs)}, from 0"
        )
    return [topic_queue(spec.run, job.route[0]) for job in spec.system.jobs]
