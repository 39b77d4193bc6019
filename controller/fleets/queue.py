"""A bank of queues on RabbitMQ: function apps, the forwarder that feeds them, and a provider that adds containers."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from controller.actuators.bank import BankActuator
from controller.actuators.bank_roster import BankRoster
from controller.actuators.processes import WorkerProgram
from controller.monitors.depths import Depths
from controller.monitors.rabbitmq import BankMonitor
from controller.provider import check_system
from controller.routing_board import RoutingBoard
from penstock.amqp import connection_name
from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import QueueObservation, ReplicaCounts
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.supervision import replica_environment
from penstock.systems import QueueSystem


class QueueFleet:
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
            WorkerProgram(
                command=(*worker, "--run", str(directory.path)),
                folder=directory.path,
                logs=directory.logs_folder,
                env=replica_environment(),
            ),
            msgspec.json.decode(state, type=BankRoster) if state is not None else None,
        )

    def start(self, after_step: Callable[[], None]) -> None:
        """Find the functions of a predecessor, reconcile from then on."""
        self.actuator.step()
        self.actuator.start(after_step)

    def bring_up(self) -> None:
        """The initial functions in service and in the pool, unless a predecessor has asked for them."""
        self.actuator.bring_up()

    def ready(self) -> bool:
        """Every function's app has reported, and the forwarder works by the routing that feeds them."""
        return self.actuator.ready()

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

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return self.actuator.counts()

    def snapshot(self) -> msgspec.Raw:
        """JSON of the roster."""
        return msgspec.Raw(msgspec.json.encode(self.actuator.snapshot()))

    def stop(self) -> None:
        """Replicas and the forwarder stay."""
        self.actuator.stop()

    def stop_replicas(self) -> None:
        """Raises PenstockError if some stay."""
        self.actuator.stop_replicas()
