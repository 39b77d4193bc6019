"""Pods of a Deployment for the actuator, and the order in which Kubernetes deletes them. No I/O.

Kubernetes names the pods of a Deployment; an annotation on each says which replica it is.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from penstock.adapters.process_manager import ProgramStatus
from penstock.clock import NANOS_PER_SECOND

REPLICA: Final = "penstock.dev/replica"
"""Annotation of a pod: the replica that it is."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation by which a shrinking ReplicaSet chooses: the lowest first, 0 without one."""
GOES_FIRST: Final = -1000
WORKLOAD: Final = "app.kubernetes.io/name"
"""Label of a pod: the Deployment or other workload that it belongs to."""
COMING: Final = ("ContainerCreating", "")
"""Normal reasons of a waiting container."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata of any object. Times are RFC 3339 text in UTC to the second, which sorts like time."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class ApiObject(msgspec.Struct, frozen=True, kw_only=True):
    """Any object of the API."""

    metadata: Metadata


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """State of a container that does not run: ``ImagePullBackOff``, ``CrashLoopBackOff`` …"""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reason of a container's end: ``OOMKilled``, ``Error``, ``Completed``. ``finished_at``: RFC 3339 text."""

    reason: str = ""
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three is set."""

    running: Mapping[str, object] | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``restart_count`` grows with each restart."""

    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: int = 0


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``type`` holds or not: ``Ready``, ``PodScheduled`` …"""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Status from kubelet and scheduler."""

    phase: str = "Pending"
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``node_name`` is empty before it is scheduled."""

    node_name: str = ""


class Pod(ApiObject, frozen=True, kw_only=True):
    """A pod with one container that counts, the first."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        """Its name, chosen by Kubernetes."""
        return self.metadata.name

    @property
    def replica(self) -> str:
        """The replica that it is, empty for none."""
        return (self.metadata.annotations or {}).get(REPLICA, "")

    @property
    def workload(self) -> str:
        """The workload that it belongs to, empty without the label."""
        return (self.metadata.labels or {}).get(WORKLOAD, "")

    @property
    def deletion_cost(self) -> int:
        """0 without a readable annotation, as in Kubernetes."""
        try:
            return int((self.metadata.annotations or {}).get(DELETION_COST, "0"))
        except ValueError:
            return 0

    @property
    def ending(self) -> bool:
        """Whether it is being deleted. Kubernetes no longer counts it."""
        return self.metadata.deletion_timestamp is not None

    @property
    def over(self) -> bool:
        """Whether it has ended (evicted, its node lost) and Kubernetes replaces it."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def alive(self) -> bool:
        """Whether it counts among its Deployment's pods."""
        return not self.ending and not self.over

    @property
    def ready(self) -> bool:
        """Whether it passes its readiness probe."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def ready_since(self) -> str:
        """Time since when it is ready, empty if it is not."""
        since = [each.last_transition_time or "" for each in self.status.conditions if each.type == "Ready"]
        return since[0] if self.ready and since else ""

    @property
    def restarts(self) -> int:
        """Restarts of its containers."""
        return sum(each.restart_count for each in self.status.container_statuses)

    @property
    def life(self) -> int | None:
        """A number that identifies its present process; None without one."""
        return self.life_of(heard=False)

    def life_of(self, *, heard: bool) -> int | None:
        """``life``, also of a process that has reported itself (``heard``) about a second before the kubelet does."""
        first = self.status.container_statuses[0] if self.status.container_statuses else ContainerStatus()
        state = first.state
        coming = state.terminated is None and (state.waiting or Waiting()).reason in COMING
        if state.running is None and not (heard and coming):
            return None
        return zlib.crc32(f"{self.metadata.uid}/{first.restart_count}".encode())

    def program(self, *, heard: bool = False) -> ProgramStatus:
        """The pod as a program of its replica; Kubernetes restarts it. ``heard``: see ``life_of``."""
        life = self.life_of(heard=heard)
        if self.ending:
            return ProgramStatus(self.replica, life, "stopping")
        return ProgramStatus(self.replica, life, "active" if life is not None else "starting", self.former_ended_ns)

    @property
    def former_ended_ns(self) -> int | None:
        """When the last process of its container ended, None if none has."""
        for each in self.status.container_statuses[:1]:
            ended = each.state.terminated or each.last_state.terminated
            if ended is not None and ended.finished_at:
                return int(datetime.fromisoformat(ended.finished_at).timestamp()) * NANOS_PER_SECOND
        return None

    @property
    def trouble(self) -> str:
        """Reason from Kubernetes why it does not run, empty for none."""
        for each in self.status.container_statuses:
            if each.state.waiting is not None and each.state.waiting.reason not in COMING:
                ended = each.last_state.terminated
                last = f" (last ended by {ended.reason}, exit code {ended.exit_code})" if ended is not None else ""
                return f"{each.state.waiting.reason}: {each.state.waiting.message}{last}"
        for condition in self.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return f"{condition.reason}: {condition.message}"
        return ""


def in_line(pods: Iterable[Pod]) -> list[Pod]:
    """Pods in the order in which a ReplicaSet deletes them: without a node, not running, not ready, then the lowest
    deletion cost, ready for the shortest time, most restarts, youngest (kubernetes/pkg/controller, ActivePodsWithRanks;
    its rank of pods on the same node, after the cost, cannot be observed).
    """
    phases = {"Pending": 0, "Unknown": 1}
    alive = [pod for pod in pods if pod.alive]
    alive.sort(key=lambda pod: (pod.ready_since, pod.metadata.creation_timestamp), reverse=True)

    def order(pod: Pod) -> tuple[bool, int, bool, int]:
        return bool(pod.spec.node_name), phases.get(pod.status.phase, 2), pod.ready, pod.deletion_cost

    return sorted(alive, key=order)


def name_pods(pods: Iterable[Pod], replicas: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    """Replicas for pods without one: pod name → replica. ``replicas`` get pods in this order, the oldest pod first.
    ``named``: earlier assignments, which may not be on the pods yet.
    """
    alive = [pod for pod in pods if pod.alive]
    taken = {pod.replica or named.get(pod.name, "") for pod in alive}
    free = [replica for replica in replicas if replica not in taken]
    nameless = [pod for pod in alive if not pod.replica and pod.name not in named]
    nameless.sort(key=lambda pod: (pod.metadata.creation_timestamp, pod.name))
    return dict(zip((pod.name for pod in nameless), free, strict=False))


def size(
    pods: Collection[Pod], wanted: int, due: Collection[str], asked: int, *, patient: bool
) -> tuple[int, tuple[str, ...]]:
    """The size to request, and the pods to be marked for deletion first. ``wanted``: pods to keep or to create;
    ``due``: names of pods to delete; ``asked``: the last requested size.

    First down, then up: a Deployment that gets both at once applies the difference and keeps the pods to delete. These
    stay while other pods (wanted and not ready yet) come before them in Kubernetes' order, and, while ``patient``, as
    long as requested pods are missing, which would come first.
    """
    line = in_line(pods)
    leaving = {pod.name for pod in line if pod.name in due}
    if not leaving:
        return wanted, ()
    head = {pod.name for pod in line[: len(leaving)]}
    if head != leaving or (patient and len(line) < asked):
        return max(asked, wanted + len(leaving)), tuple(sorted(leaving))
    return len(line) - len(leaving), tuple(sorted(leaving))
