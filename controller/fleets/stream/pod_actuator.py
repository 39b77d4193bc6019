"""The actuator over a Deployment: a replica is a pod.

``penstock.adapters.kubernetes.replica_pods`` decides which pod is which replica and which pods go first on scale-in.
A worker in a pod asks the plan service for its replica name (``PlanService.assign_identity``).
"""

import time
from collections.abc import Mapping, Sequence

import msgspec

from controller.fleets.stream.actuator import ConsumerGroupActuator
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.kubernetes.deployment import Deployment
from penstock.adapters.kubernetes.pods import Pod
from penstock.adapters.kubernetes.replica_pods import ReplicaPods, how_it_ended
from penstock.contracts import POD_STEPS
from penstock.runspec import RunSpec


class DeploymentActuator(ConsumerGroupActuator):
    """Actuator port on a Deployment. Other clients' edits of its size are undone and logged."""

    def __init__(
        self, spec: RunSpec, plans: PlanService, deployment: Deployment, replicas: ConsumerReplicaSet | None = None
    ) -> None:
        super().__init__(spec, plans, replicas)
        self._deployment = deployment
        self._replica_pods = ReplicaPods(deployment)
        self._ran: dict[str, Pod] = {}
        self._noted: dict[str, int] = {}

    def connect(self) -> None:
        """Begin to watch; before the first ``step``. Raises KubernetesError: no cluster, no Deployment, no rights."""
        self._deployment.start(self._wake.set)

    def stop(self) -> None:
        """End thread and watches; the pods stay as they are."""
        super().stop()
        self._deployment.stop()

    def reconcile(self) -> None:
        """Name new pods, mark those that end as the first to be removed, and set the size of the Deployment."""
        seen, pods = self._replica_pods.look()
        standing = {pod.replica: pod for pod in sorted(pods, key=_standing) if pod.replica and not pod.over}
        heard = {pod.name: self._plans.knows_replica(pod.name) for pod in pods}
        programs = {replica: pod.program(heard=heard[pod.name]) for replica, pod in standing.items()}
        work = self._work_for(programs, time.time_ns())
        self._name_pods_that_ended({pod.name: pod for pod in pods})
        with self._lock:
            wanted = [replica.name for replica in self._replicas.current()]
            draining = set(self._replicas.phases()).difference(wanted)
        run = {replica: pod for replica, pod in standing.items() if pod.life_of(heard=heard[pod.name]) is not None}
        ran = {**self._ran, **run}
        self._ran = {replica: pod for replica, pod in ran.items() if replica in draining.union(wanted)}
        names = self._replica_pods.name(pods, wanted)
        for pod, replica in names.items():
            self._plans.assign_identity(pod, replica)
        self._note_steps(pods, names)
        draining &= {pod.replica for pod in pods if pod.alive}
        self._replica_pods.resize(seen, pods, draining.difference(work.end).union(wanted))

    def _end_all(self, timeout_s: float) -> None:
        self._deployment.start()
        try:
            self._replica_pods.empty(timeout_s)
        finally:
            self._deployment.stop()

    def _note_steps(self, pods: Sequence[Pod], names: Mapping[str, str]) -> None:
        """Record when a pod was created and when it had a node. One that runs when first seen is a predecessor's."""
        now_ns = time.time_ns()
        noted = {pod.name: self._noted.get(pod.name, 0 if pod.life is None else len(POD_STEPS)) for pod in pods}
        for pod in pods:
            reached = len(POD_STEPS) if pod.spec.node_name else 1
            if pod.name in names and noted[pod.name] < reached:
                steps = POD_STEPS[noted[pod.name] : reached]
                noted[pod.name] = reached
                with self._lock:
                    for step in steps:
                        self._replicas.record(names[pod.name], step, now_ns)
        self._noted = noted

    def _name_pods_that_ended(self, pods: Mapping[str, Pod]) -> None:
        """The replica set records processes that ended; the journal names the pod in which the process ran, and why it
        ended, also where the replica has another pod by now.
        """
        with self._lock:
            events = self._replicas.events
            for index, event in enumerate(events):
                if event.phase == "gone" and event.reason and (before := self._ran.get(event.replica)) is not None:
                    reason = how_it_ended(before, pods.get(before.name))
                    events[index] = msgspec.structs.replace(event, reason=reason)


def _standing(pod: Pod) -> tuple[bool, str]:
    """Sorts the pod of a replica that ends before its successor, which counts."""
    return not pod.ending, pod.metadata.creation_timestamp
