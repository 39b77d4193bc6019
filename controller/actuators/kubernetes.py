"""The actuator over a Deployment: a replica is a pod, and Kubernetes keeps as many as it is asked for.

Which pod is which replica, and who goes when the number shrinks, is looked after by ``penstock.kubernetes.named_pods``;
whoever asks in a pod is told who it is by the plan service (``PlanService.introduce``).
"""

import time
from collections.abc import Mapping, Sequence

import msgspec

from controller.actuators.consumer_group import ConsumerGroup, GroupActuator
from controller.actuators.roster import Roster
from controller.plan_service import PlanService
from penstock.contracts import POD_STEPS, ReplicaEvent
from penstock.kubernetes.deployment import Deployment
from penstock.kubernetes.named_pods import NamedPods, how_it_ended
from penstock.kubernetes.pods import Pod


class DeploymentActuator(GroupActuator):
    """Actuator port on a Deployment. Somebody else's edits of its size are undone, and told of."""

    def __init__(
        self, group: ConsumerGroup, plans: PlanService, *, deployment: Deployment, roster: Roster | None = None
    ) -> None:
        super().__init__(group, plans, roster)
        self._deployment = deployment
        self._named_pods = NamedPods(deployment)
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
        """Name the pods that have come, send to the head of the line those that go, and ask for the right number."""
        seen, pods = self._named_pods.look()
        standing = {pod.replica: pod for pod in sorted(pods, key=_standing) if pod.replica and not pod.over}
        heard = {pod.name: self._plans.heard(pod.name) for pod in pods}
        work = self._reckon({replica: pod.program(heard=heard[pod.name]) for replica, pod in standing.items()})
        self._tell_of_pods({pod.name: pod for pod in pods})
        with self._lock:
            wanted = [replica.name for replica in self._roster.current()]
            draining = set(self._roster.phases()).difference(wanted)
        run = {replica: pod for replica, pod in standing.items() if pod.life_of(heard=heard[pod.name]) is not None}
        ran = {**self._ran, **run}
        self._ran = {replica: pod for replica, pod in ran.items() if replica in draining.union(wanted)}
        names = self._named_pods.name(pods, wanted)
        for pod, replica in names.items():
            self._plans.introduce(pod, replica)
        self._note_steps(pods, names)
        draining &= {pod.replica for pod in pods if pod.alive}
        self._named_pods.resize(seen, pods, draining.difference(work.end).union(wanted))

    def _end_all(self, timeout_s: float) -> None:
        self._deployment.start()
        try:
            self._named_pods.empty(timeout_s)
        finally:
            self._deployment.stop()

    def _note_steps(self, pods: Sequence[Pod], names: Mapping[str, str]) -> None:
        """Put on record when a pod was there, and when it had a node, as far as a watch can tell. One that runs when it
        is first seen is a predecessor's.
        """
        now_ns = time.time_ns()
        noted = {pod.name: self._noted.get(pod.name, 0 if pod.life is None else len(POD_STEPS)) for pod in pods}
        for pod in pods:
            reached = len(POD_STEPS) if pod.spec.node_name else 1
            if pod.name in names and noted[pod.name] < reached:
                steps = POD_STEPS[noted[pod.name] : reached]
                noted[pod.name] = reached
                with self._lock:
                    self._roster.events += [ReplicaEvent(self.fleet, names[pod.name], each, now_ns) for each in steps]
        self._noted = noted

    def _tell_of_pods(self, pods: Mapping[str, Pod]) -> None:
        """The roster knows of processes that ended; in the journal it is told of pods, and why: of the one in which the
        process ran, also where the replica has another one by now.
        """
        with self._lock:
            events = self._roster.events
            for index, event in enumerate(events):
                if event.phase == "gone" and event.reason and (before := self._ran.get(event.replica)) is not None:
                    reason = how_it_ended(before, pods.get(before.name))
                    events[index] = msgspec.structs.replace(event, reason=reason)


def _standing(pod: Pod) -> tuple[bool, str]:
    """A replica whose pod ends and that has a new one already is the new one: that comes last."""
    return not pod.ending, pod.metadata.creation_timestamp
