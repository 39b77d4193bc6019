"""The actuator over a Deployment: a replica is a pod, and Kubernetes keeps as many as it is asked for.

A Deployment takes a number, a plan names replicas. So each pod is given the name of a replica once it is there, written
on it as an annotation and told to whoever asks in it (``PlanService.introduce``); and before the number shrinks, the
pods that are to go are put at the head of Kubernetes' line by their deletion cost. Whatever is seen comes from watches.
"""

import logging
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.actuators.consumer_group import ConsumerGroup, GroupActuator
from controller.actuators.deployment import Deployment, DeploymentObject
from controller.actuators.pods import GOES_FIRST, REPLICA, Pod, name_pods, size
from controller.actuators.roster import Roster, Work
from controller.actuators.watched import ConflictError
from controller.plan_service import PlanService
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

PATIENCE_S: Final = 2.0
"""How long pods that are to go wait for pods that were asked for before and are not there yet."""


class DeploymentActuator(GroupActuator):
    """Actuator port on a Deployment. Somebody else's edits of its size are undone, and told of."""

    def __init__(
        self, group: ConsumerGroup, plans: PlanService, *, deployment: Deployment, roster: Roster | None = None
    ) -> None:
        super().__init__(group, plans, roster)
        self._deployment = deployment
        self._pods: dict[str, Pod] = {}
        self._named: dict[str, str] = {}
        self._asked: int | None = None
        self._asked_of = ""
        self._due_since_s: float | None = None
        self._troubles: dict[str, str] = {}

    def connect(self) -> None:
        """Begin to watch; before the first ``step``. Raises KubernetesError: no cluster, no Deployment, no rights."""
        self._deployment.start(self._wake.set)

    def stop(self) -> None:
        """End thread and watches; the pods stay as they are."""
        super().stop()
        self._deployment.stop()

    def reconcile(self) -> None:
        """Name the pods that have come, send to the head of the line those that go, and ask for the right number."""
        seen, pods = self._deployment.seen(), self._deployment.pods()
        standing = {pod.replica: pod for pod in sorted(pods, key=_standing) if pod.replica and not pod.over}
        work = self._reckon({replica: pod.program for replica, pod in standing.items()})
        self._tell_of_pods({pod.name: pod for pod in pods})
        self._pods = standing
        self._name(pods)
        self._resize(seen, pods, work)
        self._tell_troubles(seen, pods)

    def _end_all(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        self._deployment.start()
        try:
            while pods := [pod.name for pod in self._deployment.pods() if not pod.over]:
                self._ask(0, self._deployment.seen())
                if time.monotonic() > deadline_s:
                    raise PenstockError(f"pods {', '.join(pods)} have not ended within {timeout_s:g} s")
                time.sleep(0.05)
            self._ask(0, self._deployment.seen())
        finally:
            self._deployment.stop()

    # --- one step ----------------------------------------------------------------------------------------------------

    def _name(self, pods: list[Pod]) -> None:
        """Give the pods that are nobody yet to the replicas that have none, and let those in the pods know."""
        there = {pod.name for pod in pods}
        self._named = {pod: replica for pod, replica in self._named.items() if pod in there}
        with self._lock:
            waiting = [replica.name for replica in self._roster.current()]
        for pod, replica in name_pods(pods, waiting, self._named).items():
            self._deployment.annotate(pod, {REPLICA: replica})
            self._named[pod] = replica
        for known in pods:
            if replica := known.replica or self._named.get(known.name, ""):
                self._plans.introduce(known.name, replica)

    def _resize(self, seen: DeploymentObject, pods: list[Pod], work: Work) -> None:
        """Down to those that stay, once the others are at the head of the line; then up to those that come."""
        with self._lock:
            wanted = {replica.name for replica in self._roster.current()}
            draining = set(self._roster.phases()) - wanted
        alive = [pod for pod in pods if pod.alive]
        draining &= {pod.replica for pod in alive}
        staying = wanted | (draining - set(work.end))
        due = {pod.name for pod in alive if (pod.replica or self._named.get(pod.name, "")) not in staying}
        now_s = time.monotonic()
        self._due_since_s = (self._due_since_s or now_s) if due else None
        patient = self._due_since_s is not None and now_s - self._due_since_s < PATIENCE_S
        size_now = size(pods, len(staying), due, seen.spec.replicas, patient=patient)
        costs = {pod.name: pod.deletion_cost for pod in alive}
        for name in size_now.marked:
            if costs[name] != GOES_FIRST:
                self._deployment.send_first(name, GOES_FIRST)
        if all(costs[name] == GOES_FIRST for name in size_now.marked):  # else once the watch has shown it
            self._ask(size_now.replicas, seen)

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
                self._deployment.name, seen.spec.replicas, replicas,
            )  # fmt: skip
        try:
            self._deployment.scale(replicas, seen)
        except ConflictError:
            self._asked_of = version
        else:
            self._asked, self._asked_of = replicas, version

    # --- what is told ------------------------------------------------------------------------------------------------

    def _tell_of_pods(self, pods: Mapping[str, Pod]) -> None:
        """The roster knows of processes that ended; in the journal it is told of pods, and why."""
        with self._lock:
            events = self._roster.events
            for index, event in enumerate(events):
                if event.phase == "gone" and event.reason and (before := self._pods.get(event.replica)) is not None:
                    events[index] = msgspec.structs.replace(event, reason=_ended(before, pods.get(before.name)))

    def _tell_troubles(self, seen: DeploymentObject, pods: list[Pod]) -> None:
        """Say once for each pod why it does not come up, and for the Deployment why it makes none."""
        troubles = {pod.name: pod.trouble for pod in pods if pod.trouble and not pod.ending}
        if seen.trouble:
            troubles[self._deployment.name] = seen.trouble
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble:
                log.warning("%s: %s", name, trouble)
        self._troubles = troubles


def _ended(before: Pod, now: Pod | None) -> str:
    """How the process in a pod was lost."""
    if now is None or now.ending:
        return f"pod {before.name} was deleted"
    if now.over:
        return f"pod {before.name} ended: {now.status.reason or now.status.phase}"
    last = [each.last_state.terminated for each in now.status.container_statuses[:1]]
    how = f"{last[0].reason}, exit code {last[0].exit_code}" if last and last[0] is not None else "no reason given"
    return f"container of pod {before.name} ended by itself: {how}"


def _standing(pod: Pod) -> tuple[bool, str]:
    """A replica whose pod ends and that has a new one already is the new one: that comes last."""
    return not pod.ending, pod.metadata.creation_timestamp
