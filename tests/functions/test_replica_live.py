"""One replica and its fork server, spoken to directly, as the gateway never would: what they see to by themselves."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from functions.fork_protocol import BackendState, Command, look
from infra.runs.function_replicas import kill_busy
from tests.functions.gateway_process import PATIENCE_S, TEST_HANDLERS
from tests.support.eventually import eventually

pytestmark = pytest.mark.live


class Parent:
    """A fork server of ``probe`` in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            (
                *(sys.executable, "-m", "functions.fork_server", "--function", "probe"),
                *("--handler", str(TEST_HANDLERS / "probe"), "--socket", str(folder / "s")),
            ),
            stdout=self._log,
            stderr=self._log,
        )
        self._caller = socket.socket(socket.AF_UNIX)
        wait(lambda: self._caller.connect_ex(str(folder / "s")) == 0)
        self._lines = self._caller.makefile("rb")
        self._number = 0

    def send(self, **command: object) -> None:
        """A command."""
        self._number += 1
        order = msgspec.convert({"number": self._number, **command}, Command)
        self._caller.sendall(msgspec.json.encode(order) + b"\n")

    def tell(self, **command: object) -> BackendState:
        """A command and the state after it."""
        self.send(**command)
        while (brood := msgspec.json.decode(self._lines.readline(), type=BackendState)).answers != self._number:
            pass
        return brood

    def replica(self) -> tuple[str, int]:
        """Start one and wait until it is ready; returns its URL and its pid."""
        self.tell(start="probe-1")
        wait(lambda: self.tell().replicas["probe-1"].phase == "ready")
        state = self.tell().replicas["probe-1"]
        return f"http://127.0.0.1:{state.port}/", state.pid

    def log(self) -> str:
        """What it and its replicas said."""
        return (self.folder / "log").read_text()

    def close(self) -> None:
        """End all of it."""
        self._lines.close()
        self._caller.close()
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self._log.close()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    started = Parent(tmp_path)
    yield started
    started.close()


def wait(condition: Callable[[], bool]) -> None:
    eventually(condition, within_s=PATIENCE_S)


def call(url: str, do: str = "") -> httpx.Response:
    return httpx.post(url, headers={"X-Do": do}, timeout=PATIENCE_S, trust_env=False)


def test_a_second_request_is_refused_counted_and_logged_and_the_first_goes_on(parent: Parent, tmp_path: Path) -> None:
    url, _ = parent.replica()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(call, url, f"until:{tmp_path / 'go'}")
        wait(lambda: parent.tell().replicas["probe-1"].busy)
        second = call(url)
        assert (second.status_code, second.json()) == (500, {"error": "replica probe-1 is busy"})
        assert httpx.get(f"{url}_/ready", trust_env=False).status_code == 200, "probes pass"
        (tmp_path / "go").touch()
        assert first.result().status_code == 200
    brood = parent.tell()
    assert (brood.violations, brood.invocations, brood.failed) == (1, 1, 0)
    assert "probe-1: a second request during another one" in parent.log()


@pytest.mark.parametrize("who", ["replica", "parent", "killed parent"])
def test_whoever_ends_it_a_replica_finishes_the_request_in_hand(parent: Parent, tmp_path: Path, who: str) -> None:
    url, pid = parent.replica()
    with ThreadPoolExecutor(1) as pool:
        in_hand = pool.submit(call, url, f"until:{tmp_path / 'go'}")
        wait(lambda: parent.tell().replicas["probe-1"].busy)
        if who == "replica":
            os.kill(pid, signal.SIGTERM)
        else:
            os.kill(parent.process.pid, signal.SIGTERM if who == "parent" else signal.SIGKILL)
        wait(lambda: _refuses(url))
        assert psutil.pid_exists(pid)
        (tmp_path / "go").touch()
        assert in_hand.result().status_code == 200
    wait(lambda: _has_ended(pid))


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _refuses(url: str) -> bool:
    try:
        return call(url).status_code == 503
    except httpx.TransportError:
        return True


def test_why_a_replica_went_is_told(parent: Parent) -> None:
    _, pid = parent.replica()
    os.kill(pid, signal.SIGKILL)
    wait(lambda: parent.tell().replicas == {})
    assert [(gone.replica, gone.reason) for gone in parent.tell().gone] == [("probe-1", "killed by SIGKILL")]
    parent.replica()
    parent.tell(end="probe-1")
    wait(lambda: parent.tell().replicas == {})
    assert parent.tell().gone[-1].reason == ""


def test_only_a_replica_with_a_request_in_hand_is_killed_in_mid_request(parent: Parent, tmp_path: Path) -> None:
    door = parent.folder / "s"
    url, pid = parent.replica()
    assert look(door).replicas == parent.tell().replicas
    assert not kill_busy(door, "probe-1", pid)
    assert call(url).status_code == 200, "it was held still for a moment only"
    with ThreadPoolExecutor(1) as pool:
        in_hand = pool.submit(call, url, f"until:{tmp_path / 'never'}")
        wait(lambda: look(door).replicas["probe-1"].busy)
        assert kill_busy(door, "probe-1", pid)
        with pytest.raises(httpx.TransportError):
            in_hand.result()
    wait(lambda: look(door).replicas == {})
    assert [(gone.replica, gone.reason) for gone in look(door).gone] == [("probe-1", "killed by SIGKILL")]
    assert not kill_busy(door, "probe-1", pid), "it is gone"


def test_a_second_parent_at_the_same_socket_ends_by_itself(parent: Parent) -> None:
    command = (
        *(sys.executable, "-m", "functions.fork_server", "--function", "probe"),
        *("--handler", str(TEST_HANDLERS / "probe"), "--socket", str(parent.folder / "s")),
    )
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert second.returncode == 2
    assert second.stderr.splitlines()[-1].endswith("a fork server runs there already")
    assert parent.tell().replicas == {}


def test_a_replica_told_to_end_right_after_its_start_does_so_and_its_sibling_stays(parent: Parent) -> None:
    parent.replica()
    for number in range(2, 32):
        name = f"probe-{number}"
        parent.send(start=name)
        parent.tell(end=name)  # read together with the start
    wait(lambda: list(parent.tell().replicas) == ["probe-1"])
    assert all(gone.reason == "" for gone in parent.tell().gone)
