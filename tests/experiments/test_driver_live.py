"""Whole runs on real services: what a newcomer would run, short, and with something broken on purpose.

Each claims conservation: delivery reports, ledger and result ids name the same events, and none is lost.
"""

import dataclasses
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from controller.journal import read_ticks
from experiments.compare import ComparisonDirectory, begin, carry_out_all
from experiments.experiment import Experiment, Options, parse_faults
from experiments.progress import RunProgress
from infra.local.services import LocalServices
from infra.runs.context import RunContext
from infra.runs.local_world import LocalWorld
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import ReplicaEvent
from penstock.errors import PenstockError
from penstock.measures import histogram
from penstock.rundir import RunDirectory, read_lines
from penstock.runspec import FaultRecord, WorkerSpec
from report.analysis.run_data import RunData
from report.page import write_report
from tests.experiments.conftest import Play
from tests.experiments.steady import STEADY as STEADY_60
from tests.support.changed import LIVE_RUN

STEADY = dataclasses.replace(STEADY_60, shadows=("binpack", "binpack-tail", "least-loaded", "linear", "overprovision"))


@pytest.mark.smoke
def test_a_run_ends_with_every_event_accounted_for_and_a_report(play: Play) -> None:
    directory, summary = play(STEADY, "linear", Options(seconds=8, analytics=False))
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events == 480
    assert directory.manifest().verdict in ("VALID", "DEGRADED")
    write_report([RunData(directory)], directory.report_file)
    assert "linear" in directory.report_file.read_text()
    ticks = list(read_ticks(directory))
    assert [tick.tick + 1 for tick in ticks] == list(accumulate(1 + tick.skipped for tick in ticks))
    assert len([tick for tick in ticks if tick.time_s < 8]) >= 4


@pytest.mark.live
@pytest.mark.parametrize(
    "faults",
    [
        ("kill-worker@5", "kill-controller@11"),
        *(
            pytest.param(faults, marks=pytest.mark.when_changed(*LIVE_RUN))
            for faults in (
                ("restart-redis@5+2", "stop-broker@10+5"),
                ("kill-all-workers@5", "kill-all-workers@12"),
                ("fill-disk@4+6", "kill-controller@7"),
                ("cut-workers@5+4", "cut-controller@11+3"),
            )
        ),
    ],
    ids=" ".join,
)
def test_no_event_is_lost_whatever_is_broken(play: Play, faults: tuple[str, str]) -> None:
    options = Options(seconds=20, analytics=False, initial_replicas=2, faults=parse_faults(faults))
    directory, summary = play(STEADY, "overprovision", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events == 1200
    assert directory.faults_file.read_text().count("\n") == 2


UNFINISHED = """
import sys
from controller.scalers.linear import Linear

IN_CONTROLLER = "controller.main" in sys.orig_argv
{at_import}

class Unfinished(Linear):
    name = "unfinished"

    def __init__(self, *arguments, **parameters):
        super().__init__(*arguments, **parameters)
        {at_init}
"""
RAISE = "if IN_CONTROLLER: raise RuntimeError('this scaler was never finished')"


@pytest.mark.live
@pytest.mark.parametrize("at", ["at_import", "at_init"])
def test_a_scaler_that_raises_in_the_controller_ends_the_run_by_name(play: Play, tmp_path: Path, at: str) -> None:
    """Before, the supervisor started the controller again and again until the time for the start was up."""
    file = tmp_path / "unfinished.py"
    file.write_text(UNFINISHED.format(**{"at_import": "", "at_init": "", at: RAISE}))
    with pytest.raises(PenstockError, match=r"(?s)controller ended unexpectedly.*this scaler was never finished"):
        play(STEADY_60, f"{file}:Unfinished", Options(seconds=8, analytics=False))


@pytest.mark.live
def test_a_part_that_exits_at_once_ends_the_run_by_name(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    add = RunContext.add

    def start(context: RunContext, part: str, module: str, *options: str, **more: Any) -> None:
        add(context, part, "no_such_module" if part == "pipelines" else module, *options, **more)

    monkeypatch.setattr(RunContext, "add", start)
    with pytest.raises(PenstockError, match=r"(?s)pipelines ended unexpectedly.*No module named no_such_module"):
        play(STEADY_60, "linear", Options(seconds=8))


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_what_spark_says_while_a_worker_is_killed_is_what_numpy_says_afterwards(play: Play) -> None:
    options = Options(seconds=20, initial_replicas=2, faults=parse_faults(["kill-worker@6"]))
    directory, summary = play(STEADY, "overprovision", options)
    done = RunData(directory).completions()
    second = done.finished_ns // NANOS_PER_SECOND
    rows = pq.read_table(directory.per_second_file).to_pylist()
    told = {row["second"]: row for row in rows if row["count"]}
    assert summary.conservation.exact
    assert set(told) == set(second.tolist())
    for at, row in told.items():
        latency_s = done.latency_s[second == at]
        assert row["count"] == len(latency_s)
        assert (row["buckets"], row["counts"]) == tuple(part.tolist() for part in histogram(latency_s))


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_a_killed_controller_goes_on_with_the_replicas_that_exist(play: Play) -> None:
    options = Options(seconds=25, analytics=False, initial_replicas=2, faults=parse_faults(["kill-controller@5"]))
    directory, _ = play(STEADY, "overprovision", options)
    gone = [event for event in read_lines(directory.replicas_file, ReplicaEvent) if event.phase == "gone"]
    numbers = [tick.tick for tick in read_ticks(directory)]
    assert gone == []
    assert numbers == sorted(set(numbers)), "a tick number was used twice"
    assert numbers[-1] >= 13


@pytest.mark.live
def test_a_blind_monitor_makes_every_scaler_that_reads_hold_and_the_journal_say_why(play: Play) -> None:
    options = Options(seconds=14, analytics=False, faults=parse_faults(["blind-monitor@4+5"]))
    directory, summary = play(STEADY, "binpack-tail", options)
    (told_ns,) = read_faults(directory)
    seconds = [(tick.at_ns - told_ns) / NANOS_PER_SECOND for tick in read_ticks(directory)]
    blind = [tick for tick, at_s in zip(read_ticks(directory), seconds, strict=True) if 1 <= at_s < 4.5]
    assert len(blind) >= 2
    reading = ("binpack", "binpack-tail", "least-loaded", "linear")  # overprovision looks at nothing
    assert {tick.decisions[name].action for tick in blind for name in reading} == {"hold"}
    assert all(tick.observation.unknown and tick.note for tick in blind)
    assert summary.conservation.exact


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.when_changed(*LIVE_RUN)
def test_a_stall_is_measured_as_long_as_it_was(play: Play) -> None:
    """Workers frozen for D = 10 s: an event intended u seconds into it waits D − u(1 − λ/μ) (fluid limit).

    One partition, because a consumer that has fallen behind on several takes them in turns, not in order of arrival. μ
    is what the worker did while it caught up: on a busy machine a service of 5 ms takes a tenth longer.
    """
    frozen_s, arrival_rate_per_s = 10.0, 60.0
    experiment = Experiment(
        name="freeze",
        title="A constant rate and a freeze",
        paper="none",
        workload=f"constant:rate_per_s={arrival_rate_per_s:g},duration_s=40",
        seconds=40,
        arrivals="uniform",
        partitions=1,
        max_replicas=1,
        worker=WorkerSpec(service_time_s=0.005, session_timeout_s=30.0),
    )
    fault = parse_faults([f"freeze-workers@8+{frozen_s:g}"])
    directory, summary = play(experiment, "linear", Options(analytics=False, faults=fault))
    done = RunData(directory).completions()
    (told_ns,) = read_faults(directory)
    # The freeze ends when a process of this machine gets to it: the longest time in which nothing was done.
    finished_ns = np.sort(done.finished_ns)
    last = int(np.argmax(np.diff(finished_ns)))
    began_ns = int(finished_ns[last])
    stalled_s = (int(finished_ns[last + 1]) - began_ns) / NANOS_PER_SECOND
    assert began_ns > told_ns - NANOS_PER_SECOND and stalled_s > frozen_s - 0.1
    into_s = (done.intended_ns - began_ns) / NANOS_PER_SECOND
    during = (into_s > 0.2) & (into_s < 9.5)
    finished_s = np.sort(done.finished_ns[during]) / NANOS_PER_SECOND
    service_rate_per_s = (len(finished_s) - 1) / (finished_s[-1] - finished_s[0])
    expected_s = stalled_s - into_s[during] * (1 - arrival_rate_per_s / service_rate_per_s)
    ratio = done.latency_s[during] / expected_s
    assert np.count_nonzero(during) > 400
    assert np.percentile(np.abs(ratio - 1), 95) < 0.05, np.percentile(ratio, [1, 50, 99])
    assert summary.conservation.exact


def read_faults(directory: RunDirectory) -> list[int]:
    return [record.at_ns for record in read_lines(directory.faults_file, FaultRecord)]


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_resume_keeps_the_runs_that_are_finished(local_services: LocalServices, tmp_path: Path) -> None:
    options = Options(seconds=5, analytics=False)

    def compare() -> ComparisonDirectory:
        directory = begin(STEADY, ["linear", "binpack"], options, 1, tmp_path, resume=True)
        with RunProgress(Console(quiet=True), runs=2) as progress, LocalWorld(services=local_services) as world:
            carry_out_all(world, STEADY, options, directory, progress)
        return directory

    first = compare()
    before = [directory.name for directory in first.runs()]
    interrupted = first.runs()[1]
    interrupted.manifest_file.unlink()
    again = compare()
    after = [directory.name for directory in again.runs()]
    assert again.path == first.path
    assert after[0] == before[0]
    assert after[1] != before[1]
