"""The Kubernetes world: one run on a cluster's brokers, whose replicas are pods."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Self

from infra.kubernetes.driver_pod import HERE
from infra.kubernetes.functions import LABEL
from infra.kubernetes.services import ClusterServices
from infra.local.services import LocalServices
from infra.local.warm_up import warm_up
from infra.runs.kinds import pod_run
from infra.runs.left_behind import left_for_good, left_on_services
from infra.runs.live_world import LiveWorld
from infra.runs.pods import CONTROLLER, SENDERS, require_idle
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.world import Progress


class KubernetesWorld(LiveWorld):
    """World on the cluster of the current kubeconfig. Services that it starts are deleted at the end."""

    def __init__(self, tell: Progress = lambda _: None, services: ClusterServices | None = None) -> None:
        super().__init__()
        self._services = services or ClusterServices(LocalServices.from_settings(tell), tell)
        self._local = self._services.local

    def __enter__(self) -> Self:
        self._local.state.create()
        with ExitStack() as ending:
            ending.enter_context(self._local.state.running())
            was_up = self._services.is_up()
            if not was_up and HERE in os.environ:
                raise PenstockError("brokers and monitoring are not all ready: `kubectl --namespace penstock get pods`")
            if not was_up:
                self._services.up()
                ending.callback(self._services.down)
            if not self._local.supervised:
                ending.callback(self._local.down)
            self._local.up(())
            if not was_up:
                warm_up(self._services.endpoints().require("kafka"))
            self._ending = ending.pop_all()
        return self

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Prepare the run. PenstockError if another machine's run or load session has pods: it would lose them."""
        from controller.fleets.apps.fleet import APPS  # with a large library

        require_idle(self._services.kubectl, CONTROLLER, SENDERS, spec.fleet, APPS)
        self._run = run = pod_run(self._services, spec, directory)
        run.prepare()

    def left_behind(self, run: str) -> Sequence[str]:
        """Pods, and in the driver's pod or on this machine programs, processes, topics, queues and keys that stay."""
        return left_for_good(lambda: self._left_behind(run))

    def _left_behind(self, run: str) -> Iterator[str]:
        kubectl = self._services.kubectl
        replicas = [pod for pod in kubectl.pods() if pod.replica]  # there is one run at a time
        pods = [*replicas, *kubectl.pods(f"--selector={LABEL}"), *kubectl.pods_of(CONTROLLER)]
        yield from sorted({f"pod {pod.name}" for pod in pods})
        yield from left_on_services(run, self._services.endpoints(), self._local.state.path)
