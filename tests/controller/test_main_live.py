"""The controller as a process, with real workers on a real broker: bring-up, scaling, its own death, its end."""

import logging
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import SecretStr

from controller.journal import TickRecord, read_replica_events, read_ticks
from penstock.adapters.process_manager import Program, Supervisor
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from tests.controller.scaler_by_arrivals import ENOUGH
from tests.support.eventually import eventually

SCALER = Path(__file__).parent / "scaler_by_arrivals.py"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(endpoints: Endpoints, targets: Path) -> dict[str, str]:
    given = {
        "KAFKA": endpoints.kafka,
        "REDIS": endpoints.redis.get_secret_value(),
        "SUPERVISOR": endpoints.supervisor,
        "CONTROLLER": f"http://127.0.0.1:{free_port()}",
        "SCRAPE_TARGETS": str(targets),
        "SIGNING_KEY": SecretStr(secrets.token_hex(16)).get_secret_value(),
    }
    return {"PATH": os.environ["PATH"], **{f"PENSTOCK_{name}": value for name, value in given.items()}}


class Run:
    """A run's directory and topics, its controller under the supervisor, and somebody who sends."""

    def __init__(self, services: Endpoints, folder: Path) -> None:
        self.spec = RunSpec(
            run=f"test-{secrets.token_hex(4)}",
            experiment="controller",
            world="local",
            scaler=ScalerSpec(name="by-arrivals", file=f"{SCALER}:ByArrivals"),
            shadows=(ScalerSpec(name="binpack-tail"),),
            partitions=4,
            max_replicas=3,
            duration_s=60,
        )
        self.directory = RunDirectory(folder / self.spec.run)
        self.directory.path.mkdir()
        self.directory.logs_folder.mkdir()
        self.directory.write(self.directory.spec_file, self.spec)
        self.supervisor = Supervisor(services.supervisor)
        self.environment = environment(services, folder / "targets")
        self.admin = AdminClient({"bootstrap.servers": services.kafka})
        self.producer = Producer({"bootstrap.servers": services.kafka}, logger=logging.getLogger("sender"))
        topics = [NewTopic(self.spec.events_topic, 4, 1), NewTopic(self.spec.results_topic, 1, 1)]
        for future in self.admin.create_topics(topics).values():
            future.result(10)
        self.controller = f"{self.spec.run}:controller"
        self.log = self.directory.logs_folder / "controller.log"

    def start_controller(self, *options: str) -> None:
        self.supervisor.add(
            Program(
                name=self.controller,
                command=(sys.executable, "-m", "controller.main", "--run", str(self.directory.path), *options),
                folder=self.directory.path,
                log=self.log,
                env=self.environment,
                respawn=True,
                grace_s=30,
            )
        )

    def begin(self) -> None:
        """Offset 0 is the next whole second but one."""
        start_ns = (math.ceil(time.time()) + 1) * NANOS_PER_SECOND
        self.directory.write(self.directory.spec_file, msgspec.structs.replace(self.spec, start_ns=start_ns))

    def send(self, count: int) -> None:
        """Unsigned events: they are counted as failed and the run goes on."""
        for number in range(count):
            self.producer.produce(self.spec.events_topic, b"{}", partition=number % 4)
        self.producer.flush(10)

    def pids(self) -> dict[str, int | None]:
        prefix = f"{self.spec.run}:{self.spec.fleet}-"
        return {name: program.pid for name, program in self.supervisor.programs(prefix).items()}

    def ticks(self) -> list[TickRecord]:
        try:
            return list(read_ticks(self.directory))
        except PenstockError:
            return []

    def last(self) -> TickRecord:
        self.wait("a tick", lambda: bool(self.ticks()))
        return self.ticks()[-1]

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        eventually(condition, lambda: f"{what}: not in time\n{self.log.read_text()[-3000:]}", within_s=60)

    def close(self) -> None:
        self.supervisor.remove(self.controller)
        for name in self.supervisor.programs(f"{self.spec.run}:"):
            self.supervisor.remove(name)
        for future in self.admin.delete_topics([self.spec.events_topic, self.spec.results_topic]).values():
            future.result(10)


@pytest.fixture
def run(services: Endpoints, tmp_path: Path) -> Iterator[Run]:
    opened = Run(services, tmp_path)
    yield opened
    opened.close()


@pytest.mark.live
def test_a_controller_that_is_killed_goes_on_with_the_replicas_and_states_that_exist(run: Run) -> None:
    run.start_controller("--stop-replicas")
    run.wait("ready", run.directory.controller_ready_file.exists)
    assert msgspec.json.decode(run.directory.controller_ready_file.read_bytes())["joined"] == 1
    run.begin()
    run.wait("two replicas", lambda: run.last().observation.replicas.joined == 2)
    before = run.pids()
    assert len(before) == 2

    killed_at = run.last().tick
    run.supervisor.signal(run.controller, signal.SIGKILL)
    run.wait("ticks after the kill", lambda: run.last().tick > killed_at + 3)
    assert run.pids() == before
    ticks = run.ticks()
    assert [tick.tick for tick in ticks] == sorted({tick.tick for tick in ticks})
    assert sum(tick.skipped for tick in ticks) == ticks[-1].tick + 1 - len(ticks)
    assert run.log.read_text().count("ready: ") == 2
    scaled_s = next(tick.time_s for tick in ticks if tick.accepted is not None)
    for tick in ticks:
        if tick.tick > killed_at:
            assert tick.observation.replicas.joined == 2
            assert tick.observation.last_scale_s == scaled_s
    decisions = [tick.decisions["by-arrivals"].why[run.spec.fleet]["decisions"] for tick in ticks]
    assert decisions == list(range(1, len(ticks) + 1))

    run.send(ENOUGH)
    run.wait("one replica again", lambda: len(run.pids()) == 1)
    run.supervisor.remove(run.controller)
    assert run.pids() == {}
    lives: dict[str, list[str]] = {}
    for event in read_replica_events(run.directory):
        lives.setdefault(event.replica, []).append(event.phase)
    assert list(lives) == ["payments-1", "payments-2"]
    for life in lives.values():
        assert [phase for phase in life if phase != "first-event"] == [
            "requested", "started", "joined", "draining", "gone",
        ]  # fmt: skip


@pytest.mark.live
def test_a_blinded_controller_holds_and_says_so(run: Run) -> None:
    run.start_controller("--stop-replicas")
    run.wait("ready", run.directory.controller_ready_file.exists)
    run.begin()
    run.wait("a decision", lambda: run.last().decisions["by-arrivals"].action != "hold")
    run.directory.blind_file.touch()
    run.wait("a hold", lambda: "blinded on purpose" in run.last().note)
    blind = run.last()
    assert blind.decisions["by-arrivals"].action == "hold"
    assert blind.observation.arrived is None
    run.directory.blind_file.unlink()
    run.wait("sight", lambda: run.last().decisions["by-arrivals"].action != "hold")


@pytest.mark.live
def test_what_is_wrong_with_a_run_ends_the_controller_with_one_line(run: Run) -> None:
    run.directory.write(run.directory.spec_file, msgspec.structs.replace(run.spec, scaler=ScalerSpec(name="linaer")))
    ended = subprocess.run(
        [sys.executable, "-m", "controller.main", "--run", str(run.directory.path)],
        env=run.environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "unknown scaler 'linaer' (did you mean linear" in ended.stderr
    assert "Traceback" not in ended.stderr
