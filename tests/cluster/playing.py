"""Runs on a cluster, for the tests of several files."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from experiments.analysis.summary import Summary
from experiments.driver import carry_out, describe
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import ClusterServices
from infra.kubernetes.world import KubernetesWorld
from infra.local.services import LocalServices
from infra.local.settings import ServiceSettings
from penstock.rundir import RunDirectory
from penstock.settings import Folders


def services_for_tests(cluster: Kubectl) -> Iterator[ClusterServices]:
    """Overlay ``cluster``, up; afterwards nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    services = ClusterServices(LocalServices(Folders(state=folder), ServiceSettings.on_free_ports()))
    services.up()
    yield services
    services.down()
    shutil.rmtree(folder)
    assert not cluster.run("get", "namespace", "penstock", "--ignore-not-found").strip()


def play(
    services: ClusterServices, experiment: Experiment, runs: Path, scaler: str, options: Options
) -> tuple[RunDirectory, Summary]:
    """One run from description to summary."""
    directory, _ = describe(experiment, scaler, options, runs)
    with RunProgress(Console(quiet=True), runs=1) as progress, KubernetesWorld(services=services) as world:
        return directory, carry_out(world, experiment, options, directory, progress)
