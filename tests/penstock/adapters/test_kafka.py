"""Clients of a broker that is away: they write nothing to the terminal, and a wait for it can be ended."""

import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from controller.fleets.stream.offset_reader import OffsetReader
from infra.local.collect import OutcomeCounter
from infra.local.ports import free_port
from penstock.adapters.kafka import Stall, make_consumer, make_producer, read_topic
from penstock.adapters.result_topic import ResultTopic
from penstock.adapters.topics import admin_client
from penstock.clock import WallClock
from penstock.errors import PenstockError
from penstock.records import Result, result_decoder
from penstock.settings import Endpoints
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[3]
RETRIED_S = 0.7
"""Several attempts to connect."""


def poll_consumer(kafka: str) -> None:
    make_consumer(kafka, "g").consume(1, timeout=RETRIED_S)


def flush_producer(kafka: str) -> None:
    producer = make_producer(kafka)
    producer.produce("topic", b"value")
    producer.flush(RETRIED_S)
    producer.purge()


def ask_admin(kafka: str) -> None:
    with pytest.raises(Exception, match=r"transport failure|timed out"):
        admin_client(kafka).list_topics(timeout=RETRIED_S)


def publish_result(kafka: str) -> None:
    topic = ResultTopic(kafka, "results", "c")
    topic.publish(Result(1, "r", "p", "s", "completed", "q", 1, 1, 1, 1, 1, "w"))
    topic.flush(RETRIED_S)


def count_outcomes(kafka: str) -> None:
    OutcomeCounter(kafka, "results", "r", 1).count()
    time.sleep(RETRIED_S)


def read_offsets(kafka: str) -> None:
    reader = OffsetReader(bootstrap=kafka, topic="t", group="g", partitions=1, clock=WallClock(), timeout_s=RETRIED_S)
    assert reader.read().unknown


@pytest.mark.parametrize(
    "use", [poll_consumer, flush_producer, ask_admin, publish_result, count_outcomes, read_offsets]
)
def test_clients_of_a_broker_that_is_away_write_nothing(
    use: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    use(f"127.0.0.1:{free_port()}")
    assert capfd.readouterr() == ("", "")


def test_reading_a_topic_ends_by_what_its_check_raises() -> None:
    checked: list[float] = []

    def check() -> None:
        checked.append(time.monotonic())
        if len(checked) == 2:
            raise PenstockError("kafka has died")

    with pytest.raises(PenstockError, match="kafka has died"):
        list(read_topic(f"127.0.0.1:{free_port()}", "topic", 60.0, check))


def test_every_client_takes_the_shared_settings() -> None:
    packages = ("penstock", "controller", "producers", "consumers", "functions", "pipelines", "infra", "experiments")
    text = {file: file.read_text() for package in packages for file in (ROOT / package).rglob("*.py")}
    made = {file.name for file, code in text.items() if re.search(r"\b(Consumer|Producer|AdminClient)\((\{|\n)", code)}
    assert made <= {"kafka.py", "topics.py", "result_topic.py", "group_members.py"}, "a client beside the adapters"
    taken = {file.name for file, code in text.items() if "librdkafka_settings(" in code}
    assert taken == {"kafka.py", "kafka_security.py"}, "a client without the shared settings"


@pytest.fixture
def soon_lost(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address at which a client never finds its broker, which counts after a second."""
    monkeypatch.setattr("penstock.adapters.kafka.STALLED_S", 1.0)
    return f"127.0.0.1:{free_port()}"


def test_a_broker_that_is_away_is_no_reason_for_a_new_client(soon_lost: str) -> None:
    stall = Stall(soon_lost)
    assert not stall.is_lost(), "not long enough"
    until_s = time.monotonic() + 4
    while time.monotonic() < until_s:
        assert not stall.is_lost(), "a new client has no answer either"
        time.sleep(0.1)


@pytest.mark.smoke
def test_results_of_a_client_that_has_lost_its_broker_go_out_by_a_new_one(services: Endpoints, soon_lost: str) -> None:
    name = f"test-lost-{secrets.token_hex(6)}"
    admin = admin_client(services.require("kafka"))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    topic = ResultTopic(services.require("kafka"), name, "c")
    topic._producer = make_producer(soon_lost)
    out: list[int] = []
    for number in range(50):
        topic.publish(Result(number, "r", "p", "s", "completed", "q", 1, 1, 1, 1, 1, "w"), lambda: out.append(1))
    assert topic.flush(30) == 0 and len(out) == 50
    ids = {result_decoder.decode(value).id for value in read_topic(services.require("kafka"), name, 10)}
    assert ids == set(range(50))
    admin.delete_topics([name])[name].result(10)


@pytest.mark.smoke
def test_offsets_are_read_by_a_new_client_after_one_has_lost_its_broker(services: Endpoints, soon_lost: str) -> None:
    name = f"test-lost-{secrets.token_hex(6)}"
    admin = admin_client(services.require("kafka"))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    reader = OffsetReader(
        bootstrap=services.require("kafka"), topic=name, group="g", partitions=1, clock=WallClock(), timeout_s=1.0
    )
    reader._consumer = make_consumer(soon_lost, "g")
    eventually(lambda: reader.read().end == {0: 0}, "the end offset stays unknown")
    reader.close()
    admin.delete_topics([name])[name].result(10)
