"""The state folder of a local world: all files of its services, readable by their owner only."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from infra.local.addresses import Addresses
from penstock.errors import PenstockError
from penstock.sockets import excess_bytes

TAIL_LINES: Final = 12
MARKER: Final = "PENSTOCK_SUPERVISED_IN"
"""In the environment of every process that belongs to a state folder, with the folder as its value. It is not
exported to shells: a process that carries it is stopped by ``down``.
"""


class StateFolder:
    """Paths within the state folder. Nothing exists before ``create``."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.endpoints_file = self.path / "endpoints.json"
        self.scrape_targets = self.path / "targets"
        self.logs = self.path / "logs"
        self.supervisor_log = self.logs / "supervisor.log"
        self.supervisor_lock = self.path / "supervisor.lock"
        self.supervisor_pid = self.path / "supervisor.pid"
        self.supervisor_socket = self.path / "ctl.sock"
        self.events_socket = self.path / "pub.sock"

    @property
    def supervisor_endpoint(self) -> str:
        """ZeroMQ address of the supervisor's command socket."""
        return f"ipc://{self.supervisor_socket}"

    def create(self) -> None:
        """Make the folder, for its owner only. Raises PenstockError where it cannot hold a socket."""
        if excess := excess_bytes(self.supervisor_socket):
            raise PenstockError(
                f"state folder {self.path}: {excess} bytes too long for a Unix socket; "
                "set PENSTOCK_STATE to a shorter path, such as /tmp/penstock"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for folder in (self.logs, self.scrape_targets):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            raise PenstockError(
                f"state folder {self.path}: {error.strerror}; set PENSTOCK_STATE to a folder of your own"
            ) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One ``up`` or ``down`` at a time; others wait."""
        with (self.path / "up.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """One live run at a time: two would measure each other. Raises PenstockError while another process has one."""
        with (self.path / "run.lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise PenstockError(
                    f"another run (pid {lock.read()}) uses the services of {self.path}: wait for its end, or set "
                    "PENSTOCK_STATE to another folder"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def addresses(self) -> Addresses | None:
        """Addresses written by ``up``; None while nothing is up."""
        try:
            return msgspec.json.decode(self.endpoints_file.read_bytes(), type=Addresses)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise PenstockError(f"{self.endpoints_file}: cannot be read ({error}); run `penstock down`") from None

    def write_addresses(self, addresses: Addresses) -> None:
        """Write the ports and secrets down, for the owner only."""
        write_private(self.endpoints_file, msgspec.json.format(msgspec.json.encode(addresses), indent=2))

    def forget(self) -> None:
        """Remove the files that are valid only while services run; data, configs and logs stay."""
        for file in (self.endpoints_file, self.supervisor_pid, self.supervisor_socket, self.events_socket):
            file.unlink(missing_ok=True)
        for target in self.scrape_targets.glob("*.json"):
            target.unlink(missing_ok=True)


def write_private(file: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:  # noqa: PTH123
        opened.write(content)
    partial.replace(file)


def tail(log: Path) -> str:
    """The last lines of a log, indented, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        lines = []
    return "\n".join(f"  {line}" for line in lines) or "  (empty)"
