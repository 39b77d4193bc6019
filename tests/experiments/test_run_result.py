"""Replicas by the clock, and what a live run's directory tells of a paper's figures."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.compare import ComparisonRequest, run_comparisons
from experiments.elastic_faas.experiments import EXPERIMENTS as ELASTIC_FAAS
from experiments.elastic_faas.tables import PRINTED, moments
from experiments.experiment import Experiment, Options
from experiments.multiqueue.experiments import EXPERIMENTS as MULTIQUEUE
from experiments.multiqueue.tables import outcome, run_experiment
from experiments.pubsub.experiments import EXPERIMENTS as PUBSUB
from experiments.run_result import finished, finished_run
from experiments.scheduled_scaler import ScheduledScaler, ScheduleParameters
from penstock.command import build
from penstock.contracts import FleetObservation, ReplicaCounts
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from report.analysis.run_data import RunData

ROOT = Path(__file__).resolve().parents[2]
SCHEDULED = f"{ROOT / 'experiments' / 'scheduled_scaler.py'}:ScheduledScaler"


def one_run(folder: Path, experiment: Experiment, scaler: str, **options: object) -> RunDirectory:
    settings = Options(world="sim", analytics=False, **options)  # type: ignore[arg-type]
    (comparison,) = run_comparisons(
        Console(quiet=True), [ComparisonRequest(experiment, (scaler,))], settings, folder, resume=False
    )
    (run,) = comparison.runs()
    return run


def test_one_replica_more_every_interval_until_all_are_there() -> None:
    scaler = ScheduledScaler(ScheduleParameters(replicas=3, interval_s=10.0))
    state, wanted, current = scaler.start(1), [], 1
    for time_s in (0.0, 9.0, 10.0, 19.9, 20.0, 30.0, 99.0):
        seen = FleetObservation(time_s=time_s, fleet="bank", replicas=ReplicaCounts(joined=current))
        decision, state = scaler.decide(seen, state)
        current = decision.targets.get("bank", current)
        wanted.append(current)
    assert wanted == [1, 1, 2, 2, 3, 3, 3]
    assert ScheduledScaler(ScheduleParameters(replicas=2, interval_s=0)).decide(seen, state)[0].targets == {"bank": 2}
    with pytest.raises(ValueError, match="replicas=0: expected at least 1"):
        ScheduleParameters(replicas=0)


@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_table_1_of_elastic_faas_is_read_back_from_a_runs_directory(tmp_path: Path, speed: float) -> None:
    run = one_run(
        tmp_path, ELASTIC_FAAS[0], SCHEDULED, speed=speed, seconds=30.0, system={"provision_s": "0"}
    )  # fmt: skip
    found = {moment["time_s"]: moment["containers"] for moment in moments(finished_run(RunData(run)))}
    for time, *containers, _ in (row.values() for row in PRINTED):
        if time % 10:  # at 10 and 20 the monitor looks just before the function is asked for
            assert found[time] == " ".join(str(count) for count in containers if count)


def test_a_run_read_back_gives_the_figures_of_the_run_in_memory(tmp_path: Path) -> None:
    experiment, scaler = MULTIQUEUE[0], "multiqueue-damped"
    expected = outcome(run_experiment(experiment.name, scaler), scaler)
    run = one_run(tmp_path, experiment, scaler)
    found = outcome(finished_run(RunData(run)), scaler)
    for name, value in expected.items():
        assert found[name] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-6)), name


def test_measures_are_in_the_experiments_own_seconds(tmp_path: Path) -> None:
    runs = [one_run(tmp_path, ELASTIC_FAAS[0], "faas", speed=speed, seconds=40.0) for speed in (1.0, 4.0)]
    slow, fast = (finished_run(RunData(run)) for run in runs)
    assert slow.duration_s == fast.duration_s == 40.0
    assert fast.ticks[-1].time_s == slow.ticks[-1].time_s
    latency_s = [float((one.results.finished_s - one.results.intended_s).mean()) for one in (slow, fast)]
    assert latency_s[1] == pytest.approx(latency_s[0], rel=0.2)
    assert np.all(np.diff(fast.results.id) > 0)


def test_only_finished_runs_of_the_papers_experiments_are_taken(tmp_path: Path) -> None:
    run = one_run(tmp_path, ELASTIC_FAAS[0], "faas", seconds=10.0)
    folders = sorted(tmp_path.iterdir())
    assert [one.directory.path for one in finished(folders, {"elastic-faas"})] == [run.path]
    with pytest.raises(PenstockError, match="no finished run of multiqueue"):
        finished(folders, {"multiqueue"})


def test_papers_print_the_measures_of_recorded_runs(tmp_path: Path) -> None:
    def printed(paper: str, table: str) -> str:
        done = CliRunner().invoke(build(), ["paper", paper, table, *map(str, sorted(tmp_path.iterdir()))])
        assert done.exit_code == 0, done.output
        return done.stdout

    one_run(tmp_path, ELASTIC_FAAS[0], "elastic-faas", seconds=60.0)
    one_run(tmp_path, MULTIQUEUE[0], "multiqueue", seconds=12.0)
    for replicas, seed in ((1, 1), (1, 2), (2, 1), (2, 2)):
        one_run(
            tmp_path,
            MULTIQUEUE[0],
            SCHEDULED,
            seconds=12.0,
            seed=seed,
            initial_replicas=replicas,
            settings={"timetable": {"replicas": str(replicas), "interval_s": "0"}},
        )
    said = printed("elastic-faas", "live")
    assert said.count("| elastic-faas |") == 1 and "| time_s | functions |" in said
    said = printed("multiqueue", "live")
    assert said.count("| multiqueue | sim |") == 1 and "| second | containers |" in said
    said = printed("multiqueue", "live-figure3")
    assert "single: 2 of 20 runs" in said and "| single | 12 |" in said and "| multi | 12 |" in said
    dynamic = next(experiment for experiment in PUBSUB if experiment.name == "pubsub-dynamic")
    for speed in (1.0, 60.0):
        one_run(tmp_path, dynamic, "min-time", speed=speed)
    rows = [line.split(" | ") for line in printed("pubsub", "live").splitlines() if "| pubsub-dynamic |" in line]
    slow, fast = (float(row[7]) for row in rows)
    assert fast == pytest.approx(slow, rel=0.5), "in the paper's seconds"
    assert all("2 2 1 4" in row[6] for row in rows)
