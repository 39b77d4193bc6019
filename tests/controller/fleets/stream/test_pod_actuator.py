"""The actuator over a Deployment, step by step, on a Deployment in memory and a plan service without HTTP."""

import logging
import time
from collections.abc import Mapping

import msgspec
import pytest

from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.pod_actuator import DeploymentActuator
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.kubernetes.deployment import DeploymentObject
from penstock.adapters.kubernetes.informer import ConflictError, KubernetesError
from penstock.adapters.kubernetes.pods import DELETION_COST, GOES_FIRST, REPLICA
from penstock.adapters.kubernetes.replica_pods import ReplicaPods
from penstock.contracts import Accepted, Decision, Groups, ReplicaEvent
from penstock.plan import MemberPhase, MemberReport
from penstock.runspec import RunSpec, ScalerSpec, WorkerSpec
from tests.penstock.adapters.kubernetes.memory_deployment import MemoryDeployment

FLEET = "pay"
SPEC = RunSpec(
    run="r",
    experiment="test",
    world="kubernetes",
    scaler=ScalerSpec(name="none"),
    fleet=FLEET,
    partitions=4,
    duration_s=1,
    max_replicas=5,
    join_timeout_s=300,
)


class Scene:
    """One actuator; ``step`` lets it look once and then the cluster do its work."""

    def __init__(
        self,
        deployment: MemoryDeployment | None = None,
        replicas: ConsumerReplicaSet | None = None,
        spec: RunSpec = SPEC,
    ) -> None:
        self.deployment = deployment or MemoryDeployment(FLEET)
        self.plans = PlanService(
            AssignmentPlanner(join_timeout_s=60), group="group", fleet=FLEET, url="http://127.0.0.1:0"
        )
        self.actuator = DeploymentActuator(spec, self.plans, self.deployment, replicas)
        self.actuator.connect()
        self.happened: list[ReplicaEvent] = []

    def step(self, times: int = 1, *, settle: bool = True) -> None:
        for _ in range(times):
            self.actuator.step()
            self.happened += self.actuator.events()
            if settle:
                self.deployment.settle()

    def scale(self, replicas: int, groups: Groups | None = None) -> Accepted:
        size = self.actuator.counts().current
        action = "up" if replicas > size else "down" if replicas < size else "reassign"
        return self.actuator.apply(Decision(action=action, targets={FLEET: replicas}, assignment=groups))  # type: ignore[arg-type]

    def says(self, replica: str, phase: MemberPhase, holds: tuple[int, ...] = ()) -> None:
        plan = self.plans.snapshot().current
        epoch = plan.epoch if plan is not None else -1
        self.plans.report(replica, MemberReport(phase, time.time_ns(), holds, generation=1, epoch=epoch))

    def all_joined(self, replicas: int) -> None:
        """Bring so many up."""
        self.scale(replicas)
        self.step(3)
        for name in self.actuator.replicas():
            self.says(name, "joined")
        self.step(1)
        assert list(self.actuator.replicas().values()) == ["joined"] * replicas

    def all_named(self, replicas: int) -> None:
        """Have so many pods that know who they are and whose containers are still to come."""
        self.scale(replicas)
        self.step(1, settle=False)
        self.deployment.settle(running=False)
        self.step(2, settle=False)

    def life(self, replica: str) -> list[str]:
        return [event.phase for event in self.happened if event.replica == replica]


def test_pods_come_are_named_in_their_order_and_told_who_they_are() -> None:
    scene = Scene()
    scene.scale(2)
    assert list(scene.actuator.replicas().values()) == ["requested", "requested"]
    scene.step(3)
    assert scene.deployment.names() == {"pay-1": "pay-0001", "pay-2": "pay-0002"}
    assert list(scene.actuator.replicas().values()) == ["started", "started"]
    assert scene.life("pay-1") == ["requested", "started"]
    assert scene.deployment.scaled == [2]


@pytest.mark.parametrize("directed", [True, False])
def test_by_heartbeat_a_replica_leaves_together_with_its_partitions(directed: bool) -> None:
    """Its leaving begins the rebalance that gives its partitions away; taking them first would be another one."""
    worker = WorkerSpec(directed_rebalance=directed)
    scene = Scene(spec=msgspec.structs.replace(SPEC, worker=worker))
    scene.all_joined(2)
    scene.says("pay-1", "joined", (0, 1))
    scene.says("pay-2", "joined", (2, 3))
    scene.scale(1, ((0, 1, 2, 3),))
    (leaving,) = (name for name, phase in scene.actuator.replicas().items() if phase == "draining")
    scene.step(3)
    assert ("gone" in scene.life(leaving)) is not directed


def test_the_replica_that_the_plan_takes_everything_from_goes_and_no_other() -> None:
    scene = Scene()
    scene.all_joined(3)
    scene.says("pay-2", "joined", (0, 1))
    scene.says("pay-3", "joined", (2, 3))
    scene.scale(2, ((0, 1), (2, 3)))
    oldest = scene.deployment.names()["pay-1"]
    scene.says("pay-1", "joined")  # follows the new plan and holds nothing of it
    scene.step(4)
    assert oldest not in scene.deployment.names().values()
    assert set(scene.deployment.names()) == {"pay-2", "pay-3"}
    assert scene.life("pay-1")[-2:] == ["draining", "gone"]
    assert scene.deployment.scaled == [3, 2]


def test_a_replica_that_still_holds_partitions_is_not_ended() -> None:
    scene = Scene()
    scene.all_joined(2)
    scene.says("pay-1", "joined", (0, 1))
    scene.says("pay-2", "joined", (2, 3))
    scene.scale(1, ((0, 1, 2, 3),))
    (leaving,) = {"pay-1", "pay-2"} - {name for name, phase in scene.actuator.replicas().items() if phase == "joined"}
    scene.says(leaving, "joined", (2, 3))
    scene.step(5)
    assert scene.deployment.replicas == 2
    scene.says(leaving, "joined", ())
    scene.step(4)
    assert scene.deployment.replicas == 1
    assert leaving not in scene.deployment.names()


def test_a_pod_that_goes_is_marked_before_the_size_shrinks() -> None:
    scene = Scene()
    scene.all_joined(2)
    scene.says("pay-2", "joined", (0, 1, 2, 3))
    scene.scale(1, ((0, 1, 2, 3),))
    scene.says("pay-1", "joined", ())
    scene.step(1, settle=False)
    costs = {pod.replica: pod.deletion_cost for pod in scene.deployment.pods()}
    assert costs == {"pay-1": GOES_FIRST, "pay-2": 0}
    assert scene.deployment.replicas == 2
    scene.step(1, settle=False)
    assert scene.deployment.replicas == 1


def test_a_killed_pod_is_told_of_and_its_successor_takes_over_the_replica() -> None:
    scene = Scene()
    scene.all_joined(2)
    scene.deployment.kill("pay-0001")
    scene.deployment.settle()
    scene.step(4)
    assert scene.life("pay-1") == ["requested", "started", "joined", "gone", "requested", "started"]
    assert scene.deployment.names()["pay-1"] == "pay-0003"
    (gone,) = [event for event in scene.happened if event.phase == "gone"]
    assert gone.reason == "pod pay-0001 was deleted"


def test_a_pod_that_is_killed_before_the_kubelet_has_told_that_it_runs_is_told_of_too() -> None:
    scene = Scene()
    scene.all_named(1)
    assert scene.plans.identity("pay-0001") == "pay-1"
    scene.says("pay-1", "joined")
    scene.step(1, settle=False)
    assert scene.life("pay-1")[-2:] == ["started", "joined"]
    scene.deployment.run()
    scene.step(1, settle=False)
    assert scene.life("pay-1")[-2:] == ["started", "joined"], "it is the same process"
    scene.deployment.kill("pay-0001")
    scene.deployment.settle()
    scene.step(3)
    assert scene.life("pay-1")[-3:] == ["gone", "requested", "started"]


def test_a_pod_that_ends_while_its_successor_comes_up_is_the_one_that_is_told_of() -> None:
    scene = Scene()
    scene.all_joined(2)
    scene.deployment.end("pay-0001")
    scene.deployment.settle(running=False)
    scene.step(3, settle=False)
    assert scene.deployment.names()["pay-1"] == "pay-0003"
    scene.deployment.kill("pay-0001")
    scene.step(2, settle=False)
    scene.deployment.run()
    scene.step(2, settle=False)
    assert scene.deployment.names() == {"pay-1": "pay-0003", "pay-2": "pay-0002"}
    (gone,) = [event for event in scene.happened if event.phase == "gone"]
    assert (gone.replica, gone.reason) == ("pay-1", "pod pay-0001 was deleted")


def test_a_container_that_was_started_again_is_another_life_of_the_replica() -> None:
    scene = Scene()
    scene.all_joined(1)
    scene.deployment.restart("pay-0001")
    scene.step(2)
    assert scene.life("pay-1") == ["requested", "started", "joined", "gone", "requested", "started"]
    assert "container of pod pay-0001 ended by itself" in next(e.reason for e in scene.happened if e.phase == "gone")


@pytest.mark.parametrize("edited", [0, 1, 5])
def test_somebody_elses_edit_of_the_size_is_undone_and_told_of(edited: int, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.all_joined(3)
    scene.deployment.edit(edited)
    scene.deployment.settle()
    with caplog.at_level(logging.WARNING):
        scene.step(5)
    assert scene.deployment.replicas == 3
    assert set(scene.deployment.names()) == {"pay-1", "pay-2", "pay-3"}
    told = [record.message for record in caplog.records if "another client has set" in record.message]
    assert told == [f"another client has set pay to {edited} replicas: it is set back to 3"]


def test_our_own_change_that_the_watch_has_not_shown_yet_is_no_edit_of_somebody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    stale = scene.deployment.seen()
    scene.scale(2)
    scene.actuator.step()
    scene.deployment.seen = lambda: stale  # type: ignore[method-assign]
    scene.actuator.step()
    assert scene.deployment.scaled == [2]
    assert not caplog.records


def test_while_the_api_server_is_away_nothing_is_taken_for_done_and_afterwards_it_is_caught_up() -> None:
    scene = Scene()
    scene.all_joined(1)
    scene.deployment.away = True
    scene.scale(3)
    scene.step(3)
    assert scene.deployment.replicas == 1
    assert list(scene.actuator.replicas().values()) == ["joined", "requested", "requested"]
    scene.deployment.away = False
    scene.step(3)
    assert list(scene.actuator.replicas().values()) == ["joined", "started", "started"]


def test_a_restarted_actuator_goes_on_with_its_roster_in_the_middle_of_a_scale_out() -> None:
    first = Scene()
    first.all_joined(1)
    first.scale(3)
    first.step(1, settle=False)
    second = Scene(first.deployment, first.actuator.snapshot())
    second.step(3)
    assert second.deployment.names() == {"pay-1": "pay-0001", "pay-2": "pay-0002", "pay-3": "pay-0003"}
    assert second.deployment.scaled == [1, 3]


def test_an_actuator_without_memory_adopts_the_pods_by_the_names_that_are_on_them() -> None:
    first = Scene()
    first.all_joined(2)
    second = Scene(first.deployment)
    second.step(2)
    assert list(second.actuator.replicas()) == ["pay-1", "pay-2"]
    assert second.deployment.replicas == 2
    second.scale(3)
    second.step(3)
    assert set(second.deployment.names()) == {"pay-1", "pay-2", "pay-3"}


def test_a_pod_that_was_named_and_is_still_starting_is_adopted_too() -> None:
    first = Scene()
    first.all_named(2)
    assert set(first.deployment.names()) == {"pay-1", "pay-2"}
    second = Scene(first.deployment)
    second.step(1)
    assert second.actuator.replicas() == {"pay-1": "requested", "pay-2": "requested"}
    second.deployment.run()
    second.step(1)
    assert second.actuator.replicas() == {"pay-1": "started", "pay-2": "started"}
    assert second.deployment.replicas == 2


def test_all_replicas_end_at_the_end() -> None:
    scene = Scene()
    scene.all_joined(2)
    scene.deployment.pods = lambda: scene.deployment.settle() or MemoryDeployment.pods(scene.deployment)  # type: ignore[func-returns-value,method-assign]
    scene.actuator.stop_replicas(timeout_s=5)
    assert scene.deployment.replicas == 0
    scene.happened += scene.actuator.events()
    assert [scene.life(name)[-1] for name in ("pay-1", "pay-2")] == ["gone", "gone"]


def test_a_replica_is_not_gone_while_the_watch_does_not_show_the_name_of_its_pod() -> None:
    scene = Scene()
    scene.all_joined(1)
    scene.scale(2)
    scene.step(1)
    late = scene.deployment.pods()
    scene.deployment.pods = lambda: late  # type: ignore[method-assign]
    scene.step(1, settle=False)
    assert set(scene.deployment.names()) == {"pay-1", "pay-2"}
    scene.says("pay-1", "joined", (0, 1, 3))
    scene.says("pay-2", "joined", (2,))
    scene.scale(1, ((0, 1, 2, 3),))
    scene.step(2, settle=False)
    assert scene.actuator.replicas()["pay-2"] == "draining", "its pod is there"


def test_a_name_whose_answer_was_lost_is_written_again_and_no_other() -> None:
    scene = Scene()
    scene.scale(1)
    scene.step(1)
    unnamed, annotate = scene.deployment.pods(), scene.deployment.annotate

    def unanswered(pod: str, annotations: Mapping[str, str]) -> None:
        annotate(pod, annotations)
        raise KubernetesError("the connection broke")

    scene.deployment.pods = lambda: unnamed  # type: ignore[method-assign]
    scene.deployment.annotate = unanswered  # type: ignore[method-assign]
    scene.step(1, settle=False)
    scene.scale(0)
    scene.step(1, settle=False)
    scene.scale(1)
    scene.step(2, settle=False)
    assert list(scene.deployment.names()) == ["pay-1"]


def test_pods_that_were_to_go_and_then_get_a_replica_lose_their_mark() -> None:
    scene = Scene()
    scene.all_joined(1)
    scene.deployment.edit(3)
    scene.deployment.settle()

    def refuse(replicas: int, seen: DeploymentObject) -> None:
        raise ConflictError("the object has been modified")

    scene.deployment.scale = refuse  # type: ignore[method-assign]
    scene.step(3)
    assert [pod.deletion_cost for pod in scene.deployment.pods()] == [0, GOES_FIRST, GOES_FIRST]
    scene.scale(3)
    scene.step(3)
    assert set(scene.deployment.names()) == {"pay-1", "pay-2", "pay-3"}
    assert [pod.deletion_cost for pod in scene.deployment.pods()] == [0, 0, 0]


def test_a_deletion_cost_is_not_changed_before_the_watch_has_shown_the_last_one() -> None:
    deployment = MemoryDeployment(FLEET)
    deployment.edit(2)
    deployment.settle()
    deployment.annotate("pay-0001", {REPLICA: "pay-1", DELETION_COST: str(GOES_FIRST)})
    deployment.annotate("pay-0002", {REPLICA: "pay-2"})
    pods, before = ReplicaPods(deployment), deployment.pods()
    seen, late = pods.look()
    pods.resize(seen, late, ["pay-1", "pay-2"])
    assert [pod.deletion_cost for pod in deployment.pods()] == [0, 0], "it stays"
    deployment.pods = lambda: before  # type: ignore[method-assign]
    for _ in range(2):
        pods.resize(*pods.look(), ["pay-2"])
    assert deployment.scaled == [], "the mark that the watch shows is not there any more"
    del deployment.pods
    for _ in range(2):
        pods.resize(*pods.look(), ["pay-2"])
    assert deployment.scaled == [1]
