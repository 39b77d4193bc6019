"""A function's replicas as pods of a Deployment, for a gateway on Kubernetes.

Each function has a Deployment (``function-<name>`` in the manifests) whose size and pods are controlled by
``penstock.adapters.kubernetes.replica_pods``. A pod asks the gateway which replica it is (``PodBackends.introduce``)
and serves its counters on its own port (``functions.pod``), which are polled while it starts and on demand. A pod whose
container has ended is replaced, though the kubelet would restart the container: its request is lost, and the new
process is another replica.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx
import msgspec

from functions.fork_protocol import BackendReplica, BackendState, Departure
from functions.gateway.backends import BackendAwayError
from functions.gateway.replica_set import FunctionRecord
from functions.pod import COUNTERS_PATH, PORT, FunctionIdentity
from functions.shared_counters import Counters, add, totals
from penstock.adapters.kubernetes.deployment import Deployment
from penstock.adapters.kubernetes.informer import KubernetesError
from penstock.adapters.kubernetes.pods import Pod
from penstock.adapters.kubernetes.replica_pods import ReplicaPods, how_it_ended
from penstock.adapters.tls import tls_context
from penstock.event_wait import set_within
from penstock.log_once import LogOnce

log = logging.getLogger("pods")

PREFIX: Final = "function-"
"""Prefix of the Deployments' names."""
STARTING_S: Final = 0.05
"""Polling interval of a pod that starts."""
LOOK_S: Final = 0.5
REMEMBERED: Final = 1000
"""Replicas that are gone, at most."""
COUNTERS_TIMEOUT_S: Final = 1.0


@dataclass(slots=True, eq=False)
class PodReplica:
    """A replica and its pod. ``asked``: the gateway asked it to end. ``lost``: its pod ends without that.
    ``created_ns`` and ``scheduled_ns``: when its pod was first observed, and first observed on a node.
    """

    backend: "PodBackend"
    requested_ns: int
    pod: Pod | None = None
    created_ns: int = 0
    scheduled_ns: int = 0
    life: int | None = None
    state: BackendReplica | None = None
    counters: Counters = field(default_factory=Counters)
    asked: bool = False
    lost: bool = False


class FunctionPods:
    """The pods of all generations of one function. One ``turn`` at a time."""

    def __init__(self, deployment: Deployment, http: httpx.AsyncClient) -> None:
        self.deployment = deployment
        self.replicas: dict[str, PodReplica] = {}
        self._observers: set[PodBackend] = set()
        self._polled_all_s = 0.0
        self._replica_pods = ReplicaPods(deployment)
        self._http = http
        self._turn_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self.wake = self._wake.set
        """Start a turn now."""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._trouble = LogOnce(log, f"{deployment.name}: pods are left as they are: %s")

    async def watch(self, backend: "PodBackend") -> None:
        """Start the informer with the first backend. Raises KubernetesError: no cluster, no Deployment, no rights."""
        async with self._turn_lock:
            if not self._observers:
                await asyncio.to_thread(self.deployment.start, self._note_change)
                self._task = asyncio.create_task(self._work(), name=self.deployment.name)
            self._observers.add(backend)

    async def release(self, backend: "PodBackend", timeout_s: float) -> None:
        """Release one generation's backend; with the last one all pods are deleted and the informer stops."""
        self._observers.discard(backend)
        if self._observers or self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        async with self._turn_lock:
            try:
                await asyncio.to_thread(self._replica_pods.empty, timeout_s)
            except KubernetesError as error:
                log.warning("%s", error)
            await asyncio.to_thread(self.deployment.stop)

    def _note_change(self) -> None:
        """Called from an informer's thread, which may outlive the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.wake)

    async def turn(self, *, everyone: bool = True) -> None:
        """Observe the pods, poll their counters (``everyone``, or those that start), name and resize them. Naming and
        resizing are skipped while the API server is away.
        """
        async with self._turn_lock:
            changed = self._take_phases()
            changed |= await self._poll_pods(everyone)
            try:
                changed |= await self._settle()
            except KubernetesError as error:
                self._trouble.note(error)
            else:
                self._trouble.clear()
        if changed:
            for backend in {replica.backend for replica in self.replicas.values()}:
                backend.changed()

    # --- one turn ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            try:
                await self.turn(everyone=time.monotonic() - self._polled_all_s >= LOOK_S)
            except Exception:
                log.exception("%s: retried", self.deployment.name)
            starting = any(replica.state is None or replica.state.phase == "cold" for replica in self.replicas.values())
            await set_within(self._wake, STARTING_S if starting else LOOK_S)
            self._wake.clear()

    def _take_phases(self) -> bool:
        """Take note of containers that started or ended."""
        there = {pod.name: pod for pod in self.deployment.pods()}
        changed = False
        for name, replica in list(self.replicas.items()):
            if replica.pod is None:
                continue
            now = there.get(replica.pod.name)
            if replica.state is None:
                if now is None or not now.alive:
                    replica.pod = None  # it never ran; another pod will
                    continue
                if now.spec.node_name and replica.created_ns and not replica.scheduled_ns:
                    replica.scheduled_ns = time.time_ns()
                if now.life is not None and now.status.pod_ip:
                    changed = True
                    replica.pod, replica.life = now, now.life
                    replica.state = BackendReplica(
                        pid=now.life,
                        address=now.status.pod_ip,
                        port=PORT,
                        phase="cold",
                        created_ns=replica.created_ns,
                        scheduled_ns=replica.scheduled_ns,
                        started_ns=time.time_ns(),
                    )
            elif now is not None and now.life == replica.life and not now.over:
                replica.pod = now
                if now.ending and not replica.asked and not replica.lost:
                    replica.lost, replica.state.phase = True, "ending"  # it still answers its request
                    changed = True
            else:
                reason = how_it_ended(replica.pod, now) if replica.lost or not replica.asked else ""
                replica.backend.remember_gone(name, replica, reason)
                del self.replicas[name]
                changed = True
                replica.backend.changed()
        return changed

    async def _poll_pods(self, everyone: bool) -> bool:
        """Poll the counters of running containers."""
        if everyone:
            self._polled_all_s = time.monotonic()
        running = [(replica, replica.state) for replica in self.replicas.values() if replica.state is not None]
        asked = [(replica, state) for replica, state in running if everyone or state.phase == "cold"]
        return any(await asyncio.gather(*(self._ask(replica, state) for replica, state in asked)))

    async def _ask(self, replica: PodReplica, state: BackendReplica) -> bool:
        try:
            answer = await self._http.get(f"http://{state.address}:{state.port}{COUNTERS_PATH}")
            replica.counters = counters = msgspec.json.decode(answer.content, type=Counters)
        except (httpx.HTTPError, msgspec.DecodeError):
            return False  # not yet, or no longer: its pod's status tells
        before = state.phase, state.first_ns
        state.busy, state.first_ns = counters.busy, counters.first_ns
        if state.phase == "cold":
            state.phase = "ready"
        if counters.broken and state.phase == "ready":
            state.phase = "broken"
        return before != (state.phase, state.first_ns)

    async def _settle(self) -> bool:
        """Name new pods, and set the number of pods."""
        seen, pods = self._replica_pods.look()
        wanted = [name for name, replica in self.replicas.items() if not replica.asked]
        named = await asyncio.to_thread(self._replica_pods.name, pods, wanted)
        changed = False
        for pod in pods:
            replica = self.replicas.get(named.get(pod.name, ""))
            if replica is not None and replica.pod is None and pod.alive:
                replica.pod, replica.created_ns, replica.scheduled_ns = pod, time.time_ns(), 0
                changed = True
        await asyncio.to_thread(self._replica_pods.resize, seen, pods, wanted)
        return changed


class PodBackends:
    """Pods of Deployments, in place of fork servers. ``deployment_of``: a Deployment by its name."""

    def __init__(
        self,
        deployment_of: Callable[[str], Deployment],
        environment_of: Callable[[FunctionRecord], Mapping[str, str]],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._deployment_of = deployment_of
        self._environment_of = environment_of
        self._http = httpx.AsyncClient(
            timeout=COUNTERS_TIMEOUT_S, trust_env=False, verify=tls_context(), transport=transport
        )
        self._functions: dict[str, FunctionPods] = {}

    def of(self, record: FunctionRecord, generation: int, changed: Callable[[], None]) -> "PodBackend":
        """The backend of one generation of a function. ``changed`` is called when its state changes."""
        if record.name not in self._functions:
            self._functions[record.name] = FunctionPods(self._deployment_of(PREFIX + record.name), self._http)
        return PodBackend(self._functions[record.name], record, generation, changed)

    def introduce(self, pod: str) -> FunctionIdentity | None:
        """Identity of a pod, None while it is no replica."""
        replicas = [each for pods in self._functions.values() for each in pods.replicas.items()]
        for name, replica in replicas:
            if replica.pod is not None and replica.pod.name == pod:
                record = replica.backend.record
                environment = dict(self._environment_of(record))
                return FunctionIdentity(name, record.deployment.image, environment, replica.requested_ns)
        return None


class PodBackend:
    """The pods of one generation of a function, as ``ForkServerBackend`` has its processes."""

    def __init__(
        self, pods: FunctionPods, record: FunctionRecord, generation: int, changed: Callable[[], None]
    ) -> None:
        self.record = record
        self.changed = changed
        self._pods = pods
        self._generation = generation
        self._gone: deque[Departure] = deque(maxlen=REMEMBERED)
        self._past = Counters()
        self.there = False
        """Whether its pods are observed."""

    @property
    def state(self) -> BackendState:
        """As last observed."""
        own = self._own()
        return BackendState(
            answers=-1,
            pid=0,
            replicas={name: replica.state for name, replica in own.items() if replica.state is not None},
            gone=tuple(self._gone),
            **totals([self._past, *(replica.counters for replica in own.values())]),
        )

    async def start(self) -> None:
        """Observe the function's pods. Raises KubernetesError: no cluster, no Deployment, no rights."""
        await self._pods.watch(self)
        self.there = True

    async def adopt(self) -> bool:
        """Take over the pods of a predecessor's replicas of this generation."""
        mine = {name: one for name, one in self.record.replicas.items() if one.generation == self._generation}
        if not mine:
            return False
        await self.start()
        there = {pod.replica: pod for pod in self._pods.deployment.pods() if pod.alive}
        for name, record in mine.items():
            if name in there:
                replica = self._pods.replicas.setdefault(name, PodReplica(self, record.requested_ns))
                replica.pod = there[name]
        await self._pods.turn()
        return True

    async def ask(self, *, start: str = "", requested_ns: int = 0, end: str = "") -> BackendState:
        """Give a command; returns the state after it. Commands are queued: those given at about the same time are one
        change of size. Without a command the pods are polled. Raises BackendAwayError if its pods are not observed.
        """
        if not self.there:
            raise BackendAwayError(f"{self.record.name}: its pods are not observed yet")
        if start and start not in self._pods.replicas:
            self._pods.replicas[start] = PodReplica(self, requested_ns or time.time_ns())
        if end in self._pods.replicas:
            replica = self._pods.replicas[end]
            replica.asked = True
            if replica.state is None:
                del self._pods.replicas[end]
                self.remember_gone(end, replica)
            else:
                replica.state.phase = "ending"
        if start or end:
            self._pods.wake()
        else:
            await self._pods.turn()
        return self.state

    async def quit(self, timeout_s: float) -> None:
        """End its replicas; with the function's last ones, the informer."""
        for replica in self._own().values():
            replica.asked = True
        if not self.there:
            return
        self.there = False
        until_s = time.monotonic() + timeout_s
        while self._own() and time.monotonic() < until_s:
            await self._pods.turn()
            await asyncio.sleep(STARTING_S)
        await self._pods.release(self, timeout_s)

    def leave(self) -> None:
        """Disconnect; the pods continue."""
        self.there = False

    def remember_gone(self, name: str, replica: PodReplica, reason: str = "") -> None:
        """Record a replica that is gone and keep its counters."""
        self._gone.append(Departure(name, time.time_ns(), reason))
        add(self._past, replica.counters)

    def _own(self) -> dict[str, PodReplica]:
        return {name: replica for name, replica in self._pods.replicas.items() if replica.backend is self}
