"""A load session whose fleet are pods: ``python -m infra.kubernetes.load_session``. Locust starts it, as it starts
``producers.locust_session`` for a fleet on this machine; the brokers' addresses and secrets are in the environment.
"""

from contextlib import ExitStack
from typing import ClassVar

from infra.kubernetes.run_pods import CONTROLLER, RunPods, require_idle
from infra.kubernetes.services import ClusterServices
from infra.local.services import LocalServices
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, WorldName
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from producers.locust_session import Session, main


class PodSession(Session):
    """Controller and replicas are pods."""

    world: ClassVar[WorldName] = "kubernetes"
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, spec: RunSpec, directory: RunDirectory, schedule: Schedule, endpoints: Endpoints, senders: int = 0
    ) -> None:
        super().__init__(spec, directory, schedule, endpoints, senders)
        self._services = ClusterServices(LocalServices.from_settings())
        self._pods = RunPods(self._services, spec, directory)
        self._serves = False

    def bring_up(self, ending: ExitStack) -> None:
        """The controller's pod, which brings up the consumers'."""
        require_idle(self._services.kubectl, CONTROLLER)
        ending.callback(self._end)
        self._pods.begin()
        self._pods.await_ready()
        self._serves = True

    def tell_start(self) -> None:
        """The controller has the run's directory in its pod."""
        self._pods.tell_start()

    def forget(self) -> None:
        """Replicas are gone with their Deployment."""
        self.forget_ledger()

    def _end(self) -> None:
        try:
            if self._serves:
                self._pods.fetch()
        finally:
            self._pods.end()


if __name__ == "__main__":
    main(PodSession)
