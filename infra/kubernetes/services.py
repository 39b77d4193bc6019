"""What all runs on a cluster share: brokers and monitoring from an overlay's manifests, in a namespace of their own.

The sender and Spark are no pods of their own: they run where the run is played from, under the local world's
supervisor, and reach pods and Services by their addresses. That is this machine, or the driver's pod (``driver_pod``).
"""

import os
import secrets
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from infra.kubernetes.kubectl import NAME, Kubectl
from infra.local.services import LocalServices
from penstock.errors import PenstockError
from penstock.kubernetes.pods import Pod
from penstock.settings import Endpoints
from penstock.supervision import NoSupervisorError
from penstock.world import Progress

NAMESPACE: Final = "penstock"
"""Of all overlays."""
BASE: Final = Path(__file__).parent / "base"
OVERLAYS: Final = Path(__file__).parent / "overlays"
SHARED: Final = frozenset(("kafka", "rabbitmq", "redis", "prometheus", "gateway"))
"""By the name of their pods, whatever makes those."""
DRIVER: Final = "driver"
"""Deployment and pods of overlays in which runs are played by a pod."""
CREDENTIALS: Final = "secret/penstock"
PART_OF: Final = {"app.kubernetes.io/part-of": "penstock"}
READY_TIMEOUT_S: Final = 300.0
"""A node that is added for a pod has to fetch the pod's image first."""
DELETE_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.3
HOPELESS: Final = (
    *("ErrImage", "ImagePull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"),
    "forbidden",  # a quota that is reached, a policy that lets a pod not in
)
"""Of what a pod waits for: what time does not heal."""
CATCHING_UP: Final = ("failed to sync", "status unknown for quota", "error looking up service account")
"""But what a cluster says while it has not heard of something that was just made."""
SURROUNDINGS: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "PENSTOCK_SPARK")
"""By which a run's processes find the API server, and Spark its executors if the driver's pod says where."""


class ClusterServices:
    """The shared part of an overlay. ``tell`` is given a line for everything that takes a while."""

    def __init__(self, local: LocalServices, tell: Progress = lambda _: None, overlay: str = "cluster") -> None:
        self.kubectl = Kubectl(NAMESPACE)
        self.local = local
        self._tell = tell
        self._overlay = OVERLAYS / overlay
        if OVERLAYS.is_dir() and not self._overlay.is_dir():  # the driver's pod has no manifests
            there = ", ".join(sorted(each.name for each in OVERLAYS.iterdir()))
            raise PenstockError(f"there is no overlay {overlay}: choose {there}")

    # --- up and down -------------------------------------------------------------------------------------------------

    def is_up(self) -> bool:
        """Whether brokers and monitoring are there and ready. Raises NoClusterError."""
        self.kubectl.require_cluster()
        return self._ours() and self._ready() >= SHARED

    def up(self) -> None:
        """Make what is not there yet and wait until it is ready. What a failed or interrupted ``up`` has made in a
        namespace that was not there before, it deletes again. Raises PenstockError: no cluster, no rights, an image
        that cannot be had, a quota.
        """
        self.kubectl.require_cluster()
        fresh = not self._ours()
        self._tell(f"cluster: bringing up overlay {self._overlay.name} in namespace {NAMESPACE}")
        try:
            self.kubectl.run("apply", f"--filename={BASE / 'namespace.yaml'}")
            self._make_secret()
            self.kubectl.run("apply", f"--kustomize={self._overlay}")
            self._await_ready()
            self._tell_of_grafana()
        except BaseException:
            if fresh:
                self.down()
            raise

    def down(self) -> bool:
        """Delete the namespace with everything in it; whether it was there."""
        self.kubectl.require_cluster()
        if not self._ours():
            return False
        self._tell(f"cluster: deleting namespace {self.kubectl.namespace}")
        namespace = f"namespace/{self.kubectl.namespace}"
        self.kubectl.run("delete", namespace, "--wait=true", timeout_s=DELETE_TIMEOUT_S)
        return True

    def _ours(self) -> bool:
        """Whether the namespace is there. Raises PenstockError if it is somebody else's."""
        name = self.kubectl.namespace
        raw = self.kubectl.run("get", "namespace", name, "--ignore-not-found", "--output=json")
        if not raw.strip():
            return False
        labels = msgspec.json.decode(raw)["metadata"].get("labels", {})
        if not PART_OF.items() <= labels.items():
            raise PenstockError(f"namespace {name} is somebody else's: it is not labelled {PART_OF}; nothing was done")
        return True

    def _make_secret(self) -> None:
        """New secrets; those that there are stay."""
        password = secrets.token_urlsafe(24)
        values = {
            "redis-password": password,
            "redis-url": f"redis://:{password}@redis:6379/0",
            "rabbitmq-password": secrets.token_urlsafe(24),
            "signing-key": secrets.token_hex(32),
            "gateway-password": secrets.token_urlsafe(24),
        }
        raw = self.kubectl.run("get", CREDENTIALS, "--ignore-not-found", "--output=json")
        if raw.strip():
            there = msgspec.json.decode(raw)["data"]
            missing = {name: value for name, value in values.items() if name not in there}
            if missing:  # an older version has made it
                self.kubectl.patch(CREDENTIALS, {"stringData": missing})
            return
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CREDENTIALS.removeprefix("secret/"), "labels": PART_OF},
            "stringData": values,
        }
        self.kubectl.run("create", "--filename=-", given=msgspec.json.encode(secret))  # `apply` would annotate them

    def _tell_of_grafana(self) -> None:
        if self.kubectl.run("get", "deployment/grafana", "--ignore-not-found").strip():
            reach = f"kubectl --namespace {self.kubectl.namespace} port-forward service/grafana 3000"
            self._tell(f"cluster: Grafana's boards are at http://localhost:3000 after `{reach}`")
        else:
            self._tell(f"cluster: overlay {self._overlay.name} leaves Grafana out")

    def _await_ready(self) -> None:
        driven = self.kubectl.run("get", f"deployment/{DRIVER}", "--ignore-not-found").strip()
        expected = SHARED | {DRIVER} if driven else SHARED
        self.await_pods(lambda: expected <= self._ready(), f"namespace {self.kubectl.namespace} does not come up")

    def _ready(self) -> set[str]:
        """Names of what has a pod that is ready."""
        found = self.kubectl.get("pods", f"--selector={NAME}")["items"]
        return {
            each["metadata"]["labels"][NAME]
            for each in found
            if (pod := msgspec.convert(each, Pod)).ready and pod.alive
        }

    def await_pods(self, there: Callable[[], bool], otherwise: str, log_of: str = "") -> None:
        """Until they are there. PenstockError that begins with ``otherwise`` if they won't be, or are not in time; then
        with the end of the log of Deployment ``log_of``, which may know why.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not there():
            troubles = self.troubles()
            if lasting := hopeless(troubles):
                raise PenstockError(f"{otherwise}: {'; '.join(lasting)}")
            if time.monotonic() > deadline_s:
                reasons = "; ".join(troubles + self.not_ready()) or "see `kubectl get pods`"
                if log_of:
                    said = self.kubectl.run("logs", f"deployment/{log_of}", "--tail=5").decode(errors="replace")
                    reasons += f"; the end of the log of {log_of}:\n{said}"
                raise PenstockError(f"{otherwise} within {READY_TIMEOUT_S:g} s: {reasons}")
            time.sleep(POLL_S)

    def troubles(self) -> list[str]:
        """Why pods do not come up, one line each."""
        lines = [f"pod {pod.name}: {pod.trouble}" for pod in self.kubectl.pods() if pod.trouble and not pod.ending]
        return lines + [f"{each['involvedObject']['name']}: {each['message']}" for each in self._events("FailedCreate")]

    def not_ready(self) -> list[str]:
        """Pods that run and are not ready, with what was said last of their probes, one line each. So it is with every
        pod that starts: a reason only after a while.
        """
        events = sorted(self._events("Unhealthy"), key=lambda each: each.get("lastTimestamp") or "")
        said = {each["involvedObject"]["name"]: " ".join(each["message"].split()) for each in events}
        waiting = [pod for pod in self.kubectl.pods() if pod.alive and not pod.ready and not pod.trouble]
        return [f"pod {pod.name} is not ready: {said.get(pod.name, 'its probes say nothing')}" for pod in waiting]

    def _events(self, reason: str) -> list[Any]:
        return list(self.kubectl.get("events", f"--field-selector=reason={reason}")["items"])

    # --- what runs need of them --------------------------------------------------------------------------------------

    def endpoints(self) -> Endpoints:
        """Addresses and secrets, for processes outside of the cluster."""
        services = {each["metadata"]["name"]: each["spec"] for each in self.kubectl.get("services")["items"]}
        addresses = {name: f"{spec['clusterIP']}:{spec['ports'][0]['port']}" for name, spec in services.items()}
        management = next(port["port"] for port in services["rabbitmq"]["ports"] if port["name"] == "management")
        raw = self.kubectl.get(CREDENTIALS)["data"]
        secret = {key: b64decode(value).decode() for key, value in raw.items()}
        rabbitmq = f"penstock:{secret['rabbitmq-password']}@"
        local = self.local.endpoints()
        return Endpoints(
            kafka=addresses["kafka"],
            redis=SecretStr(f"redis://:{secret['redis-password']}@{addresses['redis']}/0"),
            prometheus=f"http://{addresses['prometheus']}",
            signing_key=SecretStr(secret["signing-key"]),
            supervisor=local.supervisor,
            scrape_targets=local.scrape_targets,
            rabbitmq=SecretStr(f"amqp://{rabbitmq}{addresses['rabbitmq']}/%2F"),
            rabbitmq_management=SecretStr(f"http://{rabbitmq}{services['rabbitmq']['clusterIP']}:{management}"),
            gateway=SecretStr(f"http://admin:{secret['gateway-password']}@{addresses['gateway']}"),
            controller="",
        )

    def environment(self) -> dict[str, str]:
        """All of the environment of a run's processes outside of the cluster."""
        endpoints = self.endpoints()
        brokers = ("kafka", "rabbitmq", "rabbitmq_management", "redis", "prometheus", "gateway", "signing_key")
        named = {f"PENSTOCK_{name.upper()}": endpoints.require(name) for name in brokers}
        surroundings = {name: os.environ[name] for name in SURROUNDINGS if name in os.environ}
        return {**self.local.environment(), **named, **surroundings, "PENSTOCK_NAMESPACE": self.kubectl.namespace}

    def stop_service(self, name: str) -> None:
        """Brokers of a cluster are not stopped: what they hold is gone with their pod where they have no volume."""
        raise PenstockError(f"--world kubernetes does not stop {name}")

    start_service = stop_service


def hopeless(troubles: Sequence[str]) -> list[str]:
    """Those that time does not heal."""
    lasting = [line for line in troubles if any(word in line for word in HOPELESS)]
    return [line for line in lasting if not any(word in line for word in CATCHING_UP)]


def supervisor_runs(local: LocalServices) -> bool:
    """Whether the local world's supervisor, which keeps sender and Spark, is there already."""
    try:
        local.status()
    except NoSupervisorError:
        return False
    return True
