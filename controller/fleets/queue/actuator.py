"""The actuator of a live bank of queues: RabbitMQ has its queues, a supervisor its function apps and the forwarder.

``apply`` only notes what is wanted; a thread reconciles. ``replica_set`` computes the work; here it is carried out,
in an order in which nothing is lost: a queue is there before its app and before it is fed, and it is deleted when it is
empty, after its app has ended.
"""

import sys
import time
from collections.abc import Iterable, Mapping

import msgspec

from controller.fleets.actuator import END_S
from controller.fleets.apps.actuator import AppActuator
from controller.fleets.apps.app import AppView
from controller.fleets.apps.fleet import FORWARDER
from controller.fleets.programs import ProgramWork, RunPrograms
from controller.fleets.queue.container_ramp import check_system
from controller.fleets.queue.forwarder import prefetch_for
from controller.fleets.queue.replica_set import QueueReplicaSet
from controller.fleets.queue.routing import ForwarderReport, Routing
from controller.fleets.queue.routing_store import RoutingBoard
from penstock.adapters.amqp import Depths, connection_name, main_queue, sub_queue
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport
from penstock.contracts import Accepted, Decision, ReplicaCounts
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import QueueSystem


class SubQueueView(msgspec.Struct, frozen=True):
    """A function in service: the app's part of a ``QueueStatus``."""

    name: str
    draining: bool
    app: AppReport


class QueueFleetView(AppView, frozen=True, kw_only=True):
    """The bank as its actuator knows it at one instant. ``total``: of all functions, those not in service included."""

    counts: ReplicaCounts
    functions: tuple[SubQueueView, ...]
    pool: tuple[str, ...]
    routing: Mapping[str, float]
    total: AppReport


class QueueActuator(AppActuator[QueueReplicaSet]):
    """See ``AppActuator``; an app's arguments are ``--replica`` and ``--queue``."""

    def __init__(
        self, spec: RunSpec, endpoints: Endpoints, programs: RunPrograms, replicas: QueueReplicaSet | None = None
    ) -> None:
        assert isinstance(spec.system, QueueSystem)
        check_system(spec.system)
        replicas = replicas or QueueReplicaSet(fleet=spec.fleet, system=spec.system)
        super().__init__(spec, endpoints, programs, replicas)
        self._system = spec.system
        self._board = RoutingBoard(endpoints.require("redis"), spec.run)
        self._depths = Depths(endpoints.require("rabbitmq"), connection_name(spec.run, "actuator"))
        self._forwarder = ForwarderReport(0)
        self._forwarder_program: ProgramStatus | None = None
        self._main_declared = False
        self._routed: Routing | None = None
        self._bounds: dict[str, int] = {}

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """As ``QueueReplicaSet.apply``; the thread carries it out."""
        with self._lock:
            accepted = self._replicas.apply(decision, self._spec.max_replicas, time.time_ns())
        self._wake.set()
        return accepted

    # --- what else the fleet asks ------------------------------------------------------------------------------------

    def bring_up(self) -> None:
        """Ask for the initial functions and the pool, unless that was done already."""
        with self._lock:
            self._replicas.bring_up(self._spec.initial_replicas, time.time_ns())
        self._wake.set()

    def begin(self, origin_ns: int) -> None:
        """The run starts then."""
        with self._lock:
            self._replicas.begin(origin_ns)

    def ready(self) -> bool:
        """Whether everything that was asked for is there, and fed."""
        with self._lock:
            fed = self._replicas.pulls or self._forwarder.settled_version >= self._replicas.routing.version
            return self._main_declared and fed and self._replicas.ready()

    def view(self) -> QueueFleetView:
        """For the monitor."""
        with self._lock:
            replica_set = self._replicas
            functions = replica_set.in_service()
            return QueueFleetView(
                counts=replica_set.counts(),
                functions=tuple(SubQueueView(f.name, f.phase == "draining", f.app.total) for f in functions),
                pool=tuple(replica_set.pool),
                routing=replica_set.shares(),
                total=replica_set.total(),
                away=self.trouble("Redis"),
            )

    def stop(self) -> None:
        """End the thread and close the connections; replicas stay as they are."""
        super().stop()
        self._depths.close()
        self._board.close()

    def stop_replicas(self, timeout_s: float = END_S) -> None:
        """End all apps and the forwarder; after ``stop``. Queues stay as they are. PenstockError if some do not end."""
        with self._lock:
            self._replicas.end_all(time.time_ns())
        self._programs.end_all(*self._replicas.replicas, FORWARDER, timeout_s=timeout_s)
        with self._lock:
            for name in list(self._replicas.replicas):
                self._replicas.deleted(name, time.time_ns())

    # --- one step ----------------------------------------------------------------------------------------------------

    def _reports(self) -> Mapping[str, AppReport]:
        reports, self._forwarder = self._apps.reports(), self._board.forwarder() or ForwarderReport(0)
        return reports

    def _observe(self, programs: Mapping[str, ProgramStatus], reports: Mapping[str, AppReport]) -> ProgramWork:
        """Depths last: a queue that is empty after its app has reported no containers is empty for good."""
        self._forwarder_program = programs.get(FORWARDER)
        own = f"{self._spec.fleet}-"
        apps = {name: status for name, status in programs.items() if name.startswith(own) or name == own[:-1]}
        with self._lock:
            emptying = [function.name for function in self._replicas.in_service() if function.phase == "draining"]
            emptying += self._replicas.pool
        waiting = dict.fromkeys(emptying, 0) if self._replicas.pulls else {}
        if emptying and not self._replicas.pulls:
            with self._with("RabbitMQ's depths"):
                of_queue = {sub_queue(self._spec.run, name): name for name in emptying}
                waiting = {of_queue[queue]: ready for queue, ready in self._depths.read(of_queue).items()}
        with self._lock:
            now_ns = time.time_ns()
            self._replicas.observe(apps, reports, waiting, self._forwarder.settled_version, now_ns)
            return self._replicas.work(apps, now_ns)

    def _tell(self) -> None:
        """Wanted containers to the apps, the routing to the forwarder."""
        with self._lock:
            wanted, routing = self._replicas.wanted(time.time_ns()), self._replicas.routing
        again = self._want(wanted)
        if (again or routing != self._routed) and not self._replicas.pulls:
            self._board.route(routing)
            self._routed = routing

    def _carry_out(self, work: ProgramWork) -> None:
        with self._with("RabbitMQ"):
            self._bound()
        with self._with("RabbitMQ's queues"):
            for name in work.start:
                queue = main_queue(self._spec.run) if self._replicas.pulls else sub_queue(self._spec.run, name)
                if not self._replicas.pulls:
                    self._management.declare_queue(queue)
                self._programs.start(name, "--replica", name, "--queue", queue)
        with self._with("programs"):
            self._end(work.end)
            self._look_after_forwarder()
        with self._with("queues to delete"):
            self._delete(work.delete)

    def _bound(self) -> None:
        """The main queue, and the bound of each sub-queue for the containers that it has."""
        if not self._main_declared:
            queue, capacity = main_queue(self._spec.run), self._system.main_capacity
            if capacity is not None:
                # Unacked events of the forwarder wait, too, but the broker does not count them.
                unacked = 0 if self._replicas.pulls else prefetch_for(self._system)
                self._management.bound_queue(queue, max(1, capacity - unacked))
            self._management.declare_queue(queue)
            self._main_declared = True
        with self._lock:
            bounds = self._replicas.bounds()
        for name, bound in bounds.items():
            if self._bounds.get(name) != bound:
                self._management.bound_queue(sub_queue(self._spec.run, name), bound)
                self._bounds[name] = bound

    def _look_after_forwarder(self) -> None:
        if self._replicas.pulls or not self._main_declared or not self._replicas.brought_up:
            return
        if self._forwarder_program is None:
            module = "controller.fleets.queue.forwarder"
            command = (sys.executable, "-m", module, "--run", str(self._programs.program.folder))
            self._programs.start(FORWARDER, command=command)
        elif self._forwarder_program.state in ("stopped", "failed"):
            self._programs.end(FORWARDER)

    def _delete(self, functions: Iterable[str]) -> None:
        """Queues of functions that are gone. One that turns out not to be empty is served again."""
        for name in functions:
            queue = sub_queue(self._spec.run, name)
            if not self._replicas.pulls and not self._management.delete_queue(queue, only_empty=True):
                if self._depths.read([queue]).get(queue):
                    with self._lock:
                        self._replicas.serve_again(name, time.time_ns())
                continue
            self._apps.forget(name)
            self._wanted.pop(name, None)
            self._bounds.pop(name, None)
            with self._lock:
                self._replicas.deleted(name, time.time_ns())
