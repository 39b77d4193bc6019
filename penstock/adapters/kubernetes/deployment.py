"""One Deployment and its pods, watched, and the three things that are changed about them.

What is done needs these rights and no others (``infra/kubernetes/base/controller.yaml`` grants them): list and watch on
the one Deployment, patch on its scale; list, watch and patch on pods.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import kubernetes
import msgspec
from kubernetes.config import ConfigException

from penstock.adapters.kubernetes.informer import Informer, KubernetesError, NotFoundError, T, call
from penstock.adapters.kubernetes.pods import ApiObject, Condition, Pod

MERGE: Final = "application/merge-patch+json"
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """The labels that its pods have."""

    match_labels: Mapping[str, str] = msgspec.field(default_factory=dict)


class PodList(msgspec.Struct, frozen=True):
    """Several pods."""

    items: list[Pod]


class DeploymentSpec(msgspec.Struct, frozen=True):
    """``replicas``: how many pods are asked for."""

    selector: LabelSelector
    replicas: int = 1


class DeploymentStatus(msgspec.Struct, frozen=True):
    """``ReplicaFailure`` tells of pods that could not be made: a quota, a policy."""

    conditions: tuple[Condition, ...] = ()


class DeploymentObject(ApiObject, frozen=True, kw_only=True):
    """A Deployment."""

    spec: DeploymentSpec
    status: DeploymentStatus = DeploymentStatus()

    @property
    def trouble(self) -> str:
        """Why pods that were asked for do not come, empty where nothing is wrong."""
        failed = [each for each in self.status.conditions if each.type == "ReplicaFailure" and each.status == "True"]
        return failed[0].message if failed else ""


def api_client() -> Any:
    """A client with the rights of this pod, else of the current kubeconfig. KubernetesError if there is neither."""
    configuration = kubernetes.client.Configuration()
    try:
        if IN_CLUSTER in os.environ:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        else:
            kubernetes.config.load_kube_config(client_configuration=configuration)
    except ConfigException as error:
        raise KubernetesError(f"no Kubernetes cluster: {error}; set KUBECONFIG to a file that names one") from None
    return kubernetes.client.ApiClient(configuration)


class PendingPods:
    """The pods of a namespace that do not run yet, as in ``phase`` Pending."""

    def __init__(self, namespace: str, client: Any = None) -> None:
        self._list = partial(
            kubernetes.client.CoreV1Api(client or api_client()).list_namespaced_pod,
            namespace, field_selector="status.phase=Pending",
        )  # fmt: skip

    def list(self) -> list[Pod]:
        """As the API server has them now. Raises KubernetesError."""
        return msgspec.json.decode(call("list pending pods", self._list), type=PodList).items


class Deployment:
    """The Deployment ``name`` in ``namespace``. ``client``: another than that of the surroundings.

    All that asks or changes raises KubernetesError if the API server is away or refuses.
    """

    def __init__(self, namespace: str, name: str, client: Any = None) -> None:
        self.name = name
        self._namespace = namespace
        client = client or api_client()
        self._apps = kubernetes.client.AppsV1Api(client)
        self._core = kubernetes.client.CoreV1Api(client)
        self._watches: list[Informer[Any]] = []

    def start(self, changed: Callable[[], None] = lambda: None) -> None:
        """Return once all of it was seen. ``changed`` is called, from other threads, when it or a pod has changed."""
        own = partial(self._apps.list_namespaced_deployment, self._namespace)
        pods = partial(self._core.list_namespaced_pod, self._namespace)
        try:
            own = partial(own, field_selector=f"metadata.name={self.name}")
            self._own = self._watch(f"deployment {self.name}", own, DeploymentObject, changed)
            labels = ",".join(f"{key}={value}" for key, value in self.seen().spec.selector.match_labels.items())
            self._pods = self._watch(f"pods of {self.name}", partial(pods, label_selector=labels), Pod, changed)
        except KubernetesError:
            self.stop()
            raise

    def stop(self) -> None:
        """End the watches."""
        for watch in self._watches:
            watch.stop()
        self._watches.clear()

    def seen(self) -> DeploymentObject:
        """As last seen."""
        found = self._own.objects().get(self.name)
        if found is None:
            raise KubernetesError(
                f"namespace {self._namespace} has no Deployment {self.name}: `make up TARGET=cluster` makes it"
            )
        return found

    def pods(self) -> list[Pod]:
        """As last seen, those that end included."""
        return list(self._pods.objects().values())

    def scale(self, replicas: int, seen: DeploymentObject) -> None:
        """Ask for so many pods, provided that the Deployment is still as it was ``seen``; ConflictError if not."""
        body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": {"replicas": replicas}}
        patch = self._apps.patch_namespaced_deployment_scale
        call(f"scale {self.name} to {replicas}", patch, self.name, self._namespace, body, _content_type=MERGE)

    def annotate(self, pod: str, annotations: Mapping[str, str]) -> None:
        """Write on a pod; one that is gone is nothing to do."""
        body = {"metadata": {"annotations": dict(annotations)}}
        patch = self._core.patch_namespaced_pod
        with suppress(NotFoundError):
            call(f"annotate pod {pod}", patch, pod, self._namespace, body, _content_type=MERGE)

    def _watch(self, what: str, listing: Callable[..., Any], kind: type[T], changed: Callable[[], None]) -> Informer[T]:
        watch = Informer(what, listing, kind, changed)
        watch.start()
        self._watches.append(watch)
        return watch
