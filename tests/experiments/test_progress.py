"""What a command says without a terminal."""

import time
from io import StringIO

import pytest
from rich.console import Console

from experiments.progress import RunProgress


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
