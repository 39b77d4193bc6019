"""A bank of queues on RabbitMQ: function apps, the forwarder that feeds them, and a provider that adds containers."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from controller.actuators.bank import BankActuator
from controller.actuators.bank_roster import BankRoster
from controller.fleets.apps import AppFleet, app_program, programs_of
from controller.monitors.depths import Depths
from controller.monitors.rabbitmq import BankMonitor
from controller.provider import check_system
from controller.routing_board import RoutingBoard
from penstock.amqp import connection_name
from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import QueueObservation
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import QueueSystem


class QueueFleet(AppFleet[BankActuator]):
    """Fleet port on RabbitMQ and a supervisor. ``worker`` is the command of a function app without ``--run``,
    ``--replica`` and ``--queue``. PenstockError for a system that cannot be.
    """

    offers = QueueObservation

    def __init__(
        self,
        directory: RunDirectory,
        spec: RunSpec,
        endpoints: Endpoints,
        clock: Clock,
        state: msgspec.Raw | None,
        worker: Sequence[str] = (sys.executable, "-m", "consumers.app"),
    ) -> None:
        if not isinstance(spec.system, QueueSystem):
            raise PenstockError(f"{spec.run}: a bank of queues needs a QueueSystem, not {type(spec.system).__name__}")
        try:
            check_system(spec.system)
        except ValueError as error:
            raise PenstockError(f"{spec.run}: {error}") from None
        self._spec, self._endpoints, self._clock = spec, endpoints, clock
        self.actuator = BankActuator(
            spec,
            endpoints,
            programs_of(directory, spec, endpoints),
            app_program(directory, worker),
            msgspec.json.decode(state, type=BankRoster) if state is not None else None,
        )

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> BankMonitor:
        """Rates and depths. From ``origin_s`` on the provider adds containers to what is in service already."""
        self.actuator.begin(round(origin_s * NANOS_PER_SECOND))
        spec, endpoints = self._spec, self._endpoints
        monitor = BankMonitor(
            spec,
            clock=self._clock,
            origin_s=origin_s,
            bank=self.actuator,
            board=RoutingBoard(endpoints.require("redis"), spec.run),
            depths=Depths(endpoints.require("rabbitmq"), connection_name(spec.run, "monitor")),
            blind=blind,
        )
        monitor.observe()
        return monitor
