"""The pages on workloads and faults of one's own keep what they say: their code is in the tree, their commands run."""

import contextlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.catalogue import find_experiment
from experiments.experiment import Options, changed, parse_faults, run_spec
from infra.runs.kinds import known_faults
from penstock.command import build
from penstock.rundir import RunDirectory, read_lines
from penstock.runspec import FaultRecord

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD, FAULT = ((ROOT / "docs" / f"your-own-{what}.md").read_text() for what in ("workload", "fault"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    return [line for block in blocks(page, "console") for line in block.splitlines()]


def is_live(command: str) -> bool:
    """Whether it needs services: a run without a world."""
    return command.startswith("penstock run") and "--world" not in command


def carried_out(page: str) -> list[str]:
    found = [command for command in commands(page) if not is_live(command)]
    assert len(found) >= 3
    return found


@pytest.mark.long
@pytest.mark.parametrize("command", [*carried_out(WORKLOAD), *carried_out(FAULT)])
def test_every_command_that_needs_no_service_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    program, *arguments = shlex.split(command.replace("--out ", f"--out {tmp_path}/"))
    with contextlib.chdir(ROOT):
        if program == "pytest":
            words = [sys.executable, "-m", program, "-p", "no:cacheprovider", "--collect-only", *arguments]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stdout
            return
        result = CliRunner().invoke(build(), arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    for run in (tmp_path / "runs").glob("*/run.json"):
        directory = RunDirectory.open(run.parent)
        if "--workload" in command:
            assert " with " in directory.spec().experiment
        if "--fault" in command:
            (record,) = read_lines(directory.faults_file, FaultRecord)
            assert (record.kind, record.hit) == ("kill-all-workers", True)


@pytest.mark.long
def test_the_examples_own_test_passes() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "docs/examples/test_ramp.py", "docs/examples/test_even_load.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_the_live_commands_describe_runs() -> None:
    for command in filter(is_live, [*commands(WORKLOAD), *commands(FAULT)]):
        words = shlex.split(command)
        given = dict(zip(words[3::2], words[4::2], strict=True))
        workload = given.get("--workload", "").replace("docs/", f"{ROOT}/docs/") or None
        options = Options(
            own_workload=workload,
            from_s=float(given.get("--from", "0")),
            seconds=float(given["--seconds"]) if "--seconds" in given else None,
            faults=parse_faults(given[name] for name in given if name == "--fault"),
        )
        spec = run_spec(changed(find_experiment(words[2]), options), given["--scaler"], options, run="a-run")
        assert (spec.world, spec.duration_s) == ("local", 60)
        assert set(given) <= {"--scaler", "--workload", "--from", "--seconds", "--fault"}
        assert {fault.kind for fault in spec.faults} <= set(known_faults(spec.system, "local"))


def test_the_code_on_the_pages_is_in_the_tree() -> None:
    (ramp,) = blocks(WORKLOAD, "python")
    assert ramp in (ROOT / "docs" / "examples" / "ramp.py").read_text()
    simulated, live, test = blocks(FAULT, "python")
    assert simulated in (ROOT / "simulator" / "stream.py").read_text()
    assert live in (ROOT / "infra" / "runs" / "kinds.py").read_text()
    assert test in (ROOT / "tests" / "simulator" / "test_stream.py").read_text()
    (rows,) = blocks(WORKLOAD, "text")
    assert (ROOT / "docs" / "examples" / "orders.csv").read_text().startswith(rows)
