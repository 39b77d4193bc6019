"""Pods as a function's replicas, on a Deployment in memory; what the pods say of themselves is written by the test."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx
import msgspec
import pytest

from functions.fork_protocol import BackendState
from functions.gateway.backends import BackendAwayError
from functions.gateway.pods import PodBackend, PodBackends
from functions.gateway.replica_set import FunctionRecord
from functions.shared_counters import Counters
from penstock.adapters.kubernetes.deployment import Deployment
from penstock.openfaas import FunctionDeployment
from tests.penstock.adapters.kubernetes.memory_deployment import MemoryDeployment

FUNCTION = "resize"


class Scene:
    """One function, its Deployment, and the pods that answer, by address."""

    def __init__(self) -> None:
        self.record = FunctionRecord(
            fleet=FUNCTION,
            deployment=FunctionDeployment(service=FUNCTION, image="penstock/resize:1", env_vars={"floor_s": "0.1"}),
            slot="slot-0",
            target=0,
            created_ns=time.time_ns(),
        )
        self.deployment = MemoryDeployment(f"function-{FUNCTION}")
        self.answers: dict[str, Counters] = {}
        self.changes = 0
        self.parents = self.new_parents()

    def new_parents(self) -> PodBackends:
        """As a gateway that has just come up makes them."""
        return PodBackends(
            self.deployment_of, lambda record: record.deployment.environment, httpx.MockTransport(self.answer)
        )

    def deployment_of(self, name: str) -> Deployment:
        assert name == self.deployment.name
        return self.deployment

    def answer(self, request: httpx.Request) -> httpx.Response:
        tally = self.answers.get(request.url.host)
        if tally is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, content=msgspec.json.encode(tally))

    def changed(self) -> None:
        self.changes += 1

    async def parent(self, generation: int = 1) -> PodBackend:
        parent = self.parents.of(self.record, generation, self.changed)
        await parent.start()
        return parent

    def pod_of(self, replica: str) -> str:
        (name,) = [pod.name for pod in self.deployment.pods() if pod.replica == replica and pod.alive]
        return name

    def address_of(self, replica: str) -> str:
        (address,) = [pod.status.pod_ip for pod in self.deployment.pods() if pod.replica == replica and pod.alive]
        return address

    async def serving(self, parent: PodBackend, *names: str) -> BackendState:
        """Have these replicas, up and serving."""
        for name in names:
            await parent.ask(start=name, requested_ns=7)
        for _ in range(5):
            await parent.ask()
            self.deployment.settle()
        for name in names:
            self.answers[self.address_of(name)] = Counters()
        return await parent.ask()


def play(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        await story(Scene())

    asyncio.run(told())


def test_a_pod_is_named_started_asked_and_ready_once_it_answers() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        assert (await parent.ask(start="resize-1", requested_ns=7)).replicas == {}
        await parent.ask()
        assert scene.deployment.replicas == 1
        scene.deployment.settle()
        await parent.ask()
        pod = scene.pod_of("resize-1")
        known = scene.parents.introduce(pod)
        assert known is not None
        assert (known.replica, known.image, known.environment, known.requested_ns) == (
            *("resize-1", "penstock/resize:1", {"floor_s": "0.1"}, 7),
        )
        assert (await parent.ask()).replicas["resize-1"].phase == "cold"
        scene.answers[scene.address_of("resize-1")] = Counters(busy=True, first_ns=5)
        replica = (await parent.ask()).replicas["resize-1"]
        assert (replica.phase, replica.busy, replica.first_ns, replica.address) == (
            *("ready", True, 5, scene.address_of("resize-1")),
        )
        assert scene.changes

    play(story)


def test_when_a_pod_was_there_and_had_a_node_is_told_before_it_runs() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        before_ns = time.time_ns()
        await parent.ask(start="resize-1")
        await parent.ask()
        scene.deployment.settle(running=False)
        for _ in range(2):
            assert (await parent.ask()).replicas == {}
        waited_ns = time.time_ns()
        scene.deployment.run()
        replica = (await parent.ask()).replicas["resize-1"]
        assert before_ns < replica.created_ns < replica.scheduled_ns < waited_ns < replica.started_ns

    play(story)


def test_a_pod_that_is_nobody_is_not_introduced() -> None:
    async def story(scene: Scene) -> None:
        await scene.parent()
        scene.deployment.edit(1)
        scene.deployment.settle()
        assert scene.parents.introduce(scene.deployment.pods()[0].name) is None

    play(story)


def test_the_replica_that_is_told_to_end_is_the_one_that_goes_though_it_is_the_oldest() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        await scene.serving(parent, "resize-1")
        await scene.serving(parent, "resize-2")
        scene.answers[scene.address_of("resize-1")] = Counters(invocations=3, busy_ns=500_000_000)
        assert (await parent.ask(end="resize-1")).replicas["resize-1"].phase == "ending"
        for _ in range(3):
            await parent.ask()
            scene.deployment.settle()
        brood = await parent.ask()
        assert set(brood.replicas) == {"resize-2"}
        assert [(gone.replica, gone.reason) for gone in brood.gone] == [("resize-1", "")]
        assert (brood.invocations, brood.busy_s) == (3, 0.5)
        assert scene.deployment.replicas == 1

    play(story)


def test_a_container_that_ended_is_told_of_and_its_pod_makes_way() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        await scene.serving(parent, "resize-1")
        pod = scene.pod_of("resize-1")
        scene.deployment.restart(pod)
        brood = await parent.ask()
        assert brood.replicas == {}
        assert [gone.replica for gone in brood.gone] == ["resize-1"]
        assert f"container of pod {pod} ended by itself" in brood.gone[0].reason
        assert scene.parents.introduce(pod) is None
        await scene.serving(parent, "resize-2")
        assert {other.name for other in scene.deployment.pods() if other.alive} == {scene.pod_of("resize-2")}
        assert scene.pod_of("resize-2") != pod

    play(story)


def test_a_deleted_pod_is_a_replica_less_and_its_name_is_not_given_again() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        await scene.serving(parent, "resize-1", "resize-2")
        lost = scene.pod_of("resize-1")
        scene.deployment.kill(lost)
        scene.deployment.settle()
        brood = await parent.ask()
        assert set(brood.replicas) == {"resize-2"}
        assert brood.gone[-1].reason == f"pod {lost} was deleted"

    play(story)


def test_a_pod_that_somebody_deletes_ends_by_and_by_and_is_told_of() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        await scene.serving(parent, "resize-1", "resize-2")
        lost = scene.pod_of("resize-1")
        scene.deployment.end(lost)
        assert (await parent.ask()).replicas["resize-1"].phase == "ending"
        await parent.ask(end="resize-1")  # as a gateway does that has emptied it
        scene.deployment.kill(lost)
        brood = await parent.ask()
        assert [(gone.replica, gone.reason) for gone in brood.gone] == [("resize-1", f"pod {lost} was deleted")]

    play(story)


def test_while_the_api_server_is_away_replicas_go_on_and_what_was_asked_is_done_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        await scene.serving(parent, "resize-1")
        scene.deployment.away = True
        await parent.ask(start="resize-2")
        scene.answers[scene.address_of("resize-1")] = Counters(invocations=9)
        brood = await parent.ask()
        assert (set(brood.replicas), brood.invocations) == ({"resize-1"}, 9)
        assert [record.getMessage() for record in caplog.records].count(
            "function-resize: pods are left as they are: the API server is away"
        ) == 1
        scene.deployment.away = False
        await scene.serving(parent, "resize-2")
        assert scene.deployment.replicas == 2

    play(story)


def test_a_gateway_that_comes_up_again_goes_on_with_the_pods_of_its_record() -> None:
    async def story(scene: Scene) -> None:
        scene.record.target = 2
        names = [scene.record.add(7), scene.record.add(8)]
        await scene.serving(await scene.parent(), *names)
        pods = {name: scene.pod_of(name) for name in names}
        scene.parents = scene.new_parents()
        successor = scene.parents.of(scene.record, 1, scene.changed)
        assert await successor.adopt()
        assert set((await successor.ask()).replicas) == set(names)
        assert {name: scene.pod_of(name) for name in names} == pods
        assert scene.parents.of(scene.record, 2, scene.changed).there is False

    play(story)


def test_an_updated_functions_generations_share_the_deployment() -> None:
    async def story(scene: Scene) -> None:
        old = await scene.parent(1)
        await scene.serving(old, "resize-1")
        new = await scene.parent(2)
        await scene.serving(new, "resize-2")
        assert set((await old.ask()).replicas) == {"resize-1"}
        assert set((await new.ask()).replicas) == {"resize-2"}
        await old.ask(end="resize-1")
        for _ in range(3):
            await old.ask()
            scene.deployment.settle()
        await old.quit(1.0)
        assert set((await new.ask()).replicas) == {"resize-2"}
        with pytest.raises(BackendAwayError):
            await old.ask()
        assert [pod.replica for pod in scene.deployment.pods() if pod.alive] == ["resize-2"]

    play(story)


@pytest.mark.parametrize("ticks", range(4))
def test_quitting_ends_though_a_pod_changes_at_that_moment(ticks: int) -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        while not parent._pods._wake._waiters:
            await asyncio.sleep(0.001)
        parent._pods.wake()
        for _ in range(ticks):
            await asyncio.sleep(0)
        quitting = asyncio.create_task(parent.quit(1.0))
        await asyncio.wait({quitting}, timeout=30)
        assert quitting.done() and parent._pods._task is None

    play(story)


def test_quitting_leaves_no_pod() -> None:
    async def story(scene: Scene) -> None:
        parent = await scene.parent()
        await scene.serving(parent, "resize-1", "resize-2")

        async def cluster() -> None:
            while scene.deployment.pods():
                scene.deployment.settle()
                await asyncio.sleep(0.01)

        working = asyncio.create_task(cluster())
        await parent.quit(10.0)
        await working
        assert scene.deployment.replicas == 0
        assert not parent.there

    play(story)
