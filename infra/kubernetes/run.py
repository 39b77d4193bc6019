"""A run on a Kafka consumer group whose controller and consumers are pods."""

from collections.abc import Callable, Mapping

from infra.kubernetes.run_pods import RunPods
from infra.kubernetes.services import ClusterServices
from infra.local.runs.stream import StreamRun
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, FaultKind, RunSpec
from penstock.systems import StreamSystem, System

FAULTS: tuple[FaultKind, ...] = ("kill-worker", "kill-controller", "blind-monitor")


class PodStreamRun(StreamRun):
    """Sender and Spark are programs of the local supervisor; all else is done to pods."""

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


def check(system: System, faults: tuple[Fault, ...]) -> None:
    """Raise PenstockError for a fleet that has no manifests, and for a fault that cannot be had on a cluster."""
    if not isinstance(system, StreamSystem):
        raise PenstockError("--world kubernetes plays Kafka consumer groups only, so far; choose local or sim")
    for fault in faults:
        if fault.kind not in FAULTS:
            raise PenstockError(f"--fault {fault}: --world kubernetes has {', '.join(FAULTS)}")
