"""The sender on RabbitMQ: every event once, at its time, in the queue where it belongs; a full queue rejects."""

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import SecretStr

from infra.local.services import LocalServices
from penstock.adapters.amqp import AmqpDelivery, Link, Management, ManagementError, main_queue, topic_queue
from penstock.errors import PenstockError
from penstock.records import Event, Result, event_decoder, result_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.signing import Signer
from penstock.systems import JobSpec, NetworkSystem, QueueSystem, System, TopicSpec
from producers.delivery import SenderFigures
from producers.rabbit import RabbitSender, queues_of
from producers.schedule import make_schedule
from producers.workloads.synthetic import Constant
from tests.support.broker_view import BrokerView

KEY = bytes(range(32))
PATIENCE_S = 120.0
BANK = QueueSystem(service_rate_per_s=10.0)
NETWORK = NetworkSystem(
    topics=(TopicSpec(topic="A", service_rate_per_s=1.0), TopicSpec(topic="B", service_rate_per_s=1.0)),
    jobs=(
        JobSpec(job="one", route=("A", "B"), arrival_rate_per_s=1.0),
        JobSpec(job="two", route=("B",), arrival_rate_per_s=1.0),
    ),
)


def spec_of(system: System, run: str = "r", lead_s: float = 0.0) -> RunSpec:
    return RunSpec(
        run=run, experiment="test", world="local", scaler=ScalerSpec(name="none"), duration_s=1.0, system=system,
        start_ns=int((time.time() + lead_s) * 1e9),
    )  # fmt: skip


def kinds(*of_events: int) -> Schedule:
    return Schedule(np.zeros(len(of_events), dtype=np.int64), np.asarray(of_events, dtype=np.int16), 1.0)


def test_a_sender_waits_for_a_broker_that_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = [ManagementError("no answer"), (), ("r.main",)]
    waited: list[float] = []

    def names(self: Management, kind: str, run: str) -> object:
        if isinstance(answer := answers.pop(0), ManagementError):
            raise answer
        return answer

    monkeypatch.setattr(Management, "names", names)
    monkeypatch.setattr("producers.rabbit.RabbitClient", lambda *_: SimpleNamespace(open=waited.append))
    endpoints = Endpoints(rabbitmq_management=SecretStr("http://u:p@127.0.0.1:1"))
    RabbitSender(spec_of(BANK), kinds(0), KEY, endpoints).check_topic(60.0)
    assert (answers, waited) == ([], [60.0])


def test_events_of_a_bank_go_to_the_main_queue_and_jobs_to_the_first_topic_of_their_route() -> None:
    assert queues_of(spec_of(BANK), kinds(0, 3)) == ["r.main"] * 4
    assert queues_of(spec_of(NETWORK), kinds(0)) == ["r.topic.A", "r.topic.B"]
    with pytest.raises(PenstockError, match="job type 2, the network has 2"):
        queues_of(spec_of(NETWORK), kinds(2))


# --- a real broker ----------------------------------------------------------------------------------------------------


class Sending:
    """One run with its queues, its results topic and its sender as a process."""

    def __init__(self, endpoints: Endpoints, folder: Path) -> None:
        self.endpoints = endpoints
        self.directory = RunDirectory(folder / f"test-sender-{secrets.token_hex(6)}")
        self.directory.path.mkdir()
        self.run = self.directory.name
        self.management = BrokerView(endpoints.require("rabbitmq_management"), timeout_s=PATIENCE_S)
        self.admin = AdminClient({"bootstrap.servers": endpoints.kafka})
        self.results_topic = f"{self.run}.results"
        self.admin.create_topics([NewTopic(self.results_topic, 1, 1)])[self.results_topic].result(PATIENCE_S)
        self.process: subprocess.Popen[str] | None = None

    def begin(self, system: System, schedule: Schedule, *queues: str, lead_s: float = 3.0) -> "subprocess.Popen[str]":
        for queue in queues:
            self.management.declare_queue(queue)
        self.directory.write(self.directory.spec_file, spec_of(system, self.run, lead_s))
        schedule.write(self.directory.schedule_file)
        environment = {
            "PENSTOCK_KAFKA": self.endpoints.kafka,
            "PENSTOCK_RABBITMQ": self.endpoints.require("rabbitmq"),
            "PENSTOCK_RABBITMQ_MANAGEMENT": self.endpoints.require("rabbitmq_management"),
            "PENSTOCK_SIGNING_KEY": KEY.hex(),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "producers.send", "--run", str(self.directory.path)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self.process

    def figures(self) -> SenderFigures:
        assert self.process is not None
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, errors
        return msgspec.json.decode(out.splitlines()[-1], type=SenderFigures)

    def events(self, queue: str, wanted: int) -> list[Event]:
        link = Link(self.endpoints.require("rabbitmq"), "test", prefetch=0)
        came: list[AmqpDelivery] = []
        try:
            link.open(PATIENCE_S)
            link.consume(queue, came.append)
            until_s = time.monotonic() + PATIENCE_S
            while len(came) < wanted and time.monotonic() < until_s:
                link.serve(0.1)
            for _ in range(3):  # and none more
                link.serve(0.1)
        finally:
            link.close()
        return [event_decoder.decode(delivery.body) for delivery in came]

    def results(self, wanted: int) -> list[Result]:
        consumer = Consumer({"bootstrap.servers": self.endpoints.kafka, "group.id": self.run})
        try:
            consumer.assign([TopicPartition(self.results_topic, 0, 0)])
            messages = consumer.consume(wanted, PATIENCE_S)
            return [result_decoder.decode(message.value() or b"") for message in messages]
        finally:
            consumer.close()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self.management.delete_run(self.run)
        self.management.close()
        self.admin.delete_topics([self.results_topic])[self.results_topic].result(PATIENCE_S)


@pytest.fixture
def sending(queue_services: Endpoints, tmp_path: Path) -> Iterator[Sending]:
    made = Sending(queue_services, tmp_path)
    yield made
    made.close()


def constant(rate_per_s: float, duration_s: float) -> Schedule:
    return make_schedule(Constant(rate_per_s=rate_per_s, duration_s=duration_s), seed=1, partitions=1)


@pytest.mark.live
def test_every_event_arrives_once_signed_not_before_its_time(sending: Sending) -> None:
    schedule, queue = constant(200, 2), main_queue(sending.run)
    sending.begin(BANK, schedule, queue)
    figures = sending.figures()
    assert figures.scheduled == figures.issued == figures.acknowledged == len(schedule) == 400
    rows = pq.read_table(sending.directory.delivery_file).to_pydict()
    assert rows["error"] == rows["offset"] == [None] * 400
    assert np.all(np.array(rows["sent_ns"]) >= rows["intended_ns"])
    assert np.all(np.array(rows["acked_ns"]) >= rows["sent_ns"])
    events = sending.events(queue, 400)
    assert [event.id for event in events] == list(range(400))
    signer = Signer(KEY, sending.run)
    assert all(signer.verify(event) and event.sent_ns == rows["sent_ns"][event.id] for event in events)


@pytest.mark.live
def test_a_full_queue_rejects_and_says_so_and_nothing_is_lost(sending: Sending) -> None:
    schedule, queue = constant(100, 1), main_queue(sending.run)
    sending.management.bound_queue(queue, 30)
    sending.begin(BANK, schedule, queue)
    figures = sending.figures()
    assert (figures.acknowledged, figures.never_sent) == (100, 0)
    rejected = sending.results(70)
    held = sending.events(queue, 30)
    assert {result.outcome for result in rejected} == {"rejected"}
    assert {(result.queue, result.stage, result.terminal) for result in rejected} == {("main", "payments", True)}
    assert sorted([*(event.id for event in held), *(result.id or 0 for result in rejected)]) == list(range(100))


@pytest.mark.live
def test_each_job_goes_to_the_first_topic_of_its_route_under_its_name(sending: Sending) -> None:
    schedule = kinds(0, 1, 1, 0, 1)
    first = [topic_queue(sending.run, topic) for topic in ("A", "B")]
    sending.begin(NETWORK, schedule, *first)
    assert sending.figures().acknowledged == 5
    assert [(event.id, event.job) for event in sending.events(first[0], 2)] == [(0, "one"), (3, "one")]
    assert [(event.id, event.job) for event in sending.events(first[1], 3)] == [(1, "two"), (2, "two"), (4, "two")]


@pytest.mark.live
def test_a_broker_that_restarts_costs_lateness_and_no_event(sending: Sending, local_services: LocalServices) -> None:
    schedule, queue = constant(100, 6), main_queue(sending.run)
    process = sending.begin(BANK, schedule, queue)
    until_s = time.monotonic() + PATIENCE_S
    while not sending.management.queues(sending.run)[queue].published:
        assert time.monotonic() < until_s and process.poll() is None
        time.sleep(0.2)
    local_services.stop_service("rabbitmq")
    local_services.start_service("rabbitmq")
    figures = sending.figures()
    assert (figures.acknowledged, figures.never_sent) == (600, 0)
    assert {event.id for event in sending.events(queue, 600)} == set(range(600))


@pytest.mark.live
def test_sigterm_ends_sending_and_what_was_sent_is_written(sending: Sending) -> None:
    schedule, queue = constant(50, 600), main_queue(sending.run)
    process = sending.begin(BANK, schedule, queue)
    until_s = time.monotonic() + PATIENCE_S
    while not sending.management.queues(sending.run)[queue].published:
        assert time.monotonic() < until_s and process.poll() is None
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    figures = sending.figures()
    assert 0 < figures.acknowledged < len(schedule)
    assert len(sending.events(queue, figures.acknowledged)) == figures.acknowledged


@pytest.mark.live
@pytest.mark.when_changed("producers")
def test_a_queue_that_is_not_there_is_told_in_one_line_before_anything_is_sent(sending: Sending) -> None:
    process = sending.begin(BANK, constant(10, 1))
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert f"RabbitMQ has no queue {main_queue(sending.run)}: the controller makes the queues" in errors
    assert not sending.directory.delivery_file.exists()
