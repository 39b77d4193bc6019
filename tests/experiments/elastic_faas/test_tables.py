"""Table 1 of Elastic-FaaS as a run's replica events have it."""

from pathlib import Path

from rich.console import Console

from experiments.driver import carry_out, describe
from experiments.elastic_faas.tables import EXPERIMENT, LIVE, PRINTED, containers_at, live_table_1
from experiments.experiment import Options
from experiments.paper import Request
from experiments.progress import RunProgress
from penstock.contracts import ReplicaEvent
from simulator.world import SimWorld

SCHEDULED = "experiments/scheduled_scaler.py:ScheduledScaler"


def test_replica_events_of_a_scheduled_run_are_the_printed_table(tmp_path: Path) -> None:
    """In virtual time; a live run has the same files."""
    options = Options(world="sim", speed=0.5, seconds=30.0, system={"provision_s": "0"})
    directory, _ = describe(EXPERIMENT, SCHEDULED, options, tmp_path)
    with RunProgress(Console(quiet=True), runs=1) as progress, SimWorld() as world:
        carry_out(world, EXPERIMENT, options, directory, progress)
    assert list(live_table_1(Request(settings=None, runs=[directory.path]))) == PRINTED


def test_containers_that_are_gone_count_no_more() -> None:
    events = [
        ReplicaEvent(fleet="pay-1", replica=replica, phase=phase, at_ns=at_ns)  # type: ignore[arg-type]
        for replica, phase, at_ns in (("a", "joined", 1), ("b", "requested", 2), ("b", "joined", 5), ("a", "gone", 7))
    ]
    assert [containers_at(events, "pay-1", at_ns) for at_ns in (0, 4, 5, 8)] == [0, 1, 2, 1]
    assert containers_at(events, "pay-2", 8) == 0


def test_the_live_table_has_the_times_of_the_printed_one() -> None:
    assert list(LIVE) == [row["time"] for row in PRINTED]
    assert all(row["FaaS 1"] + row["FaaS 2"] + row["FaaS 3"] == row["total"] for row in LIVE.values())
