"""One overlay for all tests that play on it, since its coming up and going take longer than most of them."""

import shutil
import tempfile
from pathlib import Path

import pytest

from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import NAMESPACE, ClusterServices
from infra.local.services import LocalServices
from penstock.settings import Folders
from tests.support.services import on_free_ports


class SharedOverlay:
    """Overlay ``cluster``, up from when it is first wanted until somebody wants the namespace for himself."""

    def __init__(self, cluster: Kubectl) -> None:
        self._cluster = cluster
        self._services: ClusterServices | None = None

    def up(self) -> ClusterServices:
        """It, with the supervisor of what runs here. Somebody else's is not touched: the test is skipped."""
        if self._services is None:
            skip_if_in_use(self._cluster)
            folder = Path(tempfile.mkdtemp(prefix="penstock-"))
            services = ClusterServices(LocalServices(Folders(state=folder), on_free_ports()))
            services.up()
            services.local.up(())
            self._services = services
        return self._services

    def down(self) -> None:
        """Nothing is left of it."""
        services, self._services = self._services, None
        if services is not None:
            services.local.down()
            services.down()
            shutil.rmtree(services.local.state.path)
            assert not is_in_use(self._cluster)


def is_in_use(cluster: Kubectl) -> bool:
    """Whether the namespace of the manifests is there."""
    return bool(cluster.run("get", "namespace", NAMESPACE, "--ignore-not-found").strip())


def skip_if_in_use(cluster: Kubectl) -> None:
    if is_in_use(cluster):
        pytest.skip(f"namespace {NAMESPACE} is in use: `penstock down --target cluster` deletes it")
