"""The common part of the fleets of function apps on RabbitMQ, queue and network. Apps are local processes or pods."""

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from controller.fleets.apps.actuator import AppActuator
from controller.fleets.fleet import Fleet
from controller.fleets.programs import RunPrograms, WorkerProgram
from penstock.adapters.amqp import Depths, connection_name
from penstock.adapters.app_boards import PodBoard
from penstock.adapters.process_manager import Programs, Supervisor
from penstock.clock import Clock
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Cluster, Endpoints
from penstock.systems import NetworkSystem

APPS: Final = "apps"
"""The Deployment whose pods are apps, on a cluster."""
FORWARDER: Final = "forwarder"
"""Name of the program that feeds the queues of a queue fleet, a process in every world."""

AppActuatorT = TypeVar("AppActuatorT", bound="AppActuator[Any]")


class AppFleet(Fleet[AppActuatorT]):
    """Fleet port on RabbitMQ and a process manager. ``worker``: command of an app without its own arguments."""

    Actuator: ClassVar[type[Any]]
    """Built as ``cls(spec, endpoints, programs, replicas)``."""
    Replicas: ClassVar[type[Any]]
    """The replica set of the actuator."""

    def __init__(
        self,
        directory: RunDirectory,
        spec: RunSpec,
        endpoints: Endpoints,
        clock: Clock,
        state: msgspec.Raw | None,
        worker: Sequence[str] = (sys.executable, "-m", "consumers.app"),
    ) -> None:
        super().__init__(spec, endpoints, clock)
        worker_program = WorkerProgram.of_run(directory, worker)
        programs = RunPrograms(spec.run, _programs(directory, spec, endpoints), worker_program)
        replicas = msgspec.json.decode(state, type=self.Replicas) if state is not None else None
        self.actuator = self.Actuator(spec, endpoints, programs, replicas)

    def bring_up(self) -> None:
        """Request the initial replicas, unless a predecessor has done so."""
        self.actuator.bring_up()

    def ready(self) -> bool:
        """All requested replicas have joined and receive events."""
        return self.actuator.ready()

    def _depths(self) -> Depths:
        return Depths(self._endpoints.require("rabbitmq"), connection_name(self._spec.run, "monitor"))


def _programs(directory: RunDirectory, spec: RunSpec, endpoints: Endpoints) -> Programs:
    """The process manager of the run's apps: the local one, or the Deployment ``apps``, as the run's world says."""
    supervisor = Supervisor(endpoints.require("supervisor"))
    if spec.world != "kubernetes":
        return supervisor
    from controller.fleets.apps.pod_programs import PodPrograms
    from penstock.adapters.kubernetes.deployment import Deployment

    wanted = [directory.spec_file]
    if isinstance(spec.system, NetworkSystem):
        wanted.append(directory.schedule_file)  # service times are drawn in its order
    return PodPrograms(
        spec.run,
        Deployment(Cluster().namespace, APPS),
        PodBoard(endpoints.require("redis")),
        {file.name: file.read_bytes() for file in wanted},
        local=supervisor,
        here=(FORWARDER,),
    )
