"""A small run of its own: private topics, group and ledger, preloaded payments, real worker processes; leaves nothing.

Used by calibration; benchmarks and live tests extend it.
"""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from consumers.ledger import Ledger
from penstock.adapters.kafka import assign_from_start, broker_errors, make_consumer, make_producer, values
from penstock.adapters.redis import redis_errors
from penstock.adapters.topics import admin_client, create_topics, delete_group, delete_topics
from penstock.errors import PenstockError
from penstock.records import Event, Payment, Result, encode, result_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec, WorkerSpec
from penstock.settings import Endpoints
from penstock.signing import Signer

LOOK_S = 5.0
"""How long to look for an absent broker."""
FLUSH_S = 30.0
SERVICES = ("kafka", "redis", "signing_key")


def private_spec(purpose: str, worker: WorkerSpec, **fields: Any) -> RunSpec:
    """A run whose name begins with ``purpose``; ``fields``: those that differ from the defaults."""
    run = f"{purpose}-{secrets.token_hex(4)}"
    scaler = ScalerSpec(name="none")
    return RunSpec(run=run, experiment=purpose, world="local", scaler=scaler, duration_s=0, worker=worker, **fields)


class PrivateRun:
    """Context manager; entering raises PenstockError in one line if a service is away."""

    def __init__(self, endpoints: Endpoints, spec: RunSpec) -> None:
        self.endpoints = endpoints
        self.spec = spec
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.topics = {self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1}
        self._kafka = endpoints.require("kafka")
        self._signer = Signer(endpoints.signing_key_bytes(), self.spec.run)
        self._folder = tempfile.TemporaryDirectory(prefix=f"{self.spec.run}-")
        self._admin = admin_client(self._kafka)
        self._producer = make_producer(self._kafka, linger_ms=5)
        self._consumer = make_consumer(self._kafka, f"{self.spec.run}.reader", fetch_wait_max_ms=50)
        self._unread: deque[bytes] = deque()

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

    def send(self, ids: Iterable[int]) -> list[int]:
        """Publish events until they are delivered, ids taken in turn by the partitions. Returns the ids."""
        sent = list(ids)
        for event_id in sent:
            self.send_raw(encode(self.event(event_id)), event_id % self.spec.partitions)
        self.flush()
        return sent

    def send_raw(self, value: bytes, partition: int = 0) -> None:
        """Publish any bytes."""
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
        if self._producer.flush(FLUSH_S) > 0:
            raise PenstockError(f"{self.spec.events_topic}: the broker did not take the events within {FLUSH_S:g} s")

    def results(self, quiet_s: float) -> Iterator[Result]:
        """Results as they come; ends when none has come for ``quiet_s``. The next call continues from there."""
        if not self._consumer.assignment():
            assign_from_start(self._consumer, self.spec.results_topic, [0])
        until = time.monotonic() + quiet_s
        while time.monotonic() < until:
            self._unread.extend(values(self._consumer.consume(500, 0.1)))
            while self._unread:
                yield result_decoder.decode(self._unread.popleft())
                until = time.monotonic() + quiet_s

    # --- workers -----------------------------------------------------------------------------------------------------

    def start(self, replica: str) -> "subprocess.Popen[bytes]":
        """Start a worker process; its log is ``<replica>.log`` in the run directory."""
        with (self.path / f"{replica}.log").open("ab") as log:
            process = subprocess.Popen(
                self.worker_command(replica), env=self.environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.processes[replica] = process
        return process

    def environment(self) -> dict[str, str]:
        """Of a worker process: the services, and no controller, so that the group is assigned by range."""
        services = {f"PENSTOCK_{name.upper()}": self.endpoints.require(name) for name in SERVICES}
        inherited = {name: value for name, value in os.environ.items() if name != "PENSTOCK_SCRAPE_TARGETS"}
        return {**inherited, **services, "PENSTOCK_CONTROLLER": ""}

    def worker_command(self, replica: str) -> Sequence[str]:
        """The command of a worker process."""
        return [sys.executable, "-m", "consumers.worker", "--run", str(self.path), "--replica", replica]

    def stop(self, replica: str, timeout_s: float = 10.0) -> int:
        """SIGTERM, wait, exit code."""
        process = self.processes[replica]
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout_s)

    def log(self, replica: str) -> str:
        """The log of a worker."""
        return (self.path / f"{replica}.log").read_text()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_services(self) -> None:
        with broker_errors(f"Kafka at {self._kafka}", ": start it with `penstock up`"):
            self._admin.list_topics(timeout=LOOK_S)
        with redis_errors(": start it with `penstock up`"):
            self.ledger.booked_ids()

    def _make_channels(self) -> None:
        create_topics(self._admin, self.topics)

    def _delete_channels(self) -> None:
        delete_group(self._admin, self.spec.group)
        delete_topics(self._admin, tuple(self.topics))


def example_payment(number: int) -> Payment:
    """A valid payment; same number, same payment."""
    return Payment(
        account=f"account-{number % 997}",
        merchant=f"merchant-{number % 89}",
        amount_cents=100 + (number * 7919) % 250_000,
        currency=("EUR", "USD", "GBP")[number % 3],
        country=("DE", "US", "GB")[number % 3],
    )
