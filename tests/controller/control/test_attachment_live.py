"""``penstock control`` on a real Kafka with somebody else's consumers, those of docs/examples/own-consumers."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from typer.testing import CliRunner

from controller.journal import TickRecord, read_replica_events, read_ticks
from infra.local.orphans import marked, stop_marked
from penstock.command import build
from penstock.contracts import StreamObservation
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.settings import Endpoints
from tests.controller.control.scaler_by_load import LAST
from tests.support.eventually import eventually
from tests.support.secure_kafka import PASSWORD, SecureKafka

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "docs" / "examples" / "own-consumers"
SCALER = Path(__file__).parent / "scaler_by_load.py"
PARTITIONS = 4
PATIENCE_S = 90.0


class Attached:
    """``penstock control`` as a process, with a state folder and runs of its own."""

    def __init__(self, kafka: str, topic: str, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.kafka, self.topic, self.group = kafka, topic, "own"
        self.folder = folder
        self.log = folder / "control.log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "PENSTOCK_STATE": str(folder),
            "PENSTOCK_RUNS": str(folder / "runs"),
            **(settings or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, consumer: str | Path) -> None:
        with self.log.open("ab") as output:
            self.process = self._popen(output, EXAMPLES / consumer)

    def _popen(self, output: IO[bytes], script: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", "from penstock.command import main; main()", "control",
             "--kafka", self.kafka, "--topic", self.topic, "--group", self.group, "--max-replicas", "3",
             "--scaler", f"{SCALER}:ByLoad", "--", sys.executable, str(script)],
            stdout=output, stderr=subprocess.STDOUT, env=self.environment, cwd=self.folder,
        )  # fmt: skip

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory.open(max((self.folder / "runs").iterdir()))

    def ticks(self) -> list[TickRecord]:
        return list(read_ticks(self.directory))

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def consumed(self) -> dict[str, list[int]]:
        """Events by replica, from what the consumers wrote into their logs."""
        events = defaultdict(list)
        for log in self.folder.glob("runs/*/logs/own-*.log"):
            for line in log.read_text().splitlines():
                words = line.split()
                if len(words) == 3 and words[0].startswith("own-") and words[2].isdigit():
                    events[words[0]].append(int(words[2]))
        return events

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        eventually(condition, lambda: f"{what}: not in time\n{self.log.read_text()[-4000:]}", within_s=PATIENCE_S)

    def interrupt(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENCE_S)


@pytest.fixture
def attached(services: Endpoints, topic: Callable[[int], str], state_folder: Path) -> Iterator[Attached]:
    with ended(Attached(services.kafka, topic(PARTITIONS), state_folder)) as made:
        yield made


@contextmanager
def ended(made: Attached) -> Iterator[Attached]:
    """Whatever is left running in its folder is ended afterwards. The folder's path is short enough for a socket."""
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        for folder in made.folder.glob("control-*"):
            stop_marked(folder, grace_s=0)


def send(kafka: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


@pytest.mark.live
@pytest.mark.parametrize("consumer", ["consumer.py", "plain.py"])
def test_somebody_elses_consumers_are_scaled_up_under_load_and_back_and_nothing_is_lost(
    attached: Attached, consumer: str
) -> None:
    attached.start(consumer)
    attached.wait("the first replica", lambda: attached.said("its journal is"))
    send(attached.kafka, attached.topic, range(LAST // 2))
    attached.wait("two replicas", lambda: attached.said("1 → 2 replicas, up: "))
    sent = LAST // 2

    def both_have_had_one() -> bool:
        # A first consumer that is quick leaves nothing of the first half for the second: some more, a few at a time.
        nonlocal sent
        if len(attached.consumed()) < 2 and sent < LAST - PARTITIONS:
            send(attached.kafka, attached.topic, range(sent, sent + PARTITIONS))
            sent += PARTITIONS
            time.sleep(0.5)
        return len(attached.consumed()) == 2

    attached.wait("both at work", both_have_had_one)
    # Those that report have joined when they say so, the others when the group has them as members.
    attached.wait("a tick with both", lambda: any(tick.observation.replicas.joined == 2 for tick in attached.ticks()))
    if consumer == "consumer.py":
        # The uneven plan was followed: nobody but the assignor gives one consumer a single partition of four.
        attached.wait(
            "the uneven plan",
            lambda: any(sorted(map(len, assigned(tick).values())) == [1, 3] for tick in attached.ticks()),
        )
    send(attached.kafka, attached.topic, range(sent, LAST))
    attached.wait("one replica again", lambda: attached.said(f"2 → 1 replicas, down: {LAST} arrived"))
    attached.wait("one gone", lambda: [e.phase for e in read_replica_events(attached.directory)].count("gone") == 1)
    assert attached.interrupt() == 0

    consumed = attached.consumed()
    assert {number for numbers in consumed.values() for number in numbers} == set(range(LAST))
    assert len(consumed) == 2
    ticks = attached.ticks()
    assert {tick.acting for tick in ticks} == {"by-load"}
    phases = [event.phase for event in read_replica_events(attached.directory)]
    assert phases.count("gone") == phases.count("requested") == 2, attached.log.read_text()
    assert not marked(attached.folder / "control-own")
    assert "Traceback" not in attached.log.read_text()


def assigned(tick: TickRecord) -> Mapping[str, tuple[int, ...]]:
    assert isinstance(tick.observation, StreamObservation)
    return tick.observation.assigned


@pytest.mark.live
def test_a_killed_controller_finds_its_consumers_again_and_a_second_one_is_refused(attached: Attached) -> None:
    attached.start("plain.py")
    attached.wait("the first replica", lambda: attached.said("its journal is"))
    attached.wait("a tick", lambda: attached.directory.decisions_file.exists())
    first = attached.process
    assert first is not None
    attached.start("plain.py")
    assert attached.process is not None
    assert attached.process.wait(timeout=PATIENCE_S) == 2
    assert attached.said("another `penstock control` looks after it")

    attached.wait("its consumer", lambda: bool(marked(attached.folder / "control-own")))
    first.kill()
    first.wait()
    attached.start("plain.py")
    attached.wait("the replica of before", lambda: attached.said("found own-1 running already"))
    assert attached.interrupt() == 0
    assert not marked(attached.folder / "control-own")


@pytest.mark.live
def test_a_consumer_that_crashes_is_named_with_its_log_and_started_again(attached: Attached, tmp_path: Path) -> None:
    script = tmp_path / "crashes.py"
    script.write_text("import os, time; time.sleep(1); raise SystemExit(os.environ['PENSTOCK_REPLICA'] + ': broken')")
    attached.start(script)
    attached.wait("a word about it", lambda: attached.said("own-1: process ") and attached.said("ended by itself; see"))
    attached.wait("another try", lambda: own_log(attached).count("own-1: broken") >= 2)
    assert attached.interrupt() == 0
    assert not marked(attached.folder / "control-own")


@pytest.mark.live
def test_a_group_behind_tls_and_a_login_is_scaled_and_the_password_is_written_nowhere(
    secure_kafka: SecureKafka, state_folder: Path
) -> None:
    topic = "orders-of-control"
    secure_kafka.make_topic(topic, PARTITIONS)
    for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, "own")):
        secure_kafka.allow(kind, name, AclOperation.READ)  # what consumers need anyway
    settings = secure_kafka.settings("SASL_SSL")
    with ended(Attached(secure_kafka.address("SASL_SSL"), topic, state_folder, settings)) as attached:
        attached.start("consumer.py")
        attached.wait("the first replica", lambda: attached.said("its journal is"))
        send(secure_kafka.address("PLAINTEXT"), topic, range(LAST // 2))
        attached.wait("two replicas", lambda: attached.said("1 → 2 replicas, up: "))
        attached.wait("both", lambda: any(tick.observation.replicas.joined == 2 for tick in attached.ticks()))
        send(secure_kafka.address("PLAINTEXT"), topic, range(LAST // 2, LAST))
        attached.wait("one replica again", lambda: attached.said(f"2 → 1 replicas, down: {LAST} arrived"))
        attached.wait("one gone", lambda: "gone" in [e.phase for e in read_replica_events(attached.directory)])
        assert attached.interrupt() == 0
        assert {number for numbers in attached.consumed().values() for number in numbers} == set(range(LAST))
        files = [each for each in state_folder.rglob("*") if each.is_file()]
        assert attached.log in files and attached.directory.decisions_file in files
        assert not [each for each in files if PASSWORD in each.read_text(errors="replace")]
        assert "Traceback" not in attached.log.read_text()


@pytest.mark.live
def test_a_wrong_password_is_one_line_and_nothing_is_started(secure_kafka: SecureKafka, state_folder: Path) -> None:
    settings = secure_kafka.settings("SASL_SSL", SASL_PASSWORD="wrong-one")
    with ended(Attached(secure_kafka.address("SASL_SSL"), "orders", state_folder, settings)) as attached:
        attached.start("plain.py")
        assert attached.process is not None and attached.process.wait(PATIENCE_S) == 2
        (line,) = attached.log.read_text().splitlines()
        assert "refuses user 'shop' by SCRAM-SHA-512: is the password in PENSTOCK_KAFKA_SASL_PASSWORD right?" in line
        assert "wrong-one" not in line
        assert [each.name for each in state_folder.iterdir()] == [attached.log.name]


def own_log(attached: Attached) -> str:
    return (attached.directory.logs_folder / "own-1.log").read_text()


def test_what_is_wrong_is_told_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def told(*arguments: str) -> str:
        group = ("--kafka", "127.0.0.1:1", "--topic", "t", "--group", "g")
        error = CliRunner().invoke(build(), ["control", *group, *arguments]).exception
        assert isinstance(error, PenstockError)
        return str(error)

    assert "which command runs one consumer?" in told("--scaler", "linear")
    assert "unknown scaler 'linaer' (did you mean linear" in told("--scaler", "linaer", "--", "true")
    assert "there is no program nowhere-to-be-found" in told("--scaler", "linear", "--", "nowhere-to-be-found")
    assert "scaler 'multiqueue' reads QueueObservation" in told("--scaler", "multiqueue", "--", "true")
    assert not list(tmp_path.iterdir())
