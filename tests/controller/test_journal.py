"""The journal on disk, and what the metrics make of it."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from controller.exposition import ControllerMetrics
from controller.journal import DecisionsFile, ReplicasFile, TickRecord, read_replica_events, read_ticks
from penstock import metrics
from penstock.contracts import (
    Accepted,
    Decision,
    FleetObservation,
    PartitionObservation,
    ReplicaCounts,
    ReplicaEvent,
    StreamObservation,
    hold,
)
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory


def stream(**fields: object) -> StreamObservation:
    known = {
        "time_s": 3.1,
        "fleet": "pay",
        "replicas": ReplicaCounts(joined=2, draining=1),
        "arrived": 30,
        "partitions": (PartitionObservation(0, 20, 15, 12.5), PartitionObservation(1, 10, None)),
        "plan": ((0,), (1,)),
        "assigned": {"pay-1": (0,)},
    }
    return StreamObservation(**{**known, **fields})  # type: ignore[arg-type]


def record(tick: int = 3, **fields: object) -> TickRecord:
    known = {
        "tick": tick,
        "time_s": tick + 0.1,
        "at_ns": 1_700_000_000_000_000_000 + tick,
        "phase_s": 0.1002,
        "observation": stream(),
        "decisions": {
            "zeta": Decision(action="up", targets={"pay": 3}, why={"pay": {"rate": 212.5, "bins": 3, "action": "up"}}),
            "alpha": hold("pay", "hold time"),
        },
        "acting": "zeta",
        "accepted": Accepted({"pay": 3}),
        "plan_epoch": 4,
    }
    return TickRecord(**{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def test_a_tick_is_read_as_it_was_written_terms_in_their_order(directory: RunDirectory) -> None:
    journal = DecisionsFile(directory)
    journal.tick(record())
    journal.close()
    (read,) = read_ticks(directory)
    assert read == record()
    assert list(read.decisions["zeta"].why["pay"]) == ["rate", "bins", "action"]


def test_the_kind_of_observation_survives(directory: RunDirectory) -> None:
    journal = DecisionsFile(directory)
    plain = FleetObservation(time_s=4.1, fleet="pay", replicas=ReplicaCounts(), unknown={"arrived": "away"})
    journal.tick(record())
    journal.tick(record(4, observation=plain))
    journal.close()
    assert [type(read.observation) for read in read_ticks(directory)] == [StreamObservation, FleetObservation]


def test_a_torn_line_costs_that_line_only(directory: RunDirectory) -> None:
    journal = DecisionsFile(directory)
    journal.tick(record(1))
    journal.tick(record(2))
    journal.close()
    text = directory.decisions_file.read_bytes()
    directory.decisions_file.write_bytes(text[:-40])
    successor = DecisionsFile(directory)
    successor.tick(record(3))
    successor.close()
    assert [read.tick for read in read_ticks(directory)] == [1, 3]


def test_lives_of_replicas_are_read_in_order(directory: RunDirectory) -> None:
    journal = ReplicasFile(directory)
    events = [ReplicaEvent("pay", "pay-1", "requested", 1), ReplicaEvent("pay", "pay-1", "gone", 2, "killed")]
    journal.append(events[:1])
    journal.append(events[1:])
    journal.close()
    assert list(read_replica_events(directory)) == events


def test_a_directory_without_a_journal_is_named_as_incomplete(directory: RunDirectory) -> None:
    with pytest.raises(PenstockError, match=r"incomplete run directory, missing decisions\.jsonl"):
        read_ticks(directory)


def test_a_line_that_is_no_tick_is_named_with_its_number(directory: RunDirectory) -> None:
    directory.decisions_file.write_bytes(msgspec.json.encode(record()) + b'\n{"tick": "three"}\n')
    with pytest.raises(PenstockError, match=r"decisions\.jsonl:2: not a TickRecord"):
        list(read_ticks(directory))


# --- metrics ---------------------------------------------------------------------------------------------------------

OWN = {"run": "r1", "fleet": "pay"}


def exported(*records: TickRecord) -> CollectorRegistry:
    registry = CollectorRegistry()
    exposition = ControllerMetrics("r1", "pay", registry)
    for each in records:
        exposition.tick(each)
    return registry


def test_every_metric_of_the_loop_is_exported() -> None:
    registry = exported(record(3), record(4, skipped=2))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**OWN, **labels})

    assert value(metrics.TICKS, outcome="done") == 2
    assert value(metrics.TICKS, outcome="skipped") == 2
    assert value(metrics.TICK_DURATION + "_count") == 2
    assert value(metrics.TICK_PHASE) == pytest.approx(0.1002)
    assert value(metrics.REPLICAS, phase="joined") == 2
    assert value(metrics.REPLICAS, phase="draining") == 1
    assert value(metrics.REPLICAS_DESIRED, scaler="zeta") == 3
    assert value(metrics.SCALE_ACTIONS, scaler="zeta", action="up") == 2
    assert value(metrics.PLAN_EPOCH) == 4
    assert value(metrics.LAG, partition="0") == 5
    assert value(metrics.ARRIVAL_RATE, partition="0") == 12.5
    assert value(metrics.OBSERVATION_FAILURES) == 0


def test_unknown_is_exported_as_nan_not_as_zero() -> None:
    registry = exported(record())
    lag = registry.get_sample_value(metrics.LAG, {**OWN, "partition": "1"})
    rate = registry.get_sample_value(metrics.ARRIVAL_RATE, {**OWN, "partition": "1"})
    assert lag is not None and math.isnan(lag)
    assert rate is not None and math.isnan(rate)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, "scaler"),
        ({"observation": stream(arrived=None, unknown={"arrived": "broker away"})}, "unknown"),
        ({"errors": {"alpha": "ZeroDivisionError"}}, "error"),
        ({"errors": {"monitor": "OSError"}}, "error"),
    ],
)
def test_holding_is_exported_with_its_cause_and_ends_with_the_hold(fields: dict[str, Any], cause: str) -> None:
    def holding(registry: CollectorRegistry) -> dict[str, float | None]:
        return {
            name: registry.get_sample_value(metrics.HOLDING, {**OWN, "scaler": "alpha", "cause": name})
            for name in ("unknown", "error", "scaler")
        }

    assert holding(exported(record(**fields))) == {
        name: float(name == cause) for name in ("unknown", "error", "scaler")
    }
    after = record(4, decisions={"alpha": Decision(action="none")})
    assert set(holding(exported(record(**fields), after)).values()) == {0.0}


def test_what_could_not_be_observed_is_counted() -> None:
    registry = exported(record(observation=stream(arrived=None)))
    assert registry.get_sample_value(metrics.OBSERVATION_FAILURES, OWN) == 1
