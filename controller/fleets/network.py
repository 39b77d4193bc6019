"""A pub/sub network on RabbitMQ: a queue and a set of consumers per topic."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from controller.actuators.processes import WorkerProgram
from controller.actuators.topic_roster import TopicRoster
from controller.actuators.topics import TopicActuator
from controller.monitors.depths import Depths
from controller.monitors.network import NetworkMonitor
from penstock.amqp import connection_name
from penstock.clock import Clock
from penstock.contracts import NetworkObservation, ReplicaCounts
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.supervision import replica_environment
from penstock.systems import NetworkSystem


class NetworkFleet:
    """Fleet port on RabbitMQ and a supervisor. ``worker`` is the command of a topic's app without ``--run``,
    ``--replica``, ``--queue`` and ``--topic``. PenstockError for a system that is none.
    """

    offers = NetworkObservation

    def __init__(
        self,
        directory: RunDirectory,
        spec: RunSpec,
        endpoints: Endpoints,
        clock: Clock,
        state: msgspec.Raw | None,
        worker: Sequence[str] = (sys.executable, "-m", "consumers.app"),
    ) -> None:
        if not isinstance(spec.system, NetworkSystem):
            raise PenstockError(
                f"{spec.run}: a pub/sub network needs a NetworkSystem, not {type(spec.system).__name__}"
            )
        self._spec, self._endpoints, self._clock = spec, endpoints, clock
        self.actuator = TopicActuator(
            spec,
            endpoints,
            WorkerProgram(
                command=(*worker, "--run", str(directory.path)),
                folder=directory.path,
                logs=directory.logs_folder,
                env=replica_environment(),
            ),
            msgspec.json.decode(state, type=TopicRoster) if state is not None else None,
        )

    def start(self, after_step: Callable[[], None]) -> None:
        """Find the consumers of a predecessor, reconcile from then on."""
        self.actuator.step()
        self.actuator.start(after_step)

    def bring_up(self) -> None:
        """The initial consumers of every topic, unless a predecessor has asked for them."""
        self.actuator.bring_up()

    def ready(self) -> bool:
        """Every topic's app has the consumers that were asked for."""
        return self.actuator.ready()

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> NetworkMonitor:
        """Moments over the system's window; the first reading, which makes the connections, is thrown away."""
        spec = self._spec
        depths = Depths(self._endpoints.require("rabbitmq"), connection_name(spec.run, "monitor"))
        depths.read([])
        return NetworkMonitor(
            spec, clock=self._clock, origin_s=origin_s, network=self.actuator, depths=depths, blind=blind
        )

    def counts(self) -> ReplicaCounts:
        """Replicas of all topics by phase."""
        return self.actuator.counts()

    def snapshot(self) -> msgspec.Raw:
        """JSON of the roster."""
        return msgspec.Raw(msgspec.json.encode(self.actuator.snapshot()))

    def stop(self) -> None:
        """Replicas stay as they are."""
        self.actuator.stop()

    def stop_replicas(self) -> None:
        """Raises PenstockError if some stay."""
        self.actuator.stop_replicas()
