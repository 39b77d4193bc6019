"""Runs on a cluster, for the tests of several files."""

from pathlib import Path

from rich.console import Console

from experiments.driver import carry_out, describe
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from infra.kubernetes.services import ClusterServices
from infra.runs.kubernetes_world import KubernetesWorld
from penstock.rundir import RunDirectory
from report.analysis.summary import RunSummary


def play(
    services: ClusterServices, experiment: Experiment, runs: Path, scaler: str, options: Options
) -> tuple[RunDirectory, RunSummary]:
    """One run from description to summary."""
    directory, _ = describe(experiment, scaler, options, runs)
    with RunProgress(Console(quiet=True), runs=1) as progress, KubernetesWorld(services=services) as world:
        return directory, carry_out(world, experiment, options, directory, progress)
