"""The overlay ``cluster``, for runs on it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import NAMESPACE, ClusterServices
from infra.local.services import LocalServices
from infra.local.settings import ServiceSettings
from penstock.settings import Folders


@pytest.fixture(scope="package")
def brokers(cluster: Kubectl) -> Iterator[ClusterServices]:
    """Up for all tests of this folder, with the supervisor of what runs here; nothing is left of it. Somebody else's is
    not touched.
    """
    if cluster.run("get", "namespace", NAMESPACE, "--ignore-not-found").strip():
        pytest.skip(f"namespace {NAMESPACE} is in use: `penstock down --target cluster` deletes it")
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    services = ClusterServices(LocalServices(Folders(state=folder), ServiceSettings.on_free_ports()))
    services.up()
    services.local.up(())
    yield services
    services.local.down()
    services.down()
    shutil.rmtree(folder)
    assert not cluster.run("get", "namespace", NAMESPACE, "--ignore-not-found").strip()
