"""What fleets of function apps share: replicas that live in processes on RabbitMQ, under one actuator."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from controller.actuators.bank import FORWARDER, BankActuator
from controller.actuators.processes import WorkerProgram
from controller.actuators.topics import TopicActuator
from penstock.apps import PodBoard
from penstock.contracts import ReplicaCounts
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Cluster, Endpoints
from penstock.supervision import Programs, Supervisor, replica_environment
from penstock.systems import NetworkSystem

APPS: Final = "apps"
"""The Deployment whose pods are apps, on a cluster."""
AnyActuator = TypeVar("AnyActuator", BankActuator, TopicActuator)


def app_program(directory: RunDirectory, worker: Sequence[str]) -> WorkerProgram:
    """How an app of a run is started; what is its own follows the command."""
    return WorkerProgram(
        command=(*worker, "--run", str(directory.path)),
        folder=directory.path,
        logs=directory.logs_folder,
        env=replica_environment(),
    )


def programs_of(directory: RunDirectory, spec: RunSpec, endpoints: Endpoints) -> Programs:
    """What keeps the run's apps: the local world's supervisor, or the Deployment ``apps``, as the run's world says.
    What feeds them is a process either way.
    """
    supervisor = Supervisor(endpoints.require("supervisor"))
    if spec.world != "kubernetes":
        return supervisor
    from controller.actuators.pod_programs import PodPrograms
    from penstock.kubernetes.deployment import Deployment

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


class AppFleet(Generic[AnyActuator]):
    """All of the Fleet port but its constructor and its monitor."""

    actuator: AnyActuator

    def start(self, after_step: Callable[[], None]) -> None:
        """Find the apps of a predecessor, reconcile from then on."""
        self.actuator.step()
        self.actuator.start(after_step)

    def bring_up(self) -> None:
        """The initial replicas, unless a predecessor has asked for them."""
        self.actuator.bring_up()

    def ready(self) -> bool:
        """Everything that was asked for works, and what feeds it does."""
        return self.actuator.ready()

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return self.actuator.counts()

    def snapshot(self) -> msgspec.Raw:
        """JSON of the roster."""
        return msgspec.Raw(msgspec.json.encode(self.actuator.snapshot()))

    def stop(self) -> None:
        """Replicas, and what feeds them, stay."""
        self.actuator.stop()

    def stop_replicas(self) -> None:
        """Raises PenstockError if some stay."""
        self.actuator.stop_replicas()
