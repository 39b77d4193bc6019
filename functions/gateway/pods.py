"""A function's replicas as pods of a Deployment, for a gateway on Kubernetes.

Each function has a Deployment (``function-<name>``, of the manifests) whose size and pods this looks after by
``penstock.kubernetes.named_pods``. A pod comes up without knowing which replica it is and asks
(``PodParents.introduce``); what it has done it tells on its own port (``functions.pod``), which is asked again and
again while it starts, and whenever somebody wants to know. A pod whose container has ended makes way for a new one,
though the kubelet would start that container again: what it had in hand is lost, and whoever follows is another
replica.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import httpx
import msgspec

from functions.brood import Brood, Departure, Hatchling
from functions.gateway.parents import ParentAwayError
from functions.gateway.roster import FunctionRecord
from functions.pod import PORT, TALLY_PATH, Introduction, Tally
from penstock.kubernetes.deployment import Deployment
from penstock.kubernetes.named_pods import NamedPods, how_it_ended
from penstock.kubernetes.pods import Pod
from penstock.kubernetes.watched import KubernetesError

log = logging.getLogger("pods")

PREFIX: Final = "function-"
"""Of the Deployments' names."""
STARTING_S: Final = 0.05
"""How often a pod that starts is asked whether it serves."""
LOOK_S: Final = 0.5
REMEMBERED: Final = 1000
"""Departures."""
TALLY_TIMEOUT_S: Final = 1.0


class Ward:
    """A replica as it is kept here. ``asked``: it was told to end. ``lost``: its pod ends, which nobody here wanted.
    ``created_ns`` and ``scheduled_ns``: when its pod was seen first, and first with a node.
    """

    def __init__(self, parent: "PodParent", requested_ns: int) -> None:
        self.parent = parent
        self.requested_ns = requested_ns
        self.pod: Pod | None = None
        self.created_ns = self.scheduled_ns = 0
        self.life: int | None = None
        self.state: Hatchling | None = None
        self.tally = Tally()
        self.asked = False
        self.lost = False


class FunctionPods:
    """The pods of one function, of all its generations. One ``turn`` at a time."""

    def __init__(self, deployment: Deployment, http: httpx.AsyncClient) -> None:
        self.deployment = deployment
        self.wards: dict[str, Ward] = {}
        self._watched_by: set[PodParent] = set()
        self._asked_all_s = 0.0
        self._named = NamedPods(deployment)
        self._http = http
        self._turning = asyncio.Lock()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""

    async def watch(self, parent: "PodParent") -> None:
        """Begin, if nobody has. Raises KubernetesError: no cluster, no such Deployment, no rights."""
        async with self._turning:
            if not self._watched_by:
                await asyncio.to_thread(self.deployment.start, self._note_change)
                self._task = asyncio.create_task(self._work(), name=self.deployment.name)
            self._watched_by.add(parent)

    async def release(self, parent: "PodParent", timeout_s: float) -> None:
        """This generation needs it no more; with the last of them no pod stays and the watching ends."""
        self._watched_by.discard(parent)
        if self._watched_by or self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        async with self._turning:
            try:
                await asyncio.to_thread(self._named.empty, timeout_s)
            except KubernetesError as error:
                log.warning("%s", error)
            await asyncio.to_thread(self.deployment.stop)

    def wake(self) -> None:
        """Something is to be done."""
        self._wake.set()

    def _note_change(self) -> None:
        """From a watch's thread, which may outlive the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.wake)

    def name_of(self, pod: str) -> str:
        """The replica that a pod is, empty for none yet."""
        for name, ward in self.wards.items():
            if ward.pod is not None and ward.pod.name == pod:
                return name
        return ""

    async def turn(self, *, everyone: bool = True) -> None:
        """Look at the pods, ask them (``everyone``, or those that start), and do what is to be done about them. While
        the API server is away only what it takes no part in is done.
        """
        async with self._turning:
            changed = self._take_lives(self.deployment.pods())
            changed |= await self._ask_pods(everyone)
            try:
                changed |= await self._settle()
            except KubernetesError as error:
                if str(error) != self._trouble:
                    log.warning("%s: pods are left as they are: %s", self.deployment.name, error)
                self._trouble = str(error)
            else:
                self._trouble = ""
        if changed:
            for parent in {ward.parent for ward in self.wards.values()}:
                parent.changed()

    # --- one turn ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            try:
                await self.turn(everyone=time.monotonic() - self._asked_all_s >= LOOK_S)
            except Exception:
                log.exception("%s: looked at again", self.deployment.name)
            starting = any(ward.state is None or ward.state.phase == "cold" for ward in self.wards.values())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), STARTING_S if starting else LOOK_S)
            self._wake.clear()

    def _take_lives(self, pods: list[Pod]) -> bool:
        """Note whose container runs, and whose has ended."""
        there = {pod.name: pod for pod in pods}
        changed = False
        for name, ward in list(self.wards.items()):
            if ward.pod is None:
                continue
            now = there.get(ward.pod.name)
            if ward.state is None:
                if now is None or not now.alive:
                    ward.pod = None  # it never ran; another one will
                    continue
                if now.spec.node_name and ward.created_ns and not ward.scheduled_ns:
                    ward.scheduled_ns = time.time_ns()
                if now.life is not None and now.status.pod_ip:
                    changed = True
                    ward.pod, ward.life = now, now.life
                    ward.state = _hatched(ward, now.life, now.status.pod_ip)
                continue
            if now is not None and now.life == ward.life and not now.over:
                ward.pod = now
                if now.ending and not ward.asked and not ward.lost:
                    ward.lost, ward.state.phase = True, "ending"  # it still answers what it has in hand
                    changed = True
                continue
            reason = how_it_ended(ward.pod, now) if ward.lost or not ward.asked else ""
            ward.parent.take_leave(name, ward, reason)
            del self.wards[name]
            changed = True
            ward.parent.changed()
        return changed

    async def _ask_pods(self, everyone: bool) -> bool:
        """The containers that run, for what they have done so far."""
        if everyone:
            self._asked_all_s = time.monotonic()
        running = [(ward, ward.state) for ward in self.wards.values() if ward.state is not None]
        asked = [(ward, state) for ward, state in running if everyone or state.phase == "cold"]
        return any(await asyncio.gather(*(self._ask(ward, state) for ward, state in asked)))

    async def _ask(self, ward: Ward, state: Hatchling) -> bool:
        try:
            answer = await self._http.get(f"http://{state.address}:{state.port}{TALLY_PATH}")
            ward.tally = tally = msgspec.json.decode(answer.content, type=Tally)
        except (httpx.HTTPError, msgspec.DecodeError):
            return False  # not yet, or no more: whichever it is, its pod will tell
        before = state.phase, state.first_ns
        state.busy, state.first_ns = tally.busy, tally.first_ns
        if state.phase == "cold":
            state.phase, state.ready_ns = "ready", time.time_ns()
        if tally.broken and state.phase == "ready":
            state.phase = "broken"
        return before != (state.phase, state.first_ns)

    async def _settle(self) -> bool:
        """Names for pods that have come, and the right number of them."""
        seen, pods = self._named.look()
        wanted = [name for name, ward in self.wards.items() if not ward.asked]
        named = await asyncio.to_thread(self._named.name, pods, wanted)
        changed = False
        for pod in pods:
            ward = self.wards.get(named.get(pod.name, ""))
            if ward is not None and ward.pod is None and pod.alive:
                ward.pod, ward.created_ns, ward.scheduled_ns = pod, time.time_ns(), 0
                changed = True
        await asyncio.to_thread(self._named.resize, seen, pods, wanted)
        return changed


def _hatched(ward: Ward, life: int, address: str) -> Hatchling:
    """Its container runs."""
    return Hatchling(
        pid=life,
        address=address,
        port=PORT,
        phase="cold",
        created_ns=ward.created_ns,
        scheduled_ns=ward.scheduled_ns,
        started_ns=time.time_ns(),
    )


class PodParents:
    """Pods of Deployments, in place of warm parents. ``deployment_of``: a Deployment by its name."""

    def __init__(
        self,
        deployment_of: Callable[[str], Deployment],
        environment_of: Callable[[FunctionRecord], Mapping[str, str]],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._deployment_of = deployment_of
        self._environment_of = environment_of
        self._http = httpx.AsyncClient(timeout=TALLY_TIMEOUT_S, trust_env=False, transport=transport)
        self._functions: dict[str, FunctionPods] = {}

    def of(self, record: FunctionRecord, generation: int, changed: Callable[[], None]) -> "PodParent":
        """See ``Parents``."""
        pods = self._functions.get(record.name)
        if pods is None:
            pods = FunctionPods(self._deployment_of(PREFIX + record.name), self._http)
            self._functions[record.name] = pods
        return PodParent(pods, record, generation, changed)

    def introduce(self, pod: str) -> Introduction | None:
        """Which replica a pod is and what it should know; None while it is nobody yet."""
        for pods in self._functions.values():
            if name := pods.name_of(pod):
                ward = pods.wards[name]
                return Introduction(
                    replica=name,
                    image=ward.parent.record.deployment.image,
                    environment=dict(self._environment_of(ward.parent.record)),
                    requested_ns=ward.requested_ns,
                )
        return None


class PodParent:
    """The pods of one generation of a function; ``functions.gateway.parents.Parent``."""

    def __init__(
        self, pods: FunctionPods, record: FunctionRecord, generation: int, changed: Callable[[], None]
    ) -> None:
        self.record = record
        self.changed = changed
        self._pods = pods
        self._generation = generation
        self._gone: deque[Departure] = deque(maxlen=REMEMBERED)
        self._past = Tally()
        self._started = False

    @property
    def there(self) -> bool:
        """Whether its pods are watched."""
        return self._started

    @property
    def brood(self) -> Brood:
        """As last seen."""
        own = self._own()
        tallies = [self._past, *(ward.tally for ward in own.values())]
        return Brood(
            answers=-1,
            function=self.record.name,
            pid=0,
            replicas={name: ward.state for name, ward in own.items() if ward.state is not None},
            gone=tuple(self._gone),
            invocations=sum(tally.invocations for tally in tallies),
            failed=sum(tally.failed for tally in tallies),
            busy_s=sum(tally.busy_ns for tally in tallies) / 1e9,
            violations=sum(tally.violations for tally in tallies),
        )

    async def start(self) -> None:
        """Watch the function's pods. Raises KubernetesError: no cluster, no Deployment, no rights."""
        await self._pods.watch(self)
        self._started = True

    async def adopt(self) -> bool:
        """Take over the pods of a predecessor's replicas of this generation."""
        mine = {name: one for name, one in self.record.replicas.items() if one.generation == self._generation}
        if not mine:
            return False
        await self.start()
        there = {pod.replica: pod for pod in self._pods.deployment.pods() if pod.alive}
        for name, replica in mine.items():
            if name in there:
                ward = self._pods.wards.setdefault(name, Ward(self, replica.requested_ns))
                ward.pod = there[name]
        await self._pods.turn()
        return True

    async def ask(self, *, start: str = "", requested_ns: int = 0, end: str = "") -> Brood:
        """See ``Parent``. Commands are only noted: what was asked for at about the same time is one change of size.
        Without one, the pods are looked at and asked. Raises ParentAwayError if its pods are not watched.
        """
        if not self._started:
            raise ParentAwayError(f"{self.record.name}: its pods are not watched yet")
        if start and start not in self._pods.wards:
            self._pods.wards[start] = Ward(self, requested_ns or time.time_ns())
        if end in self._pods.wards:
            ward = self._pods.wards[end]
            ward.asked = True
            if ward.state is None:
                del self._pods.wards[end]
                self._gone.append(Departure(end, time.time_ns()))
            else:
                ward.state.phase = "ending"
        if start or end:
            self._pods.wake()
        else:
            await self._pods.turn()
        return self.brood

    async def quit(self, timeout_s: float) -> None:
        """End its replicas; with the last of the function's, the watching."""
        for ward in self._own().values():
            ward.asked = True
        if not self._started:
            return
        self._started = False
        until_s = time.monotonic() + timeout_s
        while self._own() and time.monotonic() < until_s:
            await self._pods.turn()
            await asyncio.sleep(STARTING_S)
        await self._pods.release(self, timeout_s)

    def leave(self) -> None:
        """Hang up; the pods go on."""
        self._started = False

    def take_leave(self, name: str, ward: Ward, reason: str) -> None:
        """A replica is gone; what it had done stays counted."""
        self._gone.append(Departure(name, time.time_ns(), reason))
        for field in ("invocations", "failed", "busy_ns", "violations"):
            setattr(self._past, field, getattr(self._past, field) + getattr(ward.tally, field))

    def _own(self) -> dict[str, Ward]:
        return {name: ward for name, ward in self._pods.wards.items() if ward.parent is self}
