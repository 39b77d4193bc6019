"""Whole runs with controller and consumers as pods. Each claims conservation: delivery reports, ledger and result ids
name the same events, and none is lost.

They need Penstock's image and the brokers' in the cluster (infra/images/build.sh), a route to pods and Services, and
the namespace ``penstock``, which they delete at the end.
"""

from pathlib import Path

import pytest

from controller.journal import read_replica_events, read_ticks
from experiments.experiment import Options, parse_faults
from infra.kubernetes.services import ClusterServices
from tests.cluster.runs.playing import play
from tests.experiments.steady import STEADY
from tests.support.changed import CLUSTER_RUN

pytestmark = pytest.mark.cluster


def test_a_run_scales_pods_and_every_event_is_accounted_for(brokers: ClusterServices, tmp_path: Path) -> None:
    options = Options(world="kubernetes", seconds=20, analytics=False, initial_replicas=2, max_replicas=3)
    directory, summary = play(brokers, STEADY, tmp_path, "linear", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events == 1200
    due = [number for tick in read_ticks(directory) for number in range(tick.tick - tick.skipped, tick.tick + 1)]
    assert due == list(range(len(due))) and len(due) >= 15, "each happened once, or is counted as skipped"
    lives = {event.replica: event.phase for event in read_replica_events(directory)}
    assert {"payments-1", "payments-2"} <= set(lives)
    assert not brokers.kubectl.get("pods", "--selector=app.kubernetes.io/name=payments")["items"]
    assert not brokers.kubectl.run("get", "configmap/run", "--ignore-not-found").strip()


@pytest.mark.when_changed(*CLUSTER_RUN)
def test_no_event_is_lost_whatever_is_killed(brokers: ClusterServices, tmp_path: Path) -> None:
    faults = parse_faults(["kill-worker@5", "kill-controller@11"])
    options = Options(world="kubernetes", seconds=20, analytics=False, initial_replicas=2, faults=faults)
    directory, summary = play(brokers, STEADY, tmp_path, "overprovision", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events == 1200
    assert directory.faults_file.read_text().count("\n") == len(faults)
