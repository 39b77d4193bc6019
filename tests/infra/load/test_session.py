"""A load session and a run exclude each other in a state folder: they would measure each other."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.load import session
from infra.local.addresses import choose
from infra.local.services import ALL_SERVICES
from infra.local.state import StateFolder
from penstock.errors import PenstockError
from producers.delivery import SenderFigures
from tests.support.services import on_free_ports


@pytest.fixture
def state(state_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    """That of services which are up, as far as a session asks before its run."""
    folder = StateFolder(state_folder)
    folder.create()
    folder.write_addresses(choose(on_free_ports(), ALL_SERVICES))
    monkeypatch.setenv("PENSTOCK_STATE", str(state_folder))
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    asked = "session --scaler linear --workload constant:rate_per_s=1,duration_s=10"
    monkeypatch.setattr(sys, "argv", asked.split())
    monkeypatch.setattr("infra.load.session.signal.signal", lambda *_: None)
    monkeypatch.setattr(session, "local_run", lambda *_: SimpleNamespace())
    return folder


def test_a_session_is_refused_while_a_run_is_active(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def begun(_: object) -> None:
        raise AssertionError("two at once")

    monkeypatch.setattr(session.Session, "run", begun)
    with state.running(), pytest.raises(SystemExit) as ended:
        session.main()
    assert ended.value.code == 2
    assert "another run (pid " in capfd.readouterr().out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("killed", [True, False])
def test_a_reader_of_results_that_is_ended_by_a_signal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], killed: bool
) -> None:
    """Locust's page would show no further result, and no reason. If the session ends the reader, nothing is told."""
    reader = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    monkeypatch.setattr(session, "sys", SimpleNamespace(executable=sys.executable, stdout=sys.stdout))
    popen, told = subprocess.Popen, threading.Event()
    started: list[Any] = []

    def start(_: object, **options: Any) -> Any:
        started.append(popen([sys.executable, "-c", reader], **{**options, "stdout": 1}))
        return started[0]

    def write(message: object) -> None:
        print(message)
        told.set()

    monkeypatch.setattr("infra.load.session.subprocess.Popen", start)
    monkeypatch.setattr(session, "write_message", write)
    context: Any = SimpleNamespace(
        log=lambda part: tmp_path / f"{part}.log", directory=SimpleNamespace(path=tmp_path), environment=os.environ
    )
    with session.results_reader(context):
        if killed:
            os.kill(started[0].pid, signal.SIGKILL)
            assert told.wait(60)
    assert started[0].poll() is not None and told.is_set() is killed
    assert ("a signal has ended their reader" in capfd.readouterr().out) is killed


@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
def test_a_run_is_refused_until_a_session_is_over(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fails: bool
) -> None:
    def run(_: object) -> SenderFigures:
        with pytest.raises(PenstockError, match="another run"), state.running():
            raise AssertionError("two at once")
        if fails:
            raise session.StoppedError
        return cast(SenderFigures, SimpleNamespace(issued_share=1.0, send_delay_p99_s=0.001))

    monkeypatch.setattr(session.Session, "run", run)
    session.main()
    assert '"ended"' in capfd.readouterr().out
    with state.running():
        pass
