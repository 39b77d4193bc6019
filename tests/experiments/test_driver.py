"""The record of a run says how it was made."""

import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.command import build
from penstock.rundir import RunDirectory

ASKED = ["run", "binpack-workload-1", "--scaler", "linear", "--world", "sim", "--seconds", "10", "--quiet"]


@pytest.mark.parametrize(
    ("program", "recorded"),
    [("/opt/venv/bin/penstock", True), ("/opt/lib/penstock/__main__.py", True), ("/usr/bin/pytest", False)],
)
def test_the_command_that_made_a_run_is_in_its_manifest_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, recorded: bool
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [program, *ASKED, "--set", "linear.f_up=0.8"])
    assert CliRunner().invoke(build(), sys.argv[1:]).exit_code == 0
    (made,) = tmp_path.glob("*-linear")
    command = shlex.join(["penstock", *sys.argv[1:]])
    assert RunDirectory.open(made).manifest().command == (command if recorded else "")
    assert (f">{command}</pre>" in (made / "report.html").read_text("utf-8")) is recorded


def test_the_wanted_share_of_the_experiment_is_in_run_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    assert CliRunner().invoke(build(), ASKED).exit_code == 0
    (made,) = tmp_path.glob("*-linear")
    assert RunDirectory.open(made).spec().slo_share == 0.99
