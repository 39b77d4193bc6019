"""A cluster that the current kubeconfig names, and a namespace of each test's own in it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kubernetes.kubectl import Kubectl, NoClusterError
from infra.kubernetes.services import BASE, NAMESPACE
from tests.cluster.shared import SharedOverlay, skip_if_in_use


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


@pytest.fixture(scope="session")
def shared_overlay(cluster: Kubectl) -> Iterator[SharedOverlay]:
    """For tests that play on overlay ``cluster``."""
    shared = SharedOverlay(cluster)
    yield shared
    shared.down()


@pytest.fixture(scope="module")
def penstock_namespace(cluster: Kubectl, shared_overlay: SharedOverlay) -> Iterator[Kubectl]:
    """kubectl in the namespace of the manifests, which must not be in use: it is deleted after a file's tests."""
    shared_overlay.down()
    skip_if_in_use(cluster)
    yield Kubectl(NAMESPACE)
    cluster.run("delete", f"namespace/{NAMESPACE}", "--ignore-not-found", "--wait=true", timeout_s=120)


@pytest.fixture(scope="session")
def manifests() -> Path:
    """Where base and overlays are."""
    return BASE.parent
