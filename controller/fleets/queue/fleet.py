"""A bank of queues on RabbitMQ: function apps, the forwarder that feeds them, and a provider that adds containers."""

from collections.abc import Callable

from controller.fleets.apps.fleet import AppFleet
from controller.fleets.queue.actuator import QueueActuator
from controller.fleets.queue.monitor import QueueMonitor
from controller.fleets.queue.replica_set import QueueReplicaSet
from controller.fleets.queue.routing_store import RoutingBoard
from penstock.clock import NANOS_PER_SECOND
from penstock.systems import QueueSystem


class QueueFleet(AppFleet[QueueActuator]):
    """Sub-queues with their function apps, and the forwarder."""

    System = QueueSystem
    Actuator = QueueActuator
    Replicas = QueueReplicaSet

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> QueueMonitor:
        """Rates and depths. From ``origin_s`` on the provider adds containers to what is in service already."""
        self.actuator.begin(round(origin_s * NANOS_PER_SECOND))
        spec, endpoints = self._spec, self._endpoints
        monitor = QueueMonitor(
            spec,
            clock=self._clock,
            origin_s=origin_s,
            view=self.actuator.view,
            board=RoutingBoard(endpoints.require("redis"), spec.run),
            depths=self._depths(),
            blind=blind,
        )
        monitor.observe()
        return monitor
