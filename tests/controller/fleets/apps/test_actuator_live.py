"""Whole fleets on RabbitMQ with the real apps: events go in, are served, and every one has its outcome."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pika
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from controller.fleets.fleet import Fleet
from controller.fleets.network.fleet import NetworkFleet
from controller.fleets.queue.fleet import QueueFleet
from penstock.adapters.amqp import PUBLISHED_NS, topic_queue
from penstock.adapters.process_manager import Supervisor
from penstock.clock import WallClock
from penstock.contracts import Decision, NetworkObservation, QueueObservation
from penstock.records import Event, Payment, Result, encode, result_decoder
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.signing import Signer
from penstock.systems import JobSpec, NetworkSystem, QueueSystem, TopicSpec
from tests.controller.fleets.queue.queue_scene import TIMEOUT_S, RabbitScene, rabbit_scene

pytestmark = pytest.mark.live

PAYMENT = Payment(account="account-1", merchant="m", amount_cents=100, currency="EUR", country="DE")


class FleetScene:
    """A run with its fleet, and its results."""

    def __init__(self, scene: RabbitScene, make: Callable[..., Any]) -> None:
        self.scene = scene
        self._make = make
        self._signer = Signer(scene.endpoints.signing_key_bytes(), scene.spec.run)
        self._consumer = Consumer({"bootstrap.servers": scene.endpoints.kafka, "group.id": scene.spec.run})
        self._consumer.assign([TopicPartition(scene.spec.results_topic, 0, 0)])
        self.results: list[Result] = []
        self.fleet: Fleet[Any] = self.start(None)
        self.fleet.bring_up()
        self.wait(self.fleet.ready)
        self.monitor: Any = self.fleet.monitor(time.time(), lambda: False)

    def start(self, state: msgspec.Raw | None) -> Fleet[Any]:
        scene = self.scene
        self.fleet = self._make(scene.directory, scene.spec, scene.endpoints, WallClock(), state)
        self.fleet.start(lambda: None)
        return self.fleet

    def close(self) -> None:
        self._consumer.close()
        self.fleet.stop()
        self.fleet.stop_replicas()
        # The monitor of a process ends with it.
        self.monitor._depths.close()

    def send(self, ids: Sequence[int], queue: str, job: str = "") -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.scene.endpoints.require("rabbitmq")))
        channel = connection.channel()
        for event_id in ids:
            now_ns = time.time_ns()
            payload = msgspec.Raw(msgspec.json.encode(PAYMENT))
            event = Event(
                id=event_id,
                run=self.scene.spec.run,
                pipeline=self.scene.spec.pipeline,
                key="k",
                intended_ns=now_ns,
                sent_ns=now_ns,
                payload=payload,
                mac=self._signer.sign(event_id, payload),
                job=job,
            )
            properties = pika.BasicProperties(delivery_mode=2, headers={PUBLISHED_NS: now_ns})
            channel.basic_publish("", queue, encode(event), properties)
        connection.close()

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            messages = self._consumer.consume(500, 0.05)
            self.results += [
                result_decoder.decode(message.value() or b"") for message in messages if not message.error()
            ]
            assert time.monotonic() < deadline, (self.fleet.actuator.replicas(), self.monitor.observe())

    def outcomes(self) -> dict[int, str]:
        """Of each event that has a terminal result."""
        return {result.id: result.outcome for result in self.results if result.terminal and result.id is not None}

    def tasks_done(self) -> int:
        """Of all topics of a network, as their apps report."""
        topics = self.fleet.actuator.view().topics
        return sum(topic.app.completed for topic in topics)

    def kill(self, program: str) -> None:
        name = f"{self.scene.spec.run}:{program}"
        pid = Supervisor(self.scene.endpoints.supervisor).programs(name)[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


@contextmanager
def fleet_scene(
    endpoints: Endpoints, folder: Path, system: QueueSystem | NetworkSystem, make: Callable[..., Any], **fields: Any
) -> Iterator[FleetScene]:
    values = {name: getattr(endpoints, name) for name in ("kafka", "redis", "rabbitmq", "signing_key")}
    plain = {name: value if isinstance(value, str) else value.get_secret_value() for name, value in values.items()}
    admin = AdminClient({"bootstrap.servers": endpoints.kafka})
    with pytest.MonkeyPatch.context() as patch, rabbit_scene(endpoints, folder, system, **fields) as scene:
        for name, value in plain.items():
            patch.setenv(f"PENSTOCK_{name.upper()}", value)  # as the world gives them to the controller
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.delenv("PENSTOCK_SCRAPE_TARGETS", raising=False)
        topic = scene.spec.results_topic
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)
        kinds = np.zeros(1, np.int16)
        Schedule(np.zeros(1, np.int64), kinds, duration_s=60).write(scene.directory.schedule_file)
        opened = FleetScene(scene, make)
        try:
            yield opened
        finally:
            opened.close()
            admin.delete_topics([topic])[topic].result(30)


BANK = QueueSystem(
    service_rate_per_s=50.0,
    service_law="deterministic",
    capacity=30,
    when_full="hold",
    max_containers=4,
    ramp_s=0.5,
    pool_initial=1,
)


def test_no_event_is_lost_while_queues_come_and_go_and_everybody_is_killed(
    queue_services: Endpoints, tmp_path: Path
) -> None:
    with fleet_scene(queue_services, tmp_path, BANK, QueueFleet, initial_replicas=1, max_replicas=3) as opened:
        main = opened.scene.main
        opened.send(range(300), main)
        up = Decision(action="up", targets={"bank": 2}, routing={"bank-1": 0.5, "bank-2": 0.5}, pool=1)
        opened.fleet.actuator.apply(up)
        opened.wait(lambda: len(opened.outcomes()) > 50)
        opened.kill("forwarder")
        opened.kill("bank-1")
        opened.send(range(300, 600), main)
        opened.wait(lambda: len(opened.outcomes()) > 250)
        down = Decision(action="down", targets={"bank": 1}, routing={"bank-2": 1.0}, pool=1)
        opened.fleet.actuator.apply(down)
        state = opened.fleet.snapshot()
        opened.fleet.stop()
        opened.start(state)
        opened.monitor._depths.close()
        opened.monitor = opened.fleet.monitor(time.time(), lambda: False)
        opened.wait(lambda: len(opened.outcomes()) == 600)
        assert set(opened.outcomes().values()) == {"completed"}
        opened.wait(lambda: opened.fleet.actuator.replicas().get("bank-1") == "pooled")
        observation = opened.monitor.observe()
        assert isinstance(observation, QueueObservation)
        opened.wait(lambda: opened.monitor.observe().backlog == 0)
        seen = opened.monitor.observe()
        assert seen.service_rate_per_s is not None
        assert seen.arrived is not None and seen.arrived > 550, "a killed forwarder forgets what it did last"
        assert observation.routing == {"bank-2": 1.0}
        (queue,) = observation.queues
        # The floor is exact; what a busy machine adds is not.
    assert queue.service_rate_per_s is not None and 5 < queue.service_rate_per_s < 50.5


def test_functions_that_pull_share_the_main_queue(queue_services: Endpoints, tmp_path: Path) -> None:
    system = msgspec.structs.replace(BANK, forwarding="pull", capacity=None, pool_initial=0, when_removed="destroy")
    with fleet_scene(queue_services, tmp_path, system, QueueFleet, initial_replicas=2, max_replicas=3) as opened:
        opened.send(range(200), opened.scene.main)
        opened.wait(lambda: len(opened.outcomes()) > 60)
        opened.fleet.actuator.apply(Decision(action="down", targets={"bank": 1}))
        opened.wait(lambda: len(opened.outcomes()) == 200)
        opened.wait(lambda: list(opened.fleet.actuator.replicas()) == ["bank-1"])
        opened.wait(lambda: opened.monitor.observe().completed == 200)
        seen = opened.monitor.observe()
        assert (seen.arrived, seen.backlog, seen.in_flight) == (200, 0, 0)
        assert {result.worker.rpartition(".")[0] for result in opened.results} == {"bank-1", "bank-2"}


NETWORK = NetworkSystem(
    topics=(TopicSpec(topic="A", service_rate_per_s=40.0), TopicSpec(topic="D", service_rate_per_s=40.0)),
    jobs=(
        JobSpec(job="1", route=("A", "D"), arrival_rate_per_s=1.0),
        JobSpec(job="2", route=("A", "D", "D"), arrival_rate_per_s=1.0),
    ),
    window_s=30.0,
)


def test_jobs_go_their_routes_and_the_monitor_sees_what_they_did(queue_services: Endpoints, tmp_path: Path) -> None:
    with fleet_scene(
        queue_services, tmp_path, NETWORK, NetworkFleet, fleet="network", initial_replicas=1, max_replicas=5
    ) as opened:
        first = topic_queue(opened.scene.spec.run, "A")
        opened.send(range(50), first, job="1")
        opened.send(range(50, 100), first, job="2")
        opened.fleet.actuator.apply(Decision(action="up", targets={"A": 2, "D": 3}))
        opened.wait(lambda: len(opened.outcomes()) == 100)
        assert opened.fleet.counts().current == 5
        # Apps report apart: the monitor is asked when no report is older than what its app did last.
        opened.wait(lambda: opened.tasks_done() == 250)
        opened.wait(lambda: opened.monitor.observe().completed == 100)
        seen = opened.monitor.observe()
        assert isinstance(seen, NetworkObservation)
        assert (seen.arrived, seen.backlog) == (100, 0)
        a, d = seen.topics
        assert (a.completed, d.completed) == (100, 150)
        for topic in (a, d):
            assert topic.service_rate_per_s is not None and 4 < topic.service_rate_per_s < 60
            assert topic.service_scv is not None
        assert [job.arrived for job in seen.jobs] == [50, 50]
        assert seen.response_time_s is not None and seen.response_time_s > 0
        state = opened.fleet.snapshot()
        opened.fleet.stop()
        opened.start(state)
        opened.wait(opened.fleet.ready)
        assert list(opened.fleet.actuator.replicas()) == ["A-1", "A-2", "D-1", "D-2", "D-3"]
        opened.fleet.actuator.apply(Decision(action="down", targets={"D": 1}))
        opened.wait(lambda: list(opened.fleet.actuator.replicas()) == ["A-1", "A-2", "D-1"])
