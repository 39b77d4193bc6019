"""The queues of a live bank with their function apps, and what is to be done next, without doing it.

The rules are the simulated bank's (``simulator.queue_fleet``); what differs is that here nothing happens because it was
asked for: a function is there when its app has said so, a queue is empty when the broker says so and the forwarder has
nothing left for it. No clock, no I/O, as in ``roster``: a timeline of calls gives a timeline of steps, and all of it
can be written down.
"""

from collections.abc import Mapping, Sequence
from math import floor

import msgspec

from controller.actuators.app_process import AppProcess, added
from controller.actuators.containers import ContainerSet
from controller.provider import containers_after
from controller.routing import Routing, fed_shares
from controller.scalers.queue_bank import queues_to_create
from penstock.amqp import ready_limit
from penstock.apps import AppReport
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Phase, ReplicaCounts, ReplicaEvent
from penstock.supervision import ProgramStatus
from penstock.systems import QueueSystem


class Function(AppProcess, kw_only=True):
    """A sub-queue with its function app; one without a queue of its own where functions pull.

    ``asked_ns``: when it was asked for, ``ready_ns``: before which it is not ready (the time to provision it).
    ``since_ns``: since when it is in service, None before the run's start: the provider's ramp begins there.
    ``begun_at_join``: events that its app had begun when it was taken into service, -1 once it has begun another.
    ``drain_version``: the first routing without it. ``emptied_ns``: when a queue that goes was first seen empty, its
    containers told to leave. ``ending``: the app is to be ended and its queue deleted.
    """

    number: int
    containers: ContainerSet
    phase: Phase = "requested"
    for_pool: bool = False
    asked_ns: int = 0
    ready_ns: int = 0
    since_ns: int | None = None
    begun_at_join: int = -1
    drain_version: int = 0
    emptied_ns: int | None = None
    ending: bool = False

    @property
    def servers(self) -> int:
        """Containers that its app has."""
        return 0 if self.heard is None else self.heard.containers

    @property
    def begun(self) -> int:
        """Events that were served or are in service."""
        return self.total.completed + self.total.busy


class BankWork(msgspec.Struct, frozen=True):
    """What to do: start these functions (queue, then app), end the apps of those, delete the queues of these."""

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


class BankRoster(msgspec.Struct, kw_only=True):
    """All functions of a bank. ``origin_ns``: start of the run, None until it is known.

    Replicas are the functions ``<fleet>-<number>``; with ``scaled="containers"`` there is one function, named as the
    fleet, and the replicas are its containers. ReplicaEvents of a function's containers carry its name as fleet.
    """

    fleet: str
    system: QueueSystem
    functions: dict[str, Function] = msgspec.field(default_factory=dict)
    pool: list[str] = msgspec.field(default_factory=list)
    pool_wanted: int = 0
    next_fill_ns: int = 0
    next_number: int = 1
    wanted_routing: dict[str, float] | None = None
    routing: Routing = msgspec.field(default_factory=lambda: Routing(0, {}))
    origin_ns: int | None = None
    gone: AppReport | None = None
    brought_up: bool = False
    events: list[ReplicaEvent] = msgspec.field(default_factory=list)

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def scales_containers(self) -> bool:
        """Whether the replicas are containers of one function."""
        return self.system.scaled == "containers"

    @property
    def pulls(self) -> bool:
        """Whether functions take their events from the main queue themselves."""
        return self.system.forwarding == "pull"

    def phases(self) -> dict[str, Phase]:
        """The replicas, each with its phase; a function that is still being made for the pool is none yet."""
        if self.scales_containers:
            return {name: phase for each in self.functions.values() for name, phase in each.containers.phases().items()}
        spare = {name: self.functions[name].phase for name in self.pool}
        rest = [
            f for f in self.functions.values() if f.name not in spare and not (f.phase == "requested" and f.for_pool)
        ]
        return {**{f.name: f.phase for f in rest}, **spare}

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return ReplicaCounts.count(self.phases().values())

    def in_service(self) -> list[Function]:
        """Functions that are fed or drain, in the order in which they were taken into service."""
        there = [f for f in self.functions.values() if f.phase in ("joined", "draining") and not f.ending]
        return sorted(there, key=lambda f: (f.since_ns or 0, f.number))

    def total(self) -> AppReport:
        """What all functions have done, those that are gone among them."""
        reports = [function.total for function in self.functions.values()]
        if self.gone is not None:
            reports.append(self.gone)
        return added(self.fleet, reports or [AppProcess(name=self.fleet).total])

    def wanted(self, now_ns: int) -> dict[str, int]:
        """How many containers each app is to have now."""
        return {f.name: f.containers.wanted(now_ns) for f in self.functions.values()}

    def bounds(self) -> dict[str, int]:
        """How many messages may wait in each sub-queue that has a bound, as far as its containers are known."""
        capacity = self.system.capacity
        if self.pulls or capacity is None:
            return {}
        known = [f for f in self.functions.values() if not f.ending and (f.heard is not None or f.phase == "requested")]
        return {f.name: ready_limit(capacity, f.servers) for f in known}

    def ready(self) -> bool:
        """Whether all that was asked for serves: what is due is there."""
        if not self.brought_up:
            return False
        return all(
            function.heard is not None
            and function.phase in ("joined", "pooled")
            and set(function.containers.phases().values()) <= {"joined"}
            for function in self.functions.values()
            if function.phase != "draining"
        )

    # --- the plan's side ---------------------------------------------------------------------------------------------

    def bring_up(self, initial: int, now_ns: int) -> None:
        """The first functions: in service at once, and the initial pool."""
        if self.brought_up:
            return
        self.brought_up = True
        if self.scales_containers:
            only = self._create(now_ns, 0, name=self.fleet)
            self._hear(only.containers.resize(initial, now_ns, now_ns))
            return
        self.pool_wanted = self.system.pool_initial
        for _ in range(initial):
            self._create(now_ns, 0)
        for _ in range(self.system.pool_initial):
            self._create(now_ns, 0, for_pool=True)

    def begin(self, origin_ns: int) -> None:
        """The run starts then: from then on containers come to what is in service already."""
        self.origin_ns = origin_ns
        for function in self.functions.values():
            if function.phase == "joined" and function.since_ns is None:
                function.since_ns = origin_ns

    def resize(self, replicas: int, staying: Mapping[str, float] | None, now_ns: int) -> None:
        """Towards so many replicas. Spare ones are taken first. What goes: first what ``staying`` does not name, then
        the youngest.
        """
        missing = replicas - self.counts().current
        if self.scales_containers:
            due_ns = now_ns + _nanos(self.system.first_container_s)
            only = self.functions[self.fleet]
            self._hear(only.containers.resize(replicas, now_ns, due_ns))
            return
        for _ in range(missing):
            if self.pool:
                self._take_into_service(self.functions[self.pool.pop(0)], now_ns)
            else:
                self._create(now_ns, _nanos(self.system.provision_s))
        current = [f for f in self.functions.values() if f.phase in ("requested", "joined") and not f.for_pool]
        current.sort(key=lambda f: (f.since_ns is None and f.phase == "requested", f.since_ns or 0, f.number))
        named = staying if staying is not None else {f.name: 1.0 for f in current}
        first_to_go = sorted(current, key=lambda f: (f.name in named, -current.index(f)))
        self._route()
        for function in first_to_go[: max(0, -missing)]:
            self._drain(function, now_ns)
        self._route()

    def route(self, shares: Mapping[str, float]) -> None:
        """These shares from now on."""
        self.wanted_routing = dict(shares)
        self._route()

    # --- the world's side --------------------------------------------------------------------------------------------

    def observe(
        self,
        programs: Mapping[str, ProgramStatus],
        reports: Mapping[str, AppReport],
        waiting: Mapping[str, int],
        settled_version: int,
        now_ns: int,
    ) -> None:
        """Take in what runs (by replica name), what apps said last, how many messages wait in queues that drain (as
        far as that is known), and by which routing the forwarder works. Then let time pass.
        """
        for name, program in programs.items():
            if name not in self.functions and program.pid is not None and program.state != "stopping":
                self._adopt(name, now_ns)
        for function in list(self.functions.values()):
            self._watch(function, programs.get(function.name), now_ns)
            self._listen(function, reports.get(function.name), now_ns)
            if function.phase == "requested" and now_ns >= function.ready_ns and function.heard is not None:
                self._made(function, now_ns)
            if function.phase == "joined" and not self.scales_containers:
                self._bring(function, now_ns)
            elif function.phase == "draining" and not function.ending:
                self._empty(function, waiting, settled_version, now_ns)
        self._fill_pool(now_ns)
        self._route()

    def work(self, programs: Mapping[str, ProgramStatus], now_ns: int) -> BankWork:
        """What brings what runs closer to what is wanted; asked for again until it is seen."""
        start, end, delete = [], [], []
        for function in self.functions.values():
            program = programs.get(function.name)
            if function.ending:
                if program is None:
                    delete.append(function.name)
                elif program.state != "stopping":
                    end.append(function.name)
            elif program is None:
                start.append(function.name)
            elif function.to_be_ended(program, now_ns):
                end.append(function.name)
        return BankWork(tuple(start), tuple(end), tuple(delete))

    def deleted(self, name: str, now_ns: int) -> None:
        """Its queue is no more."""
        function = self.functions.pop(name)
        done = msgspec.structs.replace(function.total, containers=0, busy=0)
        self.gone = done if self.gone is None else added(self.fleet, (self.gone, done))
        self._hear(function.containers.end(now_ns))
        self._tell(function, "gone", now_ns)

    def serve_again(self, name: str, now_ns: int) -> None:
        """Its queue was not empty after all."""
        function = self.functions[name]
        function.ending, function.emptied_ns = False, None
        self._bring(function, now_ns)

    def end_all(self, now_ns: int) -> None:
        """Everything is to go, whatever waits."""
        for function in self.functions.values():
            if function.phase != "draining":
                self._tell(function, "draining", now_ns)
            function.ending = True
        self.pool.clear()
        self._route()

    def copy(self) -> "BankRoster":
        """As it is to be written down: without the last reports, which come again."""
        functions = {name: msgspec.structs.replace(function, heard=None) for name, function in self.functions.items()}
        remembered = msgspec.structs.replace(self, functions=functions)
        return msgspec.json.decode(msgspec.json.encode(remembered), type=BankRoster)

    def happened(self) -> list[ReplicaEvent]:
        """Everything that happened to replicas and containers since the last call, in order."""
        handed_out, self.events = self.events, []
        return handed_out

    # --- the life of a function --------------------------------------------------------------------------------------

    def _create(self, now_ns: int, provision_ns: int, *, for_pool: bool = False, name: str = "") -> Function:
        number = self.next_number
        self.next_number += 1
        name = name or f"{self.fleet}-{number}"
        function = Function(
            number=number,
            name=name,
            for_pool=for_pool,
            asked_ns=now_ns,
            ready_ns=now_ns + provision_ns,
            containers=ContainerSet(fleet=name, prefix=f"{name}-" if self.scales_containers else f"{name}."),
        )
        self.functions[name] = function
        self._tell(function, "requested", now_ns)
        return function

    def _made(self, function: Function, now_ns: int) -> None:
        if function.for_pool:
            function.for_pool = False
            self._into_pool(function, now_ns)
        else:
            self._take_into_service(function, now_ns)

    def _into_pool(self, function: Function, now_ns: int) -> None:
        function.emptied_ns, function.since_ns = None, None
        self.pool.append(function.name)
        self._tell(function, "pooled", now_ns)

    def _take_into_service(self, function: Function, now_ns: int) -> None:
        """From the pool, or just made: it is fed from now on and the provider begins to add containers."""
        if function.phase == "requested":
            self._tell(function, "started", now_ns)
        self._tell(function, "joined", now_ns)
        function.since_ns = None if self.origin_ns is None else max(now_ns, self.origin_ns)
        function.begun_at_join = function.begun
        if not self.scales_containers:
            self._bring(function, now_ns)

    def _drain(self, function: Function, now_ns: int) -> None:
        if function.phase == "requested":
            self._tell(function, "draining", now_ns, "no longer wanted")
            function.ending = True
            return
        self._tell(function, "draining", now_ns)
        function.drain_version = self.routing.version + 1

    def _empty(self, function: Function, waiting: Mapping[str, int], settled_version: int, now_ns: int) -> None:
        """A queue that goes is empty when nothing can come to it any more, nothing waits, and its containers, told to
        leave, have left after their last event. It grows only as long as something waits, and what a container that
        died had in hand waits again: then they come back.
        """
        if not self.pulls and (settled_version < function.drain_version or function.name not in waiting):
            return
        if waiting.get(function.name, 0) > 0:
            function.emptied_ns = None
            self._bring(function, now_ns)
            return
        if function.emptied_ns is None:
            function.emptied_ns = now_ns
            self._hear(function.containers.resize(0, now_ns, now_ns))
            return
        heard = function.heard
        if heard is None or heard.at_ns <= function.emptied_ns or heard.containers + heard.busy > 0:
            return
        self._hear(function.containers.end(now_ns))
        if self.system.when_removed == "pool":
            self._into_pool(function, now_ns)
        else:
            function.ending = True

    # --- the life of its containers ----------------------------------------------------------------------------------

    def _bring(self, function: Function, now_ns: int) -> None:
        """The provider's steps until now."""
        since_s = 0.0 if function.since_ns is None else (now_ns - function.since_ns) / NANOS_PER_SECOND
        wanted = max(function.containers.size, containers_after(self.system, max(0.0, since_s)))
        self._hear(function.containers.resize(wanted, now_ns, now_ns))

    def _watch(self, function: Function, program: ProgramStatus | None, now_ns: int) -> None:
        if not (lost := function.watch(program, now_ns)):
            return
        if function.ending:
            self._hear(function.containers.end(now_ns))
        else:
            self._hear(function.containers.lost(now_ns, lost))

    def _listen(self, function: Function, report: AppReport | None, now_ns: int) -> None:
        if not function.listen(report):
            return
        self._hear(function.containers.observe(function.servers, now_ns))
        if function.phase == "joined" and 0 <= function.begun_at_join < function.begun:
            function.begun_at_join = -1
            if not self.scales_containers:
                self.events.append(ReplicaEvent(self.fleet, function.name, "first-event", now_ns))

    # --- pool and routing --------------------------------------------------------------------------------------------

    def _fill_pool(self, now_ns: int) -> None:
        """Algorithm 3, one run of its loop: one function more, if there are too few."""
        if self.scales_containers or now_ns < self.next_fill_ns:
            return
        interval_ns = _nanos(self.system.forward_interval_s)
        first = self.next_fill_ns == 0
        self.next_fill_ns = (floor(now_ns / interval_ns) + 1) * interval_ns
        on_the_way = sum(function.for_pool for function in self.functions.values())
        if not first and queues_to_create(len(self.pool) + on_the_way, self.pool_wanted):
            self._create(now_ns, _nanos(self.system.provision_s), for_pool=True)

    def _route(self) -> None:
        if self.pulls:
            return
        fed = [function.name for function in self.functions.values() if function.phase == "joined"]
        shares = fed_shares(None if self.scales_containers else self.wanted_routing, fed)
        if shares != self.routing.shares or self.routing.version == 0:
            self.routing = Routing(self.routing.version + 1, shares)

    # --- telling -----------------------------------------------------------------------------------------------------

    def _adopt(self, name: str, now_ns: int) -> None:
        """An app runs that nobody remembers: its controller died before it could write it down. What may be in its
        queue is served, and then it goes.
        """
        number = name.rpartition("-")[2]
        if self.scales_containers or not number.isdigit():
            return
        self.next_number = max(self.next_number, int(number) + 1)
        containers = ContainerSet(fleet=name, prefix=f"{name}.")
        function = Function(number=int(number), name=name, containers=containers, asked_ns=now_ns, since_ns=now_ns)
        self.functions[name] = function
        self._tell(function, "requested", now_ns, "adopted")
        self._tell(function, "draining", now_ns)

    def _tell(self, function: Function, phase: Phase, now_ns: int, reason: str = "") -> None:
        function.phase = phase
        if not self.scales_containers:
            self.events.append(ReplicaEvent(self.fleet, function.name, phase, now_ns, reason))

    def _hear(self, events: Sequence[ReplicaEvent]) -> None:
        self.events.extend(events)


def _nanos(seconds: float) -> int:
    return round(seconds * NANOS_PER_SECOND)
