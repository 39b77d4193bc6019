"""The bank's actuator and monitor on a real broker and a real supervisor; where only the actuator is meant, with apps
that do as they are told and take nothing.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.fleets.programs import RunPrograms, WorkerProgram
from controller.fleets.queue.actuator import QueueActuator
from controller.fleets.queue.monitor import QueueMonitor
from controller.fleets.queue.replica_set import QueueReplicaSet
from penstock.adapters.amqp import Depths
from penstock.adapters.process_manager import Supervisor, base_environment
from penstock.clock import WallClock
from penstock.contracts import Accepted, Actuator, Decision, FleetObservation, Monitor, Phase, ReplicaEvent
from penstock.settings import Endpoints
from penstock.systems import QueueSystem
from tests.conformance.ports import ActuatorConformance, MonitorConformance
from tests.controller.fleets.queue.queue_scene import TIMEOUT_S, RabbitScene, rabbit_scene, wait

APP = Path(__file__).parent / "trivial_app.py"
SYSTEM = QueueSystem(service_rate_per_s=1.0, capacity=20, pool_initial=0, when_removed="destroy", max_containers=3)


class BankScene:
    """A run with an actuator, perhaps one after another."""

    def __init__(self, scene: RabbitScene) -> None:
        self.scene = scene
        self.endpoints = scene.endpoints
        self.actuator = self.start()
        self.happened: list[ReplicaEvent] = []

    def start(self, roster: QueueReplicaSet | None = None) -> QueueActuator:
        scene = self.scene
        secrets = ("redis", "rabbitmq", "signing_key")
        settings = {f"PENSTOCK_{name.upper()}": self.endpoints.require(name) for name in (*secrets, "kafka")}
        self.actuator = QueueActuator(
            scene.spec,
            self.endpoints,
            RunPrograms(
                scene.spec.run,
                Supervisor(self.endpoints.require("supervisor")),
                WorkerProgram(
                    command=(sys.executable, str(APP), scene.spec.run),
                    folder=scene.directory.path,
                    logs=scene.directory.logs_folder,
                    env={**base_environment(), **settings, "PYTHONPATH": os.pathsep.join(sys.path)},
                    grace_s=2.0,
                ),
            ),
            roster,
        )
        self.actuator.start()
        return self.actuator

    def close(self) -> None:
        self.actuator.stop()
        self.actuator.stop_replicas(TIMEOUT_S)

    def wait(self, condition: Callable[[QueueActuator], bool]) -> None:
        def met() -> bool:
            self.happened += self.actuator.events()
            return condition(self.actuator)

        wait(met, lambda: (self.actuator.replicas(), self.happened))
        self.happened += self.actuator.events()

    def life(self, replica: str) -> list[str]:
        return [event.phase for event in self.happened if event.replica == replica]

    def pid(self, replica: str) -> int:
        name = f"{self.scene.spec.run}:{replica}"
        pid = Supervisor(self.endpoints.supervisor).programs(name)[name].pid
        assert pid is not None
        return pid


class ReplicasOnly:
    """The actuator without what it tells of the containers of functions, which are a provider's fleets of their own."""

    def __init__(self, actuator: QueueActuator) -> None:
        self._actuator = actuator

    def apply(self, decision: Decision) -> Accepted:
        return self._actuator.apply(decision)

    def events(self) -> Sequence[ReplicaEvent]:
        return [event for event in self._actuator.events() if event.fleet == "conformance"]

    def replicas(self) -> Mapping[str, Phase]:
        return self._actuator.replicas()


@contextmanager
def bank(endpoints: Endpoints, folder: Path, initial: int = 0, **system: Any) -> Iterator[BankScene]:
    described = msgspec.structs.replace(SYSTEM, **system)
    with rabbit_scene(
        endpoints, folder, described, fleet="conformance", initial_replicas=initial, max_replicas=3
    ) as scene:
        opened = BankScene(scene)
        try:
            opened.actuator.bring_up()
            yield opened
        finally:
            opened.close()


def up_to(replicas: int, **terms: Any) -> Decision:
    return Decision(action="up", targets={"conformance": replicas}, **terms)


@pytest.mark.live
class TestBankActuator(ActuatorConformance):
    """A bank whose queues are its replicas."""

    timeout_s = TIMEOUT_S

    @pytest.fixture(autouse=True)
    def _stage(self, queue_services: Endpoints, tmp_path: Path) -> None:
        self.services, self.folder = queue_services, tmp_path

    @contextmanager
    def make_actuator(self) -> Iterator[Actuator]:
        with bank(self.services, self.folder) as opened:
            yield ReplicasOnly(opened.actuator)


@pytest.mark.live
class TestContainerActuator(TestBankActuator):
    """A queue whose containers are the replicas."""

    @contextmanager
    def make_actuator(self) -> Iterator[Actuator]:
        with bank(self.services, self.folder, scaled="containers") as opened:
            opened.wait(lambda actuator: actuator.ready())
            yield ReplicasOnly(opened.actuator)


@pytest.mark.live
def test_queues_come_from_the_pool_are_bounded_by_their_containers_and_go_back(
    queue_services: Endpoints, tmp_path: Path
) -> None:
    with bank(queue_services, tmp_path, initial=1, pool_initial=1, when_removed="pool") as opened:
        scene = opened.scene
        opened.wait(lambda actuator: actuator.ready())
        assert dict(opened.actuator.replicas()) == {"conformance-1": "joined", "conformance-2": "pooled"}
        bounds = {scene.queue("conformance-1"): 19, scene.queue("conformance-2"): 20}
        wait(lambda: scene.management.bounds(scene.spec.run) == bounds)
        opened.actuator.begin(time.time_ns())
        wait(lambda: scene.management.bounds(scene.spec.run)[scene.queue("conformance-1")] == 17)
        opened.actuator.apply(up_to(2, routing={"conformance-1": 0.5, "conformance-2": 0.5}))
        assert list(opened.actuator.replicas().values()) == ["joined", "joined"]
        wait(lambda: scene.management.bounds(scene.spec.run)[scene.queue("conformance-2")] == 17)
        routing = scene.board.exchange(scene.report())
        assert routing is not None and dict(routing.shares) == {"conformance-1": 0.5, "conformance-2": 0.5}
        opened.actuator.apply(up_to(1, routing={"conformance-2": 1.0}))
        opened.wait(lambda actuator: actuator.replicas().get("conformance-1") == "pooled")
        assert scene.apps.wanted("conformance-1") == 0
        assert opened.life("conformance-1") == ["requested", "started", "joined", "draining", "pooled"]


@pytest.mark.live
def test_a_queue_is_deleted_only_when_it_is_empty_and_its_app_has_let_go(
    queue_services: Endpoints, tmp_path: Path
) -> None:
    with bank(queue_services, tmp_path, initial=2) as opened:
        scene, queue = opened.scene, opened.scene.queue("conformance-2")
        opened.wait(lambda actuator: actuator.ready())
        scene.publish(range(5), queue)
        (tmp_path / "conformance-2.busy").touch()
        opened.actuator.apply(up_to(1, routing={"conformance-1": 1.0}))
        time.sleep(1)
        assert opened.actuator.replicas()["conformance-2"] == "draining"
        assert scene.take(queue) == list(range(5))
        time.sleep(1)
        assert queue in scene.management.objects(scene.spec.run).queues, "an event is still in hand"
        (tmp_path / "conformance-2.busy").unlink()
        opened.wait(lambda actuator: "conformance-2" not in actuator.replicas())
        left = scene.management.objects(scene.spec.run)
        assert queue not in left.queues and queue not in left.policies
        assert "conformance-2" not in scene.apps.reports()


@pytest.mark.live
def test_a_killed_app_comes_back_with_its_containers(queue_services: Endpoints, tmp_path: Path) -> None:
    with bank(queue_services, tmp_path, initial=1) as opened:
        opened.wait(lambda actuator: actuator.ready())
        os.kill(opened.pid("conformance-1"), signal.SIGKILL)
        opened.wait(lambda _: "gone" in opened.life("conformance-1.1"))
        opened.wait(lambda actuator: actuator.ready())
        assert opened.life("conformance-1") == ["requested", "started", "joined"]
        assert opened.life("conformance-1.1") == [
            "requested", "started", "joined", "gone", "requested", "started", "joined",
        ]  # fmt: skip


@pytest.mark.live
def test_a_restarted_actuator_goes_on_where_the_last_one_was(queue_services: Endpoints, tmp_path: Path) -> None:
    with bank(queue_services, tmp_path, initial=2) as opened:
        opened.wait(lambda actuator: actuator.ready())
        pids = [opened.pid("conformance-1"), opened.pid("conformance-2")]
        (tmp_path / "conformance-2.busy").touch()
        opened.actuator.apply(up_to(1, routing={"conformance-1": 1.0}))
        opened.wait(lambda _: "draining" in opened.life("conformance-2"))
        opened.actuator.stop()
        opened.start(msgspec.json.decode(msgspec.json.encode(opened.actuator.snapshot()), type=QueueReplicaSet))
        opened.actuator.bring_up()
        time.sleep(1)
        assert dict(opened.actuator.replicas()) == {"conformance-1": "joined", "conformance-2": "draining"}
        assert [opened.pid("conformance-1"), opened.pid("conformance-2")] == pids
        (tmp_path / "conformance-2.busy").unlink()
        opened.wait(lambda actuator: list(actuator.replicas()) == ["conformance-1"])
        assert opened.life("conformance-2")[-1] == "gone"


@pytest.mark.live
class TestBankMonitor(MonitorConformance):
    """A bank with events in its main queue, in a sub-queue and through."""

    timeout_s = TIMEOUT_S

    @pytest.fixture(autouse=True)
    def _stage(self, queue_services: Endpoints, tmp_path: Path) -> Iterator[None]:
        self.blind = False
        self.depths = Depths(queue_services.require("rabbitmq"), "test:monitor")
        with bank(queue_services, tmp_path, initial=1) as opened:
            self.bank = opened
            yield
        self.depths.close()

    def make_monitor(self) -> Monitor[FleetObservation]:
        opened, scene = self.bank, self.bank.scene
        opened.wait(lambda actuator: actuator.ready())
        scene.publish(range(12))
        wait(lambda: scene.report().settled == 12, scene.report)
        self.origin_s = time.time()
        self.monitor = QueueMonitor(
            scene.spec,
            clock=WallClock(),
            origin_s=self.origin_s,
            view=opened.actuator.view,
            board=scene.board,
            depths=self.depths,
            blind=lambda: self.blind,
        )
        self.wait(self.monitor, lambda observation: observation.arrived is not None)
        return self.monitor

    @contextmanager
    def _blinded(self) -> Iterator[None]:
        self.blind = True
        yield
        self.blind = False

    def outage(self) -> AbstractContextManager[None]:
        return self._blinded()

    def test_every_event_is_where_the_broker_has_it(self) -> None:
        monitor, scene = self.make_monitor(), self.bank.scene
        seen = self.monitor.observe()
        assert (seen.arrived, seen.completed, seen.backlog, seen.in_flight, seen.rejected) == (12, 0, 12, 0, 0)
        (queue,) = seen.queues
        assert (queue.queue, queue.arrived, queue.rejected, queue.depth) == ("conformance-1", 12, 0, 12)
        assert (queue.servers, queue.capacity, queue.draining) == (1, 20, False)
        assert seen.routing == {"conformance-1": 1.0}
        assert seen.replicas.joined == 1 and not seen.unknown
        scene.take(scene.queue("conformance-1"), most=5)
        wait(lambda: monitor.observe().completed == 5)
        # The trivial app has taken none of them, so all that the monitor can go by is that they wait no more.
        assert monitor.observe().backlog == 7

    def test_a_forwarder_that_says_nothing_is_named(self) -> None:
        self.make_monitor()
        os.kill(self.bank.pid("forwarder"), signal.SIGSTOP)
        try:
            seen = self.wait(self.monitor, lambda observation: observation.arrived is None)
            assert "the forwarder has not reported for" in seen.unknown["arrived"]
        finally:
            os.kill(self.bank.pid("forwarder"), signal.SIGCONT)
        self.wait(self.monitor, lambda observation: observation.arrived == 12)
