"""Runs whose replicas are pods: of a Kafka consumer group, with the controller; of a pipeline of functions; of banks of
queues and of pub/sub networks on RabbitMQ.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from controller.fleets.apps import APPS
from infra.kubernetes.functions import LABEL
from infra.kubernetes.run_pods import RunPods, empty
from infra.kubernetes.services import ClusterServices
from infra.local.runs.function import FunctionRun
from infra.local.runs.network import NetworkRun
from infra.local.runs.queue import QueueRun, RabbitRun
from infra.local.runs.run import LocalRun
from infra.local.runs.stream import StreamRun
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, FaultKind, RunSpec
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem, System


class PodStreamRun(StreamRun):
    """Sender and Spark are programs of the local supervisor; all else is done to pods."""

    faults_known: ClassVar[tuple[FaultKind, ...]] = ("kill-worker", "kill-controller", "blind-monitor")
    parts = ("sender", "pipelines")

    def __init__(self, services: ClusterServices, spec: RunSpec, directory: RunDirectory) -> None:
        super().__init__(services, spec, directory)
        self._pods = RunPods(services, spec, self.directory)
        self._begun = False

    def prepare(self) -> None:
        """Channels, then Spark, then the controller's pod, which brings up the consumers'."""
        self.make_channels()
        if self.spec.analytics:
            self.add("pipelines", "pipelines.stream", respawn=True, grace_s=60)
        self._begun = True
        self._pods.begin()
        self._pods.await_ready()
        if self.spec.analytics:
            self.await_file("pipelines", self.directory.path / "pipelines-ready")

    def start(self) -> RunSpec:
        """Offset 0 is a whole second, a few ahead; the controller hears of it in time."""
        spec = super().start()
        self._pods.tell_start()
        return spec

    def collect(self) -> None:
        """The journal first, which goes with its pod; then as anywhere."""
        self._pods.fetch()
        self._end_pods()
        super().collect()

    def close(self) -> None:
        """Stop what still belongs to the run, in the cluster and here."""
        try:
            self._end_pods()
        finally:
            super().close()

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """What can be done to pods."""
        return {
            "kill-worker": lambda _: self._pods.kill_worker(),
            "kill-controller": lambda _: self._pods.kill_controller(),
            "blind-monitor": self._blind_pod,
        }

    def _blind_pod(self, seconds: float) -> str:
        self._pods.blind(blind=True)
        self._later(seconds, lambda: self._pods.blind(blind=False))
        return "monitor"

    def _end_pods(self) -> None:
        if self._begun:
            self._pods.end()
            self._begun = False


class PodFunctionRun(FunctionRun):
    """Gateway and replicas are pods; pipeline manager, controller, sender and Spark are programs of the local
    supervisor, which reach the gateway by its Service.
    """

    faults_known: ClassVar[tuple[FaultKind, ...]] = (
        *("kill-worker", "kill-controller", "kill-dataflow", "blind-monitor"),
    )

    def __init__(self, services: ClusterServices, spec: RunSpec, directory: RunDirectory) -> None:
        super().__init__(services, spec, directory)
        self._kubectl = services.kubectl

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """What can be done here."""
        return {kind: action for kind, action in super().actions().items() if kind in self.faults_known}

    def _kill_worker(self, _: float) -> str:
        """Delete a replica's pod without notice."""
        ready = [pod for pod in self._kubectl.pods(f"--selector={LABEL}") if pod.ready and pod.alive]
        return self._kubectl.kill_first(ready)


class AppPods(RabbitRun):
    """A run whose function apps are pods; all else are programs of the local supervisor. Mixed into a kind of run."""

    faults_known: ClassVar[tuple[FaultKind, ...]] = (
        "kill-worker",
        "kill-controller",
        "kill-forwarder",
        "blind-monitor",
    )

    def __init__(self, services: ClusterServices, spec: RunSpec, directory: RunDirectory) -> None:
        super().__init__(services, spec, directory)
        self._kubectl = services.kubectl
        self._begun = False

    def make_channels(self) -> None:
        """From here on there may be pods."""
        super().make_channels()
        self._begun = True

    def collect(self) -> None:
        """Also what the pods that are left have said."""
        self._kubectl.save_logs(self._kubectl.pods_of(APPS), self.directory.logs_folder)
        super().collect()

    def close(self) -> None:
        """The controller, which would keep the pods, first."""
        try:
            self.supervisor.remove(self.name("controller"))
            self._empty()
        finally:
            super().close()

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """What can be done here."""
        return {kind: action for kind, action in super().actions().items() if kind in self.faults_known}

    def _remove_replicas(self) -> None:
        self._empty()
        super()._remove_replicas()

    def _kill_worker(self, _: float) -> str:
        """Delete an app's pod without notice."""
        pods = self._kubectl.pods_of(APPS)
        return self._kubectl.kill_first([pod for pod in pods if pod.ready and pod.alive and pod.replica])

    def _empty(self) -> None:
        if self._begun:
            empty(self._kubectl, APPS)
            self._begun = False


class PodQueueRun(AppPods, QueueRun):
    """A bank of queues."""


class PodNetworkRun(AppPods, NetworkRun):
    """A pub/sub network, which has no forwarder."""

    faults_known: ClassVar[tuple[FaultKind, ...]] = ("kill-worker", "kill-controller", "blind-monitor")


def pod_run(services: ClusterServices, spec: RunSpec, directory: RunDirectory) -> LocalRun:
    """The run of the spec's system."""
    return KINDS[type(spec.system)](services, spec, directory)


def check(system: System, faults: tuple[Fault, ...]) -> None:
    """Raise PenstockError for a fault that cannot be had on a cluster."""
    known = KINDS[type(system)].faults_known
    for fault in faults:
        if fault.kind not in known:
            raise PenstockError(f"--fault {fault}: --world kubernetes has {', '.join(known)}")


AnyPodRun = PodStreamRun | PodFunctionRun | PodQueueRun | PodNetworkRun
KINDS: Final[Mapping[type[System], type[AnyPodRun]]] = {
    StreamSystem: PodStreamRun,
    FunctionSystem: PodFunctionRun,
    QueueSystem: PodQueueRun,
    NetworkSystem: PodNetworkRun,
}
