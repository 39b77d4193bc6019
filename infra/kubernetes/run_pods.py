"""Controller and consumers of one run as pods: what the Deployments are told of a run, and what is read of them."""

import io
import re
import time
from contextlib import suppress
from typing import Any, Final

from infra.kubernetes.kubectl import Kubectl, unpack
from infra.kubernetes.services import PART_OF, ClusterServices
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec

CONTROLLER: Final = "controller"
SPEC: Final = "run"
JOURNAL: Final = ("decisions.jsonl", "replicas.jsonl", "controller-state.json")
GONE_TIMEOUT_S: Final = 60.0
KILL_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.3
LABEL_LENGTH: Final = 63


class RunPods:
    """Of the run in ``directory``. The fleet's Deployment has the fleet's name."""

    def __init__(self, services: ClusterServices, spec: RunSpec, directory: RunDirectory) -> None:
        self._services = services
        self._kubectl: Kubectl = services.kubectl
        self._run = spec.run
        self._fleet = spec.fleet
        self._directory = directory
        self._folder = f"/runs/{spec.run}"

    # --- life of the run ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Hand over what was asked for and start the controller, which starts the consumers."""
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
        """Until the initial replicas serve. PenstockError with the reason if they can't."""
        self._services.await_pods(self._serves, "the run's pods do not come up", CONTROLLER)

    def tell_start(self) -> None:
        """The run has a start, which its directory has: tell the controller, and whoever would take its place."""
        script = f"cat > {self._folder}/run.json.partial && mv {self._folder}/run.json.partial {self._folder}/run.json"
        self._execute(script, given=self._directory.spec_file.read_bytes())
        self._write_spec()

    def fetch(self) -> None:
        """Copy the controller's journal and what the pods that are left have said into the run's directory."""
        raw = self._insist(f"cd {self._folder} && tar -cf - $(ls {' '.join(JOURNAL)} 2>/dev/null)")
        unpack(io.BytesIO(raw), self._directory.path)
        pods = (*self._kubectl.pods_of(CONTROLLER), *self._kubectl.pods_of(self._fleet))
        self._kubectl.save_logs(pods, self._directory.logs_folder)

    def end(self) -> None:
        """No controller, then no consumers; returns when their pods are gone."""
        for deployment in (CONTROLLER, self._fleet):
            empty(self._kubectl, deployment)
        self._kubectl.run("delete", f"configmap/{SPEC}", "--ignore-not-found")

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill_worker(self) -> str:
        """Delete a consumer's pod without notice; its name."""
        pods = self._kubectl.pods_of(self._fleet)
        return self._kubectl.kill_first([pod for pod in pods if pod.life is not None and not pod.ending])

    def kill_controller(self) -> str:
        """SIGKILL its process; the kubelet starts it again."""
        script = (
            "for process in /proc/[0-9]*; do"
            " if tr '\\0' ' ' <$process/cmdline 2>/dev/null | grep -q '^python -m controller.main'; then"
            " kill -KILL ${process#/proc/}; fi; done"
        )
        before = sum(pod.restarts for pod in self._kubectl.pods_of(CONTROLLER))
        with suppress(PenstockError):  # the container takes the script with it
            self._execute(script)
        deadline_s = time.monotonic() + KILL_TIMEOUT_S
        while sum(pod.restarts for pod in self._kubectl.pods_of(CONTROLLER)) <= before:
            if time.monotonic() > deadline_s:
                raise PenstockError(f"the controller's process was not killed within {KILL_TIMEOUT_S:g} s")
            time.sleep(POLL_S)
        return CONTROLLER

    def blind(self, *, blind: bool) -> None:
        """Let the controller's monitor see nothing, or see again."""
        file = f"{self._folder}/{self._directory.blind_file.name}"
        self._execute(f"touch {file}" if blind else f"rm -f {file}")

    # --- what there is -----------------------------------------------------------------------------------------------

    def _execute(self, script: str, given: bytes | None = None) -> bytes:
        return self._kubectl.execute(f"deployment/{CONTROLLER}", CONTROLLER, script, given)

    def _insist(self, script: str) -> bytes:
        """Run a script in the controller's container, again while that is just being started again."""
        deadline_s = time.monotonic() + KILL_TIMEOUT_S
        while True:
            try:
                return self._execute(script)
            except PenstockError:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(POLL_S)

    def _write_spec(self) -> None:
        self._kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": SPEC, "labels": PART_OF},
                "data": {"run.json": self._directory.spec_file.read_text()},
            }
        )

    def _serves(self) -> bool:
        """Whether the controller has said so; it is given some seconds."""
        if all(pod.life is None for pod in self._kubectl.pods_of(CONTROLLER)):
            return False
        ready = f"{self._folder}/{self._directory.controller_ready_file.name}"
        try:
            self._execute(f"for i in $(seq 50); do [ -e '{ready}' ] && exit 0; sleep 0.1; done; exit 1")
        except PenstockError:
            return False  # not yet, or it has just been started again
        return True


def require_idle(kubectl: Kubectl, *deployments: str) -> None:
    """Raise PenstockError if any of these Deployments has pods: somebody plays here."""
    for name in deployments:
        if pods := kubectl.pods_of(name):
            raise PenstockError(f"a run or a load session is being played on this cluster: there is pod {pods[0].name}")


def empty(kubectl: Kubectl, deployment: str) -> None:
    """Have a Deployment without pods; returns when the last is gone. PenstockError if some stay."""
    kubectl.run("scale", f"deployment/{deployment}", "--replicas=0")
    deadline_s = time.monotonic() + GONE_TIMEOUT_S
    while left := [pod.name for pod in kubectl.pods_of(deployment)]:
        if time.monotonic() > deadline_s:
            raise PenstockError(f"pods {', '.join(left)} have not ended within {GONE_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def label(text: str) -> str:
    """A label's value: what is not allowed in it becomes a dash, what is too long is cut."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:LABEL_LENGTH].strip("-_.")
