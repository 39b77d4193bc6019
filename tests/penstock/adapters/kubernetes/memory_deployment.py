"""A Deployment in memory that behaves as one on a cluster: it makes pods without names of one's choice, deletes them in
Kubernetes' order when its size shrinks, and refuses what was not read afresh.
"""

from collections.abc import Callable, Mapping

import msgspec

from penstock.adapters.kubernetes.deployment import Deployment, DeploymentObject, DeploymentSpec, LabelSelector
from penstock.adapters.kubernetes.informer import ConflictError, KubernetesError
from penstock.adapters.kubernetes.pods import (
    DELETION_COST,
    Condition,
    ContainerState,
    ContainerStatus,
    Metadata,
    Pod,
    PodSpec,
    PodStatus,
)


def time_of(number: int) -> str:
    """An RFC 3339 time, ``number`` seconds after a full hour."""
    return f"2026-11-21T22:{number // 60:02}:{number % 60:02}Z"


def make_pod(
    name: str,
    *,
    born: int = 0,
    node: str = "node",
    phase: str = "Running",
    ready: bool = True,
    running: bool = True,
    cost: int | None = None,
    annotations: Mapping[str, str] | None = None,
    restarts: int = 0,
    ending: bool = False,
) -> Pod:
    """A pod, ready since its birth unless told otherwise."""
    costs = {} if cost is None else {DELETION_COST: str(cost)}
    state = ContainerState(running={}) if running else ContainerState()
    condition = Condition(type="Ready", status="True" if ready else "False", last_transition_time=time_of(born))
    return Pod(
        metadata=Metadata(
            name=name,
            uid=f"uid-{name}",
            creation_timestamp=time_of(born),
            deletion_timestamp=time_of(born) if ending else None,
            annotations={**(annotations or {}), **costs},
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            pod_ip=name,
            conditions=(condition,),
            container_statuses=(ContainerStatus(state=state, restart_count=restarts),),
        ),
    )


class MemoryDeployment(Deployment):
    """``settle`` lets the cluster do its work: create, run, delete. ``away``: the API server is not there."""

    def __init__(self, name: str = "pay") -> None:
        self.name = name
        self.replicas = 0
        self.away = False
        self.scaled: list[int] = []
        self._version = 1
        self._born = 0
        self._cluster: dict[str, Pod] = {}

    # --- the port ----------------------------------------------------------------------------------------------------

    def start(self, changed: Callable[[], None] = lambda: None) -> None:
        self.settle()

    def stop(self) -> None:
        pass

    def seen(self) -> DeploymentObject:
        return DeploymentObject(
            metadata=Metadata(name=self.name, resource_version=str(self._version)),
            spec=DeploymentSpec(selector=LabelSelector(), replicas=self.replicas),
        )

    def pods(self) -> list[Pod]:
        return list(self._cluster.values())

    def scale(self, replicas: int, seen: DeploymentObject) -> None:
        self._ask()
        if seen.metadata.resource_version != str(self._version):
            raise ConflictError("the object has been modified")
        self.edit(replicas)
        self.scaled.append(replicas)

    def annotate(self, pod: str, annotations: Mapping[str, str]) -> None:
        self._ask()
        before = self._cluster[pod]
        together = {**(before.metadata.annotations or {}), **annotations}
        metadata = msgspec.structs.replace(before.metadata, annotations=together)
        self._cluster[pod] = msgspec.structs.replace(before, metadata=metadata)

    def _ask(self) -> None:
        if self.away:
            raise KubernetesError("the API server is away")

    # --- the cluster -------------------------------------------------------------------------------------------------

    def edit(self, replicas: int) -> None:
        """Somebody sets its size."""
        self.replicas = replicas
        self._version += 1

    def settle(self, *, running: bool = True) -> None:
        """Make what is missing, delete what is too much, at once."""
        while len(self._alive()) < self.replicas:
            self._born += 1
            name = f"{self.name}-{self._born:04x}"
            phase = "Running" if running else "Pending"
            self._cluster[name] = make_pod(name, born=self._born, phase=phase, ready=running, running=running)
        while len(self._alive()) > self.replicas:
            # written down once more, from the documentation of ReplicaSets: not ready first, then cost, then youngest
            first = min(
                self._alive(),
                key=lambda pod: (pod.ready, pod.deletion_cost, -int(pod.name.rpartition("-")[2], 16)),
            )
            del self._cluster[first.name]

    def _alive(self) -> list[Pod]:
        """Those that count: one that ends does not."""
        return [pod for pod in self._cluster.values() if pod.alive]

    def run(self) -> None:
        """What was made runs."""
        for name, pod in self._cluster.items():
            fresh = make_pod(name, born=self._born, annotations=pod.metadata.annotations)
            self._cluster[name] = fresh if not pod.ready and pod.alive else pod

    def kill(self, name: str) -> None:
        """A pod is gone without notice; another takes its place with ``settle``."""
        del self._cluster[name]

    def end(self, name: str) -> None:
        """Somebody deletes a pod, which ends by and by."""
        pod = self._cluster[name]
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=time_of(self._born))
        self._cluster[name] = msgspec.structs.replace(pod, metadata=metadata)

    def restart(self, name: str) -> None:
        """The process in a pod ends and is started again."""
        pod = self._cluster[name]
        self._cluster[name] = make_pod(name, annotations=pod.metadata.annotations, restarts=pod.restarts + 1)

    def names(self) -> dict[str, str]:
        """Which pod is which replica."""
        return {pod.replica: pod.name for pod in self._cluster.values() if pod.replica}
