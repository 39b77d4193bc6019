"""Whole runs whose function apps are pods: a bank of queues with its forwarder, and a pub/sub network. Each claims
conservation.

They need what the runs of a consumer group need (``test_streams_on_pods``), and the image of RabbitMQ.
"""

import dataclasses
from pathlib import Path

import pytest

from controller.journal import read_replica_events
from experiments.catalogue import find_experiment
from experiments.experiment import Options, parse_faults
from infra.kubernetes.services import ClusterServices
from penstock.rundir import RunDirectory
from tests.cluster.runs.playing import play

pytestmark = pytest.mark.cluster

BANK = dataclasses.replace(find_experiment("multiqueue"), workload="poisson:rate_per_s=120,duration_s=120")


def nothing_is_left(brokers: ClusterServices, directory: RunDirectory) -> None:
    assert not brokers.kubectl.pods("--selector=app.kubernetes.io/name=apps")
    script = "for what in queues exchanges policies; do rabbitmqctl --quiet --node penstock@localhost list_$what; done"
    assert directory.path.name not in brokers.kubectl.execute("rabbitmq-0", "rabbitmq", script).decode()


@pytest.mark.parametrize("fault", ["kill-worker@8", "kill-forwarder@8", "kill-controller@8"])
def test_a_bank_of_queues_loses_nothing(brokers: ClusterServices, tmp_path: Path, fault: str) -> None:
    options = Options(world="kubernetes", seconds=20, analytics=False, faults=parse_faults([fault]))
    directory, summary = play(brokers, BANK, tmp_path, "multiqueue-damped", options)
    assert summary.conservation.exact and summary.conservation.lost == 0, summary.conservation
    assert summary.completed_events + summary.conservation.rejected == summary.acknowledged_events
    assert summary.completed_events > summary.acknowledged_events / 10
    joined = {event.replica for event in read_replica_events(directory) if event.phase == "joined"}
    assert len(joined) >= 2, "a queue was added"
    assert directory.faults_file.read_text().count("\n") == 1
    nothing_is_left(brokers, directory)


def test_jobs_of_a_network_go_through_all_their_topics(brokers: ClusterServices, tmp_path: Path) -> None:
    options = Options(world="kubernetes", seconds=900, speed=60, analytics=False)
    directory, summary = play(brokers, find_experiment("pubsub-mintime"), tmp_path, "min-time", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    nothing_is_left(brokers, directory)
