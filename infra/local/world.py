"""The local world: one run on real services, with controller, sender, Spark and replicas as processes of this machine.

Every process is a program of the supervisor, named ``<run>:<part>``, so that whatever ends this one (also SIGKILL)
leaves nothing that ``penstock down`` would not find.
"""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import redis

from controller.monitors.kafka import OffsetReader
from infra.local.collect import MachineSampler, copy_ledger, copy_results
from infra.local.services import LocalServices
from infra.local.state import tail
from infra.local.topics import admin_client, create_topics, delete_topics
from infra.local.warm_up import warm_up
from penstock.clock import NANOS_PER_SECOND, WallClock
from penstock.errors import PenstockError
from penstock.rundir import JsonLines, RunDirectory
from penstock.runspec import Fault, FaultRecord, RunSpec
from penstock.supervision import Program, Supervisor
from penstock.world import Progress

READY_TIMEOUT_S = 180.0
LEAD_S = 3.0
"""Between the decision to start and offset 0: the sender loads its schedule and signs ahead meanwhile."""
DRAIN_STALL_S = 30.0
"""A drain in which nothing moves for this long is given up; what is left counts as in flight."""


class LocalWorld:
    """World port on this machine. Services that were not up are brought up, and taken down again at the end."""

    def __init__(self, tell: Progress = lambda _: None, services: LocalServices | None = None) -> None:
        self._services = services or LocalServices.from_settings(tell)
        self._started_services = False
        self._run: _Run | None = None

    def __enter__(self) -> Self:
        self._started_services = not self._services.is_up()
        endpoints = self._services.up()
        if self._started_services:
            warm_up(endpoints.require("kafka"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._started_services:
            self._services.down()

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Topics, then Spark (its start is the costly one), then the controller, which brings up the replicas."""
        self._run = _Run(self._services, spec, directory)
        self._run.prepare()

    def start(self) -> RunSpec:
        """Offset 0 is a whole second, a few ahead."""
        return self._current.start()

    def wait_until(self, offset_s: float) -> None:
        """Sleep in short steps, looking after the sender and the controller."""
        self._current.wait_until(offset_s)

    def inject(self, fault: Fault) -> None:
        """See ``penstock.runspec.FaultKind``; every one is written to faults.jsonl."""
        self._current.inject(fault)

    def drain(self) -> int:
        """Until the sender has written its reports and the group has committed everything."""
        return self._current.drain()

    def collect(self) -> None:
        """Controller first, so that it does not replace the replicas; they next; then Spark, with all results read."""
        self._current.collect()

    def close(self) -> None:
        """Idempotent."""
        if self._run is not None:
            self._run.close()
            self._run = None

    @property
    def _current(self) -> "_Run":
        if self._run is None:
            raise PenstockError("the local world has no run: prepare one first")
        return self._run


class _Run:
    """The processes and topics of one run."""

    def __init__(self, services: LocalServices, spec: RunSpec, directory: RunDirectory) -> None:
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

    # --- life of the run ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        create_topics(self.admin, {self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1})
        if self.spec.analytics:
            self._add("pipelines", "pipelines.stream", respawn=True, grace_s=60)
        self._add("controller", "controller.main", respawn=True, grace_s=20)
        self._await("controller", self.directory.path / "controller-ready")
        if self.spec.analytics:
            self._await("pipelines", self.directory.path / "pipelines-ready")

    def start(self) -> RunSpec:
        start_s = math.ceil(time.time() + LEAD_S)
        self.spec = msgspec.structs.replace(self.spec, start_ns=start_s * NANOS_PER_SECOND)
        self.directory.write(self.directory.spec_file, self.spec)
        self._add("sender", "producers.send", respawn=False, grace_s=60)
        self.sampler.start()
        return self.spec

    def wait_until(self, offset_s: float) -> None:
        until_s = self.spec.start_ns / NANOS_PER_SECOND + offset_s
        while (remaining_s := until_s - time.time()) > 0:
            if not self._alive("sender") and not self.directory.delivery_file.is_file():
                raise self._died("sender")
            time.sleep(min(0.5, remaining_s))

    def drain(self) -> int:
        """Events left: 0, or what the group had not committed when nothing had moved for a while."""
        self._wait_while(lambda: self._alive("sender"), "sender", timeout_s=180)
        if not self.directory.delivery_file.is_file():
            raise self._died("sender")
        reader = OffsetReader(
            bootstrap=self.endpoints.require("kafka"),
            topic=self.spec.events_topic,
            group=self.spec.group,
            partitions=self.spec.partitions,
            clock=WallClock(),
            timeout_s=5.0,
        )
        try:
            return _wait_for_the_last(reader, self.spec.partitions)
        finally:
            reader.close()

    def collect(self) -> None:
        self._end_timers()
        self.sampler.stop()
        self.supervisor.remove(self._name("controller"))
        self._remove_replicas()
        self.supervisor.remove(self._name("pipelines"))
        copy_results(self.endpoints.require("kafka"), self.spec.results_topic, self.directory.results_folder)
        copy_ledger(self.endpoints.require("redis"), self.spec.ledger_key, self.directory.ledger_file)
        self.sampler.write(self.directory.metrics_folder / "machine.parquet")

    def close(self) -> None:
        self._end_timers()
        self.sampler.stop()
        self.faults.close()
        for name in self.supervisor.programs(prefix=f"{self.spec.run}:"):
            self.supervisor.remove(name, wait=False)
        self._wait_while(lambda: bool(self.supervisor.programs(prefix=f"{self.spec.run}:")), "run", timeout_s=90)
        delete_topics(self.admin, [self.spec.events_topic, self.spec.results_topic])
        client = redis.Redis.from_url(self.endpoints.require("redis"))
        keys = list(client.scan_iter(match=f"penstock:{self.spec.run}:*", count=1000))
        if keys:
            client.delete(*keys)
        client.close()

    # --- faults ------------------------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        actions: dict[str, Callable[[float], str]] = {
            "kill-worker": self._kill_worker,
            "freeze-workers": self._freeze_workers,
            "stop-broker": self._stop_broker,
            "restart-redis": self._restart_redis,
            "kill-controller": self._kill_controller,
            "blind-monitor": self._blind_monitor,
        }
        at_ns = time.time_ns()
        detail = actions[fault.kind](fault.seconds)
        self.faults.append(FaultRecord(kind=fault.kind, at_ns=at_ns, seconds=fault.seconds, detail=detail))

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

    def _stop_broker(self, seconds: float) -> str:
        self.services.stop_service("kafka")
        self._later(seconds, lambda: self.services.start_service("kafka"))
        return "kafka"

    def _restart_redis(self, seconds: float) -> str:
        self.services.stop_service("redis")
        self._later(seconds, lambda: self.services.start_service("redis"))
        return "redis"

    def _kill_controller(self, _: float) -> str:
        self.supervisor.signal(self._name("controller"), signal.SIGKILL)
        return "controller"

    def _blind_monitor(self, seconds: float) -> str:
        blind = self.directory.path / "blind"
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

    def _name(self, part: str) -> str:
        return f"{self.spec.run}:{part}"

    def _add(self, part: str, module: str, *, respawn: bool, grace_s: float) -> None:
        self.supervisor.add(
            Program(
                name=self._name(part),
                command=(sys.executable, "-m", module, "--run", str(self.directory.path)),
                folder=self.directory.path,
                log=self._log(part),
                env=self.environment,
                respawn=respawn,
                grace_s=grace_s,
            )
        )

    def _log(self, part: str) -> Path:
        return self.directory.logs_folder / f"{part}.log"

    def _alive(self, part: str) -> bool:
        """Whether it runs, or is about to run again."""
        program = self.supervisor.programs(prefix=self._name(part)).get(self._name(part))
        return program is not None and program.state not in ("stopped", "failed")

    def _replicas(self) -> list[str]:
        own = {self._name(part) for part in ("sender", "controller", "pipelines")}
        programs = self.supervisor.programs(prefix=f"{self.spec.run}:")
        return sorted(name for name, program in programs.items() if name not in own and program.pid is not None)

    def _remove_replicas(self) -> None:
        replicas = self._replicas()
        for name in replicas:
            self.supervisor.remove(name, wait=False)
        self._wait_while(lambda: bool(self._replicas()), "replicas", timeout_s=30)

    def _await(self, part: str, file: Path) -> None:
        def missing() -> bool:
            if not self._alive(part):
                raise self._died(part)
            return not file.exists()

        self._wait_while(missing, part, timeout_s=READY_TIMEOUT_S)

    def _wait_while(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while condition():
            if time.monotonic() > deadline_s:
                raise PenstockError(f"{what}: not done after {timeout_s:g} s; see {self.directory.logs_folder}")
            time.sleep(0.05)

    def _died(self, part: str) -> PenstockError:
        return PenstockError(f"{part} ended before its time; the end of {self._log(part)}:\n{tail(self._log(part))}")


def _wait_for_the_last(reader: OffsetReader, partitions: int) -> int:
    """Until the group has committed everything, or its lag has not changed for a while: what is left. A partition whose
    offsets cannot be read is taken as not done.
    """
    left: int | None = None
    moved_s = time.monotonic()
    while time.monotonic() - moved_s < DRAIN_STALL_S:
        reading = reader.read()
        lag = sum(end - reading.committed.get(partition, 0) for partition, end in reading.end.items())
        if lag == 0 and len(reading.end) == partitions:
            return 0
        if lag != left:
            left, moved_s = lag, time.monotonic()
        time.sleep(0.5)
    return left or 0
