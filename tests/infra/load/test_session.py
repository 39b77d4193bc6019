"""A load session and a run exclude each other in a state folder: they would measure each other."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

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
