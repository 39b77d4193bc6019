"""The processes of one run, whatever its fleet: controller, Spark, sender and replicas, and what is done to them."""

import math
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Protocol

import msgspec
import redis

from infra.local.collect import MachineSampler, copy_ledger, copy_results
from infra.local.state import tail
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import JsonLines, RunDirectory
from penstock.runspec import Fault, FaultKind, FaultRecord, RunSpec
from penstock.settings import Endpoints
from penstock.supervision import Program, Supervisor
from penstock.topics import admin_client, delete_topics

READY_TIMEOUT_S = 180.0
LEAD_S = 3.0
"""Between the decision to start and offset 0: the sender loads its schedule and signs ahead meanwhile."""
DRAIN_STALL_S = 30.0
"""A drain in which nothing moves for this long is given up; what is left counts as in flight."""
DRAIN_POLL_S = 0.5


class RunServices(Protocol):
    """What a run asks of the world's services."""

    def endpoints(self) -> Endpoints:
        """Addresses and secrets of what is up."""
        ...

    def environment(self) -> dict[str, str]:
        """All of the environment of the run's processes."""
        ...

    def stop_service(self, name: str) -> None:
        """Stop a service gracefully; returns when it has ended."""
        ...

    def start_service(self, name: str) -> None:
        """Start a stopped service, and wait until it answers."""
        ...


class LocalRun(ABC):
    """What all kinds share. Every process is a program of the supervisor, named ``<run>:<part>``. A kind says what it
    needs besides Kafka and Redis, what it prepares, when it is drained and what else can go wrong.
    """

    needs: ClassVar[tuple[str, ...]] = ("kafka", "redis", "prometheus")
    """Services that must be up."""
    parts: ClassVar[tuple[str, ...]] = ("sender", "controller", "pipelines")
    """Programs that are no replicas."""
    controller_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, services: RunServices, spec: RunSpec, directory: RunDirectory) -> None:
        self.services = services
        self.spec = spec
        self.directory = RunDirectory(directory.path.absolute())
        self.environment = services.environment()
        self.endpoints = services.endpoints()
        self.supervisor = Supervisor(self.endpoints.require("supervisor"))
        self.admin = admin_client(self.endpoints.require("kafka"))
        self.sampler = MachineSampler()
        self.faults = JsonLines(self.directory.faults_file)
        self.timers: list[threading.Timer] = []

    # --- what a kind says of itself ----------------------------------------------------------------------------------

    @abstractmethod
    def make_channels(self) -> None:
        """Topics and queues through which events and results go."""

    @abstractmethod
    def left(self) -> int | None:
        """Acknowledged events that have no outcome yet, None if that can't be read now."""

    def add_parts(self) -> None:  # noqa: B027 - most have none
        """Processes beside the controller that the kind has; started once it brings up the replicas."""

    def clear_channels(self) -> None:
        """Remove what ``make_channels`` and the run's processes have made; when no process is left."""
        delete_topics(self.admin, [self.spec.events_topic, self.spec.results_topic])

    def close_readers(self) -> None:  # noqa: B027 - not all have some
        """Close what ``left`` has opened."""

    # --- life of the run ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Channels, then Spark (its start is the costly one), then the controller, which brings up the replicas."""
        self.make_channels()
        if self.spec.analytics:
            self.add("pipelines", "pipelines.stream", respawn=True, grace_s=60)
        self.add("controller", "controller.main", *self.controller_options, respawn=True, grace_s=30)
        self.add_parts()
        self.await_file("controller", self.directory.controller_ready_file)
        if self.spec.analytics:
            self.await_file("pipelines", self.directory.path / "pipelines-ready")

    def start(self) -> RunSpec:
        """Offset 0 is a whole second, a few ahead."""
        start_s = math.ceil(time.time() + LEAD_S)
        self.spec = msgspec.structs.replace(self.spec, start_ns=start_s * NANOS_PER_SECOND)
        self.directory.write(self.directory.spec_file, self.spec)
        self.add("sender", "producers.send", respawn=False, grace_s=60)
        self.sampler.start()
        return self.spec

    def wait_until(self, offset_s: float) -> None:
        """Sleep in short steps, looking after the sender."""
        until_s = self.spec.start_ns / NANOS_PER_SECOND + offset_s
        while (remaining_s := until_s - time.time()) > 0:
            if not self.alive("sender") and not self.directory.delivery_file.is_file():
                raise self.died("sender")
            time.sleep(min(0.5, remaining_s))

    def drain(self) -> int:
        """Until the sender has written its reports and no event is left, or until nothing has moved for a while: how
        many are left.
        """
        self.wait_while(lambda: self.alive("sender"), "sender", timeout_s=180)
        if not self.directory.delivery_file.is_file():
            raise self.died("sender")
        before: int | None = None
        moved_s = time.monotonic()
        try:
            while time.monotonic() - moved_s < DRAIN_STALL_S:
                left = self.left()
                if left == 0:
                    return 0
                if left is not None and left != before:
                    before, moved_s = left, time.monotonic()
                time.sleep(DRAIN_POLL_S)
        finally:
            self.close_readers()
        return before or 0

    def collect(self) -> None:
        """Controller first, so that it does not replace the replicas; they next; then Spark, with all results read."""
        self._end_timers()
        self.sampler.stop()
        self.supervisor.remove(self.name("controller"))
        self._remove_replicas()
        for part in self.parts:
            self.supervisor.remove(self.name(part))
        copy_results(self.endpoints.require("kafka"), self.spec.results_topic, self.directory.results_folder)
        copy_ledger(self.endpoints.require("redis"), self.spec.ledger_key, self.directory.ledger_file)
        self.sampler.write(self.directory.metrics_folder / "machine.parquet")

    def close(self) -> None:
        """Stop what still belongs to the run, remove its channels and its keys."""
        self._end_timers()
        self.sampler.stop()
        self.faults.close()
        self.close_readers()
        for name in self.supervisor.programs(prefix=f"{self.spec.run}:"):
            self.supervisor.remove(name, wait=False)
        self.wait_while(lambda: bool(self.supervisor.programs(prefix=f"{self.spec.run}:")), "run", timeout_s=90)
        self.clear_channels()
        client = redis.Redis.from_url(self.endpoints.require("redis"))
        keys = list(client.scan_iter(match=f"penstock:{self.spec.run}:*", count=1000))
        if keys:
            client.delete(*keys)
        client.close()

    # --- faults ------------------------------------------------------------------------------------------------------

    @property
    def broker(self) -> str:
        """The service that events go through."""
        return "kafka"

    def inject(self, fault: Fault) -> None:
        """See ``penstock.runspec.FaultKind``; every one is written to faults.jsonl."""
        at_ns = time.time_ns()
        action = self.actions().get(fault.kind)
        if action is None:
            raise PenstockError(f"--fault {fault}: this run has {', '.join(self.actions())}")
        detail = action(fault.seconds)
        self.faults.append(FaultRecord(kind=fault.kind, at_ns=at_ns, seconds=fault.seconds, detail=detail))

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """What is done for each kind of fault, given for how long; returns to whom."""
        return {
            "kill-worker": self._kill_worker,
            "freeze-workers": self._freeze_workers,
            "stop-broker": lambda seconds: self._stop_service(self.broker, seconds),
            "restart-redis": lambda seconds: self._stop_service("redis", seconds),
            "kill-controller": lambda _: self.kill("controller"),
            "blind-monitor": self._blind_monitor,
        }

    def kill(self, part: str) -> str:
        """SIGKILL a part; the supervisor starts it again."""
        self.supervisor.signal(self.name(part), signal.SIGKILL)
        return part

    def _kill_worker(self, _: float) -> str:
        replicas = self._replicas()
        if not replicas:
            return "no worker was running"
        self.supervisor.signal(replicas[0], signal.SIGKILL)
        return replicas[0]

    def _freeze_workers(self, seconds: float) -> str:
        replicas = self._replicas()
        for name in replicas:
            self.supervisor.signal(name, signal.SIGSTOP)

        def thaw() -> None:
            for name in replicas:
                self.supervisor.signal(name, signal.SIGCONT)

        self._later(seconds, thaw)
        return ", ".join(replicas)

    def _stop_service(self, service: str, seconds: float) -> str:
        self.services.stop_service(service)
        self._later(seconds, lambda: self.services.start_service(service))
        return service

    def _blind_monitor(self, seconds: float) -> str:
        blind = self.directory.blind_file
        blind.touch()
        self._later(seconds, lambda: blind.unlink(missing_ok=True))
        return "monitor"

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        """Undo a fault after a while; an unfinished one is undone at once when the run ends."""
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self.timers.append(timer)
        timer.start()

    def _end_timers(self) -> None:
        for timer in self.timers:
            if timer.is_alive():
                timer.cancel()
                timer.function(*timer.args, **timer.kwargs)
            timer.join()
        self.timers.clear()

    # --- programs ----------------------------------------------------------------------------------------------------

    def name(self, part: str) -> str:
        """A part's program."""
        return f"{self.spec.run}:{part}"

    def add(self, part: str, module: str, *options: str, respawn: bool, grace_s: float) -> None:
        """Start ``python -m module --run DIRECTORY``."""
        self.supervisor.add(
            Program(
                name=self.name(part),
                command=(sys.executable, "-m", module, "--run", str(self.directory.path), *options),
                folder=self.directory.path,
                log=self._log(part),
                env=self.environment,
                respawn=respawn,
                grace_s=grace_s,
            )
        )

    def alive(self, part: str) -> bool:
        """Whether it runs, or is about to run again."""
        program = self.supervisor.programs(prefix=self.name(part)).get(self.name(part))
        return program is not None and program.state not in ("stopped", "failed")

    def await_file(self, part: str, file: Path) -> None:
        """Until a part has written a file. PenstockError if it ends before."""

        def missing() -> bool:
            if not self.alive(part):
                raise self.died(part)
            return not file.exists()

        self.wait_while(missing, part, timeout_s=READY_TIMEOUT_S)

    def wait_while(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Until it does not hold any more. PenstockError after ``timeout_s``."""
        deadline_s = time.monotonic() + timeout_s
        while condition():
            if time.monotonic() > deadline_s:
                raise PenstockError(f"{what}: not done after {timeout_s:g} s; see {self.directory.logs_folder}")
            time.sleep(0.05)

    def died(self, part: str) -> PenstockError:
        """The error that says so, with the end of its log."""
        return PenstockError(f"{part} ended before its time; the end of {self._log(part)}:\n{tail(self._log(part))}")

    def _log(self, part: str) -> Path:
        return self.directory.logs_folder / f"{part}.log"

    def _replicas(self) -> list[str]:
        own = {self.name(part) for part in self.parts}
        programs = self.supervisor.programs(prefix=f"{self.spec.run}:")
        return sorted(name for name, program in programs.items() if name not in own and program.pid is not None)

    def _remove_replicas(self) -> None:
        replicas = self._replicas()
        for name in replicas:
            self.supervisor.remove(name, wait=False)
        self.wait_while(lambda: bool(self._replicas()), "replicas", timeout_s=30)
