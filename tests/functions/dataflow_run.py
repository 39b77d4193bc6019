"""One run of a pipeline on real services: its topics, ledger and directory, and managers for it."""

import asyncio
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from pydantic import SecretStr

from functions.dataflow.connectors.connector import Connector
from functions.dataflow.connectors.kafka import KafkaConnector
from functions.dataflow.flow import Patience
from functions.dataflow.graph import Pipeline
from functions.dataflow.manager import PipelineManager
from penstock.adapters.topics import admin_client, create_topics, delete_topics
from penstock.function_messages import PipelineSnapshot, snapshot_key
from penstock.measures import Conservation, conservation
from penstock.records import Event, Result, encode, result_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.signing import Signer
from penstock.systems import FunctionSpec, FunctionSystem
from tests.support.eventually import eventually

WAIT_S = 90.0
PATIENCE = Patience(attempts=3, timeout_s=30.0, backoff_s=0.02)


class Run:
    """One run with its topics, ledger and directory."""

    def __init__(self, services: Endpoints, gateway: str, functions: tuple[FunctionSpec, ...], folder: Path) -> None:
        self.endpoints = services.model_copy(update={"gateway": SecretStr(gateway)})
        self.spec = RunSpec(
            run=f"test-{secrets.token_hex(4)}",
            experiment="e",
            world="local",
            scaler=ScalerSpec(name="rps"),
            duration_s=10,
            partitions=2,
            fleet="pipe",
            pipeline="diamond",
            system=FunctionSystem(functions=functions, deadline_s=30.0),
        )
        self.folder = folder / self.spec.run
        self.folder.mkdir()
        self.directory = RunDirectory(self.folder)
        self.directory.write(self.directory.spec_file, self.spec)
        self.signer = Signer(self.endpoints.signing_key_bytes(), self.spec.run)
        self.admin = admin_client(services.kafka)
        create_topics(self.admin, {self.spec.events_topic: 2, self.spec.results_topic: 1})
        self.redis = redis.Redis.from_url(self.endpoints.require("redis"))
        self.producer = Producer(
            {"bootstrap.servers": services.kafka, "linger.ms": 0}, logger=logging.getLogger("test")
        )
        self.reader = Consumer(
            {"bootstrap.servers": services.kafka, "group.id": f"{self.spec.run}.test", "auto.offset.reset": "earliest"},
            logger=logging.getLogger("test"),
        )
        self.reader.assign([TopicPartition(self.spec.results_topic, 0, 0)])
        self.sent = 0
        self.results: list[Result] = []

    def close(self) -> None:
        self.reader.close()
        delete_topics(self.admin, [self.spec.events_topic, self.spec.results_topic])
        for key in self.redis.scan_iter(match=f"penstock:{self.spec.run}:*"):
            self.redis.delete(key)
        self.redis.close()

    def event(self, number: int, payload: bytes = b'{"n": 1}') -> bytes:
        now_ns = time.time_ns()
        return encode(
            Event(
                id=number, run=self.spec.run, pipeline="diamond", key=f"k{number}", intended_ns=now_ns, sent_ns=now_ns,
                payload=msgspec.Raw(payload), mac=self.signer.sign(number, payload),
            )
        )  # fmt: skip

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self.send_raw(self.event(number), number)
        self.sent += count
        assert self.producer.flush(30) == 0

    def send_raw(self, value: bytes, number: int = 0) -> None:
        self.producer.produce(self.spec.events_topic, value, partition=number % 2)
        self.producer.flush(30)

    def terminal(self) -> list[Result]:
        while messages := self.reader.consume(1000, timeout=0.05):
            self.results += [result_decoder.decode(m.value() or b"") for m in messages if m.error() is None]
        return [result for result in self.results if result.terminal]

    def until_terminal(self, count: int) -> list[Result]:
        self.wait(lambda: len({(r.id, r.reason if r.id is None else "") for r in self.terminal()}) >= count)
        return self.terminal()

    def wait(self, condition: Callable[[], bool]) -> None:
        eventually(
            condition, lambda: (self.log(), [(r.id, r.stage, r.outcome) for r in self.terminal()][-9:]), within_s=WAIT_S
        )

    def log(self) -> str:
        file = self.folder / "log"
        return file.read_text()[-2000:] if file.exists() else ""

    def snapshot(self) -> PipelineSnapshot:
        self.wait(lambda: bool(self.redis.exists(snapshot_key(self.spec.run))))  # the first comes a moment after ready
        return msgspec.json.decode(self.redis.get(snapshot_key(self.spec.run)) or b"", type=PipelineSnapshot)

    def lag(self) -> int:
        partitions = [TopicPartition(self.spec.events_topic, p) for p in range(2)]
        asker = Consumer({"bootstrap.servers": self.endpoints.kafka, "group.id": self.spec.group})
        try:
            committed = asker.committed(partitions, timeout=20)
            return sum(asker.get_watermark_offsets(c, timeout=20)[1] - max(0, c.offset) for c in committed)
        finally:
            asker.close()

    def balance(self) -> Conservation:
        """The run's conservation from what is written down, as an experiment takes it."""
        results = self.terminal()
        outcomes: dict[str, Any] = {
            outcome: np.asarray([r.id for r in results if r.outcome == outcome and r.id is not None], dtype=np.int64)
            for outcome in ("completed", "failed", "dead-lettered")
        }
        ledger = np.asarray(sorted(int(f) for f in self.redis.hkeys(self.spec.ledger_key)), dtype=np.int64)
        return conservation(
            scheduled=self.sent, acknowledged=np.arange(self.sent), booked=ledger, results=outcomes,
            result_rows=sum(r.id is not None for r in results),
        )  # fmt: skip

    # --- the manager -------------------------------------------------------------------------------------------------

    @contextmanager
    def process(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """``python -m functions.dataflow``, ready."""
        ready = self.folder / "dataflow-ready"
        ready.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PENSTOCK_KAFKA": self.endpoints.kafka,
            "PENSTOCK_REDIS": self.endpoints.require("redis"),
            "PENSTOCK_GATEWAY": self.endpoints.require("gateway"),
            "PENSTOCK_SIGNING_KEY": self.endpoints.require("signing_key"),
        }
        command = [sys.executable, "-m", "functions.dataflow", "--run", str(self.folder), *options]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            self.wait(lambda: ready.exists() or process.poll() is not None)
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            assert process.wait(60) in (0, -signal.SIGKILL), self.log()

    @contextmanager
    def manager(
        self, connector: Callable[[Mapping[str, int]], Connector] | None = None, patience: Patience = PATIENCE
    ) -> Iterator[PipelineManager]:
        """A manager in a thread of this process, ready."""
        started, failures = threading.Event(), list[BaseException]()
        assert isinstance(self.spec.system, FunctionSystem)
        made = PipelineManager(
            self.spec,
            Pipeline.of_system("diamond", self.spec.system),
            self.endpoints,
            connector or self.kafka,
            patience,
        )
        loop: list[asyncio.AbstractEventLoop] = []

        async def work() -> None:
            loop.append(asyncio.get_running_loop())
            await made.run(started.set)

        def run() -> None:
            try:
                asyncio.run(work())
            except BaseException as error:
                failures.append(error)
            finally:
                started.set()

        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(WAIT_S) and not failures, failures
        try:
            yield made
        finally:
            loop[0].call_soon_threadsafe(made.stop)
            thread.join(60)
            assert not thread.is_alive() and not failures, (failures, asyncio.all_tasks(loop[0]))

    def kafka(self, seen: Mapping[str, int]) -> KafkaConnector:
        return KafkaConnector(
            bootstrap=self.endpoints.kafka, topic=self.spec.events_topic, group=self.spec.group, partitions=2,
            client_id="test", seen=seen,
        )  # fmt: skip
