"""Sub-queues with their function apps, and the next steps, without I/O (``penstock.replica_set``).

The live actuator and the simulator share these rules. A rule acts on what is observed: a function exists when its app
reports, a queue is empty when the broker says so and nothing is on its way to it.
"""

from collections.abc import Mapping
from typing import ClassVar, Self

import msgspec

from controller.fleets.apps.app import App, total, work
from controller.fleets.counted_replicas import CountedReplicas
from controller.fleets.programs import ProgramWork
from controller.fleets.queue.container_ramp import containers_after
from controller.fleets.queue.routing import Routing, check_decision, fed_shares
from controller.queueing.pool import queues_to_create
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport, ready_limit
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Accepted, Decision, Phase
from penstock.limits import clamp_targets
from penstock.replica_set import Replica, ReplicaSet
from penstock.systems import QueueSystem


class QueueReplica(Replica, kw_only=True):
    """A sub-queue with its function app. With ``forwarding="pull"`` the app has no sub-queue.

    ``ready_ns``: end of the time to provision it. ``since_ns``: since when it is in service, None before the run's
    start: the provider's ramp begins there. ``begun_at_join``: events that its app had begun when it was taken into
    service, -1 once it has begun another. ``drain_version``: the first routing without it. ``emptied_ns``: when it was
    first seen empty while it drains. Once its app is ``ending``, its queue is to be deleted.
    """

    app: App
    for_pool: bool = False
    ready_ns: int = 0
    since_ns: int | None = None
    begun_at_join: int = -1
    drain_version: int = 0
    emptied_ns: int | None = None

    @property
    def servers(self) -> int:
        """Containers that its app reports."""
        return 0 if self.app.report is None else self.app.report.containers

    @property
    def begun(self) -> int:
        """Events that were served or are in service."""
        return sum(each.completed + each.busy for each in (self.app.before, self.app.report) if each is not None)


class QueueReplicaSet(ReplicaSet[QueueReplica], kw_only=True):
    """All functions of a queue fleet. ``origin_ns``: start of the run, None until it is known.

    Replicas are the functions ``<fleet>-<number>``; with ``scaled="containers"`` there is one function, named as the
    fleet, and the replicas are its containers. ReplicaEvents of a function's containers carry its name as fleet.
    """

    Kind: ClassVar[type[QueueReplica]] = QueueReplica

    system: QueueSystem
    pool: list[str] = msgspec.field(default_factory=list)
    pool_wanted: int = 0
    next_fill_ns: int = 0
    wanted_routing: dict[str, float] | None = None
    routing: Routing = msgspec.field(default_factory=lambda: Routing(0, {}))
    origin_ns: int | None = None
    gone: AppReport = AppReport("")
    brought_up: bool = False

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def scales_containers(self) -> bool:
        """Whether the replicas are containers of one function."""
        return self.system.scaled == "containers"

    @property
    def pulls(self) -> bool:
        """Whether functions take their events from the main queue themselves."""
        return self.system.forwarding == "pull"

    def phases(self) -> dict[str, Phase]:
        """Phase by replica, those of the pool last; a function that is being provisioned for the pool is none yet."""
        if self.scales_containers:
            phases = [each.app.containers.phases() for each in self.replicas.values()]
            return {name: phase for each in phases for name, phase in each.items()}
        others = [name for name, each in self.replicas.items() if name not in self.pool and not each.for_pool]
        return {name: self.replicas[name].phase for name in (*others, *self.pool)}

    def in_service(self) -> list[QueueReplica]:
        """Functions that are fed or drain, in the order in which they were taken into service."""
        phases = ("joined", "draining")
        there = [each for each in self.replicas.values() if each.phase in phases and not each.app.ending]
        return sorted(there, key=lambda each: (each.since_ns or 0, each.number))

    def total(self) -> AppReport:
        """Sum of the reports of all functions, removed ones included."""
        return total(self.fleet, [self.gone, *(each.app.total for each in self.replicas.values())])

    def wanted(self, now_ns: int) -> dict[str, int]:
        """Number of containers that each app is to have now."""
        return {name: each.app.containers.wanted(now_ns) for name, each in self.replicas.items()}

    def bounds(self) -> dict[str, int]:
        """Limit of ready messages by sub-queue, of those whose number of containers is known."""
        capacity = self.system.capacity
        if self.pulls or capacity is None:
            return {}
        return {
            each.name: ready_limit(capacity, each.servers)
            for each in self.replicas.values()
            if not each.app.ending and (each.app.report is not None or each.phase == "requested")
        }

    def ready(self) -> bool:
        """Whether everything that was requested serves."""
        return self.brought_up and all(
            each.app.report is not None
            and each.phase in ("joined", "pooled")
            and set(each.app.containers.phases().values()) <= {"joined"}
            for each in self.replicas.values()
            if each.phase != "draining"
        )

    def copy(self) -> Self:
        """A copy to be written down: without the last reports, which come again."""
        copy = super().copy()
        for each in copy.replicas.values():
            each.app.report = None
        return copy

    # --- decisions ---------------------------------------------------------------------------------------------------

    def bring_up(self, initial: int, now_ns: int) -> None:
        """Request the initial functions and the initial pool, without time to provision them. Once."""
        if self.brought_up:
            return
        self.brought_up = True
        if self.scales_containers:
            self.request(1, now_ns, name=self.fleet, app=_app(self.fleet, self.prefix), ready_ns=now_ns)
            self._resize_containers(self.replicas[self.fleet], initial, now_ns, now_ns)
            return
        self.pool_wanted = self.system.pool_initial
        for number in range(initial + self.pool_wanted):
            self._request(now_ns, for_pool=number >= initial)

    def begin(self, origin_ns: int) -> None:
        """The run starts then: from then on the provider adds containers to what is in service already."""
        self.origin_ns = origin_ns
        for each in self.replicas.values():
            if each.phase == "joined" and each.since_ns is None:
                each.since_ns = origin_ns

    def apply(self, decision: Decision, limit: int, now_ns: int) -> Accepted:
        """Number of replicas, routing and size of the pool, as far as the decision names them. Raises ValueError for
        shares that are none, and for fleets that this run does not have.
        """
        size = self.counts().current
        if decision.action in ("hold", "none"):
            return Accepted({self.fleet: size})
        check_decision(decision, self.fleet)
        wanted = decision.targets.get(self.fleet, size)
        accepted = clamp_targets({self.fleet: wanted}, {self.fleet: size}, each=limit)
        if decision.pool is not None:
            self.pool_wanted = decision.pool
        if decision.routing is not None:
            self.route(decision.routing)
        self.resize(accepted.targets[self.fleet], decision.routing, now_ns)
        clamped = dict(accepted.clamped)
        if decision.routing is not None and not self.scales_containers:
            there = self.phases()
            clamped |= {name: "no such queue" for name in decision.routing if name not in there}
        return Accepted(accepted.targets, clamped)

    def resize(self, replicas: int, staying: Mapping[str, float] | None, now_ns: int) -> None:
        """Towards so many: pooled ones first. Those too many: first ones that ``staying`` lacks, then the youngest."""
        if self.scales_containers:
            due_ns = now_ns + _nanos(self.system.first_container_s)
            self._resize_containers(self.replicas[self.fleet], replicas, now_ns, due_ns)
            return
        missing = replicas - self.counts().current
        for _ in range(missing):
            if self.pool:
                self._take_into_service(self.replicas[self.pool.pop(0)], now_ns)
            else:
                self._request(now_ns, self.system.provision_s)
        current = [each for each in self.current() if not each.for_pool]
        named = {each.name for each in current} if staying is None else set(staying)

        def order(each: QueueReplica) -> tuple[bool, bool, int, int]:
            return each.name in named, each.phase == "joined", -(each.since_ns or 0), -each.number

        self._route()
        for each in sorted(current, key=order)[: max(0, -missing)]:
            self._drain(each, now_ns)
        self._route()

    def route(self, shares: Mapping[str, float]) -> None:
        """Route by these shares from now on."""
        self.wanted_routing = dict(shares)
        self._route()

    # --- observations ------------------------------------------------------------------------------------------------

    def observe(
        self,
        programs: Mapping[str, ProgramStatus],
        reports: Mapping[str, AppReport],
        waiting: Mapping[str, int],
        settled_version: int,
        now_ns: int,
    ) -> None:
        """Take in programs and last reports by replica name, and ready messages of draining queues as far as they are
        known. Nothing is on its way by a routing older than ``settled_version``.
        """
        for name, program in programs.items():
            if name not in self.replicas and program.pid is not None and program.state != "stopping":
                self._adopt(name, now_ns)
        for name, each in list(self.replicas.items()):
            seen = programs.get(name), reports.get(name), waiting.get(name)
            self.observe_function(each, *seen, settled_version, now_ns)
        if now_ns >= self.next_fill_ns:
            first, self.next_fill_ns = self.next_fill_ns == 0, self.next_run_ns(now_ns)
            if not first:
                self.fill_pool(now_ns)
        self._route()

    def observe_function(
        self,
        function: QueueReplica,
        program: ProgramStatus | None,
        report: AppReport | None,
        waiting: int | None,
        settled_version: int,
        now_ns: int,
    ) -> None:
        """The part of ``observe`` that concerns one function; the routing stays as it is."""
        function.app.observe(program, report, now_ns)
        self._collect(function)
        if function.phase == "joined" and 0 <= function.begun_at_join < function.begun:
            function.begun_at_join = -1
            self.record(function.name, "first-event", now_ns)
        if function.phase == "requested" and now_ns >= function.ready_ns and function.app.report is not None:
            take = self._into_pool if function.for_pool else self._take_into_service
            take(function, now_ns)
        if function.phase == "pooled" and waiting:
            self._serve_left_over(function, now_ns)
        if function.phase == "joined" and not self.scales_containers:
            self._ramp_up(function, now_ns)
        elif function.phase == "draining" and not function.app.ending:
            self._empty(function, waiting, settled_version, now_ns)

    def work(self, programs: Mapping[str, ProgramStatus], now_ns: int) -> ProgramWork:
        """Functions to start (queue, then app), functions whose app is to be ended, and functions to delete."""
        return work((each.app for each in self.replicas.values()), programs, now_ns)

    def deleted(self, name: str, now_ns: int) -> None:
        """Its queue is deleted."""
        function = self.replicas[name]
        self.gone = msgspec.structs.replace(total(self.fleet, (self.gone, function.app.total)), containers=0, busy=0)
        self._remove_containers(function, now_ns)
        self.enter(name, "gone", now_ns)

    def serve_again(self, name: str, now_ns: int) -> None:
        """Its queue was not empty when it was to be deleted."""
        function = self.replicas[name]
        function.app.ending, function.emptied_ns = False, None
        self._ramp_up(function, now_ns)

    def end_all(self, now_ns: int) -> None:
        """Everything is to go, whatever waits."""
        for each in self.replicas.values():
            if each.phase != "draining":
                self.enter(each.name, "draining", now_ns)
            each.app.ending = True
        self.pool.clear()
        self._route()

    # --- lifecycle of a function -------------------------------------------------------------------------------------

    def record(self, name: str, phase: Phase, at_ns: int, reason: str = "") -> None:
        """Record an event of a function, if functions are the replicas."""
        if not self.scales_containers:
            super().record(name, phase, at_ns, reason)

    def _request(self, now_ns: int, provision_s: float = 0.0, *, for_pool: bool = False) -> None:
        name = f"{self.prefix}{self.next_number}"
        ready_ns = now_ns + _nanos(provision_s)
        self.request(1, now_ns, name=name, app=_app(name), for_pool=for_pool, ready_ns=ready_ns)

    def _into_pool(self, function: QueueReplica, now_ns: int) -> None:
        function.emptied_ns, function.since_ns, function.for_pool = None, None, False
        self.pool.append(function.name)
        self.enter(function.name, "pooled", now_ns)

    def _take_into_service(self, function: QueueReplica, now_ns: int) -> None:
        """From the pool, or just provisioned: it is fed from now on and the provider begins to add containers."""
        if function.phase == "requested":
            self.enter(function.name, "started", now_ns)
        self.enter(function.name, "joined", now_ns)
        function.since_ns = None if self.origin_ns is None else max(now_ns, self.origin_ns)
        function.begun_at_join = function.begun
        if not self.scales_containers:
            self._ramp_up(function, now_ns)

    def _drain(self, function: QueueReplica, now_ns: int) -> None:
        if function.phase == "requested":
            if function.app.pid is None and function.app.silent_ns is None:  # not observed yet: nothing to end
                self.remove([function.name], now_ns, "no longer wanted")
                return
            function.app.ending = True
        self.enter(function.name, "draining", now_ns, "no longer wanted" if function.app.ending else "")
        function.drain_version = self.routing.version + 1

    def _empty(self, function: QueueReplica, waiting: int | None, settled_version: int, now_ns: int) -> None:
        """A draining queue is empty when nothing can come to it any more, nothing waits, and its containers have left
        after their last event. Containers are added only while something waits; an event of a container that died waits
        again, and the containers come back.
        """
        if waiting is None or (not self.pulls and settled_version < function.drain_version):
            return
        if waiting > 0:
            function.emptied_ns = None
            self._ramp_up(function, now_ns)
            return
        function.emptied_ns = now_ns if function.emptied_ns is None else function.emptied_ns
        report = function.app.report
        if report is None or report.at_ns <= function.emptied_ns or report.containers + report.busy > 0:
            self._resize_containers(function, 0, now_ns, now_ns)
            return
        self._remove_containers(function, now_ns)
        if self.system.when_removed == "pool":
            self._into_pool(function, now_ns)
        else:
            function.app.ending = True

    def _serve_left_over(self, function: QueueReplica, now_ns: int) -> None:
        """A message was on its way to a container that had left, and is back in the queue of a pooled function."""
        self.pool.remove(function.name)
        self.enter(function.name, "draining", now_ns, "a message has come back")
        function.drain_version, function.since_ns = self.routing.version, now_ns

    # --- containers of a function ------------------------------------------------------------------------------------

    def lose_container(self, function: str, name: str, now_ns: int, reason: str) -> None:
        """One container ended by itself. Unless it was draining, the provider starts it again."""
        due_ns = now_ns + _nanos(self.system.first_container_s)
        self.replicas[function].app.containers.lose([name], now_ns, due_ns, reason)
        self._collect(self.replicas[function])

    def remove_container(self, function: str, name: str, now_ns: int) -> None:
        """One draining container has left."""
        self.replicas[function].app.containers.remove([name], now_ns)
        self._collect(self.replicas[function])

    def _resize_containers(self, function: QueueReplica, size: int, now_ns: int, due_ns: int) -> None:
        function.app.containers.resize(size, now_ns, due_ns)
        self._collect(function)

    def _remove_containers(self, function: QueueReplica, now_ns: int) -> None:
        function.app.containers.remove(list(function.app.containers.replicas), now_ns)
        self._collect(function)

    def _collect(self, function: QueueReplica) -> None:
        self.events.extend(function.app.containers.take_events())

    def _ramp_up(self, function: QueueReplica, now_ns: int) -> None:
        """The provider's steps until now."""
        since_s = 0.0 if function.since_ns is None else (now_ns - function.since_ns) / NANOS_PER_SECOND
        size = containers_after(self.system, max(0.0, since_s))
        if size > function.app.containers.size:
            self._resize_containers(function, size, now_ns, now_ns)

    # --- pool and routing --------------------------------------------------------------------------------------------

    @property
    def lacks_spares(self) -> bool:
        """Whether Algorithm 3 would request a function for the pool."""
        on_the_way = sum(each.for_pool for each in self.replicas.values())
        return not self.scales_containers and queues_to_create(len(self.pool) + on_the_way, self.pool_wanted) > 0

    def next_run_ns(self, now_ns: int) -> int:
        """Next run of Algorithm 3's loop."""
        interval_ns = _nanos(self.system.forward_interval_s)
        return (now_ns // interval_ns + 1) * interval_ns

    def fill_pool(self, now_ns: int) -> None:
        """Algorithm 3, one run of its loop: request one function if there are too few."""
        if self.lacks_spares:
            self._request(now_ns, self.system.provision_s, for_pool=True)

    def shares(self) -> dict[str, float]:
        """Share of each function that is fed, adding up to 1; empty if there is none."""
        fed = [each.name for each in self.in_service() if each.phase == "joined"]
        return fed_shares(None if self.scales_containers else self.wanted_routing, fed)

    def _route(self) -> None:
        if self.pulls:
            return
        shares = self.shares()
        if shares != self.routing.shares or self.routing.version == 0:
            self.routing = Routing(self.routing.version + 1, shares)

    def _adopt(self, name: str, now_ns: int) -> None:
        """Adopt an app without a record. Events that may wait in its queue are served, then it is removed."""
        if self.scales_containers or not name.rpartition("-")[2].isdigit():
            return
        self.adopt(name, now_ns, app=_app(name), since_ns=now_ns)
        self.enter(name, "draining", now_ns)


def _app(name: str, prefix: str = "") -> App:
    return App(name=name, containers=CountedReplicas(fleet=name, prefix=prefix or f"{name}."))


def _nanos(seconds: float) -> int:
    return round(seconds * NANOS_PER_SECOND)
