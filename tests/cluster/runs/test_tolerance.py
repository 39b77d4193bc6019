"""One run on processes and the same on pods: what may differ, and by how much.

Pods of one machine are processes with a network bridge between them and with cgroups around them, and a new one comes
up in about a second more. So the same decisions are expected at nearly the same seconds, and of what they lead to:

- events within the SLO: 15 points at most,
- replica-minutes: 20 % at most.
"""

from pathlib import Path

import pytest
from rich.console import Console

from experiments.catalogue import find_experiment
from experiments.driver import carry_out, describe
from experiments.experiment import Options
from experiments.progress import RunProgress
from infra.kubernetes.services import ClusterServices
from infra.local.services import LocalServices
from infra.local.warm_up import warm_up
from infra.runs.local_world import LocalWorld
from penstock.settings import Folders
from report.analysis.summary import RunSummary
from report.analysis.verdict import MAX_CPU_SATURATION, MAX_CPU_STOLEN
from tests.cluster.runs.playing import play
from tests.support.changed import CLUSTER_RUN
from tests.support.services import on_free_ports

pytestmark = pytest.mark.cluster

WITHIN_SLO, REPLICA_TIME = 0.15, 0.20
SLICE = {"from_s": 430.0, "seconds": 40.0, "analytics": False}
"""Of workload 1: 212 events/s at its beginning, 349 at its end."""


def on_processes(runs: Path, state: Path) -> RunSummary:
    """With services of its own, which are warmed up when they come up."""
    experiment = find_experiment("binpack-workload-1")
    options = Options(**SLICE)  # type: ignore[arg-type]
    directory, _ = describe(experiment, "binpack-tail", options, runs)
    services = LocalServices(Folders(state=state), on_free_ports(ready_timeout_s=300))
    with RunProgress(Console(quiet=True), runs=1) as progress, LocalWorld(services=services) as world:
        return carry_out(world, experiment, options, directory, progress)


@pytest.mark.when_changed(*CLUSTER_RUN)
def test_a_slice_comes_to_the_same_on_pods_as_on_processes(
    brokers: ClusterServices, tmp_path: Path, state_folder: Path
) -> None:
    options = Options(world="kubernetes", **SLICE)  # type: ignore[arg-type]
    warm_up(brokers.endpoints().require("kafka"))
    _, pods = play(brokers, find_experiment("binpack-workload-1"), tmp_path, "binpack-tail", options)
    processes = on_processes(tmp_path, state_folder)
    for summary in (pods, processes):
        assert summary.conservation.exact and summary.conservation.lost == 0, summary.conservation
        assert summary.scale.up_actions >= 1
    assert pods.slo_share is not None and processes.slo_share is not None
    found = (
        f"within the SLO {pods.slo_share:.3f} on pods, {processes.slo_share:.3f} on processes; "
        f"{pods.replica_minutes:.2f} and {processes.replica_minutes:.2f} replica-minutes"
    )
    for summary in (pods, processes):
        if (summary.cpu_saturation or 0) > MAX_CPU_SATURATION or (summary.cpu_stolen or 0) > MAX_CPU_STOLEN:
            pytest.skip(f"a busy machine shaped this, not the fleets: {'; '.join(summary.reasons)}; {found}")
    assert abs(pods.slo_share - processes.slo_share) <= WITHIN_SLO, found
    assert abs(pods.replica_minutes / processes.replica_minutes - 1) <= REPLICA_TIME, found
    assert {"requested", "created", "scheduled", "started", "joined"} <= set(pods.starts), pods.starts
