"""What the commands of services tell, and what they need on a cluster."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from infra import command
from infra.local.services import LocalServices
from penstock.adapters.process_manager import ProgramStatus
from penstock.errors import PenstockError
from penstock.settings import Folders
from tests.infra.kubernetes.fake_cluster import FakeCluster
from tests.support.services import on_free_ports

ROOT = Path(__file__).parents[2]


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


@pytest.mark.system
@pytest.mark.parametrize("target", ["up", "load"])
def test_on_a_cluster_make_sets_up_python_packages_alone(target: str) -> None:
    def asked(cluster: str) -> str:
        command = ("make", "--dry-run", "--always-make", target, f"TARGET={cluster}")
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "setup.sh" in asked("local")
    for cluster in ("kind", "cluster", "gke"):
        assert "setup.sh" not in asked(cluster) and "uv sync" in asked(cluster)


@pytest.mark.system
def test_make_load_hands_its_options_to_locust() -> None:
    command = ("make", "--dry-run", "load", "TARGET=kind", "OPTIONS=--headless --run-time 1m")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert 'penstock load --target "kind" -- --headless --run-time 1m' in done.stdout


def test_up_on_kind_needs_no_program_but_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(tmp_path, monkeypatch)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "kubectl").symlink_to(tmp_path / "kubectl")
    for name in ("cat", "cp", "rm"):  # of the fake kubectl
        (alone / name).symlink_to(str(shutil.which(name)))
    program = "from penstock.command import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "up", "--target", "kind"],
        env={"PATH": str(alone), "HOME": str(tmp_path), "PENSTOCK_STATE": str(tmp_path / "state")},
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "apply --kustomize=" in cluster.calls()
    assert not (tmp_path / "state").exists(), "nothing is set up on this machine"
