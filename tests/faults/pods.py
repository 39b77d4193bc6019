"""A consumer group whose replicas are pods of a Deployment: the real actuator on a simulated Kubernetes API."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ClassVar

import msgspec

from consumers.plan_client import PlanClient, PlanServiceError
from consumers.worker import Worker
from controller.fleets.stream.fleet import StreamFleet
from penstock.adapters.kubernetes.informer import KubernetesError
from penstock.adapters.kubernetes.pods import REPLICA
from penstock.runspec import RunSpec
from tests.faults.fault import Fault, Menu
from tests.faults.kernel import Process
from tests.faults.kubernetes_api import SERVICE, Api, Cluster, SimPod
from tests.faults.stream import FLEET, StreamWorld
from tests.faults.world import ENDPOINTS

IDENTITY_WAIT_S = 5.0


class PodWorld(StreamWorld):
    """Pods ``payments-1``, ``payments-2``, …; which replica a pod is, its annotation and the plan service say."""

    KIND = "pods"
    MENU: ClassVar[Menu] = Menu(
        parts=("controller", "worker"),
        services=("kafka", SERVICE, SERVICE),
        links=(("controller", SERVICE), ("controller", SERVICE), ("controller", "kafka"), ("worker", "plans")),
        foreign=("scale", "delete", "kill", "evict"),
        weights={
            "crash": 5, "freeze": 2, "away": 3, "link": 5, "clock": 1, "no-start": 3, "foreign": 4, "stale": 2,
            "blind": 1, "full": 1,
        },
    )  # fmt: skip

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None, *, traced: bool = False) -> None:
        super().__init__(seed, faults, traced=traced)
        self.cluster = Cluster(self.kernel, self.network, FLEET, self.launch_pod)
        self.cluster.removed = self._removed

    def make_spec(self) -> RunSpec:
        return msgspec.structs.replace(super().make_spec(), world="kubernetes")

    def _place(self) -> None:
        super()._place()
        Api.cluster = self.cluster

    def control(self, process: Process) -> None:
        """A controller that starts while the API server is away ends in one line; the kubelet starts it again."""
        try:
            super().control(process)
        except KubernetesError as error:
            self.kernel.note(f"the controller ends: {error}")

    def launch_pod(self, pod: str, process: Process) -> Callable[[], Any] | None:
        """``consumers.worker --pod``: asks which replica it is."""
        if self.failing_starts:
            if self.failing_starts[0] == "hangs":
                return None
            self.failing_starts.pop(0)
            return lambda: self.kernel.sleep(0.05)

        def main() -> None:
            with closing(PlanClient(ENDPOINTS.require("controller"), self.spec.group)) as client:
                while True:
                    try:
                        name = client.replica(pod, IDENTITY_WAIT_S)
                        break
                    except PlanServiceError:
                        self.kernel.sleep(0.1)
            worker = Worker(self.spec, name, ENDPOINTS)
            process.on_term = worker.stop
            worker.run()

        return main

    def inject(self, fault: Fault) -> None:
        super().inject(fault)
        if fault.kind == "away" and fault.target == SERVICE:
            self.cluster.cut()
        elif fault.kind == "stale":
            self.cluster.stale_until = self.broker.stale_until

    def victim(self, kind: str) -> Process | None:
        if kind != "worker":
            return super().victim(kind)
        found = [pod.process for _, pod in sorted(self.cluster.pods.items()) if pod.process is not None]
        return found[self.random.randrange(len(found))] if found else None

    def foreign(self, what: str) -> None:
        process = self.victim("worker")
        if what == "scale":
            self.cluster.resize(self.random.randrange(7))
        elif process is not None and what == "kill":
            process.kill()
        elif process is not None and what == "delete":
            self.cluster.delete(self.cluster.pods[process.name])
        elif process is not None:
            self.cluster.evict(self.cluster.pods[process.name])

    def _heal(self) -> None:
        super()._heal()
        for pod in self.cluster.pods.values():
            if pod.process is not None:
                pod.process.crash_after = None

    # --- checks ------------------------------------------------------------------------------------------------------

    def _removed(self, pod: SimPod) -> None:
        """A shrinking Deployment removes those pods that the plan releases, not one that serves."""
        if self.ending or any(fault.kind == "foreign" for fault in self.faults) or self.controller is None:
            return
        assert isinstance(self.controller.fleet, StreamFleet)
        phase = self.controller.fleet.actuator.replicas().get(pod.annotations.get(REPLICA, ""))
        if pod.ready_at and phase in ("joined", "first-event"):
            self.kernel.violate(f"pod {pod.name} is removed, and its replica {pod.annotations[REPLICA]} is {phase}")

    def check(self) -> None:
        super().check()
        named = [
            pod.annotations[REPLICA] for pod in self.cluster.pods.values() if pod.counts and REPLICA in pod.annotations
        ]
        if len(named) != len(set(named)):
            self.kernel.violate(f"two pods are the same replica: {sorted(named)}")

    def standing(self) -> set[str]:
        if self.cluster.replicas != len(self.cluster.pods):
            return {f"{len(self.cluster.pods)} pods of {self.cluster.replicas}"}
        return {pod.annotations.get(REPLICA, pod.name) for pod in self.cluster.pods.values()}

    def left_behind(self) -> str:
        left = f"pods {', '.join(self.cluster.pods)} of {self.cluster.replicas} are left"
        return left if self.cluster.pods or self.cluster.replicas else super().left_behind()
