"""A run on RabbitMQ for live tests: its directory, its queues, events into them and out of them. Leaves nothing."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pika

from controller.fleets.queue.routing import ForwarderReport, Routing
from controller.fleets.queue.routing_store import RoutingBoard
from penstock.adapters.amqp import PUBLISHED_NS, main_queue, sub_queue
from penstock.adapters.app_boards import AppBoard
from penstock.records import Event, encode
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem, QueueSystem
from tests.support.broker_view import BrokerView
from tests.support.eventually import eventually

FLEET = "bank"
TIMEOUT_S = 60.0


class RabbitScene:
    """One run. ``publish`` and ``take`` have a connection of their own, made anew for each call."""

    def __init__(self, endpoints: Endpoints, folder: Path, system: QueueSystem | NetworkSystem, **fields: Any) -> None:
        self.endpoints = endpoints
        self.spec = RunSpec(
            run=f"test-{secrets.token_hex(4)}",
            experiment="test",
            world="local",
            scaler=ScalerSpec(name="none"),
            duration_s=60,
            system=system,
            **{"fleet": FLEET, **fields},
        )
        self.directory = RunDirectory(folder)
        self.directory.logs_folder.mkdir(exist_ok=True)
        self.directory.write(self.directory.spec_file, self.spec)
        self.management = BrokerView(endpoints.require("rabbitmq_management"))
        self.apps = AppBoard(endpoints.require("redis"), self.spec.run)
        self.board = RoutingBoard(endpoints.require("redis"), self.spec.run)
        self.processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.management.delete_run(self.spec.run)
        self.management.close()

    # --- queues ------------------------------------------------------------------------------------------------------

    @property
    def main(self) -> str:
        return main_queue(self.spec.run)

    def queue(self, replica: str) -> str:
        return sub_queue(self.spec.run, replica)

    def declare(self, *queues: str, bound: int | None = None) -> None:
        for queue in queues:
            if bound is not None:
                self.management.bound_queue(queue, bound)
            self.management.declare_queue(queue)

    def event(self, event_id: int) -> bytes:
        now_ns = time.time_ns()
        return encode(
            Event(
                id=event_id,
                run=self.spec.run,
                pipeline=self.spec.pipeline,
                key="k",
                intended_ns=now_ns,
                sent_ns=now_ns,
                payload=msgspec.Raw(b"{}"),
                mac="",
            )
        )

    def publish(self, ids: Iterable[int], queue: str | None = None) -> None:
        """Events into the main queue, with the properties that a sender gives them, but not confirmed one by one."""
        with self._channel() as channel:
            for event_id in ids:
                properties = pika.BasicProperties(
                    delivery_mode=2, message_id=str(event_id), headers={PUBLISHED_NS: time.time_ns()}
                )
                channel.basic_publish("", queue or self.main, self.event(event_id), properties)

    def take(self, queue: str, most: int = 1_000_000) -> list[int]:
        """Ids of what waits in a queue, in order, acknowledged."""
        ids: list[int] = []
        with self._channel() as channel:
            while len(ids) < most:
                method, _, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    break
                ids.append(msgspec.json.decode(body)["id"])
        return ids

    def depths(self, *queues: str) -> tuple[int, ...]:
        with self._channel() as channel:
            return tuple(channel.queue_declare(queue, passive=True).method.message_count for queue in queues)

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        connection = pika.BlockingConnection(pika.URLParameters(self.endpoints.require("rabbitmq")))
        try:
            yield connection.channel()
        finally:
            connection.close()

    # --- the forwarder -----------------------------------------------------------------------------------------------

    def route(self, shares: Mapping[str, float], version: int = 1) -> None:
        self.board.route(Routing(version, shares))

    def forwarder(self, *options: str) -> "subprocess.Popen[bytes]":
        """Start one."""
        return self.run("forwarder", "-m", "controller.fleets.queue.forwarder", *options)

    def run(self, name: str, *program: str) -> "subprocess.Popen[bytes]":
        """Start ``python PROGRAM --run DIRECTORY``."""
        secret = ("redis", "rabbitmq", "rabbitmq_management", "signing_key")
        values = {key: self.endpoints.require(key) for key in (*secret, "kafka", "supervisor")}
        environment = {**os.environ, **{f"PENSTOCK_{key.upper()}": value for key, value in values.items()}}
        environment.pop("PENSTOCK_SCRAPE_TARGETS", None)
        command = (sys.executable, *program, "--run", str(self.directory.path))
        with (self.directory.logs_folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def end(self, process: "subprocess.Popen[bytes]") -> int:
        process.send_signal(signal.SIGTERM)
        return process.wait(TIMEOUT_S)

    def report(self) -> ForwarderReport:
        return self.board.forwarder() or ForwarderReport(0)

    def log(self, name: str) -> str:
        return (self.directory.logs_folder / f"{name}.log").read_text()


def wait(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Until it holds."""
    eventually(condition, lambda: f"not within {TIMEOUT_S:g} s: {what()}", within_s=TIMEOUT_S)


@contextmanager
def rabbit_scene(
    endpoints: Endpoints, folder: Path, system: QueueSystem | NetworkSystem, **fields: Any
) -> Iterator[RabbitScene]:
    opened = RabbitScene(endpoints, folder, system, **fields)
    try:
        yield opened
    finally:
        opened.close()


def repeated(ids: Iterable[int]) -> int:
    """How many came more than once."""
    return sum(count > 1 for count in Counter(ids).values())
