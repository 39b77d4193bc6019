"""A run that is typed here and played in the driver's pod: sender, Spark and all that is no pod of its own run there.

It needs that pod's image besides (infra/images/build.sh driver).
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infra.kubernetes.services import ClusterServices
from infra.local.ports import free_port
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from tests.cluster.runs.test_load import PLAYED as LOAD_PLAYED
from tests.infra.commanding import command
from tests.support.changed import CLUSTER_RUN

pytestmark = pytest.mark.cluster

OVERLAYS = Path(__file__).parents[1]


def roll_out(brokers: ClusterServices, overlay: str) -> None:
    """The pod, ready."""
    brokers.kubectl.run("apply", f"--kustomize={OVERLAYS / overlay}")
    brokers.kubectl.run("rollout", "status", "deployment/driver", "--timeout=300s", timeout_s=310)


@pytest.fixture(scope="module")
def driver(brokers: ClusterServices) -> Iterator[None]:
    """Spark in local mode, as on kind."""
    roll_out(brokers, "driver")
    yield
    brokers.kubectl.run("delete", "deployment/driver", "--wait=true")


@pytest.fixture
def executors(driver: None, brokers: ClusterServices) -> None:
    """Spark's executors as pods, as on GKE."""
    roll_out(brokers, "executors")


def played(tmp_path: Path, *arguments: str) -> tuple[RunDirectory, str]:
    """The directory that came back, and what was shown."""
    runs = tmp_path / "runs"
    done = command(
        tmp_path / "state", *arguments, "--world", "kubernetes", PENSTOCK_RUNS=str(runs), PENSTOCK_KAFKA_PORT="0"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (path for path in runs.iterdir() if not path.name.endswith("-compare"))
    return RunDirectory.open(path), done.stdout


def test_a_consumer_group_with_a_fault_and_spark(driver: None, tmp_path: Path) -> None:
    directory, shown = played(
        *(tmp_path, "run", "binpack-workload-1", "--scaler", "binpack-tail", "--from", "430", "--seconds", "20"),
        *("--fault", "kill-worker@8"),
    )
    summary = summary_of(RunData(directory))
    assert summary.conservation.exact and summary.conservation.lost == 0, summary.conservation
    assert directory.per_second_file.is_file(), "Spark's figures"
    assert directory.faults_file.read_text().count("\n") == 1
    assert directory.report_file.is_file()
    assert "running for 20 s" in shown and f"copied from the driver's pod: {directory.path}" in shown
    assert not (tmp_path / "state").exists(), "nothing was started here"


@pytest.mark.when_changed(*CLUSTER_RUN)
def test_a_pipeline_of_functions(driver: None, tmp_path: Path) -> None:
    directory, _ = played(
        *(tmp_path, "run", "amesos-document", "--scaler", "amesos", "--seconds", "20", "--no-spark"),
        *("--set", "workload.scale=0.267"),
    )
    summary = summary_of(RunData(directory))
    assert summary.conservation.exact and summary.conservation.lost == 0, summary.conservation
    assert summary.completed_events > 50


@pytest.mark.when_changed(*CLUSTER_RUN)
def test_a_load_session_with_sender_pods(driver: None, brokers: ClusterServices, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    load = ("load", "--target", "cluster", "--port", str(free_port()))
    done = command(tmp_path / "state", *load, "--", *LOAD_PLAYED, PENSTOCK_RUNS=str(runs))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ended: 100.00 % of the schedule sent" in done.stdout
    (path,) = runs.iterdir()
    deliveries = pq.read_table(RunDirectory.open(path).delivery_file)
    assert deliveries["acked_ns"].null_count == 0 and len(deliveries) == 800
    assert not brokers.kubectl.pods_of("senders")


@pytest.mark.when_changed(*CLUSTER_RUN)
def test_sparks_executors_are_pods_and_gone_at_the_end(
    executors: None, brokers: ClusterServices, tmp_path: Path
) -> None:
    directory, _ = played(
        *(tmp_path, "run", "binpack-workload-1", "--scaler", "linear", "--from", "430", "--seconds", "20")
    )
    summary = summary_of(RunData(directory))
    assert summary.conservation.exact
    rows = pq.read_table(directory.per_second_file).to_pylist()
    assert sum(row["count"] for row in rows) == summary.completed_events
    started = brokers.kubectl.get("events", "--field-selector=reason=Started")["items"]
    assert [each for each in started if "-exec-" in each["involvedObject"]["name"]], "an executor's pod has run"
    deadline_s = time.monotonic() + 60
    while left := brokers.kubectl.pods("--selector=app.kubernetes.io/name=executor"):  # they end after Spark
        assert time.monotonic() < deadline_s, [pod.name for pod in left]
        time.sleep(0.5)
