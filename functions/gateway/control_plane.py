"""The control plane: deployed functions, HAProxy, and the record from which a successor continues."""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from functions.gateway.asynchronous import Invoker
from functions.gateway.backends import SOCKETS, ForkServerBackend
from functions.gateway.events import EventLog
from functions.gateway.function_replicas import FunctionReplicas, MakeBackend
from functions.gateway.haproxy import LONGEST_ANSWER_S, DataPlaneAwayError, HAProxy, Slot, slot_names
from functions.gateway.meters import Meters, read_request_log
from functions.gateway.pods import PodBackends
from functions.gateway.replica_set import FunctionRecord, GatewayRecord, free_slot
from functions.loading import HANDLERS, handler_folder
from functions.pod import FunctionIdentity
from functions.replica import ReplicaSettings
from penstock.adapters.kubernetes.deployment import Deployment
from penstock.adapters.process_manager import base_environment
from penstock.errors import PenstockError
from penstock.function_messages import FunctionReport
from penstock.log_once import LogOnce
from penstock.openfaas import NAMESPACE, DeployedFunction, FunctionDeployment
from penstock.sockets import excess_bytes

log = logging.getLogger("gateway")

LONGEST_NAME: Final = 48
FRESH_S: Final = 0.05
"""HAProxy's counts are read again after this long, however often they are asked for."""
WATCH_S: Final = 0.2
SAVE_S: Final = 0.02
SAVE_AGAIN_S: Final = 1.0
"""Until the record is saved again after it could not be."""
COUNT_S: Final = 1.0
"""How old HAProxy's counts in the metrics may be."""
STOP_S: Final = 10.0
DELETED_S: Final = 30.0
"""How long a deployment waits for a function of its name that is being deleted (`faas-cli deploy --replace`)."""
INTRODUCE_S: Final = 0.02
SECRET: Final = "redis-url"  # noqa: S105 - its name
"""The one secret that functions here may name: the variable ``redis_url`` of all replicas, or a file in pods."""
UNSUPPORTED: Final = {
    "limits": "limits", "requests": "requests", "constraints": "constraints",
    "read_only_root_filesystem": "readOnlyRootFilesystem",
}  # fmt: skip
"""Fields of a deployment that this gateway refuses, with their names on the wire."""
MOST_ANSWER_S: Final = 14 * 86_400.0
"""HAProxy reads milliseconds as 32 bits."""
ANSWER_MARGIN_S: Final = 5.0
"""A replica answers by itself when its handler hangs; HAProxy gives it up only some time after that."""


class UnknownNameError(PenstockError):
    """No function of that name is deployed, or the pod is no replica, or none yet."""


class TakenNameError(PenstockError):
    """A function of that name is deployed already."""


class Report(FunctionReport, frozen=True, kw_only=True):
    """Answer of GET /penstock/functions. ``failed``: answers of 500 or above by replicas; ``violations``: requests that
    a busy replica refused, always 0; ``trouble``: the last error.
    """

    target: int
    failed: int
    violations: int
    trouble: str


class ControlPlane:
    """One gateway in the folder ``state``. ``environment``: of all replicas; deployments override it. ``namespace``: on
    Kubernetes, where replicas are pods and HAProxy runs in another container.
    """

    def __init__(
        self,
        state: Path,
        port: int,
        *,
        handlers: tuple[Path, ...] = (HANDLERS,),
        environment: Mapping[str, str],
        namespace: str = "",
    ) -> None:
        self.state = state.absolute()
        if excess := excess_bytes(self.state / SOCKETS / "99.9999"):
            raise PenstockError(
                f"state folder {self.state}: {excess} bytes too long for Unix sockets; take a shorter one"
            )
        self.registry = CollectorRegistry()
        self.plane = HAProxy(self.state, port, beside=bool(namespace))
        self.url = f"http://127.0.0.1:{port}"
        self.invoker = Invoker(self.url)
        self._folder_of = partial(handler_folder, roots=handlers)
        self._environment = environment
        self._pods = PodBackends(partial(Deployment, namespace), self._environment_of) if namespace else None
        self._record = GatewayRecord(port=port)
        self._fleets: dict[str, FunctionReplicas] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._save_trouble = LogOnce(log, "the record is not saved, retried: %s", level=logging.ERROR)
        self._routed = False
        """Whether HAProxy has the routes of the record; not while they are being set."""
        self._plane_trouble = LogOnce(log, "haproxy is not restored, retried: %s", level=logging.ERROR)
        self._slots: dict[str, Slot] = {}
        self._slots_at = 0.0
        self._slots_lock = asyncio.Lock()
        self._plane_lock = asyncio.Lock()
        self._log_socket: asyncio.Server | None = None
        self._meters = Meters(self.registry, self._now)

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Continue from a predecessor's record, or start anew. PenstockError if HAProxy does not start."""
        for folder in (self.state, self.state / SOCKETS, self.state / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        self.state.chmod(0o700)
        record = self._read()
        adopted = await self.plane.adopt()
        if adopted and (record is None or record.port != self.plane.port):
            raise PenstockError(
                f"a gateway runs in {self.state} on port {record.port if record else '(unknown)'}: "
                "use that port, or stop it first"
            )
        self._record = record or self._record
        self._save()  # if this start fails, the next one knows the running HAProxy as its own
        self.events = EventLog(self.state / "events.jsonl", fresh=not self._record.functions)
        if not adopted:
            try:
                await self.plane.start()
            except Exception:
                self.events.close()
                await self.plane.stop()  # a HAProxy that is late would run without a gateway
                raise
        for function in self._record.functions.values():
            await self._recall(function)
            self._fleets[function.name] = self._make_fleet(function)
            self._run(self._fleets[function.name])
        self._log_socket = await read_request_log(self.state / "requests.sock", self._meters.take, self._fleets)
        await self.plane.accept(True)
        await self._route()
        self._save()
        self.invoker.start()
        self._tasks |= {asyncio.create_task(self._keep_saving()), asyncio.create_task(self._watch_plane())}

    async def stop(self) -> None:
        """Refuse new requests, end the replicas after their requests, then end HAProxy."""
        await self._end_background()
        with contextlib.suppress(DataPlaneAwayError):
            await self.plane.accept(False)
            until = time.monotonic() + STOP_S / 2
            while time.monotonic() < until and any(slot.in_flight for slot in (await self._read_slots()).values()):
                await asyncio.sleep(0.02)
        await asyncio.gather(*(fleet.quit(STOP_S / 2) for fleet in self._fleets.values()))
        await self.plane.stop()
        self.events.close()
        (self.state / "gateway.json").unlink(missing_ok=True)

    async def leave(self) -> None:
        """End the control plane only; a successor continues."""
        await self._end_background()
        for fleet in self._fleets.values():
            fleet.leave()
        self._save()
        self.events.close()

    # --- operations of the provider API ------------------------------------------------------------------------------

    async def deploy(self, deployment: FunctionDeployment) -> None:
        """Add a function, after one of its name that is being deleted. PenstockError: name in use or invalid, unknown
        image, wrong environment, unknown secret, unsupported field, no free slot. DataPlaneAwayError, OSError: nothing
        is deployed.
        """
        self._check(deployment)
        until_s = time.monotonic() + DELETED_S
        while (there := self._record.functions.get(deployment.service)) is not None and there.deleted:
            if time.monotonic() > until_s:
                break
            await asyncio.sleep(INTRODUCE_S)
        if deployment.service in self._record.functions:
            raise TakenNameError(f"function {deployment.service!r} is deployed already; PUT changes it")
        slot = free_slot(slot_names(), self._record.functions.values())
        if slot is None:
            raise PenstockError(f"all {len(slot_names())} slots of functions are in use; delete a function")
        record = FunctionRecord(
            fleet=deployment.service, deployment=deployment, slot=slot, target=0, created_ns=time.time_ns()
        )
        record.target = record.least
        fleet = self._make_fleet(record)
        # Both at once: requests that come while HAProxy is asked find both. Replicas start only after that.
        self._record.functions[record.name], self._fleets[record.name] = record, fleet
        try:
            await self._route()
            self._save()
        except BaseException:
            del self._record.functions[record.name], self._fleets[record.name]
            self._routed = False  # HAProxy and the file may have it already
            self._changed.set()
            raise
        self._run(fleet)

    async def update(self, deployment: FunctionDeployment) -> None:
        """Change a function: new replicas replace the old ones. Errors as of ``deploy``."""
        record = self._function(deployment.service)
        self._check(deployment)
        record.deployment = deployment
        record.generation += 1
        record.target = max(min(record.target, record.most), record.least)
        await self._route()
        self._save()
        self._fleets[record.name].wake()

    async def delete(self, name: str) -> None:
        """Remove a function; its replicas finish their requests. Raises UnknownNameError."""
        record = self._function(name)
        record.deleted = True
        record.target = 0
        await self._route()
        self._save()
        self._fleets[name].wake()

    def scale(self, name: str, replicas: int) -> int:
        """Set the target of a function, cut to its label's limit; return it. Raises UnknownNameError."""
        record = self._function(name)
        record.target = max(0, min(replicas, record.most))
        self._changed.set()
        self._fleets[name].wake()
        return record.target

    async def functions(self) -> list[DeployedFunction]:
        """All functions as OpenFaaS reports them."""
        await asyncio.gather(*(fleet.refresh() for fleet in self._fleets.values()))
        return [self._status(record) for record in self._record.functions.values() if not record.deleted]

    async def function(self, name: str) -> DeployedFunction:
        """One of them. Raises UnknownNameError."""
        record = self._function(name)
        await self._fleets[name].refresh()
        return self._status(record)

    def knows(self, name: str) -> bool:
        """Whether a function of that name is deployed."""
        record = self._record.functions.get(name)
        return record is not None and not record.deleted

    async def introduce(self, pod: str, wait_s: float) -> FunctionIdentity:
        """Identity of a pod, within ``wait_s``. Raises UnknownNameError if it has none by then."""
        until_s = time.monotonic() + wait_s
        while self._pods is None or (known := self._pods.introduce(pod)) is None:
            if time.monotonic() >= until_s:
                raise UnknownNameError(f"pod {pod} is no replica yet")
            await asyncio.sleep(INTRODUCE_S)
        return known

    async def reports(self) -> list[Report]:
        """All functions as Penstock's controller reads them, as of now."""
        _, slots = await asyncio.gather(
            asyncio.gather(*(fleet.refresh() for fleet in self._fleets.values())), self._read_slots()
        )
        return [self._report(record, slots.get(record.slot)) for record in self._record.functions.values()]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check(self, deployment: FunctionDeployment) -> None:
        name = deployment.service
        if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z0-9]+(-+[a-z0-9]+)*", name):
            raise PenstockError(
                f"function name {name!r}: at most {LONGEST_NAME} small letters, digits and dashes, a letter or digit "
                "at both ends"
            )
        for variable, value in deployment.environment.items():
            if not variable or "=" in variable or "\0" in variable + value:
                raise PenstockError(f"envVars: {variable!r} cannot be set: no process can have such a variable")
        self._folder_of(deployment.image)
        ReplicaSettings(deployment.environment)
        for field, name in UNSUPPORTED.items():
            if getattr(deployment, field):
                raise PenstockError(f"{name}: this gateway cannot set it for its replicas; leave it out")
        for secret in deployment.secrets or ():
            if secret not in self.secrets:
                raise PenstockError(f'unable to fetch secrets: secrets "{secret}" not found')

    @property
    def secrets(self) -> list[str]:
        """Names of secrets that a deployment may have."""
        return [SECRET] if self._pods is not None or "redis_url" in self._environment else []

    def _function(self, name: str) -> FunctionRecord:
        record = self._record.functions.get(name)
        if record is None or record.deleted:
            there = ", ".join(sorted(self._record.functions)) or "none"
            raise UnknownNameError(f"there is no function {name!r}; deployed are {there}")
        return record

    def _environment_of(self, record: FunctionRecord) -> dict[str, str]:
        """Variables that do not depend on the machine."""
        return {"OPENBLAS_NUM_THREADS": "1", **self._environment, **record.deployment.environment}

    def _make_fleet(self, record: FunctionRecord) -> FunctionReplicas:
        make_backend: MakeBackend = partial(
            ForkServerBackend,
            *(self.state, self._folder_of, lambda record: base_environment() | self._environment_of(record)),
        )
        if self._pods is not None:
            make_backend = self._pods.of
        return FunctionReplicas(record, self.plane, self.events, self._changed.set, make_backend)

    def _run(self, fleet: FunctionReplicas) -> None:
        task = asyncio.create_task(self._run_until_deleted(fleet), name=fleet.record.name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_until_deleted(self, fleet: FunctionReplicas) -> None:
        await fleet.run()
        del self._record.functions[fleet.record.name], self._fleets[fleet.record.name]
        self._changed.set()

    async def _recall(self, record: FunctionRecord) -> None:
        """Reconcile a predecessor's record with HAProxy's servers."""
        servers = (await self.plane.slots([record.slot]))[record.slot].in_server
        for name, replica in record.replicas.items():
            replica.placed = name in servers
            if replica.placed and not replica.closed:
                await self.plane.open(record.slot, name)
        for server in servers:
            if server not in record.replicas:
                await self.plane.close(record.slot, server)
                await self.plane.remove(record.slot, server)

    async def _route(self) -> None:
        async with self._plane_lock:
            self._routed = False
            routes = {}
            for record in self._record.functions.values():
                if not record.deleted:
                    environment = record.deployment.environment
                    floor_s = float(environment.get("floor_s") or 0.0)
                    limit_s = ReplicaSettings(environment).exec_timeout_s
                    answer_s = LONGEST_ANSWER_S if limit_s is None else limit_s + 100 * floor_s + ANSWER_MARGIN_S
                    answer_ms = round(1000 * min(answer_s, MOST_ANSWER_S))
                    routes[record.name] = (record.slot, record.queue_limit, answer_ms)
            await self.plane.route(routes)
            self._routed = True

    async def _watch_plane(self) -> None:
        """Restart HAProxy if it has died, and set routes that could not be set, until that succeeds."""
        while True:
            await asyncio.sleep(WATCH_S)
            with self._plane_trouble.skipping(PenstockError, OSError):
                await self._restore_plane()
                if time.monotonic() - self._slots_at > COUNT_S:
                    await self._read_slots()

    async def _restore_plane(self) -> None:
        """PenstockError or OSError if HAProxy does not start or does not take its routes."""
        if not self.plane.runs():
            if not self._plane_trouble.trouble:
                log.error("haproxy has died; starting it again")
            self._routed = False
            # Before its start: a server that is added to the new one is not forgotten, and no failure below leaves a
            # replica without its server. Those that are busy are added once they are idle.
            for fleet in self._fleets.values():
                fleet.forget_plane()
            await self.plane.start()
        if not self._routed:
            await self._route()
            for fleet in self._fleets.values():
                fleet.wake()

    async def _read_slots(self) -> dict[str, Slot]:
        """HAProxy's present counts; empty while it is away."""
        async with self._slots_lock:
            if time.monotonic() - self._slots_at > FRESH_S:
                try:
                    self._slots = await self.plane.slots([record.slot for record in self._record.functions.values()])
                except DataPlaneAwayError:
                    self._slots = {}
                self._slots_at = time.monotonic()
            return self._slots

    def _now(self) -> dict[str, tuple[int, int]]:
        """Wanted replicas and requests in progress, by function."""
        found = {}
        for record in list(self._record.functions.values()):  # Prometheus asks from another thread
            slot = self._slots.get(record.slot, Slot())
            found[record.name] = (record.target, slot.waiting + slot.in_flight)
        return found

    def _status(self, record: FunctionRecord) -> DeployedFunction:
        given = {
            name: value
            for name, value in msgspec.structs.asdict(record.deployment).items()
            if name in DeployedFunction.__struct_fields__
        }
        return DeployedFunction(
            name=record.name,
            **given | {"namespace": NAMESPACE},
            invocation_count=self._fleets[record.name].done("invocations"),
            replicas=record.target,
            available_replicas=len(record.serving()),
            created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created_ns / 1e9)),
        )

    def _report(self, record: FunctionRecord, slot: Slot | None) -> Report:
        fleet = self._fleets[record.name]
        seen = slot or Slot()
        return Report(
            name=record.name,
            replicas={name: replica.phase for name, replica in record.replicas.items()},
            waiting=seen.waiting,
            in_flight=seen.in_flight,
            invocations=int(fleet.done("invocations")),
            busy_s=fleet.done("busy_s"),
            target=record.target,
            failed=int(fleet.done("failed")),
            violations=int(fleet.done("violations")),
            trouble="haproxy is away" if slot is None else fleet.trouble,
        )

    # --- record ------------------------------------------------------------------------------------------------------

    def _read(self) -> GatewayRecord | None:
        file = self.state / "gateway.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=GatewayRecord)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PenstockError(f"{file}: cannot be read ({error}); remove it to begin anew") from None

    def _save(self) -> None:
        partial = self.state / "gateway.partial"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self._record), indent=1))
        partial.replace(self.state / "gateway.json")

    async def _keep_saving(self) -> None:
        """Save changes at most every 20 ms: a growing function changes its record often."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with self._save_trouble.skipping(OSError):
                self._save()
            if self._save_trouble.trouble:
                self._changed.set()
                await asyncio.sleep(SAVE_AGAIN_S)
            await asyncio.sleep(SAVE_S)

    async def _end_background(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.invoker.stop()
        if self._log_socket is not None:
            self._log_socket.close()
