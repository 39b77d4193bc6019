"""The actuator of a live pub/sub network: each topic's queue is RabbitMQ's, its consumers are containers of one app.

Scaling a topic sets the number of containers of its app. The rules are in ``replica_set``.
"""

import time
from collections.abc import Mapping

import msgspec

from controller.fleets.actuator import END_S
from controller.fleets.apps.actuator import AppActuator
from controller.fleets.apps.app import AppView
from controller.fleets.network.replica_set import NetworkReplicaSet
from controller.fleets.programs import ProgramWork, RunPrograms
from penstock.adapters.amqp import topic_queue
from penstock.adapters.process_manager import ProgramStatus
from penstock.apps import AppReport
from penstock.contracts import Accepted, Decision, ReplicaCounts
from penstock.limits import clamp_targets
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem


class TopicView(msgspec.Struct, frozen=True):
    """State of a topic for the monitor."""

    name: str
    counts: ReplicaCounts
    app: AppReport
    start_ups_s: tuple[float, ...] = ()


class NetworkView(AppView, frozen=True, kw_only=True):
    """State of the network for the monitor."""

    topics: tuple[TopicView, ...]


class TopicActuator(AppActuator[NetworkReplicaSet]):
    """See ``AppActuator``; an app's arguments are ``--replica``, ``--queue`` and ``--topic``."""

    def __init__(
        self, spec: RunSpec, endpoints: Endpoints, programs: RunPrograms, replicas: NetworkReplicaSet | None = None
    ) -> None:
        assert isinstance(spec.system, NetworkSystem)
        replicas = replicas or NetworkReplicaSet(start_up_s=spec.system.start_up_s)
        super().__init__(spec, endpoints, programs, replicas)
        self._topics = [topic.topic for topic in spec.system.topics]
        self._declared: set[str] = set()

    def apply(self, decision: Decision) -> Accepted:
        """Set the replicas of each topic that the decision names. PenstockError for an unknown topic."""
        with self._lock:
            sizes = self._replicas.sizes()
            if decision.action in ("hold", "none"):
                return Accepted(sizes)
            accepted = clamp_targets(decision.targets, sizes, each=self._spec.max_replicas)
            self._replicas.resize(accepted.targets, time.time_ns())
        self._wake.set()
        return accepted

    def bring_up(self) -> None:
        """Request the initial consumers of every topic, unless that was done already."""
        with self._lock:
            self._replicas.bring_up(self._topics, self._spec.initial_replicas, time.time_ns())
        self._wake.set()

    def ready(self) -> bool:
        """Whether all requested replicas have joined."""
        with self._lock:
            return self._replicas.ready()

    def view(self) -> NetworkView:
        """The present state."""
        with self._lock:
            counts = self._replicas.counts()
            topics = tuple(
                TopicView(name, counts[name], topic.total, topic.containers.start_ups_s())
                for name, topic in self._replicas.topics.items()
            )
            return NetworkView(topics=topics, away=self.trouble("Redis"))

    def stop_replicas(self, timeout_s: float = END_S) -> None:
        """End all apps; after ``stop``. Queues and their messages stay. PenstockError if some apps do not end."""
        with self._lock:
            self._replicas.end_all(time.time_ns())
        self._programs.end_all(*self._replicas.topics, timeout_s=timeout_s)
        with self._lock:
            self._replicas.observe({}, {}, time.time_ns())

    def _observe(self, programs: Mapping[str, ProgramStatus], reports: Mapping[str, AppReport]) -> ProgramWork:
        with self._lock:
            now_ns = time.time_ns()
            self._replicas.observe(programs, reports, now_ns)
            return self._replicas.work(programs, now_ns)

    def _tell(self) -> None:
        with self._lock:
            wanted = self._replicas.wanted(time.time_ns())
        self._want(wanted)

    def _carry_out(self, work: ProgramWork) -> None:
        """All queues before the first app: an app publishes to the next topic."""
        with self._with("RabbitMQ"):
            for topic in self._topics:
                if topic not in self._declared:
                    self._management.declare_queue(topic_queue(self._spec.run, topic))
                    self._declared.add(topic)
            for name in work.start:
                queue = topic_queue(self._spec.run, name)
                self._programs.start(name, "--replica", name, "--queue", queue, "--topic", name)
        with self._with("programs"):
            self._end(work.end)
