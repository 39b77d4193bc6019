"""The services that all runs on a cluster share: brokers and monitoring of an overlay, in a namespace of their own.

Sender and Spark are no pods: they run under the local world's supervisor, on this machine or in the driver's pod
(``driver_pod``), and reach pods and Services by their addresses.
"""

import os
import secrets
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from infra.kubernetes.kubectl import NAME, Kubectl
from infra.local.services import LocalServices
from infra.waiting import wait_until
from penstock.adapters.kubernetes.pods import Pod
from penstock.errors import PenstockError
from penstock.settings import Endpoints
from penstock.world import Progress

NAMESPACE: Final = "penstock"
"""Namespace of all overlays."""
BASE: Final = Path(__file__).parent / "base"
OVERLAYS: Final = Path(__file__).parent / "overlays"
SHARED: Final = frozenset(("kafka", "rabbitmq", "redis", "prometheus", "gateway"))
"""Services of every overlay, by the name of their pods."""
DRIVER: Final = "driver"
"""Deployment of the driver's pod, in overlays that have one."""
CREDENTIALS: Final = "secret/penstock"
PART_OF: Final = {"app.kubernetes.io/part-of": "penstock"}
READY_TIMEOUT_S: Final = 300.0
"""A node that is added for a pod has to fetch the pod's image first."""
DELETE_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.3
HOPELESS: Final = (
    *("ErrImage", "ImagePull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"),
    "forbidden",  # a quota, or an admission policy
)
"""Reasons in a pod's status that waiting does not resolve."""
CATCHING_UP: Final = ("failed to sync", "status unknown for quota", "error looking up service account")
"""Except messages of a cluster that has not observed a new object yet."""
SURROUNDINGS: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "PENSTOCK_SPARK")
"""Variables that a run's processes need to reach the API server, and Spark to configure its executors."""


class ClusterServices:
    """The services of an overlay. ``tell`` receives a line for each step that takes a while."""

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
        """Whether brokers and monitoring are ready. Raises NoClusterError."""
        self.kubectl.require_cluster()
        return self._ours() and self._ready() >= SHARED

    def up(self) -> None:
        """Create missing objects and wait until all are ready. A failed or interrupted ``up`` deletes the namespace if
        it was new. Raises PenstockError: no cluster, no rights, an image that cannot be pulled, a quota.
        """
        self.kubectl.require_cluster()
        fresh = not self._ours()
        self._tell(f"cluster: bringing up overlay {self._overlay.name} in namespace {NAMESPACE}")
        try:
            self.kubectl.run("apply", f"--filename={BASE / 'namespace.yaml'}")
            self._make_secret()
            self.kubectl.run("apply", f"--kustomize={self._overlay}")
            driven = self.kubectl.run("get", f"deployment/{DRIVER}", "--ignore-not-found").strip()
            expected = SHARED | {DRIVER} if driven else SHARED
            self.await_pods(lambda: expected <= self._ready(), f"namespace {self.kubectl.namespace} does not come up")
            if self.kubectl.run("get", "deployment/grafana", "--ignore-not-found").strip():
                reach = f"kubectl --namespace {self.kubectl.namespace} port-forward service/grafana 3000"
                self._tell(f"cluster: Grafana's boards are at http://localhost:3000 after `{reach}`")
            else:
                self._tell(f"cluster: overlay {self._overlay.name} leaves Grafana out")
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
        """Whether the namespace is there. Raises PenstockError if it is not Penstock's."""
        name = self.kubectl.namespace
        raw = self.kubectl.run("get", "namespace", name, "--ignore-not-found", "--output=json")
        if not raw.strip():
            return False
        labels = msgspec.json.decode(raw)["metadata"].get("labels", {})
        if not PART_OF.items() <= labels.items():
            raise PenstockError(f"namespace {name} is not Penstock's: it is not labelled {PART_OF}")
        return True

    def _make_secret(self) -> None:
        """Create the secrets, unless they are there."""
        if self.kubectl.run("get", CREDENTIALS, "--ignore-not-found").strip():
            return
        password = secrets.token_urlsafe(24)
        values = {
            "redis-password": password,
            "redis-url": f"redis://:{password}@redis:6379/0",
            "rabbitmq-password": secrets.token_urlsafe(24),
            "signing-key": secrets.token_hex(32),
            "gateway-password": secrets.token_urlsafe(24),
        }
        metadata = {"name": CREDENTIALS.removeprefix("secret/"), "labels": PART_OF}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}
        self.kubectl.run("create", "--filename=-", given=msgspec.json.encode(secret))  # `apply` would annotate them

    def _ready(self) -> set[str]:
        """Names that have a ready pod."""
        found = self.kubectl.get("pods", f"--selector={NAME}")["items"]
        return {
            each["metadata"]["labels"][NAME]
            for each in found
            if (pod := msgspec.convert(each, Pod)).ready and pod.alive
        }

    def await_pods(self, there: Callable[[], bool], otherwise: str, log_of: str = "") -> None:
        """Wait for pods. If they cannot start or are late, raise PenstockError that begins with ``otherwise``; if
        late, with the end of the log of Deployment ``log_of``.
        """

        def done() -> bool:
            if there():
                return True
            if lasting := hopeless(self.troubles()):
                raise PenstockError(f"{otherwise}: {'; '.join(lasting)}")
            return False

        def late() -> str:
            reasons = "; ".join(self.troubles() + self.not_ready()) or "see `kubectl get pods`"
            if log_of:
                log = self.kubectl.run("logs", f"deployment/{log_of}", "--tail=5").decode(errors="replace")
                reasons += f"; the end of the log of {log_of}:\n{log}"
            return f"{otherwise} within {READY_TIMEOUT_S:g} s: {reasons}"

        wait_until(done, READY_TIMEOUT_S, late, POLL_S)

    def troubles(self) -> list[str]:
        """Why pods do not start, one line each."""
        lines = [f"pod {pod.name}: {pod.trouble}" for pod in self.kubectl.pods() if pod.trouble and not pod.ending]
        return lines + [f"{each['involvedObject']['name']}: {each['message']}" for each in self._events("FailedCreate")]

    def not_ready(self) -> list[str]:
        """Pods that run and are not ready, with the last event of their probes, one line each. Every starting pod is
        among them at first.
        """
        events = sorted(self._events("Unhealthy"), key=lambda each: each.get("lastTimestamp") or "")
        probes = {each["involvedObject"]["name"]: " ".join(each["message"].split()) for each in events}
        waiting = [pod for pod in self.kubectl.pods() if pod.alive and not pod.ready and not pod.trouble]
        return [f"pod {pod.name} is not ready: {probes.get(pod.name, 'its probes report nothing')}" for pod in waiting]

    def _events(self, reason: str) -> list[Any]:
        return list(self.kubectl.get("events", f"--field-selector=reason={reason}")["items"])

    # --- for runs --------------------------------------------------------------------------------------

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
        """The complete environment of a run's processes outside of the cluster."""
        endpoints = self.endpoints()
        brokers = ("kafka", "rabbitmq", "rabbitmq_management", "redis", "prometheus", "gateway", "signing_key")
        named = {f"PENSTOCK_{name.upper()}": endpoints.require(name) for name in brokers}
        surroundings = {name: os.environ[name] for name in SURROUNDINGS if name in os.environ}
        return {**self.local.environment(), **named, **surroundings, "PENSTOCK_NAMESPACE": self.kubectl.namespace}

    def check(self) -> None:
        """Nothing to do: the cluster starts its services again."""

    def stop_service(self, name: str) -> None:
        """Refused: a broker without a volume would lose its data."""
        raise PenstockError(f"--world kubernetes does not stop {name}")

    start_service = stop_service


def hopeless(troubles: Sequence[str]) -> list[str]:
    """Those that waiting does not resolve."""
    lasting = [line for line in troubles if any(word in line for word in HOPELESS)]
    return [line for line in lasting if not any(word in line for word in CATCHING_UP)]
