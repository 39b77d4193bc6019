"""What a user gets wrong, on a cluster: one clear line, and nothing half made."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import BASE, NAMESPACE, ClusterServices
from infra.local.services import LocalServices
from penstock.errors import PenstockError
from penstock.settings import Folders
from tests.support.services import on_free_ports

pytestmark = pytest.mark.cluster

Overlay = Callable[..., ClusterServices]
KEDA = Path(__file__).parents[2] / "docs" / "examples" / "keda"


@pytest.fixture
def overlay(penstock_namespace: Kubectl, tmp_path: Path) -> Overlay:
    """Overlay ``cluster`` with something else in it."""

    def make(**more: object) -> ClusterServices:
        folder = tmp_path / "overlay"
        folder.mkdir()
        cluster = os.path.relpath(BASE.parent / "overlays" / "cluster", folder)
        soon = '[{"op": "add", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 1}]'
        patches = [{"target": {"kind": "Deployment|StatefulSet"}, "patch": soon}]
        kustomization = {"kind": "Kustomization", "resources": [cluster], "patches": patches, **more}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        local = LocalServices(Folders(state=tmp_path / "state"), on_free_ports())
        return ClusterServices(local, overlay=str(folder))

    return make


def refused(services: ClusterServices, cluster: Kubectl) -> str:
    """The one line; nothing is left."""
    with pytest.raises(PenstockError) as raised:
        services.up()
    assert not cluster.run("get", "namespace", NAMESPACE, "--ignore-not-found").strip()
    line = str(raised.value)
    assert "\n" not in line
    return line


def test_an_image_that_cannot_be_pulled(overlay: Overlay, cluster: Kubectl) -> None:
    nowhere = {"name": "redis", "newName": "registry.invalid/redis", "newTag": "7"}
    line = refused(overlay(images=[nowhere]), cluster)
    assert line.startswith(f"namespace {NAMESPACE} does not come up: pod redis-0: ")
    assert "registry.invalid/redis:7" in line


def test_a_quota_that_is_reached(overlay: Overlay, cluster: Kubectl, tmp_path: Path) -> None:
    services = overlay(namespace=NAMESPACE)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    (tmp_path / "overlay" / "quota.yaml").write_text(yaml.safe_dump(quota))
    file = tmp_path / "overlay" / "kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**kustomization, "resources": [*kustomization["resources"], "quota.yaml"]}))
    line = refused(services, cluster)
    assert "exceeded quota: few, requested: pods=1" in line


@pytest.mark.parametrize(("file", "kind"), [
    ("scaled-object.yaml", "ScaledObject"), ("tls-authentication.yaml", "TriggerAuthentication")
])  # fmt: skip
def test_keda_without_its_crds(cluster: Kubectl, namespace: Kubectl, tmp_path: Path, file: str, kind: str) -> None:
    if b"keda.sh" in cluster.run("get", "customresourcedefinitions", "--output=name"):
        pytest.skip("the cluster has KEDA")
    with pytest.raises(PenstockError, match=f'no matches for kind "{kind}" in version "keda.sh/v1alpha1"') as raised:
        # kubectl remembers for hours which kinds a cluster has: after another test's KEDA, another error comes
        namespace.run("apply", f"--cache-dir={tmp_path}", f"--filename={KEDA / file}")
    assert "\n" not in str(raised.value)


def test_an_account_without_rights(
    overlay: Overlay, cluster: Kubectl, namespace: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}})
    token = namespace.run("create", "token", "nobody").decode().strip()
    config = yaml.safe_load(cluster.run("config", "view", "--minify", "--raw"))
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    services = overlay()
    with monkeypatch.context() as nobody:
        nobody.setenv("KUBECONFIG", str(file))
        with pytest.raises(PenstockError, match=r"cannot get resource .namespaces.*") as raised:
            services.up()
    assert "\n" not in str(raised.value)
    assert not cluster.run("get", "namespace", NAMESPACE, "--ignore-not-found").strip()
