"""The services that all runs on a cluster share: brokers and monitoring of an overlay, in a namespace of their own.

Sender and Spark are no pods: they run under the local world's supervisor, on this machine or in the driver's pod
(``driver_pod``), and reach pods and Services by their addresses.
"""

import os
import secrets
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pydantic import SecretStr

from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.troubles import Troubles
from infra.local.services import LocalServices
from infra.waiting import wait_until
from penstock.adapters.kubernetes.pods import WORKLOAD, Pod
from penstock.errors import PenstockError
from penstock.settings import Endpoints
from penstock.world import Progress

if TYPE_CHECKING:
    from penstock.adapters.kubernetes.deployment import PendingPods

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
"""Marks a namespace as ours."""
LABELS: Final = {
    **PART_OF,
    WORKLOAD: "penstock",
    "app.kubernetes.io/instance": "penstock",
    "app.kubernetes.io/managed-by": "penstock",
}
"""Labels of the objects that are no manifests."""
READY_TIMEOUT_S: Final = 300.0
"""A node that is added for a pod has to fetch the pod's image first."""
DELETE_TIMEOUT_S: Final = 180.0
VOLUMES_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.3
LOOK_S: Final = 4.0
"""Between two looks for pods without a node during a run: the third at the latest reports them, within 15 s."""
PROVIDERS: Final = {"kind": ("kind", "kind://"), "gke": ("GKE", "gce://"), "gke-strimzi": ("GKE", "gce://")}
"""By overlay: the clusters that it is for, and the beginning of the provider's id of their nodes."""
SELECTED_BY: Final = {
    "kind": "`kubectl config use-context kind-penstock` selects that of `make kind`",
    "GKE": "`gcloud container clusters get-credentials` selects one",
}
NO_START: Final = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "Unhealthy")
"""Events that say why a pod without any other trouble does not become ready."""
SURROUNDINGS: Final = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "PENSTOCK_SPARK")
"""Variables that a run's processes need to reach the API server, and Spark to configure its executors."""


class ClusterServices:
    """The services of an overlay. ``tell`` receives a line for each step that takes a while."""

    def __init__(self, local: LocalServices, tell: Progress = lambda _: None, overlay: str = "cluster") -> None:
        self.kubectl = Kubectl(NAMESPACE)
        self.local = local
        self._tell = tell
        self._overlay = OVERLAYS / overlay
        self._troubles = Troubles(tell)
        self._next_look_s = 0.0
        if OVERLAYS.is_dir() and not self._overlay.is_dir():  # the driver's pod has no manifests
            there = ", ".join(sorted(each.name for each in OVERLAYS.iterdir()))
            raise PenstockError(f"there is no overlay {overlay}: choose {there}")

    # --- up and down -------------------------------------------------------------------------------------------------

    def is_up(self) -> bool:
        """Whether brokers and monitoring are ready. Raises NoClusterError."""
        self.kubectl.require_cluster()
        return self._ours() and self._ready() >= SHARED

    def up(self) -> None:
        """Create missing objects and wait until all that runs need are ready. A failed or interrupted ``up`` deletes
        the namespace if it was new. Raises PenstockError: no cluster, not one of the overlay's, no rights, an image
        that cannot be pulled, a quota.
        """
        self.kubectl.require_cluster()
        self._require_nodes()
        if self._deleted_since():
            self._tell(f"cluster: namespace {self.kubectl.namespace} is still being deleted, waiting for its end")
            self._await_deletion()
        fresh = not self._ours()
        self._tell(f"cluster: bringing up overlay {self._overlay.name} in namespace {NAMESPACE}")
        try:
            self.kubectl.run("apply", f"--filename={BASE / 'namespace.yaml'}")
            self._make_secret()
            self.kubectl.run("apply", f"--kustomize={self._overlay}")
            driven = self.kubectl.run("get", f"deployment/{DRIVER}", "--ignore-not-found").strip()
            expected = SHARED | {DRIVER} if driven else SHARED
            late = f"namespace {self.kubectl.namespace} does not come up"
            self.await_pods(lambda: expected <= self._ready(), late, expected)
            self._report_others(expected)
        except BaseException:
            if fresh:
                self._clean_up()
            raise

    def down(self) -> bool:
        """Delete the namespace with everything in it; whether it was there. Raises PenstockError if it does not end."""
        self.kubectl.require_cluster()
        if not self._ours():
            return False
        self._tell(f"cluster: deleting namespace {self.kubectl.namespace}")
        self.kubectl.run("delete", f"namespace/{self.kubectl.namespace}", "--wait=false")
        self._await_deletion()
        self._await_volumes()
        return True

    def _clean_up(self) -> None:
        """Delete what a failed ``up`` has made; its error is raised, a second one only told."""
        try:
            self.down()
        except PenstockError as error:
            self._tell(f"cluster: cleaning up failed, too: {error}")

    def _require_nodes(self) -> None:
        """Raise PenstockError if an overlay for one kind of cluster would come up on another."""
        if self._overlay.name not in PROVIDERS:
            return
        whose, begins = PROVIDERS[self._overlay.name]
        nodes = self.kubectl.get("nodes")["items"]
        if not any(each["spec"].get("providerID", "").startswith(begins) for each in nodes):
            context = self.kubectl.run("config", "current-context").decode().strip()
            raise PenstockError(
                f"context {context} is no {whose} cluster: {SELECTED_BY[whose]}; overlay cluster is for any other "
                "cluster"
            )

    def _report_others(self, expected: Collection[str]) -> None:
        """Say what does not run though runs need none of it, and where Grafana is."""
        pods = [pod for pod in self.kubectl.pods() if pod.alive]
        for pod in pods:
            if pod.workload not in expected and not pod.ready:
                why = " ".join(pod.trouble.split()) or "it is starting"
                self._tell(f"cluster: pod {pod.name} is not ready, and no run needs it: {why}")
        if any(pod.workload == "grafana" for pod in pods):
            reach = f"kubectl --namespace {self.kubectl.namespace} port-forward service/grafana 3000"
            self._tell(f"cluster: once Grafana runs, its boards are at http://localhost:3000 after `{reach}`")
        else:
            self._tell(f"cluster: overlay {self._overlay.name} leaves Grafana out")

    def _namespace(self) -> Any:
        """The namespace's object, None without one."""
        raw = self.kubectl.run("get", "namespace", self.kubectl.namespace, "--ignore-not-found", "--output=json")
        return msgspec.json.decode(raw) if raw.strip() else None

    def _ours(self) -> bool:
        """Whether the namespace is there. Raises PenstockError if it is not Penstock's."""
        found = self._namespace()
        if found is None:
            return False
        if not PART_OF.items() <= found["metadata"].get("labels", {}).items():
            name = self.kubectl.namespace
            raise PenstockError(f"namespace {name} is not Penstock's: it is not labelled {PART_OF}")
        return True

    def _deleted_since(self) -> str:
        """Since when the namespace is being deleted, empty if it is not."""
        return str(((self._namespace() or {}).get("metadata") or {}).get("deletionTimestamp") or "")

    def _await_deletion(self) -> None:
        """Wait until the namespace is gone. Raise PenstockError with the reasons that Kubernetes gives."""

        def stuck() -> str:
            found = self._namespace() or {}
            conditions = found.get("status", {}).get("conditions", [])
            reasons = [each["message"] for each in conditions if each["status"] == "True"]
            why = "; ".join(reasons) or "Kubernetes gives no reason"
            return f"namespace {self.kubectl.namespace} has not ended within {DELETE_TIMEOUT_S:g} s: {why}"

        wait_until(lambda: self._namespace() is None, DELETE_TIMEOUT_S, stuck, POLL_S)

    def _await_volumes(self) -> None:
        """Wait until the cluster has deleted the volumes of the namespace, which stay Released for a while; say which
        are left. Volumes with another reclaim policy than Delete stay. Do not wait if volumes cannot be listed.
        """

        def left() -> list[str]:
            try:
                volumes = self.kubectl.get("persistentvolumes")["items"]
            except PenstockError:  # a user may lack the right to list volumes
                return []
            return [
                each["metadata"]["name"]
                for each in volumes
                if each["spec"].get("claimRef", {}).get("namespace") == self.kubectl.namespace
                and each["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
            ]

        try:
            wait_until(
                lambda: not left(),
                VOLUMES_TIMEOUT_S,
                lambda: f"cluster: volumes that are not deleted yet: {', '.join(left())}",
                POLL_S,
            )
        except PenstockError as late:
            self._tell(str(late))

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
        metadata = {"name": CREDENTIALS.removeprefix("secret/"), "labels": LABELS}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values}
        self.kubectl.run("create", "--filename=-", given=msgspec.json.encode(secret))  # `apply` would annotate them

    def _ready(self) -> set[str]:
        """Workloads that have a ready pod."""
        return {pod.workload for pod in self.kubectl.pods() if pod.ready and pod.alive}

    def await_pods(self, there: Callable[[], bool], otherwise: str, of: Collection[str], log_of: str = "") -> None:
        """Wait until ``there``. If pods of the workloads ``of`` cannot start or are late, raise PenstockError that
        begins with ``otherwise``; if late, with the end of the log of Deployment ``log_of``.
        """

        def done() -> bool:
            if there():
                return True
            pods = self._pods(of)
            self._troubles.report(pods)
            if final := self._troubles.final(self._troubles_of(pods, of)):
                raise PenstockError(f"{otherwise}: {'; '.join(final)}")
            return False

        def late() -> str:
            pods = self._pods(of)
            troubles = [f"{name}: {text}" for name, text in self._troubles_of(pods, of).items()]
            reasons = "; ".join(troubles + self._not_ready(pods)) or "see `kubectl get pods`"
            if log_of:
                log = self.kubectl.run("logs", f"deployment/{log_of}", "--tail=5").decode(errors="replace")
                reasons += f"; the end of the log of {log_of}:\n{log}"
            return f"{otherwise} within {READY_TIMEOUT_S:g} s: {reasons}"

        wait_until(done, READY_TIMEOUT_S, late, POLL_S)

    def _pods(self, of: Collection[str]) -> list[Pod]:
        return [pod for pod in self.kubectl.pods() if pod.workload in of and pod.alive]

    def _troubles_of(self, pods: Iterable[Pod], of: Collection[str]) -> dict[str, str]:
        """Why pods do not start, and why there are none, by pod or workload."""
        troubles = {f"pod {pod.name}": pod.trouble for pod in pods if pod.trouble}
        for each in self._events("FailedCreate"):
            name = each["involvedObject"]["name"]  # of a StatefulSet, or of a Deployment's ReplicaSet
            if name in of or name.rpartition("-")[0] in of:
                troubles[name] = each["message"]
        return troubles

    def _not_ready(self, pods: Iterable[Pod]) -> list[str]:
        """Those that are not ready without a trouble, with the newest event that says why, one line each. Every
        starting pod is among them at first.
        """
        found = [each for reason in NO_START for each in self._events(reason)]
        events = sorted(found, key=lambda each: each.get("lastTimestamp") or "")
        reasons = {each["involvedObject"]["name"]: " ".join(each["message"].split()) for each in events}
        waiting = [pod.name for pod in pods if not pod.ready and not pod.trouble]
        return [f"pod {name} is not ready: {reasons.get(name, 'no event says why')}" for name in waiting]

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

    def check(self, _: Collection[str] | None = None) -> None:
        """Report pods that fit on no node. The cluster starts its services again by itself."""
        if (now_s := time.monotonic()) >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            with suppress(PenstockError):  # it is asked again
                self._troubles.report(self._pending.list())

    @cached_property
    def _pending(self) -> "PendingPods":
        from penstock.adapters.kubernetes.deployment import (
            PendingPods,  # a large library; `penstock up` has no use for it
        )

        return PendingPods(self.kubectl.namespace)

    def answers(self, name: str) -> bool:
        """Whether a service can be asked: the cluster keeps it up."""
        return name in SHARED

    def has_program(self, name: str) -> bool:
        """None is a program of this machine."""
        del name
        return False

    def stop_service(self, name: str, *, wait: bool = True) -> None:
        """Refused: a broker without a volume would lose its data."""
        del wait
        raise PenstockError(f"--world kubernetes does not stop {name}")

    start_service = stop_service
