"""Commands that list or show things answer programs in JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.catalogue import EXPERIMENTS
from penstock.command import build
from producers.workloads.catalogue import WORKLOADS


@pytest.mark.parametrize(("command", "names"), [("experiments", EXPERIMENTS), ("workloads", WORKLOADS)])
def test_a_list_in_json_has_all_names(command: str, names: dict[str, object]) -> None:
    done = CliRunner().invoke(build(), [command, "--json"])
    assert done.exit_code == 0
    assert [each[command.removesuffix("s")] for each in json.loads(done.output)] == list(names)


def test_a_decision_in_json_has_its_terms(tmp_path: Path) -> None:
    runner, env = CliRunner(), {"PENSTOCK_RUNS": str(tmp_path)}
    command = ["run", "binpack-workload-1", "--scaler", "linear", "--world", "sim", "--seconds", "10", "--quiet"]
    assert runner.invoke(build(), command, env=env).exit_code == 0
    (run,) = tmp_path.glob("*-linear")
    done = runner.invoke(build(), ["explain", str(run), "--at", "5", "--json"])
    assert json.loads(done.output)["decisions"]["linear"]["why"]
