"""The sender on a real broker: every event once, where and when the schedule wants it; a stop loses no account."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from infra.local.ports import free_port
from penstock.adapters.kafka import Stall
from penstock.records import event_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.signing import Signer
from producers.schedule import make_schedule
from producers.sender import CLIENT, Sender, make_producer
from producers.workloads.synthetic import Constant

KEY = bytes(range(32))
PARTITIONS = 3

MakeRun = Callable[[Schedule, float], RunDirectory]


@pytest.fixture
def make_run(services: Endpoints, tmp_path: Path) -> Iterator[MakeRun]:
    """``make_run(schedule, lead_s)``: a run directory with its topic, to start that many seconds from now."""
    admin = AdminClient({"bootstrap.servers": services.kafka})
    topics: list[str] = []

    def make(schedule: Schedule, lead_s: float) -> RunDirectory:
        directory = RunDirectory(tmp_path / f"test-sender-{secrets.token_hex(6)}")
        directory.path.mkdir()
        spec = RunSpec(
            run=directory.name, experiment="test", world="local", scaler=ScalerSpec(name="none"), partitions=PARTITIONS,
            duration_s=schedule.duration_s, start_ns=int((time.time() + lead_s) * 1e9),
        )  # fmt: skip
        admin.create_topics([NewTopic(spec.events_topic, PARTITIONS, 1)])[spec.events_topic].result(10)
        topics.append(spec.events_topic)
        directory.write(directory.spec_file, spec)
        schedule.write(directory.schedule_file)
        return directory

    yield make
    for future in admin.delete_topics(topics).values() if topics else ():
        future.result(10)


@pytest.fixture
def sending(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[RunDirectory], "subprocess.Popen[str]"]]:
    """Starts the sender's process on a run directory; ended after the test if it has not ended itself."""
    started: list[subprocess.Popen[str]] = []
    live = any(request.node.get_closest_marker(name) for name in ("smoke", "live"))
    kafka = request.getfixturevalue("services").kafka if live else "127.0.0.1:1"

    def start(directory: RunDirectory) -> "subprocess.Popen[str]":
        environment = {
            "PATH": os.environ["PATH"],
            "PENSTOCK_KAFKA": kafka,
            "PENSTOCK_SIGNING_KEY": KEY.hex(),
            "PENSTOCK_SCRAPE_TARGETS": str(tmp_path / "targets"),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "producers.send", "--run", str(directory.path)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def values_by_partition(kafka: str, topic: str) -> dict[int, list[bytes]]:
    """Every record on the topic, in the order of each partition."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
    until_s = time.monotonic() + 20
    while sum(map(len, found.values())) < sum(ends.values()) and time.monotonic() < until_s:
        for message in consumer.consume(1000, timeout=1.0):
            assert message.error() is None
            found[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    return found


def scraped(targets: Path, counter: str) -> float:
    """A counter of the process that announces itself in a folder, once it has begun to count."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        for announcement in targets.glob("*.json"):
            address = json.loads(announcement.read_text())[0]["targets"][0]
            lines = httpx.get(f"http://{address}/metrics", trust_env=False, timeout=30).text.splitlines()
            parts = (line.rpartition(" ") for line in lines if line[:1] != "#")
            if (value := {name: float(value) for name, _, value in parts}.get(counter, 0.0)) > 0:
                return value
        time.sleep(0.1)
    raise AssertionError(f"{counter} stays at 0")


@pytest.mark.smoke
def test_every_event_arrives_once_signed_on_its_partition_not_before_its_time(
    services: Endpoints, make_run: MakeRun, sending: Callable[[RunDirectory], "subprocess.Popen[str]"]
) -> None:
    schedule = make_schedule(Constant(rate_per_s=400, duration_s=2), seed=1, partitions=PARTITIONS, arrivals="burst")
    directory = make_run(schedule, 1.5)
    spec = directory.spec()
    process = sending(directory)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors

    figures = json.loads(out.splitlines()[-1])
    assert figures["scheduled"] == figures["issued"] == figures["acknowledged"] == len(schedule) == 800
    assert (figures["failed"], figures["never_sent"], figures["issued_share"]) == (0, 0, 1.0)
    assert 0 <= figures["send_delay_p50_s"] <= figures["send_delay_p99_s"] <= figures["send_delay_max_s"]

    rows = pq.read_table(directory.delivery_file).to_pydict()
    assert list(rows) == ["id", "intended_ns", "sent_ns", "acked_ns", "partition", "offset", "error"]
    assert rows["id"] == list(range(800))
    assert rows["error"] == [None] * 800
    assert np.array_equal(rows["partition"], schedule.partition)
    assert np.array_equal(rows["intended_ns"], spec.start_ns + schedule.intended_offset_ns)
    assert np.all(np.array(rows["sent_ns"]) >= rows["intended_ns"])
    assert np.all(np.array(rows["acked_ns"]) >= rows["sent_ns"])

    seen: set[int] = set()
    for partition, values in values_by_partition(services.kafka, spec.events_topic).items():
        for offset, value in enumerate(values):
            event = event_decoder.decode(value)
            assert Signer(KEY, event.run).verify(event)
            assert event.run == spec.run
            assert (rows["partition"][event.id], rows["offset"][event.id]) == (partition, offset)
            assert rows["sent_ns"][event.id] == event.sent_ns
            seen.add(event.id)
    assert seen == set(range(800))


@pytest.mark.smoke
def test_a_client_that_has_lost_its_broker_is_replaced_and_no_event_is_lost(
    services: Endpoints, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.adapters.kafka.STALLED_S", 2.0)
    schedule = make_schedule(Constant(rate_per_s=300, duration_s=2), seed=1, partitions=PARTITIONS)
    spec = make_run(schedule, 0.2).spec()
    renewed: list[Producer] = []

    def renew() -> Producer:
        renewed.append(make_producer(services.require("kafka"), schedule))
        return renewed[-1]

    lost = make_producer(f"127.0.0.1:{free_port()}", schedule)
    sender = Sender(spec, schedule, KEY, lost, renew=renew, stall=Stall(services.require("kafka")))
    sender.run()
    assert renewed
    assert not sender.log.errors and all(sender.log.acked_ns)
    found = values_by_partition(services.kafka, spec.events_topic)
    ids = {event_decoder.decode(value).id for values in found.values() for value in values}
    assert ids == set(range(len(schedule)))


@pytest.mark.live
def test_sigterm_ends_sending_and_what_was_sent_is_written(
    services: Endpoints, make_run: MakeRun, sending: Callable[[RunDirectory], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    schedule = make_schedule(Constant(rate_per_s=200, duration_s=60), seed=1, partitions=PARTITIONS)
    directory = make_run(schedule, 1.0)
    process = sending(directory)
    told = scraped(tmp_path / "targets", f'penstock_events_sent_total{{run="{directory.name}"}}')
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    figures = json.loads(out.splitlines()[-1])

    rows = pq.read_table(directory.delivery_file).to_pydict()
    sent = [row for row, acked_ns in enumerate(rows["acked_ns"]) if acked_ns is not None]
    assert 0 < len(sent) < len(schedule)
    assert told <= len(sent)
    assert sent == list(range(len(sent)))
    assert len(sent) == figures["acknowledged"] == len(schedule) - figures["never_sent"]
    assert set(rows["error"][len(sent) :]) == {"not sent: the sender was stopped before its time"}
    assert set(rows["sent_ns"][len(sent) :]) == {None}
    on_topic = values_by_partition(services.kafka, directory.spec().events_topic)
    assert sorted(event_decoder.decode(value).id for values in on_topic.values() for value in values) == sent


@pytest.mark.live
def test_events_that_are_handed_over_in_lots_keep_to_their_partitions(services: Endpoints, make_run: MakeRun) -> None:
    events = 3000
    partition = np.random.default_rng(1).integers(0, PARTITIONS, events).astype(np.int16)
    at_once = Schedule(np.zeros(events, dtype=np.int64), partition, 1.0)
    sender = Sender(make_run(at_once, 0.0).spec(), at_once, KEY, Producer({"bootstrap.servers": services.kafka}))
    sender.run()
    assert (sender.log.issued, sender.log.acknowledged, sender.log.errors) == (events, events, {})
    for number in range(PARTITIONS):
        offsets = np.asarray(sender.log.offset)[partition == number]
        assert offsets.tolist() == list(range(len(offsets)))


@pytest.mark.live
def test_a_full_client_queue_makes_events_late_but_loses_none(services: Endpoints, make_run: MakeRun) -> None:
    events = 3000
    at_once = Schedule(np.zeros(events, dtype=np.int64), np.zeros(events, dtype=np.int16), 1.0)
    directory = make_run(at_once, 0.0)
    tight = Producer({"bootstrap.servers": services.kafka, **CLIENT, "queue.buffering.max.messages": 10})
    sender = Sender(directory.spec(), at_once, KEY, tight)
    sender.run()
    assert (sender.log.issued, sender.log.acknowledged, sender.log.errors) == (events, events, {})
    assert sorted(sender.log.offset) == list(range(events))
    assert np.all(np.diff(np.asarray(sender.log.sent_ns)) >= 0)


@pytest.mark.live
def test_a_topic_with_too_few_partitions_is_refused_before_anything_is_sent(
    make_run: MakeRun, sending: Callable[[RunDirectory], "subprocess.Popen[str]"]
) -> None:
    schedule = make_schedule(Constant(rate_per_s=200, duration_s=5), seed=1, partitions=PARTITIONS + 1)
    directory = make_run(schedule, 0.5)
    process = sending(directory)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert f"{directory.name}.events has 3 partitions, the schedule needs 4" in errors
    assert not directory.delivery_file.exists()


def test_a_directory_that_is_no_run_ends_with_one_line(
    sending: Callable[[RunDirectory], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    process = sending(RunDirectory(tmp_path))
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.startswith(f"error: {tmp_path}: not a run directory (no run.json)") and errors.count("\n") == 1
