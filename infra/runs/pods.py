"""Controller and replicas of one run as pods: what Deployments are given, and what is read from the pods."""

import io
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from infra.kubernetes.functions import LABEL, deployments
from infra.kubernetes.kubectl import Kubectl, unpack
from infra.kubernetes.services import LABELS, ClusterServices
from infra.runs.context import RunContext
from infra.runs.faults import Injected
from infra.runs.programs import NO_REPLICA, Replicas
from infra.waiting import wait_until
from penstock.adapters.kubernetes.pods import Pod
from penstock.errors import PenstockError

CONTROLLER: Final = "controller"
SENDERS: Final = "senders"
"""Deployment of the sender pods of a load session."""
SPEC: Final = "run"
"""ConfigMap with the run's run.json."""
JOURNAL: Final = ("decisions.jsonl", "replicas.jsonl", "controller-state.json")
GONE_TIMEOUT_S: Final = 60.0
KILL_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.3
LABEL_LENGTH: Final = 63


class ControllerPod:
    """The controller's pod, and the fleet's Deployment (named as the fleet) that it scales."""

    def __init__(self, services: ClusterServices, context: RunContext) -> None:
        self._services = services
        self._kubectl: Kubectl = services.kubectl
        self._run = context.spec.run
        self._fleet = context.spec.fleet
        self._directory = context.directory
        self._folder = f"/runs/{self._run}"
        self._begun = False
        self._running = False

    def start(self) -> None:
        """Write the run's ConfigMap and start the controller, which starts the consumers."""
        self._begun = self._running = True
        self._write_spec()
        template = {"metadata": {"labels": {"penstock.dev/run": label(self._run)}}}
        self._kubectl.patch(f"deployment/{self._fleet}", {"spec": {"replicas": 0, "template": template}})
        env = [{"name": "RUN", "value": self._run}]
        containers: dict[str, Any] = {
            "initContainers": [{"name": "lay-out", "env": env}],
            "containers": [{"name": CONTROLLER, "env": env}],
        }
        self._kubectl.patch(
            f"deployment/{CONTROLLER}", {"spec": {"replicas": 1, "template": {**template, "spec": containers}}}
        )

    def await_ready(self) -> None:
        """Wait until the initial replicas serve. Raise PenstockError with the reason if they cannot."""
        of = (CONTROLLER, self._fleet)
        self._services.await_pods(self._serves, "the run's pods do not come up", of, log_of=CONTROLLER)

    def notify_start(self) -> None:
        """Copy run.json, which now has a start, to the controller and to the ConfigMap for its successor."""
        script = f"cat > {self._folder}/run.json.partial && mv {self._folder}/run.json.partial {self._folder}/run.json"
        self._execute(script, given=self._directory.spec_file.read_bytes())
        self._write_spec()

    def stop(self) -> None:
        """Copy the controller's journal and log into the run directory, delete the run's folder in the controller's
        volume, which all runs share, and end the pod.
        """
        raw = self._retry(f"cd {self._folder} && tar -cf - $(ls {' '.join(JOURNAL)} 2>/dev/null)")
        unpack(io.BytesIO(raw), self._directory.path)
        self._kubectl.save_logs(self._kubectl.pods_of(CONTROLLER), self._directory.logs_folder)
        with suppress(PenstockError):  # the run is complete without it
            self._execute(f"rm -rf {self._folder}")
        self._end()

    def close(self) -> None:
        """End the pod and delete the ConfigMap, if they were made; idempotent."""
        if not self._begun:
            return
        try:
            self._end()
        finally:
            self._kubectl.run("delete", f"configmap/{SPEC}", "--ignore-not-found")
        self._begun = False

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill(self) -> Injected:
        """SIGKILL the controller's process; the kubelet starts it again."""
        script = (
            "for process in /proc/[0-9]*; do"
            " if tr '\\0' ' ' <$process/cmdline 2>/dev/null | grep -q '^python -m controller.main'; then"
            " kill -KILL ${process#/proc/}; fi; done"
        )
        before = self._restarts()
        with suppress(PenstockError):  # the script ends with its container
            self._execute(script)
        late = f"the controller's process was not killed within {KILL_TIMEOUT_S:g} s"
        wait_until(lambda: self._restarts() > before, KILL_TIMEOUT_S, lambda: late, POLL_S)
        return Injected(CONTROLLER)

    def blind(self) -> Injected:
        """Let the controller's monitor see nothing."""
        file = f"{self._folder}/{self._directory.blind_file.name}"
        self._execute(f"touch {file}")
        return Injected("monitor", lambda: self._execute(f"rm -f {file}"))

    # --- the pod -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self._running:
            empty(self._kubectl, CONTROLLER)
            self._running = False

    def _restarts(self) -> int:
        return sum(pod.restarts for pod in self._kubectl.pods_of(CONTROLLER))

    def _execute(self, script: str, given: bytes | None = None) -> bytes:
        return self._kubectl.execute(f"deployment/{CONTROLLER}", CONTROLLER, script, given)

    def _retry(self, script: str) -> bytes:
        """Run a script in the controller's container; retry while the container restarts."""
        deadline_s = time.monotonic() + KILL_TIMEOUT_S
        while True:
            try:
                return self._execute(script)
            except PenstockError:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(POLL_S)

    def _write_spec(self) -> None:
        metadata = {"name": SPEC, "labels": LABELS}
        data = {"run.json": self._directory.spec_file.read_text()}
        self._kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def _serves(self) -> bool:
        """Whether the controller reports its initial replicas as ready, within some seconds."""
        if all(pod.life is None for pod in self._kubectl.pods_of(CONTROLLER)):
            return False
        ready = f"{self._folder}/{self._directory.controller_ready_file.name}"
        try:
            self._execute(f"for i in $(seq 50); do [ -e '{ready}' ] && exit 0; sleep 0.1; done; exit 1")
        except PenstockError:
            return False  # not yet, or the container restarts
        return True


class PodReplicas(Replicas):
    """Replicas as pods of a Deployment. ``serves``: whether a pod is a replica that can be killed."""

    def __init__(self, context: RunContext, kubectl: Kubectl, deployment: str, serves: Callable[[Pod], bool]) -> None:
        self._context = context
        self._kubectl = kubectl
        self._deployment = deployment
        self._serves = serves
        self._begun = False

    def prepare(self) -> None:
        """From here on there may be pods."""
        self._begun = True

    def save_logs(self) -> None:
        """Write the logs of the remaining pods into the run directory."""
        self._kubectl.save_logs(self._kubectl.pods_of(self._deployment), self._context.directory.logs_folder)

    def remove(self) -> None:
        """Scale the Deployment to 0 and wait; idempotent."""
        if self._begun:
            empty(self._kubectl, self._deployment)
            self._begun = False

    close = remove

    def kill(self) -> Injected:
        """Delete the first replica's pod without grace."""
        pods = self._kubectl.pods_of(self._deployment)
        return _killed(self._kubectl.kill_first([pod for pod in pods if self._serves(pod)]))


class FunctionPods(Replicas):
    """Pods of the functions ``names``, which the gateway starts and the controller has it remove."""

    def __init__(self, kubectl: Kubectl, names: Iterable[str]) -> None:
        self._kubectl = kubectl
        self._names = tuple(names)

    def prepare(self) -> None:
        """Create the functions' Deployments, with the gateway's image; they stay, with no pods, for the next run."""
        gateway = self._kubectl.get("deployment/gateway")["spec"]["template"]["spec"]["containers"][0]
        self._kubectl.apply(*deployments(self._names, gateway["image"], LABELS))

    def kill(self) -> Injected:
        """Delete the first replica's pod without grace."""
        ready = [pod for pod in self._kubectl.pods(f"--selector={LABEL}") if pod.ready and pod.alive]
        return _killed(self._kubectl.kill_first(ready))


def _killed(replica: str | None) -> Injected:
    return NO_REPLICA if replica is None else Injected(replica)


def require_idle(kubectl: Kubectl, *deployments: str) -> None:
    """Raise PenstockError if any of these Deployments has pods: the cluster is in use."""
    for name in deployments:
        if pods := kubectl.pods_of(name):
            raise PenstockError(
                f"a run or a load session is active on this cluster: there is pod {pods[0].name}; if a killed one has "
                f"left it, `kubectl --namespace {kubectl.namespace} scale deployment/{name} --replicas=0` ends it"
            )


def empty(kubectl: Kubectl, deployment: str) -> None:
    """Scale a Deployment to 0; return when its last pod is gone. Raise PenstockError if some stay."""
    kubectl.run("scale", f"deployment/{deployment}", "--replicas=0")

    def late() -> str:
        left = ", ".join(pod.name for pod in kubectl.pods_of(deployment))
        return f"pods {left} have not ended within {GONE_TIMEOUT_S:g} s"

    wait_until(lambda: not kubectl.pods_of(deployment), GONE_TIMEOUT_S, late, POLL_S)


def label(text: str) -> str:
    """A label's value: forbidden characters become dashes, and it is cut to 63 characters."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:LABEL_LENGTH].strip("-_.")
