"""The actuator of a live pub/sub network: each topic's queue is RabbitMQ's, its consumers are containers of one app.

Scaling a topic is telling its app how many containers to have. The reckoning is in ``topic_roster``.
"""

import time

import msgspec

from controller.actuators.processes import WorkerProgram
from controller.actuators.reconciler import Reconciler
from controller.actuators.topic_roster import TopicRoster, TopicWork
from penstock.amqp import Management, topic_queue
from penstock.apps import AppBoard, AppReport
from penstock.contracts import Accepted, Decision, ReplicaCounts
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.supervision import Programs, ProgramStatus
from penstock.systems import NetworkSystem


class TopicView(msgspec.Struct, frozen=True):
    """A topic as its actuator knows it."""

    name: str
    counts: ReplicaCounts
    app: AppReport


class NetworkView(msgspec.Struct, frozen=True):
    """The network at one instant. ``away``: why Redis, through which apps report, could not be read last."""

    topics: tuple[TopicView, ...]
    away: str


class TopicActuator(Reconciler[TopicRoster]):
    """Actuator port of the network of ``spec``. ``programs`` keep its apps, which are processes or pods; ``app`` is how
    a topic's app is run, without ``--replica``, ``--queue`` and ``--topic``. ``roster``: of a predecessor, to go on
    from.
    """

    def __init__(
        self,
        spec: RunSpec,
        endpoints: Endpoints,
        programs: Programs,
        app: WorkerProgram,
        roster: TopicRoster | None = None,
    ) -> None:
        assert isinstance(spec.system, NetworkSystem)
        super().__init__(
            spec.run,
            programs,
            app,
            AppBoard(endpoints.require("redis"), spec.run),
            roster or TopicRoster(start_up_s=spec.system.start_up_s),
        )
        self._spec, self._system = spec, spec.system
        self._management = Management(endpoints.require("rabbitmq_management"))
        self._declared: set[str] = set()

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Replicas of each topic that the decision names, all at once. PenstockError for a topic that is none."""
        with self._lock:
            sizes = self._roster.sizes()
            if decision.action in ("hold", "none"):
                return Accepted(sizes)
            for name in decision.targets:
                if name not in sizes:
                    raise PenstockError(f"target for {name!r}: the fleets here are {', '.join(sizes)}")
            cap = self._spec.max_replicas
            targets = {name: max(0, min(wanted, cap)) for name, wanted in decision.targets.items()}
            clamped = {
                name: f"{wanted} → {targets[name]}: {f'cap {cap}' if wanted > 0 else 'at least 0'}"
                for name, wanted in decision.targets.items()
                if targets[name] != wanted
            }
            self._roster.resize(targets, time.time_ns())
        self._wake.set()
        return Accepted(targets, clamped)

    # --- what else the fleet asks ------------------------------------------------------------------------------------

    def counts(self) -> ReplicaCounts:
        """Replicas of all topics by phase."""
        with self._lock:
            return ReplicaCounts.count(self._roster.phases().values())

    def snapshot(self) -> TopicRoster:
        """A copy of the roster, to be written down."""
        with self._lock:
            return self._roster.copy()

    def bring_up(self) -> None:
        """Ask for the initial consumers of every topic, unless that was done already."""
        with self._lock:
            topics = [topic.topic for topic in self._system.topics]
            self._roster.bring_up(topics, self._spec.initial_replicas, time.time_ns())
        self._wake.set()

    def ready(self) -> bool:
        """Whether everything that was asked for works."""
        with self._lock:
            return self._roster.ready()

    def view(self) -> NetworkView:
        """For the monitor."""
        with self._lock:
            counts = self._roster.counts()
            topics = tuple(TopicView(name, counts[name], topic.total) for name, topic in self._roster.topics.items())
            return NetworkView(topics, self.trouble("Redis"))

    def stop(self) -> None:
        """End the thread and close the connections; replicas stay as they are."""
        super().stop()
        self._management.close()

    def stop_replicas(self, timeout_s: float = 30.0) -> None:
        """End all apps; after ``stop``. Queues stay, with what waits in them. PenstockError if some apps do not end."""
        with self._lock:
            self._roster.end_all(time.time_ns())
        self._end_programs(self._roster.topics, timeout_s)
        with self._lock:
            self._roster.observe({}, {}, time.time_ns())

    # --- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Look once and do what is to be done. Without the supervisor nothing can be known, so nothing is done."""
        programs: dict[str, ProgramStatus] | None = None
        with self._with("supervisor"):
            programs = self._programs()
        if programs is None:
            return
        reports: dict[str, AppReport] = {}
        with self._with("Redis"):
            reports = self._apps.reports()
        with self._lock:
            now_ns = time.time_ns()
            self._roster.observe(programs, reports, now_ns)
            work, wanted = self._roster.work(programs, now_ns), self._roster.wanted(now_ns)
        with self._with("Redis"):
            self._want(wanted)
        with self._with("RabbitMQ"):
            self._make(work)
        with self._with("programs"):
            for name in work.end:
                self._end_program(name)

    def _make(self, work: TopicWork) -> None:
        """All queues before the first app: an app publishes to the next topic."""
        for topic in self._system.topics:
            if topic.topic not in self._declared:
                self._management.declare_queue(topic_queue(self._spec.run, topic.topic))
                self._declared.add(topic.topic)
        for name in work.start:
            queue = topic_queue(self._spec.run, name)
            self._start_program(name, "--replica", name, "--queue", queue, "--topic", name)
