"""What the commands of services tell."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from infra import command
from infra.local.services import LocalServices
from penstock.adapters.process_manager import ProgramStatus
from penstock.errors import PenstockError
from penstock.settings import Folders
from tests.support.services import on_free_ports


def test_up_on_a_cluster_ends_with_the_command_that_deletes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_cluster", lambda _: SimpleNamespace(up=lambda: None))
    command.up("kind")
    told = capsys.readouterr()
    assert "to delete it: penstock down --target kind" in told.out + told.err


@pytest.mark.parametrize(("state", "pid", "code"), [("active", 7, 0), ("starting", None, 1), ("failed", None, 2)])
def test_status_ends_as_its_help_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, pid: int | None, code: int
) -> None:
    log = tmp_path / "kafka.log"
    log.touch()
    services = LocalServices(Folders(state=tmp_path), on_free_ports())
    service = SimpleNamespace(name="kafka", ports={"kafka": 1}, log=log)
    monkeypatch.setattr(services, "status", lambda: [(service, ProgramStatus("kafka", pid, state))])
    monkeypatch.setattr(command, "_services", lambda: services)
    found = 0
    try:
        command.status()
    except typer.Exit as end:
        found = end.exit_code
    except PenstockError as error:
        found = error.exit_code
    assert found == code
    assert "Exit code 2: a service has died; 1: one does not run yet." in (command.status.__doc__ or "")
