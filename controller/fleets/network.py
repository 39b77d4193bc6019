"""A pub/sub network on RabbitMQ: a queue and a set of consumers per topic."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from controller.actuators.topic_roster import TopicRoster
from controller.actuators.topics import TopicActuator
from controller.fleets.apps import AppFleet, app_program, programs_of
from controller.monitors.depths import Depths
from controller.monitors.network import NetworkMonitor
from penstock.amqp import connection_name
from penstock.clock import Clock
from penstock.contracts import NetworkObservation
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem


class NetworkFleet(AppFleet[TopicActuator]):
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
            programs_of(directory, spec, endpoints),
            app_program(directory, worker),
            msgspec.json.decode(state, type=TopicRoster) if state is not None else None,
        )

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> NetworkMonitor:
        """Moments over the system's window; the first reading, which makes the connections, is thrown away."""
        spec = self._spec
        depths = Depths(self._endpoints.require("rabbitmq"), connection_name(spec.run, "monitor"))
        depths.read([])
        return NetworkMonitor(
            spec, clock=self._clock, origin_s=origin_s, network=self.actuator, depths=depths, blind=blind
        )
