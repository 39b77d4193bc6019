"""The actuator of a live bank of queues: RabbitMQ has its queues, a supervisor its function apps and the forwarder.

``apply`` only notes what is wanted; a thread reconciles. The reckoning is in ``bank_roster``; here it is carried out,
in an order in which nothing is lost: a queue is there before its app and before it is fed, and it is deleted when it is
empty, after its app has ended.
"""

import sys
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.actuators.bank_roster import BankRoster, BankWork
from controller.actuators.processes import WorkerProgram
from controller.actuators.reconciler import Reconciler
from controller.forwarder import prefetch_for
from controller.monitors.depths import Depths
from controller.routing import ForwarderReport, Routing, check_decision, fed_shares
from controller.routing_board import RoutingBoard
from penstock.amqp import Management, connection_name, main_queue, sub_queue
from penstock.apps import AppBoard, AppReport
from penstock.contracts import Accepted, Decision, ReplicaCounts
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.supervision import Programs, ProgramStatus
from penstock.systems import QueueSystem

FORWARDER: Final = "forwarder"
"""Name of the forwarder's program."""


class FunctionView(msgspec.Struct, frozen=True):
    """A function in service: the app's part of a ``QueueStatus``."""

    name: str
    draining: bool
    app: AppReport


class BankView(msgspec.Struct, frozen=True):
    """The bank as its actuator knows it at one instant. ``total``: of all functions, those not in service included.

    ``away``: why Redis, through which apps report, could not be read last.
    """

    counts: ReplicaCounts
    functions: tuple[FunctionView, ...]
    pool: tuple[str, ...]
    routing: Mapping[str, float]
    total: AppReport
    away: str


class BankActuator(Reconciler[BankRoster]):
    """Actuator port of the bank of ``spec``. ``programs`` keep its apps, which are processes or pods; ``app`` is how an
    app is run, without ``--replica`` and ``--queue``. ``roster``: of a predecessor, to go on from.
    """

    def __init__(
        self,
        spec: RunSpec,
        endpoints: Endpoints,
        programs: Programs,
        app: WorkerProgram,
        roster: BankRoster | None = None,
    ) -> None:
        assert isinstance(spec.system, QueueSystem)
        redis_url = endpoints.require("redis")
        super().__init__(
            spec.run,
            programs,
            app,
            AppBoard(redis_url, spec.run),
            roster or BankRoster(fleet=spec.fleet, system=spec.system),
        )
        self._spec, self._system = spec, spec.system
        self._board = RoutingBoard(redis_url, spec.run)
        self._management = Management(endpoints.require("rabbitmq_management"))
        self._depths = Depths(endpoints.require("rabbitmq"), connection_name(spec.run, "actuator"))
        self._forwarder: ForwarderReport | None = None
        self._main_declared = False
        self._routed: Routing | None = None
        self._bounds: dict[str, int] = {}

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Number of replicas, routing and size of the pool, as far as the decision names them. Raises ValueError for
        shares that are none, and for fleets that this run does not have.
        """
        fleet = self._spec.fleet
        with self._lock:
            roster = self._roster
            size = roster.counts().current
            if decision.action in ("hold", "none"):
                return Accepted({fleet: size})
            check_decision(decision, fleet)
            wanted = decision.targets.get(fleet, size)
            target = max(0, min(wanted, self._spec.max_replicas))
            if decision.pool is not None:
                roster.pool_wanted = decision.pool
            if decision.routing is not None:
                roster.route(decision.routing)
            roster.resize(target, decision.routing, time.time_ns())
            clamped = {} if target == wanted else {fleet: f"{wanted} → {target}: cap {self._spec.max_replicas}"}
            if decision.routing is not None and not roster.scales_containers:
                there = roster.phases()
                clamped |= {name: "no such queue" for name in decision.routing if name not in there}
        self._wake.set()
        return Accepted({fleet: target}, clamped)

    # --- what else the fleet asks ------------------------------------------------------------------------------------

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        with self._lock:
            return self._roster.counts()

    def snapshot(self) -> BankRoster:
        """A copy of the roster, to be written down."""
        with self._lock:
            return self._roster.copy()

    def bring_up(self) -> None:
        """Ask for the initial functions and the pool, unless that was done already."""
        with self._lock:
            self._roster.bring_up(self._spec.initial_replicas, time.time_ns())
        self._wake.set()

    def begin(self, origin_ns: int) -> None:
        """The run starts then."""
        with self._lock:
            self._roster.begin(origin_ns)

    def ready(self) -> bool:
        """Whether everything that was asked for is there, and fed."""
        with self._lock:
            fed = self._roster.pulls or self._settled_version() >= self._roster.routing.version
            return self._main_declared and fed and self._roster.ready()

    def view(self) -> BankView:
        """For the monitor."""
        with self._lock:
            roster = self._roster
            functions = roster.in_service()
            return BankView(
                counts=roster.counts(),
                functions=tuple(FunctionView(f.name, f.phase == "draining", f.total) for f in functions),
                pool=tuple(roster.pool),
                routing=dict(self._shares()),
                total=roster.total(),
                away=self.trouble("Redis"),
            )

    def stop(self) -> None:
        """End the thread and close the connections; replicas stay as they are."""
        super().stop()
        self._depths.close()
        self._management.close()
        self._board.close()

    def stop_replicas(self, timeout_s: float = 30.0) -> None:
        """End all apps and the forwarder; after ``stop``. Queues stay, with what waits in them. Raises PenstockError if
        some do not end.
        """
        with self._lock:
            self._roster.end_all(time.time_ns())
        self._end_programs((*self._roster.functions, FORWARDER), timeout_s)
        with self._lock:
            for name in list(self._roster.functions):
                self._roster.deleted(name, time.time_ns())

    # --- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look once and do what is to be done. Without the supervisor nothing can be known of replicas, so nothing is
        done.
        """
        programs: dict[str, ProgramStatus] | None = None
        with self._with("supervisor"):
            programs = self._programs()
        if programs is None:
            return
        work = self._look(programs)
        with self._with("Redis"):
            self._tell()
        with self._with("RabbitMQ"):
            self._bound()
        with self._with("RabbitMQ's queues"):
            self._make(work)
        with self._with("programs"):
            for name in work.end:
                self._end_program(name)
            self._look_after_forwarder(programs)
        with self._with("queues to delete"):
            self._delete(work)

    def _look(self, programs: Mapping[str, ProgramStatus]) -> BankWork:
        """What runs, what is said, then what waits: a queue that is empty after its app has said that it has no
        containers is empty for good.
        """
        reports: dict[str, AppReport] = {}
        with self._with("Redis"):
            reports, self._forwarder = self._apps.reports(), self._board.forwarder()
        with self._lock:
            own = f"{self._spec.fleet}-"
            apps = {name: status for name, status in programs.items() if name.startswith(own) or name == own[:-1]}
            emptying = [function.name for function in self._roster.in_service() if function.phase == "draining"]
        waiting: dict[str, int] = {}
        if emptying and not self._roster.pulls:
            reading = self._depths.read([sub_queue(self._spec.run, name) for name in emptying])
            of_queue = {sub_queue(self._spec.run, name): name for name in emptying}
            waiting = {of_queue[queue]: ready for queue, ready in reading.ready.items()}
        with self._lock:
            now_ns = time.time_ns()
            self._roster.observe(apps, reports, waiting, self._settled_version(), now_ns)
            return self._roster.work(apps, now_ns)

    def _tell(self) -> None:
        """Wanted containers to the apps, the routing to the forwarder."""
        with self._lock:
            wanted, routing = self._roster.wanted(time.time_ns()), self._roster.routing
        self._want(wanted)
        if routing != self._routed and not self._roster.pulls:
            self._board.route(routing)
            self._routed = routing

    def _bound(self) -> None:
        """The main queue, and the bound of each sub-queue for the containers that it has."""
        if not self._main_declared:
            queue, capacity = main_queue(self._spec.run), self._system.main_capacity
            if capacity is not None:
                # What the forwarder has in hand waits, too, but the broker does not count it.
                in_hand = 0 if self._roster.pulls else prefetch_for(self._system)
                self._management.bound_queue(queue, max(1, capacity - in_hand))
            self._management.declare_queue(queue)
            self._main_declared = True
        with self._lock:
            bounds = self._roster.bounds()
        for name, bound in bounds.items():
            if self._bounds.get(name) != bound:
                self._management.bound_queue(sub_queue(self._spec.run, name), bound)
                self._bounds[name] = bound

    def _make(self, work: BankWork) -> None:
        for name in work.start:
            queue = main_queue(self._spec.run) if self._roster.pulls else sub_queue(self._spec.run, name)
            if not self._roster.pulls:
                self._management.declare_queue(queue)
            self._start_program(name, "--replica", name, "--queue", queue)

    def _look_after_forwarder(self, programs: Mapping[str, ProgramStatus]) -> None:
        if self._roster.pulls or not self._main_declared or not self._roster.brought_up:
            return
        program = programs.get(FORWARDER)
        if program is None:
            command = (sys.executable, "-m", "controller.forwarder", "--run", str(self._app_program.folder))
            self._start_program(FORWARDER, command=command)
        elif program.state in ("stopped", "failed"):
            self._end_program(FORWARDER)

    def _delete(self, work: BankWork) -> None:
        """Queues of functions that are gone. One that turns out not to be empty is served again."""
        for name in work.delete:
            queue = sub_queue(self._spec.run, name)
            if not self._roster.pulls and not self._management.delete_queue(queue, only_empty=True):
                if self._depths.read([queue]).ready.get(queue):
                    with self._lock:
                        self._roster.serve_again(name, time.time_ns())
                continue
            self._apps.forget(name)
            self._wanted.pop(name, None)
            self._bounds.pop(name, None)
            with self._lock:
                self._roster.deleted(name, time.time_ns())

    # --- inside ------------------------------------------------------------------------------------------------------

    def _settled_version(self) -> int:
        return 0 if self._forwarder is None else self._forwarder.settled_version

    def _shares(self) -> Mapping[str, float]:
        if not self._roster.pulls:
            return self._roster.routing.shares
        fed = [function.name for function in self._roster.in_service() if function.phase == "joined"]
        return fed_shares(self._roster.wanted_routing, fed)
