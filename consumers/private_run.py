"""A small run of its own: private topics, group and ledger, preloaded payments, real worker processes; leaves nothing.

Calibration, benchmarks and live tests stand on it.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from consumers.ledger import Ledger
from penstock.errors import PenstockError
from penstock.records import Event, Payment, Result, encode, result_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec, WorkerSpec
from penstock.settings import Endpoints
from penstock.signing import Signer
from penstock.systems import StreamSystem, System

LOOK_S = 5.0
"""How long an absent broker is looked for."""


class PrivateRun:
    """``purpose`` begins its name. Context manager; entering raises PenstockError in one line if a service is away.

    ``controller``: base URL of a plan service of the caller; without one the group is assigned by range.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        purpose: str,
        partitions: int = 1,
        worker: WorkerSpec | None = None,
        controller: str = "",
        system: System | None = None,
    ) -> None:
        self.endpoints = endpoints
        self.controller = controller
        self.spec = RunSpec(
            run=f"{purpose}-{secrets.token_hex(4)}",
            experiment=purpose,
            world="local",
            scaler=ScalerSpec(name="none"),
            partitions=partitions,
            duration_s=0,
            worker=worker or WorkerSpec(),
            system=system or StreamSystem(),
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._signer = Signer(endpoints.signing_key_bytes(), self.spec.run)
        self._folder = tempfile.TemporaryDirectory(prefix=f"{self.spec.run}-")
        self._admin = AdminClient({"bootstrap.servers": endpoints.require("kafka"), "log_level": 0})
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._unread: deque[Message] = deque()

    @property
    def path(self) -> Path:
        """The run directory."""
        return Path(self._folder.name)

    @property
    def ledger(self) -> Ledger:
        """The run's ledger."""
        return Ledger(self.endpoints.require("redis"), self.spec.ledger_key)

    def __enter__(self) -> Self:
        try:
            self._check_services()
            self._make_channels()
        except PenstockError:
            self._folder.cleanup()
            raise
        directory = RunDirectory(self.path)
        directory.write(directory.spec_file, self.spec)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        if self._consumer is not None:
            self._consumer.close()
        self._delete_channels()
        self.ledger.erase()
        self._folder.cleanup()

    # --- events ------------------------------------------------------------------------------------------------------

    def event(self, event_id: int, payment: Payment | None = None) -> Event:
        """A signed event that is intended and sent now. The default payment depends on the id alone."""
        payload = msgspec.Raw(msgspec.json.encode(payment or example_payment(event_id)))
        now_ns = time.time_ns()
        return Event(
            id=event_id,
            run=self.spec.run,
            pipeline=self.spec.pipeline,
            key=f"account-{event_id % 997}",
            intended_ns=now_ns,
            sent_ns=now_ns,
            payload=payload,
            mac=self._signer.sign(event_id, payload),
        )

    def send(self, ids: Iterable[int], *, wait: bool = True) -> list[int]:
        """Publish events, ids taken in turn by the partitions; with ``wait`` until delivered. Returns the ids."""
        sent = list(ids)
        for event_id in sent:
            self.send_raw(encode(self.event(event_id)), event_id % self.spec.partitions)
        if wait:
            self.flush()
        return sent

    def send_raw(self, value: bytes, partition: int = 0) -> None:
        """Publish any bytes."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.endpoints.require("kafka"), "linger.ms": 5, "log_level": 2}
            )
        while True:
            try:
                self._producer.produce(self.spec.events_topic, value=value, partition=partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Wait until everything published is delivered."""
        if self._producer is not None and self._producer.flush(30) > 0:
            raise PenstockError(f"{self.spec.events_topic}: the broker did not take the events within 30 s")

    def results(self, quiet_s: float) -> Iterator[Result]:
        """Results as they come; ends when none has come for ``quiet_s``. The next call goes on where this one ended."""
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self.endpoints.require("kafka"),
                    "group.id": f"{self.spec.run}.reader",
                    "enable.auto.commit": False,
                    "fetch.wait.max.ms": 50,
                    "auto.offset.reset": "earliest",
                }
            )
            self._consumer.assign([TopicPartition(self.spec.results_topic, 0, 0)])
        until = time.monotonic() + quiet_s
        while time.monotonic() < until:
            self._unread.extend(self._consumer.consume(500, 0.1))
            while self._unread:
                message = self._unread.popleft()
                if message.error() is not None:  # the client library goes on by itself
                    continue
                yield result_decoder.decode(message.value() or b"")
                until = time.monotonic() + quiet_s

    def collect(self, wanted: int, timeout_s: float) -> list[Result]:
        """Results until ``wanted`` distinct ids have come or none comes for ``timeout_s``."""
        found: list[Result] = []
        ids: set[int | None] = set()
        for result in self.results(timeout_s):
            found.append(result)
            ids.add(result.id)
            if len(ids) >= wanted:
                break
        return found

    # --- workers -----------------------------------------------------------------------------------------------------

    def start(self, replica: str, command: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        """Start a real worker process, or another ``command`` in its place; its log is ``<replica>.log`` in the run
        directory.
        """
        environment = {
            **os.environ,
            "PENSTOCK_KAFKA": self.endpoints.require("kafka"),
            "PENSTOCK_RABBITMQ": self.endpoints.rabbitmq.get_secret_value(),
            "PENSTOCK_REDIS": self.endpoints.require("redis"),
            "PENSTOCK_SIGNING_KEY": self.endpoints.require("signing_key"),
            "PENSTOCK_CONTROLLER": self.controller,
        }
        environment.pop("PENSTOCK_SCRAPE_TARGETS", None)
        command = command or self.worker_command(replica)
        with (self.path / f"{replica}.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes[replica] = process
        return process

    def worker_command(self, replica: str) -> list[str]:
        """How a worker process of this run is started."""
        return worker_command(self.path, replica)

    def stop(self, replica: str, timeout_s: float = 10.0) -> int:
        """SIGTERM, wait, exit code."""
        process = self.processes[replica]
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout_s)

    def log(self, replica: str) -> str:
        """What a worker said."""
        return (self.path / f"{replica}.log").read_text()

    def committed(self) -> dict[int, int | None]:
        """The group's committed offset by partition, None where there is no commit."""
        sources = [TopicPartition(self.spec.events_topic, partition) for partition in range(self.spec.partitions)]
        reader = Consumer({"bootstrap.servers": self.endpoints.require("kafka"), "group.id": self.spec.group})
        try:
            found = reader.committed(sources, timeout=LOOK_S)
        finally:
            reader.close()
        return {source.partition: source.offset if source.offset >= 0 else None for source in found}

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_services(self) -> None:
        try:
            self._admin.list_topics(timeout=LOOK_S)
        except KafkaException as error:
            raise PenstockError(
                f"Kafka is not there at {self.endpoints.kafka} ({error.args[0].str()}): start it with `penstock up`"
            ) from None
        try:
            self.ledger.booked_ids()
        except Exception as error:
            raise PenstockError(f"Redis is not there ({error}): start it with `penstock up`") from None

    def _make_channels(self) -> None:
        """The topics of events and of results."""
        self._create_topics({self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1})

    def _delete_channels(self) -> None:
        """The topics, and the group."""
        with suppress(KafkaException):
            self._admin.delete_consumer_groups([self.spec.group])[self.spec.group].result(LOOK_S)
        self._delete_topics([self.spec.events_topic, self.spec.results_topic])

    def _delete_topics(self, names: list[str]) -> None:
        for future in self._admin.delete_topics(names).values():
            with suppress(KafkaException):
                future.result(LOOK_S)

    def _create_topics(self, partitions_of: Mapping[str, int]) -> None:
        topics = [
            NewTopic(name, num_partitions=partitions, replication_factor=1)
            for name, partitions in partitions_of.items()
        ]
        for name, future in self._admin.create_topics(topics).items():
            try:
                future.result(LOOK_S)
            except KafkaException as error:
                raise PenstockError(f"topic {name} cannot be created: {error.args[0].str()}") from None


def worker_command(directory: Path, replica: str) -> list[str]:
    """How a worker process is started."""
    return [sys.executable, "-m", "consumers.worker", "--run", str(directory), "--replica", replica]


def example_payment(number: int) -> Payment:
    """A valid payment; same number, same payment."""
    return Payment(
        account=f"account-{number % 997}",
        merchant=f"merchant-{number % 89}",
        amount_cents=100 + (number * 7919) % 250_000,
        currency=("EUR", "USD", "GBP")[number % 3],
        country=("DE", "US", "GB")[number % 3],
    )
