"""One function's replicas: brings what there is towards what is wanted, step by step, and tells what happened.

A replica is requested, started (it was forked, or its container runs), joins when its cold start is over (only then
HAProxy knows it), and drains before it goes: closed at HAProxy, emptied, and only then told to end. None is ended in
mid-request.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final

from functions.brood import Brood, Hatchling
from functions.gateway.events import EventLog
from functions.gateway.haproxy import HAProxy
from functions.gateway.parents import Parent, ParentAwayError, Parents
from functions.gateway.roster import SERVING, STARTING, FunctionRecord, ReplicaRecord
from penstock.contracts import POD_STEPS, Phase
from penstock.errors import PenstockError

log = logging.getLogger("fleet")

POLL_S: Final = 0.05
"""While something drains, which HAProxy tells nobody by itself."""
LOOK_S: Final = 0.5
BACKOFF_S: Final = (0.1, 5.0)
PARENT_BACKOFF_S: Final = (1.0, 30.0)
LIVED_S: Final = 5.0
"""A replica that served for less counts as a failed start, and the next one is not started at once."""
QUIT_S: Final = 10.0
COUNTED: Final = ("invocations", "failed", "busy_s", "violations")


class Surroundings:
    """What all functions of a gateway share. ``saved`` is called when a record has changed."""

    def __init__(self, *, plane: HAProxy, events: EventLog, saved: Callable[[], None], parents: Parents) -> None:
        self.plane = plane
        self.events = events
        self.saved = saved
        self.parents = parents


class Fleet:
    """The replicas of one function. ``run`` goes on until the function was deleted and all is gone."""

    def __init__(self, record: FunctionRecord, surroundings: Surroundings) -> None:
        self.record = record
        self.trouble = ""
        self._with = surroundings
        self._parents: dict[int, Parent] = {}
        self._wake = asyncio.Event()
        self._failures = 0
        self._not_before_s = 0.0

    # --- what others ask ---------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something has changed."""
        self._wake.set()

    def done(self, measure: str) -> float:
        """``invocations``, ``failed``, ``busy_s`` or ``violations`` since the function was deployed."""
        return self.record.past.get(measure, 0.0) + sum(
            float(getattr(parent.brood, measure)) for parent in self._parents.values() if parent.brood is not None
        )

    async def refresh(self) -> None:
        """Have the parents tell the present state."""
        for parent in list(self._parents.values()):
            with contextlib.suppress(ParentAwayError):
                await parent.ask()

    def forget_plane(self) -> None:
        """HAProxy was started anew: it knows no replica."""
        for replica in self.record.replicas.values():
            replica.placed = False
            if replica.phase in ("joined", "first-event"):
                replica.closed = False
        self.wake()

    def leave(self) -> None:
        """The control plane ends, all else goes on."""
        for parent in self._parents.values():
            parent.leave()

    async def quit(self, timeout_s: float) -> None:
        """End everything, each replica after its request."""
        await self._find_parents()
        await asyncio.gather(*(parent.quit(timeout_s) for parent in self._parents.values()))

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look, do what is to be done, wait for the next change."""
        await self._find_parents()
        while not (self.record.deleted and not self.record.replicas):
            try:
                pause_s = await self._turn()
                self.trouble = ""
            except PenstockError as error:
                if str(error) != self.trouble:
                    log.warning("%s: %s", self.record.name, error)
                self.trouble = str(error)
                pause_s = LOOK_S
            except Exception as error:
                log.exception("%s: looked at again", self.record.name)
                self.trouble = f"{type(error).__name__}: {error}"
                pause_s = LOOK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause_s)
            self._wake.clear()
        await self.quit(QUIT_S)

    async def _find_parents(self) -> None:
        """Those that a predecessor has left."""
        for generation in {self.record.generation, *(r.generation for r in self.record.replicas.values())}:
            if generation not in self._parents:
                parent = self._parent(generation)
                if await parent.adopt():
                    self._parents[generation] = parent

    async def _turn(self) -> float:
        """Returns when to look again at the latest, in seconds."""
        if any(replica.phase in SERVING and not replica.placed for replica in self.record.replicas.values()):
            await self.refresh()  # whether they are busy: nobody says so when a request is over
        for name, replica in list(self.record.replicas.items()):
            await self._look_at(name, replica)
        self._make_room()
        await self._start_missing()
        for name, replica in list(self.record.replicas.items()):
            if replica.phase == "draining":
                await self._drain(name, replica)
        await self._drop_outdated_parents()
        draining = any(replica.phase == "draining" for replica in self.record.replicas.values())
        waiting_s = self._not_before_s - time.monotonic()
        return POLL_S if draining else min(LOOK_S, waiting_s) if waiting_s > 0 else LOOK_S

    # --- what there is -----------------------------------------------------------------------------------------------

    async def _look_at(self, name: str, replica: ReplicaRecord) -> None:
        parent = self._parents.get(replica.generation)
        brood = parent.brood if parent is not None and parent.there else None
        hatchling = brood.replicas.get(name) if brood is not None else None
        if hatchling is None:
            if replica.phase != "requested":
                await self._gone(name, replica, *_departure(name, brood))
            return
        if replica.phase == "requested":
            self._begin(name, replica, hatchling)
        if hatchling.phase == "broken" and replica.phase != "draining":
            self._begin_draining(name, replica, "its handler hung")
        if hatchling.phase == "ending" and replica.phase != "draining":
            self._begin_draining(name, replica, "somebody else had it end")
        if replica.phase == "draining":
            return
        if hatchling.phase == "ready" and not replica.placed and not hatchling.busy:
            await self._place(name, replica, hatchling)
        if replica.placed and replica.phase in STARTING:  # perhaps by a predecessor that could not write that down
            replica.joined_ns = time.time_ns()
            self._enter(name, replica, "joined", replica.joined_ns)
        if hatchling.first_ns and replica.phase == "joined":
            self._enter(name, replica, "first-event", hatchling.first_ns)
        if self._failures and time.time_ns() - replica.joined_ns > LIVED_S * 1e9 and replica.phase in SERVING:
            self._failures = 0

    def _begin(self, name: str, replica: ReplicaRecord, hatchling: Hatchling) -> None:
        """Its process is there; the steps of its pod until then go on record before that."""
        for step, at_ns in zip(POD_STEPS, (hatchling.created_ns, hatchling.scheduled_ns), strict=True):
            if at_ns:
                self._with.events.add(self.record.name, name, step, max(at_ns, replica.entered_ns))
        self._enter(name, replica, "started", hatchling.started_ns)

    async def _place(self, name: str, replica: ReplicaRecord, hatchling: Hatchling) -> None:
        """It may take requests. One that HAProxy lost while it was busy waits here until it is free."""
        await self._with.plane.add(self.record.slot, name, hatchling.address, hatchling.port)
        replica.placed = True
        self._with.saved()

    async def _gone(self, name: str, replica: ReplicaRecord, at_ns: int, reason: str) -> None:
        """Its process is no more: HAProxy forgets it, and the record too."""
        if replica.placed and not await self._leave_plane(name, replica):
            return
        if replica.phase != "draining" or replica.why:
            lived_s = (at_ns - replica.joined_ns) / 1e9 if replica.joined_ns else 0.0
            if lived_s >= LIVED_S:
                self._failures = 0
            self._fail(BACKOFF_S)
        else:
            reason = ""
        del self.record.replicas[name]
        self._with.events.add(self.record.name, name, "gone", max(at_ns, replica.entered_ns), reason or replica.why)
        self._with.saved()

    # --- what is wanted ----------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        for name in self.record.surplus():
            self._begin_draining(name, self.record.replicas[name])
        serving = set(self.record.serving()).intersection(self.record.wanted())
        if len(serving) >= self.record.target:
            for name in self.record.outdated():
                self._begin_draining(name, self.record.replicas[name])

    async def _start_missing(self) -> None:
        while len(self.record.wanted()) < self.record.target and not self.record.deleted:
            if time.monotonic() < self._not_before_s:
                return
            now_ns = time.time_ns()
            name = self.record.add(now_ns)
            self._with.events.add(self.record.name, name, "requested", now_ns)
            self._with.saved()
        parent = self._parents.get(self.record.generation)
        waiting = [
            (name, replica)
            for name, replica in self.record.replicas.items()
            if replica.phase == "requested" and replica.generation == self.record.generation
        ]
        if not waiting:
            return
        if parent is None or not parent.there:
            if time.monotonic() < self._not_before_s:
                return
            parent = await self._raise_parent()
        for name, replica in waiting:
            brood = await parent.ask(start=name, requested_ns=replica.requested_ns)
            if name in brood.replicas:
                self._begin(name, replica, brood.replicas[name])

    async def _raise_parent(self) -> Parent:
        """A warm parent of the present generation. What the one before has done stays counted."""
        record = self.record
        generation = record.generation  # it may be updated while this one warms up
        self._bury(generation)
        parent = self._parent(generation)
        try:
            await parent.start()
        except PenstockError:
            self._fail(PARENT_BACKOFF_S)
            raise
        self._parents[generation] = parent
        return parent

    async def _drop_outdated_parents(self) -> None:
        for generation, parent in list(self._parents.items()):
            needed = any(replica.generation == generation for replica in self.record.replicas.values())
            if generation != self.record.generation and not needed:
                await parent.quit(QUIT_S)
                self._bury(generation)

    def _bury(self, generation: int) -> None:
        parent = self._parents.pop(generation, None)
        if parent is not None and parent.brood is not None:
            past = self.record.past
            for measure in COUNTED:
                past[measure] = past.get(measure, 0.0) + float(getattr(parent.brood, measure))

    # --- the way out -------------------------------------------------------------------------------------------------

    def _begin_draining(self, name: str, replica: ReplicaRecord, why: str = "") -> None:
        replica.why = why
        self._enter(name, replica, "draining", time.time_ns(), why)

    async def _drain(self, name: str, replica: ReplicaRecord) -> None:
        """One step of the way out."""
        if replica.placed and not await self._emptied(name, replica):
            return
        parent = self._parents.get(replica.generation)
        if not replica.asked_to_end and parent is not None and parent.there:
            replica.asked_to_end = True
            await parent.ask(end=name)
            self._with.saved()
        elif parent is None:
            await self._gone(name, replica, time.time_ns(), "")

    async def _emptied(self, name: str, replica: ReplicaRecord) -> bool:
        """Close it at HAProxy; whether no request is in it any more. HAProxy keeps idle connections to it, and does not
        forget it before they are gone, which they are when the replica has ended.
        """
        plane, slot = self._with.plane, self.record.slot
        if not replica.closed:
            await plane.close(slot, name)
            replica.closed = True
            self._with.saved()
        return not (await plane.slots([slot]))[slot].in_server.get(name)

    async def _leave_plane(self, name: str, replica: ReplicaRecord) -> bool:
        """Have HAProxy forget a replica that has ended. Whether that has happened."""
        await self._emptied(name, replica)
        if not await self._with.plane.remove(self.record.slot, name):
            return False
        replica.placed = False
        self._with.saved()
        return True

    # --- inside ------------------------------------------------------------------------------------------------------

    def _fail(self, backoff_s: tuple[float, float]) -> None:
        """The first failure is made good at once, those that follow it wait longer and longer."""
        if self._failures:
            self._not_before_s = time.monotonic() + min(backoff_s[0] * 2.0 ** (self._failures - 1), backoff_s[1])
        self._failures += 1

    def _enter(self, name: str, replica: ReplicaRecord, phase: Phase, at_ns: int, reason: str = "") -> None:
        replica.phase = phase
        replica.entered_ns = at_ns = max(at_ns, replica.entered_ns)
        self._with.events.add(self.record.name, name, phase, at_ns, reason)
        self._with.saved()

    def _parent(self, generation: int) -> Parent:
        return self._with.parents.of(self.record, generation, self.wake)


def _departure(name: str, brood: Brood | None) -> tuple[int, str]:
    """When and why it went, as far as its parent can tell."""
    for departure in brood.gone if brood is not None else ():
        if departure.replica == name:
            return departure.at_ns, departure.reason
    return time.time_ns(), "its parent is gone"
