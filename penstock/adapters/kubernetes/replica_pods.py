"""Replicas as pods of a Deployment: which pod is which replica, and which pods end when the size shrinks.

A Deployment takes a size and names its pods itself. So each pod gets its replica as an annotation, and before the size
shrinks, a deletion cost marks the pods that Kubernetes has to delete first. All observations come from informers.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from penstock.adapters.kubernetes.deployment import Deployment, DeploymentObject
from penstock.adapters.kubernetes.informer import ConflictError, KubernetesError
from penstock.adapters.kubernetes.pods import DELETION_COST, GOES_FIRST, REPLICA, Pod, name_pods, size

log = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""Longest wait of pods to be deleted for pods that were requested before them."""


class _Cost(msgspec.Struct, frozen=True):
    """A deletion cost ``now`` in the place of ``before``, which the watch does not show yet. ``answered``: the API
    server has confirmed it.
    """

    before: int
    now: int
    answered: bool = False

    def awaited(self, pod: Pod | None) -> bool:
        """Whether the watch still shows the cost before."""
        return pod is not None and pod.alive and pod.deletion_cost == self.before


class ReplicaPods:
    """Controls the pods of ``deployment``; other clients' edits of its size are logged and undone. Not thread-safe.
    Methods raise KubernetesError if the API server is away or refuses.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._named: dict[str, str] = {}
        self._told: set[str] = set()
        self._costs: dict[str, _Cost] = {}
        self._asked: int | None = None
        self._asked_of = ""
        self._due_since_s: float | None = None
        self._troubles: dict[str, str] = {}

    def look(self) -> tuple[DeploymentObject, list[Pod]]:
        """Last observation, ending pods included; a new trouble is logged once. A pod keeps the replica that ``name``
        gave it, also while a late watch does not show the annotation: a replica whose pod exists is not gone.
        """
        seen, pods = self.deployment.seen(), self.deployment.pods()
        there = {pod.name: pod for pod in pods}
        self._named = {pod: replica for pod, replica in self._named.items() if pod in there}
        self._told &= self._named.keys()
        self._costs = {name: cost for name, cost in self._costs.items() if cost.awaited(there.get(name))}
        pods = [self._with_name(pod) for pod in pods]
        troubles = {pod.name: pod.trouble for pod in pods if pod.trouble and not pod.ending}
        if seen.trouble:  # why it creates no pods
            troubles[self.deployment.name] = seen.trouble
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble:
                log.warning("%s: %s", name, trouble)
        self._troubles = troubles
        return seen, pods

    def name(self, pods: Sequence[Pod], replicas: Sequence[str]) -> Mapping[str, str]:
        """Assign pods without a replica to ``replicas`` without a pod; return all pods, pod → replica. An assignment
        never changes: a call without an answer may have written the annotation, so the same one is written again.
        """
        self._named |= name_pods(pods, replicas, self._named)
        for pod in pods:
            if pod.name in self._named and pod.name not in self._told and pod.alive:
                self.deployment.annotate(pod.name, {REPLICA: self._named[pod.name]})
                self._told.add(pod.name)
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
        for pod in alive:  # a mark of an earlier scale-in puts a pod that stays before those that go
            self._mark(pod, GOES_FIRST if pod.name in marked else 0)
        shown = not self._costs and all(pod.deletion_cost == GOES_FIRST for pod in alive if pod.name in marked)
        if shown or (not marked and replicas >= seen.spec.replicas):
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

    def _with_name(self, pod: Pod) -> Pod:
        if pod.replica or pod.name not in self._named:
            return pod
        annotations = {**(pod.metadata.annotations or {}), REPLICA: self._named[pod.name]}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        return msgspec.structs.replace(pod, metadata=metadata)

    def _mark(self, pod: Pod, cost: int) -> None:
        """Write the deletion cost of a pod, and not another one before the watch has shown it."""
        if pod.name not in self._costs:
            if pod.deletion_cost == cost or GOES_FIRST not in (pod.deletion_cost, cost):
                return
            self._costs[pod.name] = _Cost(pod.deletion_cost, cost)
        written = self._costs[pod.name]
        if not written.answered:
            self.deployment.annotate(pod.name, {DELETION_COST: str(written.now)})
            self._costs[pod.name] = msgspec.structs.replace(written, answered=True)

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
