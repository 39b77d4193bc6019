"""The process actuator on a real supervisor, with processes that behave as members of a group do."""

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from controller.fleets.programs import RunPrograms, WorkerProgram
from controller.fleets.stream.actuator import ProcessActuator
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.process_manager import Program, ProgramStatus, Supervisor
from penstock.contracts import Actuator, Decision, ReplicaEvent
from penstock.plan import MemberReport
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from tests.conformance.ports import ActuatorConformance

FLEET = "conformance"
SPEC = RunSpec(
    run="r",
    experiment="test",
    world="local",
    scaler=ScalerSpec(name="none"),
    fleet=FLEET,
    partitions=4,
    duration_s=1,
    max_replicas=3,
    join_timeout_s=0.75,
)
MEMBER = Path(__file__).parent / "trivial_member.py"


class Scene:
    """A plan service, a run of its own, and actuators on it."""

    def __init__(self, services: Endpoints, folder: Path) -> None:
        self.run = f"test-{secrets.token_hex(4)}"
        self.folder = folder
        self.supervisor = Supervisor(services.supervisor)
        self.plans = PlanService(
            AssignmentPlanner(join_timeout_s=10), group="group", fleet=FLEET, url="http://127.0.0.1:0"
        )
        self.plans.start()
        self.actuator: ProcessActuator | None = None
        self.happened: list[ReplicaEvent] = []

    def start(
        self,
        replicas: ConsumerReplicaSet | None = None,
        supervisor: Supervisor | None = None,
        spec: RunSpec = SPEC,
    ) -> ProcessActuator:
        """An actuator at work, perhaps after another one."""
        worker = WorkerProgram(
            command=(sys.executable, str(MEMBER), self.plans.url, "group"),
            folder=self.folder,
            logs=self.folder,
            env={"PATH": os.environ["PATH"]},
            grace_s=2.0,
        )
        self.actuator = ProcessActuator(
            spec, self.plans, RunPrograms(self.run, supervisor or self.supervisor, worker), replicas
        )
        self.actuator.start()
        return self.actuator

    def close(self) -> None:
        if self.actuator is not None:
            self.actuator.stop()
            self.actuator.stop_replicas()
        self.plans.stop()

    def pid(self, replica: str) -> int:
        pid = self.supervisor.programs(f"{self.run}:")[f"{self.run}:{replica}"].pid
        assert pid is not None
        return pid

    def wait(self, condition: Callable[[ProcessActuator], bool]) -> None:
        """Until it holds of the actuator."""
        assert self.actuator is not None
        deadline = time.monotonic() + 20
        while not condition(self.actuator):
            self.happened += self.actuator.events()
            assert time.monotonic() < deadline, f"{self.actuator.replicas()} {self.happened}"
            time.sleep(0.02)
        self.happened += self.actuator.events()

    def life(self, replica: str) -> list[str]:
        return [event.phase for event in self.happened if event.replica == replica]


@contextmanager
def scene(services: Endpoints, folder: Path) -> Iterator[Scene]:
    opened = Scene(services, folder)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def stage(services: Endpoints, tmp_path: Path) -> Iterator[Scene]:
    with scene(services, tmp_path) as opened:
        yield opened


def joined(count: int) -> Callable[[ProcessActuator], bool]:
    return lambda actuator: list(actuator.replicas().values()) == ["joined"] * count


def scale(action: str, replicas: int, assignment: tuple[tuple[int, ...], ...] | None = None) -> Decision:
    return Decision(action=action, targets={FLEET: replicas}, assignment=assignment)  # type: ignore[arg-type]


@pytest.mark.live
class TestProcessActuator(ActuatorConformance):
    """The local world's heir."""

    fleet = FLEET

    @pytest.fixture(autouse=True)
    def _stage(self, services: Endpoints, tmp_path: Path) -> None:
        self.services, self.folder = services, tmp_path

    @contextmanager
    def make_actuator(self) -> Iterator[Actuator]:
        with scene(self.services, self.folder) as opened:
            yield opened.start()


@pytest.mark.smoke
def test_the_plan_comes_into_force_when_all_have_joined_and_the_one_with_least_of_it_goes(stage: Scene) -> None:
    actuator = stage.start()
    actuator.apply(scale("up", 2, ((0, 1, 2), (3,))))
    assert stage.plans.snapshot().current is None
    assert stage.plans.snapshot().groups == ((0, 1, 2), (3,))
    stage.wait(joined(2))
    stage.wait(lambda _: stage.plans.snapshot().assigned() == {f"{FLEET}-1": (0, 1, 2), f"{FLEET}-2": (3,)})
    actuator.apply(scale("down", 1, ((0, 1, 2, 3),)))
    stage.wait(joined(1))
    assert list(actuator.replicas()) == [f"{FLEET}-1"]
    assert stage.life(f"{FLEET}-2") == ["requested", "started", "joined", "draining", "gone"]


@pytest.mark.live
def test_reassign_moves_partitions_between_the_same_replicas(stage: Scene) -> None:
    actuator = stage.start()
    actuator.apply(scale("up", 2, ((0, 1, 2), (3,))))
    stage.wait(joined(2))
    actuator.apply(scale("reassign", 2, ((0, 1), (2, 3))))
    stage.wait(lambda _: sorted(stage.plans.snapshot().assigned().values()) == [(0, 1), (2, 3)])
    assert actuator.counts().current == 2


@pytest.mark.live
def test_those_that_have_joined_are_regrouped_while_another_starts(stage: Scene) -> None:
    actuator = stage.start()
    actuator.apply(scale("up", 2, ((0, 1, 2), (3,))))
    stage.wait(joined(2))
    actuator.apply(scale("up", 3, ((0, 1), (2, 3))))
    plan = stage.plans.snapshot().current
    assert plan is not None and plan.groups == ((0, 1), (2, 3))
    assert plan.members == (f"{FLEET}-1", f"{FLEET}-2")
    stage.wait(joined(3))
    stage.wait(lambda _: sorted(stage.plans.snapshot().assigned().values()) == [(), (0, 1), (2, 3)])
    assert list(actuator.replicas()) == [f"{FLEET}-{number}" for number in (1, 2, 3)]


@pytest.mark.live
def test_a_killed_replica_is_journaled_as_gone_and_requested_again(stage: Scene) -> None:
    stage.start().apply(scale("up", 1))
    stage.wait(joined(1))
    replica = f"{FLEET}-1"
    os.kill(stage.pid(replica), signal.SIGKILL)
    stage.wait(lambda _: "gone" in stage.life(replica))
    stage.wait(joined(1))
    assert stage.life(replica) == ["requested", "started", "joined", "gone", "requested", "started", "joined"]


@pytest.mark.live
def test_a_replica_that_keeps_its_partitions_is_ended_after_the_time_out(stage: Scene) -> None:
    actuator = stage.start()
    (stage.folder / f"{FLEET}-2.stuck").touch()
    actuator.apply(scale("up", 2, ((0, 1, 2), (3,))))
    stage.wait(joined(2))
    stage.wait(lambda _: stage.plans.snapshot().assigned().get(f"{FLEET}-1") == (0, 1, 2))
    stage.plans.report(f"{FLEET}-2", MemberReport("joined", time.time_ns(), (3,), generation=9, epoch=1))
    actuator.apply(scale("down", 1, ((0, 1, 2, 3),)))
    stage.wait(joined(1))
    at = {event.phase: event.at_ns for event in stage.happened if event.replica == f"{FLEET}-2"}
    assert at["gone"] - at["draining"] >= 1.5e9


@pytest.mark.live
def test_scaled_to_zero_no_replica_waits_for_another_to_take_its_partitions(stage: Scene) -> None:
    actuator = stage.start(spec=msgspec.structs.replace(SPEC, join_timeout_s=60))
    actuator.apply(scale("up", 2, ((0, 1, 2), (3,))))
    stage.wait(joined(2))
    stage.wait(lambda _: len(stage.plans.snapshot().assigned()) == 2)
    actuator.apply(scale("down", 0))
    stage.wait(lambda each: not each.replicas())
    for number in (1, 2):
        assert stage.life(f"{FLEET}-{number}") == ["requested", "started", "joined", "draining", "gone"]


@pytest.mark.live
def test_a_restarted_actuator_goes_on_with_the_replicas_that_exist(stage: Scene) -> None:
    first = stage.start()
    first.apply(scale("up", 2))
    stage.wait(joined(2))
    pids = [stage.pid(f"{FLEET}-{number}") for number in (1, 2)]
    first.stop()
    second = stage.start(first.snapshot())
    second.apply(scale("up", 3))
    stage.wait(joined(3))
    assert [stage.pid(f"{FLEET}-{number}") for number in (1, 2)] == pids
    assert stage.life(f"{FLEET}-1") == ["requested", "started", "joined"]


@pytest.mark.live
def test_an_actuator_without_memory_adopts_what_runs(stage: Scene) -> None:
    stage.start().apply(scale("up", 2))
    stage.wait(joined(2))
    assert stage.actuator is not None
    stage.actuator.stop()
    second = stage.start()
    stage.wait(lambda actuator: len(actuator.replicas()) == 2)
    second.apply(scale("down", 1))
    stage.wait(lambda actuator: len(actuator.replicas()) == 1)


@pytest.mark.live
def test_while_the_supervisor_is_away_replicas_are_left_as_they_are(
    stage: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    actuator = stage.start(supervisor=Supervisor("ipc:///nowhere/at/all"))
    actuator.apply(scale("up", 1))
    stage.wait(lambda _: "replicas are left as they are" in caplog.text)
    time.sleep(0.3)  # and is not said again
    assert list(actuator.replicas().values()) == ["requested"]
    assert len([record for record in caplog.records if "replicas are left as they are" in record.message]) == 1
    actuator.stop()
    stage.start(actuator.snapshot())
    stage.wait(joined(1))


class SlowSupervisor(Supervisor):
    """Answers with what was so when it was asked; ``meanwhile`` happens until the answer is there."""

    def __init__(self) -> None:
        super().__init__("")
        self.pid: int | None = None
        self.meanwhile: list[Callable[[], None]] = []

    def add(self, program: Program) -> None:
        self.pid = 1

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        name = f"{prefix}1"
        seen = {name: ProgramStatus(name, self.pid, "active")} if self.pid is not None else {}
        while self.meanwhile:
            self.meanwhile.pop()()
        return seen


def test_a_process_that_joins_while_a_late_answer_speaks_of_the_one_before_has_joined(tmp_path: Path) -> None:
    plans = PlanService(AssignmentPlanner(join_timeout_s=10), group="g", fleet=FLEET, url="http://127.0.0.1:1")
    supervisor = SlowSupervisor()
    worker = WorkerProgram(command=("x",), folder=tmp_path, logs=tmp_path, env={})
    actuator = ProcessActuator(SPEC, plans, RunPrograms("r", supervisor, worker))

    def report_joined() -> None:
        plans.report(f"{FLEET}-1", MemberReport(phase="started", at_ns=time.time_ns()))
        plans.report(f"{FLEET}-1", MemberReport(phase="joined", at_ns=time.time_ns(), partitions=(0,)))

    def replace() -> None:
        supervisor.pid = 2
        report_joined()

    actuator.apply(scale("up", 1))
    actuator.step()
    actuator.step()
    report_joined()
    actuator.step()
    supervisor.meanwhile = [replace]
    for _ in range(3):
        actuator.step()
    assert list(actuator.replicas().values()) == ["joined"]
    assert [event.phase for event in actuator.events()][-4:] == ["gone", "requested", "started", "joined"]
