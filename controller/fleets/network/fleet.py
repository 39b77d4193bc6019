"""A pub/sub network on RabbitMQ: a queue and a set of consumers per topic."""

from collections.abc import Callable
from contextlib import suppress

from controller.fleets.apps.fleet import AppFleet
from controller.fleets.network.actuator import TopicActuator
from controller.fleets.network.monitor import NetworkMonitor
from controller.fleets.network.replica_set import NetworkReplicaSet
from penstock.errors import PenstockError
from penstock.systems import NetworkSystem


class NetworkFleet(AppFleet[TopicActuator]):
    """The topics of a network, an app each."""

    System = NetworkSystem
    Actuator = TopicActuator
    Replicas = NetworkReplicaSet

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> NetworkMonitor:
        """The monitor; its first reading, which opens the connections, is discarded."""
        depths = self._depths()
        with suppress(PenstockError):
            depths.read([])
        return NetworkMonitor(
            self._spec, clock=self._clock, origin_s=origin_s, view=self.actuator.view, depths=depths, blind=blind
        )
