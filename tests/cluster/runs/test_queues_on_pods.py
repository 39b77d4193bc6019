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
from tests.experiments.leftovers import nothing_is_left

pytestmark = pytest.mark.cluster

BANK = dataclasses.replace(find_experiment("multiqueue"), workload="poisson:rate_per_s=120,duration_s=120")


def nothing_of_it_is_left(brokers: ClusterServices, directory: RunDirectory) -> None:
    assert not brokers.kubectl.pods("--selector=app.kubernetes.io/name=apps")
    nothing_is_left(brokers.endpoints(), directory.path.name)


def test_a_bank_of_queues_loses_nothing_whatever_is_killed(brokers: ClusterServices, tmp_path: Path) -> None:
    faults = ("kill-worker@6", "kill-forwarder@12", "kill-controller@18")
    options = Options(world="kubernetes", seconds=30, analytics=False, faults=parse_faults(faults))
    directory, summary = play(brokers, BANK, tmp_path, "multiqueue-damped", options)
    assert summary.conservation.exact and summary.conservation.lost == 0, summary.conservation
    assert summary.completed_events + summary.conservation.rejected == summary.acknowledged_events
    assert summary.completed_events > summary.acknowledged_events / 10
    joined = {event.replica for event in read_replica_events(directory) if event.phase == "joined"}
    assert len(joined) >= 2, "a queue was added"
    assert directory.faults_file.read_text().count("\n") == len(faults)
    nothing_of_it_is_left(brokers, directory)


def test_jobs_of_a_network_go_through_all_their_topics(brokers: ClusterServices, tmp_path: Path) -> None:
    options = Options(world="kubernetes", seconds=900, speed=60, analytics=False)
    directory, summary = play(brokers, find_experiment("pubsub-mintime"), tmp_path, "min-time", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    nothing_of_it_is_left(brokers, directory)
