"""Whole runs of a pipeline whose functions are pods behind a gateway that is one. Each claims conservation.

They need what the runs of a consumer group need (``test_streams_on_pods``), and the image of HAProxy.
"""

import dataclasses
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from controller.journal import read_replica_events
from experiments.catalogue import find_experiment
from experiments.experiment import Options, parse_faults
from infra.kubernetes.functions import LABEL
from infra.kubernetes.services import NAMESPACE, ClusterServices
from tests.cluster.runs.playing import play
from tests.support.changed import CLUSTER_RUN

pytestmark = pytest.mark.cluster

DOCUMENT = dataclasses.replace(find_experiment("amesos-document"), workload="poisson:rate_per_s=8,duration_s=480")


def function_pods(brokers: ClusterServices) -> list[str]:
    """Those that do not end yet."""
    found = brokers.kubectl.get("pods", f"--selector={LABEL}")["items"]
    return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]


def test_a_pipeline_scales_pods_and_every_request_is_accounted_for(brokers: ClusterServices, tmp_path: Path) -> None:
    """A constant rate that asks for two replicas of each function all the time, and little of the machine."""
    busy = dataclasses.replace(DOCUMENT, workload="constant:rate_per_s=12,duration_s=480", arrivals="uniform")
    two = {"rps": {"target_per_replica_per_s": "6.5"}}
    options = Options(world="kubernetes", seconds=30, analytics=False, settings=two)
    directory, summary = play(brokers, busy, tmp_path, "rps", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    assert summary.scale.replicas_added > 0
    lives = list(read_replica_events(directory))
    added = {event.replica for event in lives if event.phase == "requested" and not event.replica.endswith("-1")}
    phases = {replica: [event.phase for event in lives if event.replica == replica] for replica in added}
    whole = ["requested", "created", "scheduled", "started", "joined", "first-event"]
    served = [life for life in phases.values() if life[:6] == whole]
    assert served, phases
    assert set(whole) <= set(summary.starts), summary.starts
    assert function_pods(brokers) == []
    path = f"/api/v1/namespaces/{NAMESPACE}/services/gateway:http/proxy/penstock/functions"
    deadline_s = time.monotonic() + 30
    while (left := brokers.kubectl.run("get", f"--raw={path}").strip()) != b"[]":  # gone a moment after its last pod
        assert time.monotonic() < deadline_s, f"the run's functions are not deleted: {left.decode()}"
        time.sleep(0.5)


@pytest.mark.parametrize("faults", [("kill-worker@5", "kill-controller@12"), ("kill-dataflow@6",)], ids=" ".join)
@pytest.mark.when_changed(*CLUSTER_RUN)
def test_no_request_is_lost_whatever_is_killed(
    brokers: ClusterServices, tmp_path: Path, faults: tuple[str, ...]
) -> None:
    options = Options(world="kubernetes", seconds=20, analytics=False, faults=parse_faults(faults))
    directory, summary = play(brokers, DOCUMENT, tmp_path, "amesos", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    assert directory.faults_file.read_text().count("\n") == len(faults)
    if "kill-worker@5" in faults:
        gone = [event for event in read_replica_events(directory) if event.phase == "gone" and event.reason]
        assert len(gone) == 1 and "was deleted" in gone[0].reason, gone
        again = pq.read_table(directory.results_folder).filter(pc.field("attempt") > 1)
        assert again.num_rows <= 1
