"""A private run on RabbitMQ: main queue or topics, function apps as real processes; leaves nothing."""

import sys
import time
from contextlib import suppress

from penstock.adapters.amqp import (
    Link,
    ManagementError,
    PublishOutcome,
    connection_name,
    main_queue,
    topic_queue,
)
from penstock.adapters.app_boards import AppBoard
from penstock.adapters.topics import create_topics, delete_topics
from penstock.errors import PenstockError
from penstock.runspec import WorkerSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem, QueueSystem
from tests.consumers.observed_run import ObservedRun
from tests.support.broker_view import BrokerView

FLUSH_S = 30.0


class PrivateQueueRun(ObservedRun):
    """Like ``ObservedRun``; its replicas are apps on the main queue, or on the topic after which they are named.

    ``containers``: of each app that is started. ``schedule``: the jobs of a network's events, by id.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        purpose: str,
        system: QueueSystem | NetworkSystem,
        containers: int = 1,
        schedule: Schedule | None = None,
        worker: WorkerSpec | None = None,
    ) -> None:
        super().__init__(endpoints, purpose=purpose, system=system, worker=worker)
        self.topics = {self.spec.results_topic: 1}
        self.containers = containers
        self.schedule = schedule
        self.outcomes: list[PublishOutcome] = []
        self.management = BrokerView(endpoints.require("rabbitmq_management"))
        self.board = AppBoard(endpoints.require("redis"), self.spec.run)
        self._link: Link | None = None
        self._handed_over = 0

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that the run has from the beginning."""
        if isinstance(self.spec.system, NetworkSystem):
            return tuple(topic_queue(self.spec.run, topic.topic) for topic in self.spec.system.topics)
        return (main_queue(self.spec.run),)

    def send_raw(self, value: bytes, partition: int = 0) -> None:
        """Publish any bytes to the main queue, or to the first topic of job type ``partition``."""
        link = self._opened()
        while not link.publish(self._entrance(partition), value, self._told, published_ns=time.time_ns()):
            link.serve(0.1)
        self._handed_over += 1
        link.serve(0)

    def flush(self) -> None:
        """Wait until the broker has answered for everything."""
        link, until_s = self._opened(), time.monotonic() + FLUSH_S
        while len(self.outcomes) < self._handed_over:
            if time.monotonic() > until_s:
                raise PenstockError(f"{self.spec.run}: RabbitMQ did not confirm the events within {FLUSH_S:g} s")
            link.serve(0.1)

    def worker_command(self, replica: str) -> list[str]:
        """An app with its containers."""
        self.board.want(replica, self.containers)
        place = ["--queue", main_queue(self.spec.run)]
        if isinstance(self.spec.system, NetworkSystem):
            place = ["--queue", topic_queue(self.spec.run, replica), "--topic", replica]
        return [sys.executable, "-m", "consumers.app", "--run", str(self.path), "--replica", replica, *place]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _entrance(self, partition: int) -> str:
        if isinstance(self.spec.system, NetworkSystem):
            return topic_queue(self.spec.run, self.spec.system.jobs[partition].route[0])
        return main_queue(self.spec.run)

    def _opened(self) -> Link:
        if self._link is None:
            self._link = Link(self.endpoints.require("rabbitmq"), connection_name(self.spec.run, "test"))
            self._link.open()
        return self._link

    def _told(self, outcome: PublishOutcome) -> None:
        self.outcomes.append(outcome)

    def _make_channels(self) -> None:
        create_topics(self._admin, self.topics)
        for queue in self.queues:
            self.management.declare_queue(queue)
        if self.schedule is not None:
            self.schedule.write(self.path / "schedule.parquet")

    def _delete_channels(self) -> None:
        if self._link is not None:
            self._link.close()
        with suppress(ManagementError):
            self.management.delete_run(self.spec.run)
        self.management.close()
        delete_topics(self._admin, tuple(self.topics))
        self.board.erase()
        self.board.close()
