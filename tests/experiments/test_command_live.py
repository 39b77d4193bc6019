"""Ctrl-C in mid-run, as a person at a terminal presses it; a broker that dies; two runs at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.local.orphans import marked
from infra.local.service import PREFIX
from infra.local.services import LocalServices
from infra.local.settings import ServiceSettings
from infra.runs.kinds import COMMON
from penstock.adapters.process_manager import Supervisor
from penstock.settings import Folders
from tests.support.changed import LIVE_RUN

PENSTOCK = Path(sys.executable).with_name("penstock")
PORTS = [name for name in ServiceSettings.model_fields if name.endswith("_port")]
ANY_PORTS = {f"PENSTOCK_{port.upper()}": "0" for port in PORTS}
PHASES = (
    ("starting the run's processes", "kafka"),
    ("running for", "redis"),
    ("waiting for the last results", "kafka"),
    ("collecting", "kafka"),
    ("collecting", "redis"),
)


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
    assert "interrupted: 0 of 2 runs finished, all is stopped; the same command with --resume continues it" in said
    assert marked(state_folder) == []
    (comparison,) = runs.glob("*-compare")
    assert (comparison / "compare.json").is_file()


def wait_for_ticks(runs: Path, process: "subprocess.Popen[str]", ticks: int) -> None:
    deadline_s = time.monotonic() + 120
    while sum(file.read_bytes().count(b"\n") for file in runs.glob("*/decisions.jsonl")) < ticks:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline_s, "the run did not begin to tick"
        time.sleep(0.2)


@pytest.mark.live
def test_a_broker_that_dies_ends_the_run_at_once_by_name_and_a_second_run_is_refused(
    state_folder: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    environment = {**os.environ, **ANY_PORTS, "PENSTOCK_STATE": str(state_folder), "PENSTOCK_RUNS": str(runs)}
    command = [str(PENSTOCK), "run", "binpack-workload-1", "--scaler", "linear", "--seconds", "120", "--no-spark"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        wait_for_ticks(runs, first, ticks=3)
        second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        service, broker = LocalServices(Folders(state=state_folder), ServiceSettings.load()).status()[0]
        assert service.name == "kafka" and broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        assert first.stdout is not None
        while "ending the run: kafka has died" not in (line := first.stdout.readline()):
            assert line, "it ended without a reason"
        told_after_s = time.monotonic() - killed_s
        _, said = first.communicate(timeout=120)
    assert first.returncode == 2 and "error: kafka has died" in said
    assert second.returncode == 2
    assert f"another run (pid {first.pid}) uses the services of {state_folder}" in second.stderr
    assert told_after_s < 30, "it waited for a time-out of the sender"
    assert marked(state_folder) == []


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_a_service_that_dies_in_any_phase_ends_the_run_by_name(state_folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, **ANY_PORTS, "PENSTOCK_STATE": str(state_folder), "PENSTOCK_RUNS": str(tmp_path)}
    command = [str(PENSTOCK), "run", "binpack-workload-1", "--scaler", "linear", "--seconds", "8", "--no-spark"]
    command += ["--from", "60", "--fault", "freeze-workers@7+4"]  # so that something is left to wait for
    services = LocalServices(
        Folders(state=state_folder), ServiceSettings.model_validate({**dict.fromkeys(PORTS, 0), "ready_timeout_s": 300})
    )
    try:
        for phase, name in PHASES:
            services.up(COMMON)
            pid = {service.name: program.pid for service, program in services.status()}[name]
            assert pid is not None
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as run:
                assert run.stdout is not None
                while phase not in (line := run.stdout.readline()):
                    assert line, run.stderr and run.stderr.read()
                os.kill(pid, signal.SIGKILL)
                killed_s = time.monotonic()
                while f"ending the run: {name} has died" not in (line := run.stdout.readline()):
                    assert line, f"{phase}: it ended without a reason: {run.stderr and run.stderr.read()}"
                told_after_s = time.monotonic() - killed_s
                _, said = run.communicate(timeout=60)
            print(f"{phase}, {name}: told after {told_after_s:.1f} s, ended after {time.monotonic() - killed_s:.1f} s")
            assert run.returncode == 2, phase
            assert said.startswith(f"error: {name} has died; the end of "), f"{phase}: {said}"
            assert "rdkafka" not in said, "the client library wrote to the terminal"
            assert told_after_s < 15, phase
            left = Supervisor(services.state.supervisor_endpoint).programs()
            assert all(program.startswith(PREFIX) for program in left), f"{phase}: {left} stay"
    finally:
        services.down()
