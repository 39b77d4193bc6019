"""A load session whose consumers and senders are pods: Locust's master is here, its workers are the sender pods."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from controller.journal import read_ticks
from infra.kubernetes.services import ClusterServices
from infra.local.ports import free_port
from penstock.rundir import RunDirectory
from tests.infra.commanding import any_ports, command

pytestmark = pytest.mark.cluster

EVENTS = 40 * 20
PLAYED = (
    *("--headless", "--workload", "constant:rate_per_s=40,duration_s=20", "--slo", "0.5", "--scaler", "linear"),
    *("--partitions", "2", "--exit-code-on-error", "0"),
)


def test_sender_pods_send_each_event_once_to_consumers_that_are_pods(brokers: ClusterServices, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    load = ("load", "--target", "cluster", "--senders", "2", "--port", str(free_port()))
    report = ("--json-file", str(tmp_path / "stats"))
    done = command(tmp_path / "state", *load, "--", *PLAYED, *report, PENSTOCK_RUNS=str(runs), **any_ports())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers connected" in done.stderr and "ended: 100.00 % of the schedule sent" in done.stderr
    directory = RunDirectory.open(next(runs.iterdir()))
    deliveries = pq.read_table(directory.delivery_file)
    assert deliveries["id"].to_pylist() == list(range(EVENTS))
    assert deliveries["acked_ns"].null_count == 0
    (shown,) = json.loads((tmp_path / "stats.json").read_text())
    assert shown["num_requests"] == EVENTS, "consumers that are pods have done them all"
    assert any(tick.observation.completed for tick in read_ticks(directory)), "which the controller's pod has seen"
    for name in ("senders", "payments", "controller"):
        assert not brokers.kubectl.pods_of(name)
    assert not brokers.kubectl.run("get", "configmap/run", "--ignore-not-found").strip()
