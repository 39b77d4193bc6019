"""The control plane: which functions there are, HAProxy under them, and what is written down to go on from."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from functions.gateway.asynchronous import Invoker
from functions.gateway.events import EventLog
from functions.gateway.fleet import Fleet, Surroundings
from functions.gateway.haproxy import DataPlaneAwayError, HAProxy, Slot, slot_names
from functions.gateway.meters import Meters, RequestLog
from functions.gateway.parents import PARENTS, Parents, WarmParents
from functions.gateway.pods import PodParents
from functions.gateway.roster import FunctionRecord, GatewayRecord, free_slot
from functions.loading import HANDLERS, handler_folder
from functions.pod import EVERYWHERE, Introduction
from functions.replica import ReplicaSettings
from penstock.errors import PenstockError
from penstock.functions import FunctionReport
from penstock.kubernetes.deployment import Deployment
from penstock.openfaas import DeployedFunction, FunctionDeployment
from penstock.supervision import base_environment

log = logging.getLogger("gateway")

SOCKET_PATH_BYTES: Final = 107
LONGEST_NAME: Final = 48
FRESH_S: Final = 0.05
"""HAProxy's counts are read again after this long, however often they are asked for."""
WATCH_S: Final = 0.2
SAVE_S: Final = 0.02
COUNT_S: Final = 1.0
"""How old HAProxy's counts in the metrics may be."""
STOP_S: Final = 10.0
INTRODUCE_S: Final = 0.02
ANSWER_MARGIN_S: Final = 5.0
"""A replica answers by itself when its handler hangs; HAProxy gives it up only some time after that."""


class UnknownFunctionError(PenstockError):
    """No function of that name is deployed."""


class TakenNameError(PenstockError):
    """A function of that name is deployed already."""


class UnknownPodError(PenstockError):
    """The pod is no replica, or none yet."""


class Report(FunctionReport, frozen=True, kw_only=True):
    """What GET /penstock/functions tells of a function beside what its readers ask for. ``failed``: answered with 500
    or above by a replica; ``violations``: requests that a busy replica refused, which never happens; ``trouble``: why
    it is not as it should be.
    """

    target: int
    failed: int
    violations: int
    trouble: str


class ControlPlane:
    """One gateway in the folder ``state``. ``environment``: for all replicas, under what a deployment says itself.
    ``namespace``: on Kubernetes, where replicas are pods, and HAProxy is a container beside this one.
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
        longest = self.state / PARENTS / "99.9999"
        if (excess := len(os.fsencode(longest)) - SOCKET_PATH_BYTES) > 0:
            raise PenstockError(
                f"state folder {self.state}: {excess} bytes too long for Unix sockets; take a shorter one"
            )
        self.registry = CollectorRegistry()
        if namespace:
            self.plane = HAProxy(self.state, port, address=EVERYWHERE, beside=True)
        else:
            self.plane = HAProxy(self.state, port)
        self.url = f"http://127.0.0.1:{port}"
        self.invoker = Invoker(self.url)
        self._handlers = handlers
        self._environment = environment
        self._namespace = namespace
        self._pods: PodParents | None = None
        self._record = GatewayRecord(port=port)
        self._fleets: dict[str, Fleet] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._slots: dict[str, Slot] | None = {}
        self._slots_at = 0.0
        self._slots_lock = asyncio.Lock()
        self._plane_lock = asyncio.Lock()
        self._log_socket: asyncio.Server | None = None
        self._meters = Meters(self.registry, self._now)

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Go on with what a predecessor left, or begin. Raises PenstockError if HAProxy does not start."""
        for folder in (self.state, self.state / PARENTS, self.state / "logs"):
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
        self.events = EventLog(self.state / "events.jsonl", fresh=not self._record.functions)
        if not adopted:
            await self.plane.start()
        self._surroundings = Surroundings(
            plane=self.plane, events=self.events, saved=self._changed.set, parents=self._parents()
        )
        for function in self._record.functions.values():
            await self._recall(function)
            self._run(function)
        self._log_socket = await RequestLog.listen(
            self.state / "requests.sock", self._meters.take, lambda name: name in self._fleets
        )
        await self.plane.accept(True)
        await self._route()
        self._save()
        self.invoker.start()
        self._background = [asyncio.create_task(self._keep_saving()), asyncio.create_task(self._watch_plane())]

    async def stop(self) -> None:
        """End everything: no new requests, replicas after the one in hand, then HAProxy. Nothing is left running."""
        await self._end_background()
        with contextlib.suppress(DataPlaneAwayError):
            await self.plane.accept(False)
            until = time.monotonic() + STOP_S / 2
            while any(any(slot.in_server.values()) for slot in (await self._read_slots()).values()):
                if time.monotonic() > until:
                    break
                await asyncio.sleep(0.02)
        await asyncio.gather(*(fleet.quit(STOP_S / 2) for fleet in self._fleets.values()))
        await self.plane.stop()
        self.events.close()
        (self.state / "gateway.json").unlink(missing_ok=True)

    async def leave(self) -> None:
        """End the control plane alone; a successor goes on."""
        await self._end_background()
        for fleet in self._fleets.values():
            fleet.leave()
        self._save()
        self.events.close()

    # --- what the provider API does ----------------------------------------------------------------------------------

    async def deploy(self, deployment: FunctionDeployment) -> None:
        """A new function. Raises PenstockError: name taken or not a name, unknown image, wrong environment, no slot."""
        self._check(deployment)
        if deployment.service in self._record.functions:
            raise TakenNameError(f"function {deployment.service!r} is deployed already; PUT changes it")
        slot = free_slot(slot_names(), self._record.functions.values())
        if slot is None:
            raise PenstockError(f"there is no room for more than {len(slot_names())} functions; delete one")
        record = FunctionRecord(deployment=deployment, slot=slot, target=0, created_ns=time.time_ns())
        record.target = record.least
        self._record.functions[record.name] = record
        await self._route()
        self._save()
        self._run(record)

    async def update(self, deployment: FunctionDeployment) -> None:
        """Change a function: replicas of the new kind come up, then those of the old one go. Raises as ``deploy``."""
        record = self._function(deployment.service)
        self._check(deployment)
        record.deployment = deployment
        record.generation += 1
        record.target = max(min(record.target, record.most), record.least)
        await self._route()
        self._save()
        self._fleets[record.name].wake()

    async def delete(self, name: str) -> None:
        """Take a function away; its replicas finish what they have. Raises UnknownFunctionError."""
        record = self._function(name)
        record.deleted = True
        record.target = 0
        await self._route()
        self._save()
        self._fleets[name].wake()

    def scale(self, name: str, replicas: int) -> int:
        """Have so many replicas of a function, or the most that its label allows; returns how many. Raises
        UnknownFunctionError.
        """
        record = self._function(name)
        record.target = max(0, min(replicas, record.most))
        self._changed.set()
        self._fleets[name].wake()
        return record.target

    async def functions(self) -> list[DeployedFunction]:
        """All functions as OpenFaaS tells of them."""
        await asyncio.gather(*(fleet.refresh() for fleet in self._fleets.values()))
        return [self._status(record) for record in self._record.functions.values() if not record.deleted]

    async def function(self, name: str) -> DeployedFunction:
        """One of them. Raises UnknownFunctionError."""
        record = self._function(name)
        await self._fleets[name].refresh()
        return self._status(record)

    def knows(self, name: str) -> bool:
        """Whether a function of that name is deployed."""
        record = self._record.functions.get(name)
        return record is not None and not record.deleted

    async def introduce(self, pod: str, wait_s: float) -> Introduction:
        """Which replica a pod is, as soon as it is one. Raises UnknownPodError if that takes longer."""
        until_s = time.monotonic() + wait_s
        while True:
            known = self._pods.introduce(pod) if self._pods is not None else None
            if known is not None:
                return known
            if time.monotonic() >= until_s:
                raise UnknownPodError(f"pod {pod} is nobody yet")
            await asyncio.sleep(INTRODUCE_S)

    async def reports(self) -> list[Report]:
        """All functions as Penstock's controller reads them, as of now."""
        _, slots = await asyncio.gather(
            asyncio.gather(*(fleet.refresh() for fleet in self._fleets.values())), self._read_slots()
        )
        return [self._report(record, slots.get(record.slot)) for record in self._record.functions.values()]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check(self, deployment: FunctionDeployment) -> None:
        name = deployment.service
        if not (
            name.isascii() and name.replace("-", "").isalnum() and name == name.lower() and name.strip("-") == name
        ):
            raise PenstockError(
                f"function name {name!r}: small letters, digits and dashes, a letter or digit at both ends"
            )
        if len(name) > LONGEST_NAME:
            raise PenstockError(f"function name {name!r}: longer than {LONGEST_NAME} characters")
        handler_folder(deployment.image, self._handlers)
        ReplicaSettings(deployment.env_vars)

    def _function(self, name: str) -> FunctionRecord:
        record = self._record.functions.get(name)
        if record is None or record.deleted:
            there = ", ".join(sorted(self._record.functions)) or "none"
            raise UnknownFunctionError(f"there is no function {name!r}; deployed are {there}")
        return record

    def _parents(self) -> Parents:
        if not self._namespace:
            return WarmParents(self.state, lambda image: handler_folder(image, self._handlers), self._environment_of)
        self._pods = PodParents(partial(Deployment, self._namespace), self._own_environment_of)
        return self._pods

    def _environment_of(self, record: FunctionRecord) -> dict[str, str]:
        return {**base_environment(), **self._own_environment_of(record)}

    def _own_environment_of(self, record: FunctionRecord) -> dict[str, str]:
        """What is the function's, whatever machine it runs on."""
        return {"OPENBLAS_NUM_THREADS": "1", **self._environment, **record.deployment.env_vars}

    def _run(self, record: FunctionRecord) -> None:
        fleet = Fleet(record, self._surroundings)
        self._fleets[record.name] = fleet
        self._tasks[record.name] = asyncio.create_task(self._run_until_deleted(fleet), name=record.name)

    async def _run_until_deleted(self, fleet: Fleet) -> None:
        await fleet.run()
        del self._record.functions[fleet.record.name], self._fleets[fleet.record.name]
        self._changed.set()

    async def _recall(self, record: FunctionRecord) -> None:
        """Compare what a predecessor wrote down with what HAProxy has."""
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
            await self.plane.route(
                {
                    record.name: (record.slot, record.queue_limit, self._answer_ms(record))
                    for record in self._record.functions.values()
                    if not record.deleted
                }
            )

    @staticmethod
    def _answer_ms(record: FunctionRecord) -> int:
        settings = ReplicaSettings(record.deployment.env_vars)
        floor_s = float(record.deployment.env_vars.get("floor_s") or 0.0)
        return round((settings.exec_timeout_s + 100 * floor_s + ANSWER_MARGIN_S) * 1000)

    async def _watch_plane(self) -> None:
        """Start HAProxy again if it has died; it is told again which replicas there are once they are free."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self.plane.runs():
                if time.monotonic() - self._slots_at > COUNT_S:
                    await self._read_slots()
                continue
            log.error("haproxy has died; starting it again")
            try:
                await self.plane.start()
                await self._route()
            except PenstockError as error:
                log.error("%s", error)
                continue
            for fleet in self._fleets.values():
                fleet.forget_plane()

    async def _read_slots(self) -> dict[str, Slot]:
        """What HAProxy counts now; empty while it is away."""
        async with self._slots_lock:
            if time.monotonic() - self._slots_at > FRESH_S:
                try:
                    self._slots = await self.plane.slots([record.slot for record in self._record.functions.values()])
                except DataPlaneAwayError:
                    self._slots = {}
                self._slots_at = time.monotonic()
            return self._slots or {}

    def _now(self) -> dict[str, tuple[int, int]]:
        slots = self._slots or {}
        found = {}
        for record in list(self._record.functions.values()):  # Prometheus asks from another thread
            slot = slots.get(record.slot)
            in_progress = slot.waiting + sum(slot.in_server.values()) if slot is not None else 0
            found[record.name] = (len(record.serving()), in_progress)
        return found

    def _status(self, record: FunctionRecord) -> DeployedFunction:
        given = record.deployment
        return DeployedFunction(
            name=record.name,
            image=given.image,
            namespace=given.namespace,
            env_process=given.env_process,
            env_vars=given.env_vars,
            labels=given.labels,
            annotations=given.annotations,
            invocation_count=self._fleets[record.name].done("invocations"),
            replicas=record.target,
            available_replicas=len(record.serving()),
            created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created_ns / 1e9)),
        )

    def _report(self, record: FunctionRecord, slot: Slot | None) -> Report:
        fleet = self._fleets[record.name]
        return Report(
            name=record.name,
            replicas={name: replica.phase for name, replica in record.replicas.items()},
            waiting=slot.waiting if slot is not None else 0,
            in_flight=sum(slot.in_server.values()) if slot is not None else 0,
            invocations=int(fleet.done("invocations")),
            busy_s=fleet.done("busy_s"),
            target=record.target,
            failed=int(fleet.done("failed")),
            violations=int(fleet.done("violations")),
            trouble=fleet.trouble if slot is not None else "haproxy is away",
        )

    # --- what is written down ----------------------------------------------------------------------------------------

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
        """At most every 20 ms: a fleet that grows changes its record many times at once."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._save()
            await asyncio.sleep(SAVE_S)

    async def _end_background(self) -> None:
        tasks = [*self._background, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.invoker.stop()
        if self._log_socket is not None:
            self._log_socket.close()
