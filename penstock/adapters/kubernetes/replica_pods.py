"""Replicas as pods of a Deployment: which pod is which replica, and which pods end when the size shrinks.

A Deployment takes a size and names its pods itself. So each pod gets its replica as an annotation, and before the size
shrinks, a deletion cost marks the pods that Kubernetes has to delete first. All observations come from informers.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from penstock.adapters.kubernetes.deployment import Deployment, DeploymentObject
from penstock.adapters.kubernetes.informer import ConflictError, KubernetesError
from penstock.adapters.kubernetes.pods import DELETION_COST, GOES_FIRST, REPLICA, Pod, name_pods, size

log = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""Longest wait of pods to be deleted for pods that were requested before them."""


class ReplicaPods:
    """Controls the pods of ``deployment``; other clients' edits of its size are logged and undone. Not thread-safe.
    Methods raise KubernetesError if the API server is away or refuses.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._named: dict[str, str] = {}
        self._asked: int | None = None
        self._asked_of = ""
        self._due_since_s: float | None = None
        self._troubles: dict[str, str] = {}

    def look(self) -> tuple[DeploymentObject, list[Pod]]:
        """Last observation, ending pods included; a new trouble is logged once."""
        seen, pods = self.deployment.seen(), self.deployment.pods()
        troubles = {pod.name: pod.trouble for pod in pods if pod.trouble and not pod.ending}
        if seen.trouble:  # why it creates no pods
            troubles[self.deployment.name] = seen.trouble
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble:
                log.warning("%s: %s", name, trouble)
        self._troubles = troubles
        return seen, pods

    def name(self, pods: Sequence[Pod], replicas: Sequence[str]) -> Mapping[str, str]:
        """Assign pods without a replica to ``replicas`` without a pod; return all pods, pod → replica."""
        there = {pod.name for pod in pods}
        self._named = {pod: replica for pod, replica in self._named.items() if pod in there}
        for pod, replica in name_pods(pods, replicas, self._named).items():
            self.deployment.annotate(pod, {REPLICA: replica})
            self._named[pod] = replica
        names = {pod.name: pod.replica or self._named.get(pod.name, "") for pod in pods}
        return {pod: replica for pod, replica in names.items() if replica}

    def resize(self, seen: DeploymentObject, pods: Sequence[Pod], staying: Collection[str]) -> None:
        """Shrink to the replicas that are ``staying`` once the others are marked; grow afterwards."""
        alive = [pod for pod in pods if pod.alive]
        due = {pod.name for pod in alive if (pod.replica or self._named.get(pod.name, "")) not in staying}
        now_s = time.monotonic()
        self._due_since_s = (self._due_since_s or now_s) if due else None
        patient = self._due_since_s is not None and now_s - self._due_since_s < PATIENCE_S
        replicas, marked = size(pods, len(staying), due, seen.spec.replicas, patient=patient)
        costs = {pod.name: pod.deletion_cost for pod in alive}
        for name in marked:
            if costs[name] != GOES_FIRST:
                self.deployment.annotate(name, {DELETION_COST: str(GOES_FIRST)})
        if all(costs[name] == GOES_FIRST for name in marked):  # else once the watch has shown it
            self._ask(replicas, seen)

    def empty(self, timeout_s: float) -> None:
        """Delete all pods and wait for their end. Raises KubernetesError if some stay."""
        deadline_s = time.monotonic() + timeout_s
        while pods := [pod.name for pod in self.deployment.pods() if not pod.over]:
            self._ask(0, self.deployment.seen())
            if time.monotonic() > deadline_s:
                raise KubernetesError(f"pods {', '.join(pods)} have not ended within {timeout_s:g} s")
            time.sleep(0.05)
        self._ask(0, self.deployment.seen())

    def _ask(self, replicas: int, seen: DeploymentObject) -> None:
        """Request a size, once per observed version of the Deployment."""
        version = seen.metadata.resource_version
        if seen.spec.replicas == replicas or version == self._asked_of:
            return
        if self._asked is not None and seen.spec.replicas not in (self._asked, replicas):
            log.warning(
                "another client has set %s to %d replicas: it is set back to %d",
                self.deployment.name, seen.spec.replicas, replicas,
            )  # fmt: skip
        try:
            self.deployment.scale(replicas, seen)
        except ConflictError:
            self._asked_of = version
        else:
            self._asked, self._asked_of = replicas, version


def how_it_ended(before: Pod, now: Pod | None) -> str:
    """Reason why the process in a pod ended, from the pod ``before`` and ``now``."""
    if now is None or now.ending:
        return f"pod {before.name} was deleted"
    if now.over:
        return f"pod {before.name} ended: {now.status.reason or now.status.phase}"
    last = [each.last_state.terminated for each in now.status.container_statuses[:1]]
    how = f"{last[0].reason}, exit code {last[0].exit_code}" if last and last[0] is not None else "no reason given"
    return f"container of pod {before.name} ended by itself: {how}"
