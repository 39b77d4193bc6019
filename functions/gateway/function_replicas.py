"""Reconciles one function's replicas with their target and records their events.

A replica is requested, started (forked, or its container runs), and joins after its cold start (then it is a server of
HAProxy). Draining closes it at HAProxy, waits for its request, and ends it: no replica ends during a request.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from functions.fork_protocol import BackendReplica, BackendState, Departure
from functions.gateway.backends import BackendAwayError, ForkServerBackend
from functions.gateway.events import EventLog
from functions.gateway.haproxy import HAProxy
from functions.gateway.pods import PodBackend
from functions.gateway.replica_set import FunctionRecord, ReplicaRecord
from penstock.contracts import POD_STEPS, Phase
from penstock.errors import PenstockError
from penstock.event_wait import set_within
from penstock.replica_set import SERVING

log = logging.getLogger("fleet")

POLL_S: Final = 0.05
"""Interval while a replica drains: HAProxy does not notify."""
LOOK_S: Final = 0.5
BACKOFF_S: Final = (0.1, 5.0)
BACKEND_BACKOFF_S: Final = (1.0, 30.0)
LIVED_S: Final = 5.0
"""A replica that served for less counts as a failed start and delays the next start."""
QUIT_S: Final = 10.0
WHY_ENDING: Final = {"broken": "its handler hung", "ending": "ended by another client"}
COUNTED: Final = ("invocations", "failed", "busy_s", "violations")


Backend = ForkServerBackend | PodBackend
MakeBackend = Callable[[FunctionRecord, int, Callable[[], None]], Backend]
"""Of a function and one of its generations; the last argument is called when the backend's state changes."""


class FunctionReplicas:
    """The replicas of one function. ``run`` returns when the function is deleted and its replicas are gone. ``saved``
    is called when the record has changed.
    """

    def __init__(
        self,
        record: FunctionRecord,
        plane: HAProxy,
        events: EventLog,
        saved: Callable[[], None],
        make_backend: MakeBackend,
    ) -> None:
        self.record = record
        self.trouble = ""
        self._plane, self._events, self._saved, self._make_backend = plane, events, saved, make_backend
        self._backends: dict[int, Backend] = {}
        self._wake = asyncio.Event()
        self.wake = self._wake.set
        """Start a turn now."""
        self._failures = 0
        self._not_before_s = 0.0

    # --- interface ---------------------------------------------------------------------------------------------------

    def done(self, measure: str) -> float:
        """``invocations``, ``failed``, ``busy_s`` or ``violations`` since the function was deployed."""
        return self.record.past.get(measure, 0.0) + sum(
            float(getattr(backend.state, measure)) for backend in self._backends.values() if backend.state is not None
        )

    async def refresh(self) -> None:
        """Poll the state of the backends."""
        for backend in list(self._backends.values()):
            with contextlib.suppress(BackendAwayError):
                await backend.ask()

    def forget_plane(self) -> None:
        """HAProxy was restarted and has no servers."""
        for replica in self.record.replicas.values():
            replica.placed = False
            if replica.phase in ("joined", "first-event"):
                replica.closed = False
        self.wake()

    def leave(self) -> None:
        """Disconnect from the backends, which continue."""
        for backend in self._backends.values():
            backend.leave()

    async def quit(self, timeout_s: float) -> None:
        """End all backends, each replica after its request."""
        try:
            await self._find_backends()
        except PenstockError as error:
            log.warning("%s: replicas may be left: %s", self.record.name, error)
        await asyncio.gather(*(backend.quit(timeout_s) for backend in self._backends.values()))

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Reconcile at every change and at least every ``LOOK_S``."""
        found = False
        while not (self.record.deleted and not self.record.replicas):
            pause_s, trouble = LOOK_S, ""
            try:
                if not found:  # no turn before: it would take the replicas of a predecessor for gone
                    await self._find_backends()
                    found = True
                pause_s = await self._turn()
            except PenstockError as error:
                trouble = str(error)
                if trouble != self.trouble:
                    log.warning("%s: %s", self.record.name, error)
            except Exception as error:
                log.exception("%s: retried", self.record.name)
                trouble = f"{type(error).__name__}: {error}"
            self.trouble = trouble
            await set_within(self._wake, pause_s)
            self._wake.clear()
        await self.quit(QUIT_S)

    async def _find_backends(self) -> None:
        """Adopt the backends of a predecessor. PenstockError if they cannot be asked for."""
        for generation in {self.record.generation, *(r.generation for r in self.record.replicas.values())}:
            if generation not in self._backends:
                backend = self._make_backend(self.record, generation, self.wake)
                if await backend.adopt():
                    self._backends[generation] = backend

    async def _turn(self) -> float:
        """Reconcile once; return the seconds to the next turn at the latest."""
        replicas = self.record.replicas
        if any(replica.phase in SERVING and not replica.placed for replica in replicas.values()):
            await self.refresh()  # poll whether they are busy
        for replica in list(replicas.values()):
            await self._look_at(replica)
        self._make_room()
        await self._start_missing()
        for replica in list(replicas.values()):
            if replica.phase == "draining":
                await self._drain(replica)
        for generation, backend in list(self._backends.items()):
            if generation not in {self.record.generation, *(replica.generation for replica in replicas.values())}:
                await backend.quit(QUIT_S)
                self._forget_backend(generation)
        if any(replica.phase == "draining" for replica in replicas.values()):
            return POLL_S
        waiting_s = self._not_before_s - time.monotonic()
        return min(LOOK_S, waiting_s) if waiting_s > 0 else LOOK_S

    # --- observed state ----------------------------------------------------------------------------------------------

    async def _look_at(self, replica: ReplicaRecord) -> None:
        backend = self._backends.get(replica.generation)
        state = backend.state if backend is not None and backend.there else None
        reported = state.replicas.get(replica.name) if state is not None else None
        if reported is None:
            if replica.phase != "requested":
                await self._gone(replica, state)
            return
        if replica.phase == "requested":
            self._begin(replica, reported)
        if replica.phase == "draining":
            return
        if reported.phase in WHY_ENDING:
            self._begin_draining(replica, WHY_ENDING[reported.phase])
            return
        if reported.phase == "ready" and not replica.placed and not reported.busy:
            # One that was busy when HAProxy restarted is added once it is idle.
            await self._plane.add(self.record.slot, replica.name, reported.address, reported.port)
            replica.placed = True
            self._saved()
        if replica.placed and replica.phase not in SERVING:  # perhaps by a predecessor that could not write that down
            replica.joined_ns = time.time_ns()
            self._enter(replica, "joined", replica.joined_ns)
        if reported.first_ns and replica.phase == "joined":
            self._enter(replica, "first-event", reported.first_ns)
        if self._failures and time.time_ns() - replica.joined_ns > LIVED_S * 1e9 and replica.phase in SERVING:
            self._failures = 0

    def _begin(self, replica: ReplicaRecord, reported: BackendReplica) -> None:
        """Record the start of its process, after the steps of its pod."""
        for step, at_ns in zip(POD_STEPS, (reported.created_ns, reported.scheduled_ns), strict=True):
            if at_ns:
                self.record.record(replica.name, step, max(at_ns, replica.entered_ns))
        self._enter(replica, "started", reported.started_ns)

    async def _gone(self, replica: ReplicaRecord, state: BackendState | None) -> None:
        """Remove a replica whose process has ended from HAProxy and from the record, with time and reason from its
        backend.
        """
        if replica.placed:
            await self._emptied(replica)
            if not await self._plane.remove(self.record.slot, replica.name):
                return
            replica.placed = False
        departure = Departure(replica.name, time.time_ns(), "its backend is gone")
        if state is not None:
            departure = next((each for each in state.gone if each.replica == replica.name), departure)
        reason = departure.reason or replica.why
        if replica.phase == "draining" and not replica.why:
            reason = ""
        else:
            if replica.joined_ns and departure.at_ns - replica.joined_ns >= LIVED_S * 1e9:
                self._failures = 0
            self._fail(BACKOFF_S)
        self._enter(replica, "gone", departure.at_ns, reason)

    # --- target ------------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        for replica in self.record.surplus(self.record.target):
            self._begin_draining(replica)
        if sum(replica.phase in SERVING for replica in self.record.current()) >= self.record.target:
            for replica in self.record.outdated():
                self._begin_draining(replica)

    async def _start_missing(self) -> None:
        record = self.record
        backing_off = time.monotonic() < self._not_before_s
        while record.size < record.target and not record.deleted:
            if backing_off:
                return
            record.add(time.time_ns())
            self._publish()
        generation = record.generation  # it may be updated while its backend warms up
        waiting = [each for each in record.current() if each.phase == "requested"]
        if not waiting:
            return
        backend = self._backends.get(generation)
        if backend is None or not backend.there:
            if backing_off:
                return
            self._forget_backend(generation)
            backend = self._make_backend(record, generation, self.wake)
            try:
                await backend.start()
            except PenstockError:
                self._fail(BACKEND_BACKOFF_S)
                raise
            self._backends[generation] = backend
        for replica in waiting:
            state = await backend.ask(start=replica.name, requested_ns=replica.requested_ns)
            if replica.name in state.replicas:
                self._begin(replica, state.replicas[replica.name])

    def _forget_backend(self, generation: int) -> None:
        """Its counts are kept."""
        backend = self._backends.pop(generation, None)
        if backend is not None and backend.state is not None:
            past = self.record.past
            for measure in COUNTED:
                past[measure] = past.get(measure, 0.0) + float(getattr(backend.state, measure))

    # --- draining ----------------------------------------------------------------------------------------------------

    def _begin_draining(self, replica: ReplicaRecord, why: str = "") -> None:
        replica.why = why
        self._enter(replica, "draining", time.time_ns(), why)

    async def _drain(self, replica: ReplicaRecord) -> None:
        """One step of draining."""
        if replica.placed and not await self._emptied(replica):
            return
        backend = self._backends.get(replica.generation)
        if backend is None:
            await self._gone(replica, None)
        elif not replica.asked_to_end and backend.there:
            replica.asked_to_end = True
            await backend.ask(end=replica.name)
            self._saved()

    async def _emptied(self, replica: ReplicaRecord) -> bool:
        """Close it at HAProxy; return whether it is idle. HAProxy keeps idle connections to it and can remove it only
        when its process has ended.
        """
        slot = self.record.slot
        if not replica.closed:
            await self._plane.close(slot, replica.name)
            replica.closed = True
            self._saved()
        return not (await self._plane.slots([slot]))[slot].in_server.get(replica.name)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _fail(self, backoff_s: tuple[float, float]) -> None:
        """Retry the first failure at once, later ones with exponential backoff."""
        if self._failures:
            self._not_before_s = time.monotonic() + min(backoff_s[0] * 2.0 ** (self._failures - 1), backoff_s[1])
        self._failures += 1

    def _enter(self, replica: ReplicaRecord, phase: Phase, at_ns: int, reason: str = "") -> None:
        self.record.enter(replica.name, phase, at_ns, reason)
        self._publish()

    def _publish(self) -> None:
        for event in self.record.take_events():
            self._events.add(event)
        self._saved()
