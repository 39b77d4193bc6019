"""Pods of a Deployment as the actuator sees them, and the order in which Kubernetes deletes them. No I/O.

A Deployment's pods have no names that one could choose; which replica a pod is, is written on it as an annotation, by
whoever looks after the replicas.
"""

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.supervision import ProgramStatus

REPLICA: Final = "penstock.dev/replica"
"""Annotation of a pod: the replica that it is."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation by which a ReplicaSet that shrinks chooses: the lowest go first, 0 where there is none."""
GOES_FIRST: Final = -1000
COMING: Final = ("ContainerCreating", "")
"""What a container waits for with which nothing is wrong."""


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of any object. Times as RFC 3339 text, which sorts as time does: all are UTC, to the second."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A container that does not run yet, or not again: ``ImagePullBackOff``, ``CrashLoopBackOff`` …"""

    reason: str = ""
    message: str = ""


class Terminated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a container ended: ``OOMKilled``, ``Error``, ``Completed``."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three is set."""

    running: Mapping[str, object] | None = None
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``restart_count`` grows with each of its lives."""

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
    """What kubelet and scheduler say of it."""

    phase: str = "Pending"
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``node_name``: where it was put, empty before."""

    node_name: str = ""


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with one container that counts, the first."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        """Its own name, which nobody has chosen."""
        return self.metadata.name

    @property
    def replica(self) -> str:
        """The replica that it is, empty for none."""
        return (self.metadata.annotations or {}).get(REPLICA, "")

    @property
    def deletion_cost(self) -> int:
        """0 where there is none, or none that can be read, as Kubernetes takes it."""
        try:
            return int((self.metadata.annotations or {}).get(DELETION_COST, "0"))
        except ValueError:
            return 0

    @property
    def ending(self) -> bool:
        """It was told to end. Kubernetes counts it no more."""
        return self.metadata.deletion_timestamp is not None

    @property
    def over(self) -> bool:
        """It has ended for good (evicted, its node lost), and Kubernetes replaces it."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def alive(self) -> bool:
        """It counts among its Deployment's pods."""
        return not self.ending and not self.over

    @property
    def ready(self) -> bool:
        """Whether it passes its readiness probe."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def ready_since(self) -> str:
        """Since when, empty if it is not."""
        since = [each.last_transition_time or "" for each in self.status.conditions if each.type == "Ready"]
        return since[0] if self.ready and since else ""

    @property
    def restarts(self) -> int:
        """How often its containers were started again."""
        return sum(each.restart_count for each in self.status.container_statuses)

    @property
    def life(self) -> int | None:
        """A number for the process that runs in it, another one for each; None while none runs."""
        first = self.status.container_statuses[:1]
        return self._life() if first and first[0].state.running is not None else None

    def life_of(self, *, heard: bool) -> int | None:
        """``life``, also of a process that was ``heard`` of before the kubelet has told of it, some second later."""
        told = [each.state for each in self.status.container_statuses[:1]]
        came = not told or (told[0].terminated is None and (told[0].waiting or Waiting()).reason in COMING)
        return self._life() if heard and came else self.life

    def _life(self) -> int:
        restarts = sum(each.restart_count for each in self.status.container_statuses[:1])
        return zlib.crc32(f"{self.metadata.uid}/{restarts}".encode())

    def program(self, *, heard: bool = False) -> ProgramStatus:
        """The pod as a program of its replica: it is started again by itself for as long as it is there. ``heard``: see
        ``life_of``.
        """
        life = self.life_of(heard=heard)
        if self.ending:
            return ProgramStatus(self.replica, life, "stopping")
        return ProgramStatus(self.replica, life, "active" if life is not None else "starting")

    @property
    def trouble(self) -> str:
        """Why it does not run, as far as Kubernetes says; empty where nothing is wrong."""
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
    """Pods that do not end yet in the order in which a ReplicaSet deletes them: those without a node, those that do not
    run, those that are not ready, then the lowest deletion cost, those ready for the shortest time, the most restarts,
    the youngest (kubernetes/pkg/controller, ActivePodsWithRanks; of pods that share a node it prefers some by their
    number there, which nobody outside can tell and which comes after the cost).
    """
    phases = {"Pending": 0, "Unknown": 1}
    alive = [pod for pod in pods if pod.alive]
    alive.sort(key=lambda pod: (pod.ready_since, pod.metadata.creation_timestamp), reverse=True)
    return sorted(
        alive,
        key=lambda pod: (
            bool(pod.spec.node_name),
            phases.get(pod.status.phase, 2),
            pod.ready,
            pod.deletion_cost,
        ),
    )


def name_pods(pods: Iterable[Pod], replicas: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    """Replicas for pods that are none yet: pod name → replica. ``replicas`` want a pod, in the order in which they get
    one; the oldest pod is taken first. ``named``: what was given out before and may not be on the pods yet.
    """
    alive = [pod for pod in pods if pod.alive]
    taken = {pod.replica or named.get(pod.name, "") for pod in alive}
    free = [replica for replica in replicas if replica not in taken]
    nameless = [pod for pod in alive if not pod.replica and pod.name not in named]
    nameless.sort(key=lambda pod: (pod.metadata.creation_timestamp, pod.name))
    return dict(zip((pod.name for pod in nameless), free, strict=False))


class Size(msgspec.Struct, frozen=True):
    """How many pods a Deployment shall have now, and the pods that have to be at the head of the line first."""

    replicas: int
    marked: tuple[str, ...] = ()


def size(pods: Collection[Pod], wanted: int, due: Collection[str], asked: int, *, patient: bool) -> Size:
    """The size to ask for. ``wanted``: pods that are to stay or to come; ``due``: pods that are to go now, by name;
    ``asked``: the size that was last asked for.

    First down, then up: a Deployment that is told both at once makes up the difference and keeps the pods that were to
    go. Those that are due stay as long as others stand before them in line (a pod that is wanted and not ready yet):
    the size decides how many go, the line who. They also stay, while ``patient``, as long as pods that were asked for
    are not there yet: they would be the first in line.
    """
    line = in_line(pods)
    leaving = {pod.name for pod in line if pod.name in due}
    if not leaving:
        return Size(wanted)
    head = {pod.name for pod in line[: len(leaving)]}
    if head != leaving or (patient and len(line) < asked):
        return Size(max(asked, wanted + len(leaving)), tuple(sorted(leaving)))
    return Size(len(line) - len(leaving), tuple(sorted(leaving)))
