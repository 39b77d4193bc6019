"""A Deployment of named pods: who of them is which replica, and a size that lets the right ones go.

A Deployment takes a number and gives its pods names of its own. So each pod is given the name of a replica once it is
there, written on it as an annotation; and before the number shrinks, the pods that are to go are put at the head of
Kubernetes' line by their deletion cost. Whatever is seen comes from watches.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from penstock.kubernetes.deployment import Deployment, DeploymentObject
from penstock.kubernetes.pods import GOES_FIRST, REPLICA, Pod, name_pods, size
from penstock.kubernetes.watched import ConflictError, KubernetesError

log = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""How long pods that are to go wait for pods that were asked for before and are not there yet."""


class NamedPods:
    """Looks after the pods of ``deployment``; somebody else's edits of its size are undone, and told of. One caller at
    a time. All that asks or changes raises KubernetesError if the API server is away or refuses.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._named: dict[str, str] = {}
        self._asked: int | None = None
        self._asked_of = ""
        self._due_since_s: float | None = None
        self._troubles: dict[str, str] = {}

    def look(self) -> tuple[DeploymentObject, list[Pod]]:
        """What was seen last, and pods that go included; a new trouble is logged once."""
        seen, pods = self.deployment.seen(), self.deployment.pods()
        self._tell_troubles(seen, pods)
        return seen, pods

    def name(self, pods: Sequence[Pod], replicas: Sequence[str]) -> Mapping[str, str]:
        """Give pods that are nobody yet to those ``replicas`` that have none. Returns pod → replica, all there are."""
        there = {pod.name for pod in pods}
        self._named = {pod: replica for pod, replica in self._named.items() if pod in there}
        for pod, replica in name_pods(pods, replicas, self._named).items():
            self.deployment.annotate(pod, {REPLICA: replica})
            self._named[pod] = replica
        names = {pod.name: pod.replica or self._named.get(pod.name, "") for pod in pods}
        return {pod: replica for pod, replica in names.items() if replica}

    def resize(self, seen: DeploymentObject, pods: Sequence[Pod], staying: Collection[str]) -> None:
        """Down to the replicas that are ``staying``, once the others are at the head of the line; then up again."""
        alive = [pod for pod in pods if pod.alive]
        due = {pod.name for pod in alive if (pod.replica or self._named.get(pod.name, "")) not in staying}
        now_s = time.monotonic()
        self._due_since_s = (self._due_since_s or now_s) if due else None
        patient = self._due_since_s is not None and now_s - self._due_since_s < PATIENCE_S
        wanted = size(pods, len(staying), due, seen.spec.replicas, patient=patient)
        costs = {pod.name: pod.deletion_cost for pod in alive}
        for name in wanted.marked:
            if costs[name] != GOES_FIRST:
                self.deployment.send_first(name, GOES_FIRST)
        if all(costs[name] == GOES_FIRST for name in wanted.marked):  # else once the watch has shown it
            self._ask(wanted.replicas, seen)

    def empty(self, timeout_s: float) -> None:
        """Have no pods; returns when the last is gone. Raises KubernetesError if some stay."""
        deadline_s = time.monotonic() + timeout_s
        while pods := [pod.name for pod in self.deployment.pods() if not pod.over]:
            self._ask(0, self.deployment.seen())
            if time.monotonic() > deadline_s:
                raise KubernetesError(f"pods {', '.join(pods)} have not ended within {timeout_s:g} s")
            time.sleep(0.05)
        self._ask(0, self.deployment.seen())

    def _ask(self, replicas: int, seen: DeploymentObject) -> None:
        """Ask for a size, unless the Deployment has changed since: then it is looked at again first, and so it is after
        having asked.
        """
        version = seen.metadata.resource_version
        if seen.spec.replicas == replicas or version == self._asked_of:
            return
        if self._asked is not None and seen.spec.replicas not in (self._asked, replicas):
            log.warning(
                "somebody has set %s to %d replicas: it is set back to %d",
                self.deployment.name, seen.spec.replicas, replicas,
            )  # fmt: skip
        try:
            self.deployment.scale(replicas, seen)
        except ConflictError:
            self._asked_of = version
        else:
            self._asked, self._asked_of = replicas, version

    def _tell_troubles(self, seen: DeploymentObject, pods: Sequence[Pod]) -> None:
        """Say once for each pod why it does not come up, and for the Deployment why it makes none."""
        troubles = {pod.name: pod.trouble for pod in pods if pod.trouble and not pod.ending}
        if seen.trouble:
            troubles[self.deployment.name] = seen.trouble
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble:
                log.warning("%s: %s", name, trouble)
        self._troubles = troubles


def how_it_ended(before: Pod, now: Pod | None) -> str:
    """How the process in a pod was lost: the pod as it was, and as it is now, if it still is."""
    if now is None or now.ending:
        return f"pod {before.name} was deleted"
    if now.over:
        return f"pod {before.name} ended: {now.status.reason or now.status.phase}"
    last = [each.last_state.terminated for each in now.status.container_statuses[:1]]
    how = f"{last[0].reason}, exit code {last[0].exit_code}" if last and last[0] is not None else "no reason given"
    return f"container of pod {before.name} ended by itself: {how}"
