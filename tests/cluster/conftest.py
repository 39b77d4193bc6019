"""A cluster that the current kubeconfig names, and a namespace of each test's own in it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kubernetes.kubectl import Kubectl, NoClusterError
from infra.kubernetes.services import BASE, NAMESPACE


@pytest.fixture(scope="session")
def cluster() -> Kubectl:
    """The cluster, default namespace. Tests are skipped where there is none."""
    kubectl = Kubectl("default")
    try:
        kubectl.require_cluster()
    except NoClusterError as error:
        pytest.skip(str(error))
    return kubectl


@pytest.fixture
def namespace(cluster: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a new namespace with the restricted policy, deleted after the test."""
    name = f"test-{secrets.token_hex(4)}"
    policy = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": policy}})
    yield Kubectl(name)
    cluster.run("delete", f"namespace/{name}", "--wait=false")


@pytest.fixture(scope="module")
def penstock_namespace(cluster: Kubectl) -> Iterator[Kubectl]:
    """kubectl in the namespace of the manifests, which must not be in use: it is deleted after a file's tests."""
    if cluster.run("get", "namespace", NAMESPACE, "--ignore-not-found").strip():
        pytest.skip(f"namespace {NAMESPACE} is in use: `penstock down --target cluster` deletes it")
    yield Kubectl(NAMESPACE)
    cluster.run("delete", f"namespace/{NAMESPACE}", "--ignore-not-found", "--wait=true", timeout_s=120)


@pytest.fixture(scope="session")
def manifests() -> Path:
    """Where base and overlays are."""
    return BASE.parent
