"""Ctrl-C in mid-run, as a person at a terminal presses it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.local.leftovers import marked

PENSTOCK = Path(sys.executable).with_name("penstock")
ANY_PORTS = {f"PENSTOCK_{port}_PORT": "0" for port in ("KAFKA", "KAFKA_CONTROLLER", "REDIS", "PROMETHEUS")}


@pytest.mark.live
def test_ctrl_c_stops_everything_and_says_how_to_go_on(state_folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    environment = {**os.environ, **ANY_PORTS, "PENSTOCK_STATE": str(state_folder), "PENSTOCK_RUNS": str(runs)}
    command = [str(PENSTOCK), "compare", "binpack-workload-1", "--scalers", "linear,binpack", "--from", "60"]
    command += ["--seconds", "120", "--no-spark"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait_for_ticks(runs, process, ticks=3)
        # A terminal sends it to the whole group; replicas and services must not fall with the first press.
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted: 0 of 2 runs finished, all is stopped; the same command with --resume goes on" in said
    assert marked(state_folder) == []
    (comparison,) = runs.glob("*-compare")
    assert (comparison / "compare.json").is_file()


def wait_for_ticks(runs: Path, process: "subprocess.Popen[str]", ticks: int) -> None:
    deadline_s = time.monotonic() + 120
    while sum(file.read_bytes().count(b"\n") for file in runs.glob("*/decisions.jsonl")) < ticks:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline_s, "the run did not begin to tick"
        time.sleep(0.2)
