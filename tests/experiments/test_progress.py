"""What a command says without a terminal."""

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from controller.journal import TickRecord
from experiments.progress import RunProgress, silence
from penstock.contracts import FleetObservation, ReplicaCounts
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from tests.support.eventually import eventually


def test_without_a_terminal_a_long_step_is_told_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.progress.LINE_EVERY_S", 0.05)
    said = StringIO()
    with RunProgress(Console(file=said), runs=1) as progress:
        progress.begin("linear")
        progress.phase("simulating")
        deadline_s = time.monotonic() + 20
        while said.getvalue().count("simulating: 0 s") < 2 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        progress.phase("collecting")
    lines = said.getvalue().splitlines()
    assert lines[:4] == ["linear", "  simulating", "  simulating: 0 s", "  simulating: 0 s"]
    time.sleep(0.2)
    assert said.getvalue().splitlines() == lines, "nothing is told after the end"


def test_a_service_that_starts_beside_a_run_is_a_line_and_the_figures_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("experiments.progress.LINE_EVERY_S", 0.05)
    said = StringIO()
    spec = RunSpec(
        run="r", experiment="e", world="local", scaler=ScalerSpec(name="linear"), duration_s=60.0, start_ns=1
    )
    with RunProgress(Console(file=said), runs=1) as progress:
        progress.step("kafka: starting")
        progress.running(RunDirectory(tmp_path), spec)
        progress.step("redis: answers")
        begun = said.getvalue()
        eventually(lambda: "/60 s" in said.getvalue()[len(begun) :], "no figures after the service's line")
        progress.phase("collecting")
        progress.step("stopping kafka")
        eventually(lambda: "stopping kafka: 0 s" in said.getvalue(), "a step after the run is no current one")
    assert "redis: answers: 0 s" not in said.getvalue()


def test_a_run_whose_controller_is_silent_for_long_says_so() -> None:
    def tick(number: int, time_s: float) -> TickRecord:
        seen = FleetObservation(time_s=time_s, fleet="payments", replicas=ReplicaCounts(joined=1))
        return TickRecord(
            tick=number, time_s=time_s, at_ns=0, phase_s=0.0, observation=seen, decisions={}, acting="linear"
        )

    each_second = [tick(1, 1.0), tick(2, 2.0)]
    assert silence(each_second, 6.0) == ""
    assert silence(each_second, 9.2) == "no tick for 7 s"
    assert silence([tick(1, 15.0), tick(2, 30.0)], 70.0) == "", "every 15 s"
    assert silence([], 4.0) == ""
    assert silence([], 12.0) == "no tick for 12 s"
