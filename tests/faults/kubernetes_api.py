"""A Kubernetes API server with one Deployment, its pods and a kubelet, as far as the real client code asks for them.

The Informer, the Deployment adapter, the naming and sizing of pods and the actuator are the real ones; simulated are
``AppsV1Api``, ``CoreV1Api`` and ``Watch`` of the client library. Each change has a version; watches get them in order.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import urllib3
from kubernetes.client import ApiException

from tests.faults.kernel import SECOND, Kernel, Process, SimQueue, kernel
from tests.faults.network import Network, Trouble

SERVICE = "kubernetes"
COST = "controller.kubernetes.io/pod-deletion-cost"
KEPT_VERSIONS = 30
"""Older ones cannot be watched any more (410)."""
GRACE_S = 30.0
Object = dict[str, Any]


def time_of(seconds: int) -> str:
    """RFC 3339 text of the cluster's clock."""
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


class SimPod:
    """A pod on its node; ``state`` is what the API shows."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.annotations: dict[str, str] = {}
        self.node = self.ready_at = ""
        self.phase = "Pending"
        self.process: Process | None = None
        self.restarts = 0
        self.deleted_at = self.ended_at = ""

    @property
    def counts(self) -> bool:
        return not self.deleted_at and self.phase != "Failed"

    def shown(self, version: int) -> Object:
        running = self.process is not None
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        ended = (
            {"terminated": {"reason": "Error", "exitCode": 137, "finishedAt": self.ended_at}} if self.ended_at else {}
        )
        container = {
            "lastState": ended,
            "state": {"running": {}} if running else waiting,
            "restartCount": self.restarts,
        }
        ready = {"type": "Ready", "status": "True" if self.ready_at else "False", "lastTransitionTime": self.ready_at}
        metadata = {
            "name": self.name, "uid": f"uid-{self.number}", "resourceVersion": str(version),
            "annotations": dict(self.annotations), "creationTimestamp": time_of(self.number),
            **({"deletionTimestamp": self.deleted_at} if self.deleted_at else {}),
        }  # fmt: skip
        status = {"phase": self.phase, "conditions": [ready], "containerStatuses": [container] if self.node else []}
        return {"metadata": metadata, "spec": {"nodeName": self.node}, "status": status}


class Cluster:
    """``launch(pod, process)`` gives the main function of a pod's container; None: it never starts."""

    def __init__(
        self, kernel: Kernel, network: Network, name: str, launch: Callable[[str, Process], Callable[[], Any] | None]
    ) -> None:
        self.kernel, self.network, self.name, self._launch = kernel, network, name, launch
        self.pods: dict[str, SimPod] = {}
        self.replicas = 0
        self.stale_until = 0
        self.version = 1
        self.watches: list[Stream] = []
        self.removed: Callable[[SimPod], None] = lambda _: None
        """Called with a pod that was chosen because the Deployment shrinks."""
        self._number = 0
        self._changes: list[tuple[int, str, str, Object]] = []
        self._shown: dict[str, Object] = {}
        self._publish("own", "ADDED", self._own())

    # --- what the API does -------------------------------------------------------------------------------------------

    def listed(self, kind: str) -> bytes:
        """Everything of a kind, as of now: a list without a version is never older (Kubernetes' API concepts)."""
        items = [each for key, each in self._shown.items() if key.startswith(f"{kind} ")]
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    def scale(self, body: Mapping[str, Any]) -> None:
        """The Deployment's size, if it is still of the version that was read."""
        if body["metadata"]["resourceVersion"] != self._shown[f"own {self.name}"]["metadata"]["resourceVersion"]:
            raise ApiException(status=409, reason="Conflict")
        self.resize(body["spec"]["replicas"])

    def annotate(self, name: str, body: Mapping[str, Any]) -> None:
        if (pod := self.pods.get(name)) is None:
            raise ApiException(status=404, reason="Not Found")
        pod.annotations |= body["metadata"]["annotations"]
        self._show(pod)

    def changes_after(self, kind: str, version: int) -> list[tuple[str, Object]]:
        if self._changes and version < self._changes[0][0] - 1:
            raise ApiException(status=410, reason="Gone")
        return [(change, each) for at, of, change, each in self._changes if of == kind and at > version]

    # --- what controllers and kubelet do -----------------------------------------------------------------------------

    def resize(self, replicas: int) -> None:
        """Somebody sets the size."""
        if replicas != self.replicas:
            self.replicas = replicas
            self._publish("own", "MODIFIED", self._own())
        self._soon()

    def delete(self, pod: SimPod) -> None:
        """Its container is told to end, and killed after the grace."""
        if pod.deleted_at:
            return
        pod.deleted_at = "2026-01-01T01:00:00Z"
        if pod.process is None:
            self._forget(pod)
        else:
            self._show(pod)
            pod.process.terminate()
            self.kernel.soon(pod.process.kill, round(GRACE_S * SECOND))
        self._soon()

    def evict(self, pod: SimPod) -> None:
        """Its node is short of memory: it failed, and stays in the list for a while."""
        if pod.counts:
            pod.phase, pod.ready_at = "Failed", ""
            if pod.process is not None:
                pod.process.kill()
            self._show(pod)
            self.kernel.soon(lambda: self._forget(pod), 4 * SECOND)
            self._soon()

    def _soon(self) -> None:
        self.kernel.soon(self._reconcile, round((0.02 + 0.2 * self.kernel.random.random()) * SECOND))

    def _reconcile(self) -> None:
        """The ReplicaSet makes and deletes pods: not scheduled first, then pending, not ready, cost, youngest."""
        counting = [pod for pod in self.pods.values() if pod.counts]
        for _ in range(self.replicas - len(counting)):
            self._number += 1
            name = f"{self.name}-pod{self._number}"
            pod = self.pods[name] = SimPod(name, self._number)
            self._show(pod)
            self.kernel.soon(lambda pod=pod: self._schedule(pod), self._delay(0.3))  # type: ignore[misc]

        def order(pod: SimPod) -> tuple[bool, bool, bool, int, int]:
            cost = int(pod.annotations.get(COST, "0"))
            return bool(pod.node), pod.phase == "Running", bool(pod.ready_at), cost, -pod.number

        for pod in sorted(counting, key=order)[: max(0, len(counting) - self.replicas)]:
            self.removed(pod)
            self.delete(pod)

    def _schedule(self, pod: SimPod) -> None:
        if pod.counts:
            pod.node = "node"
            self._show(pod)
            self.kernel.soon(lambda: self._start(pod), self._delay(0.5))

    def _start(self, pod: SimPod) -> None:
        if not pod.counts or pod.process is not None:
            return
        process = self.kernel.process("worker", pod.name, lambda _: self._exited(pod))
        main = self._launch(pod.name, process)
        if main is None:  # an image that cannot be pulled: tried again and again
            process.dead = True
            self.kernel.soon(lambda: self._start(pod), SECOND)
            return
        pod.process, pod.phase = process, "Running"
        process.start(main)
        self.kernel.soon(lambda: self._seen_running(pod, process), self._delay(1.0))

    def _seen_running(self, pod: SimPod, process: Process) -> None:
        """The kubelet reports up to a second late."""
        if pod.process is process and pod.counts:
            pod.ready_at = time_of(int(self.kernel.seconds))
            self._show(pod)

    def _exited(self, pod: SimPod) -> None:
        pod.process, pod.ready_at = None, ""
        wall_s = (self.kernel.now_ns + self.kernel.wall_ns) // SECOND
        pod.ended_at = datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if pod.deleted_at:
            self._forget(pod)
        elif pod.counts:
            pod.restarts += 1
            self._show(pod)
            self.kernel.soon(lambda: self._start(pod), round(min(2.0, 0.25 * pod.restarts) * SECOND))

    def _forget(self, pod: SimPod) -> None:
        if self.pods.pop(pod.name, None) is not None:
            self.version += 1
            self._publish("pod", "DELETED", pod.shown(self.version))
            self._soon()

    def _delay(self, most_s: float) -> int:
        return round(most_s * self.kernel.random.random() * SECOND)

    # --- versions ----------------------------------------------------------------------------------------------------

    def _own(self) -> Object:
        self.version += 1
        metadata = {"name": self.name, "resourceVersion": str(self.version)}
        return {"metadata": metadata, "spec": {"replicas": self.replicas, "selector": {"matchLabels": {"app": "f"}}}}

    def _show(self, pod: SimPod) -> None:
        self.version += 1
        self._publish("pod", "MODIFIED" if f"pod {pod.name}" in self._shown else "ADDED", pod.shown(self.version))

    def _publish(self, kind: str, change: str, shown: Object) -> None:
        key = f"{kind} {shown['metadata']['name']}"
        self._shown = {name: each for name, each in self._shown.items() if name != key}
        if change != "DELETED":
            self._shown[key] = shown
        self._changes = [*self._changes, (self.version, kind, change, shown)][-KEPT_VERSIONS:]
        for watch in list(self.watches):
            watch.push(kind, change, shown)

    def cut(self) -> None:
        """The API server is away: its watches break."""
        for watch in list(self.watches):
            watch.cut()


class Api:
    """``kubernetes.client.AppsV1Api`` and ``CoreV1Api``."""

    cluster: Cluster

    def __init__(self, client: Any = None) -> None:
        del client

    def list_namespaced_deployment(self, namespace: str, **options: Any) -> Any:
        return self._list("own", options)

    def list_namespaced_pod(self, namespace: str, **options: Any) -> Any:
        return self._list("pod", options)

    def patch_namespaced_deployment_scale(self, name: str, namespace: str, body: Any, **_: Any) -> "Answer":
        return self._ask(f"scale to {body['spec']['replicas']}", lambda: self.cluster.scale(body))

    def patch_namespaced_pod(self, name: str, namespace: str, body: Any, **_: Any) -> "Answer":
        return self._ask(f"annotate {name}", lambda: self.cluster.annotate(name, body))

    def _list(self, kind: str, options: Mapping[str, Any]) -> Any:
        if "resource_version" in options:
            return kind
        return self._ask(f"list {kind}", lambda: self.cluster.listed(kind))

    def _ask(self, what: str, effect: Callable[[], bytes | None]) -> "Answer":
        def answer() -> bytes | ApiException | None:
            try:
                return effect()
            except ApiException as error:
                return error

        try:
            found = self.cluster.network.ask(SERVICE, what, answer, 5.0)
        except Trouble as trouble:
            if str(trouble) == "wrong":
                raise ApiException(status=500, reason="Internal Server Error") from None
            raise urllib3.exceptions.HTTPError(f"{what}: {trouble}") from None
        if isinstance(found, ApiException):
            raise found
        return Answer(found or b"{}")


class Answer:
    """A response that is not decoded."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class Stream:
    """``kubernetes.watch.Watch``."""

    def __init__(self) -> None:
        self._queue = SimQueue()
        self._client: Process | None = None
        self._kind = ""
        self._last_ns = 0

    def stop(self) -> None:
        """End ``stream``."""
        self._queue.put(None)

    def stream(
        self, listing: Callable[..., Any], resource_version: str, timeout_seconds: int, **_: Any
    ) -> Iterator[Any]:
        """Changes after a version, in order, until the time is up or the connection breaks."""
        k, cluster = kernel(), Api.cluster
        assert k.current is not None
        self._client, self._kind = k.current.process, listing(resource_version=resource_version)
        until_ns = k.now_ns + timeout_seconds * SECOND

        def begin() -> Any:
            try:
                missed = cluster.changes_after(self._kind, int(resource_version))
            except ApiException as error:
                return error
            for change, shown in missed:
                self._queue.put((change, shown))
            cluster.watches.append(self)
            return None

        try:
            refused = cluster.network.ask(SERVICE, f"watch {self._kind}", begin, 5.0)
            if refused is not None:
                raise refused
            while (left_ns := until_ns - k.now_ns) > 0:
                try:
                    item = self._queue.get(timeout=left_ns / SECOND)
                except Exception:  # its time is up
                    return
                k.step(f"watch {self._kind}")
                if item is None:
                    return
                if isinstance(item, Exception):
                    raise item
                change, shown = item
                yield {"type": change, "raw_object": shown}
        except Trouble as trouble:
            raise urllib3.exceptions.HTTPError(f"watch: {trouble}") from None
        finally:
            if self in cluster.watches:
                cluster.watches.remove(self)

    def push(self, kind: str, change: str, shown: Object) -> None:
        """A change is on its way: late or never on a bad link, which breaks the connection in the end."""
        k, network = Api.cluster.kernel, Api.cluster.network
        if kind != self._kind or self._client is None or self._client.dead:
            return
        mode, until_ns = network.mode(self._client.kind, SERVICE)
        if mode in ("reset", "wrong"):
            self.cut()
            return
        delay_ns = network.delay_ns()
        if mode == "late":
            delay_ns += round(3 * k.random.random() * SECOND)
        elif mode:
            delay_ns += until_ns - k.now_ns
        delay_ns = max(delay_ns, Api.cluster.stale_until - k.now_ns)  # the server's cache lags behind
        self._last_ns = max(self._last_ns, k.now_ns + delay_ns)
        k.soon(lambda: self._queue.put((change, shown)), self._last_ns - k.now_ns)

    def cut(self) -> None:
        """The connection breaks."""
        if self in Api.cluster.watches:
            Api.cluster.watches.remove(self)
        self._queue.put(urllib3.exceptions.ProtocolError("connection broken"))


class Library:
    """The package ``kubernetes`` with its module ``client``."""

    AppsV1Api, CoreV1Api = Api, Api

    @property
    def client(self) -> "Library":
        return self
