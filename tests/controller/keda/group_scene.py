"""A consumer group on a real Kafka, and ``penstock keda`` as a process beside it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from infra.local.ports import free_port
from infra.local.services import LocalServices
from penstock.adapters.topics import admin_client
from tests.controller.keda.keda_client import health
from tests.support.eventually import eventually

SCALER = Path(__file__).parent / "scaler_by_backlog.py"
PARTITIONS = 4


class Group:
    """A topic, and a consumer group whose commits are set by hand."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.kafka, self.topic, self.name = kafka, topic, f"{topic}-group"
        self.consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": self.name, "enable.auto.commit": False, "log_level": 0}
        )
        self.producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
        self.ends = [0] * PARTITIONS

    def send(self, count: int, *, to: int | None = None) -> None:
        """To one partition, or to all in turn."""
        for number in range(count):
            partition = number % PARTITIONS if to is None else to
            self.producer.produce(self.topic, b"{}", partition=partition)
            self.ends[partition] += 1
        assert self.producer.flush(30) == 0

    def commit(self, *, lag: int = 0, by: Consumer | None = None) -> None:
        """Everything was consumed but ``lag`` events of the first partition. With members: ``by`` one."""
        ends = [end - (lag if partition == 0 else 0) for partition, end in enumerate(self.ends)]
        offsets = [TopicPartition(self.topic, partition, end) for partition, end in enumerate(ends)]
        (by or self.consumer).commit(offsets=offsets, asynchronous=False)

    def add_partitions(self, count: int) -> None:
        """Returns when the producer knows them."""
        wanted, admin = len(self.ends) + count, admin_client(self.kafka)
        admin.create_partitions([NewPartitions(self.topic, wanted)])[self.topic].result(30)
        self.ends += [0] * count

        def known() -> bool:
            return len(self.producer.list_topics(self.topic, timeout=10).topics[self.topic].partitions) == wanted

        eventually(known, "the producer knows the new partitions")


class Service:
    """``penstock keda`` as a process, which can be replaced by another at the same address."""

    def __init__(self, group: Group, folder: Path, kafka: str = "", settings: Mapping[str, str] | None = None) -> None:
        self.address, self.log = f"127.0.0.1:{free_port()}", folder / "service.log"
        self._command = ("keda", "--kafka", kafka or group.kafka, "--topic", group.topic, "--group", group.name)
        self._environment = {"PATH": os.environ["PATH"], **(settings or {})}
        self.channel = grpc.insecure_channel(self.address)
        self.start()

    def start(self) -> None:
        """Returns when it answers."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from penstock.command import main; main()", *self._command,
                 "--listen", self.address, "--scaler", f"{SCALER}:ByBacklog"],
                stdout=output, stderr=output, env=self._environment,
            )  # fmt: skip
        eventually(self._answers, "an answer of the health service")

    def _answers(self) -> bool:
        with contextlib.suppress(grpc.RpcError):
            return health(self.channel) == 1
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def ended(made: Service) -> Iterator[Service]:
    """The service ends with the block."""
    try:
        yield made
    finally:
        made.channel.close()
        made.kill()


class Members:
    """Consumers that join a group and read nothing: a fleet's pods. Made when each has partitions."""

    def __init__(self, group: Group, count: int) -> None:
        settings = {"bootstrap.servers": group.kafka, "group.id": group.name, "enable.auto.commit": False}
        self.consumers = [Consumer({**settings, "log_level": 0}) for _ in range(count)]
        for consumer in self.consumers:
            consumer.subscribe([group.topic])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        eventually(lambda: all(each.assignment() for each in self.consumers), "partitions for each member")

    def _poll(self) -> None:
        while not self._ended.is_set():
            for consumer in self.consumers:
                consumer.poll(0.05)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for consumer in self.consumers:
            consumer.close()


@contextlib.contextmanager
def frozen(services: LocalServices) -> Iterator[None]:
    """The broker is stopped by SIGSTOP: connections stay, nothing is answered."""
    (pid,) = (program.pid for service, program in services.status() if service.name == "kafka")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
