"""Talking to the process supervisor of the local world (a circus daemon, started by ``infra.local``).

One named watcher a program; the daemon outlives whoever asked for it: a restarted controller finds its replicas.
"""

import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from penstock.errors import PenstockError

APPEND_OUTPUT: Final = 'log=$1; shift; exec "$@" >>"$log" 2>&1'
"""Lets a program write into its log by itself: its last words are never stuck in the daemon, nor is it told to stop
writing (SIGPIPE) when the daemon dies.
"""


BASE_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "LD_LIBRARY_PATH")


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A process to keep. ``respawn``: started again when it ends by itself, until it has ended five times within ten
    seconds. ``grace_s``: SIGTERM to SIGKILL. ``env`` is all of its environment: nothing is inherited.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    respawn: bool = False
    grace_s: float = 10.0


class ProgramStatus(msgspec.Struct, frozen=True):
    """``pid`` is None while nothing runs under that name. ``state``: ``starting``, ``active``, ``stopping``,
    ``stopped`` (ended, and not to be started again) or ``failed`` (respawned until it was given up).
    """

    name: str
    pid: int | None
    state: str


class Programs(Protocol):
    """What actuators ask of whatever keeps their programs. Errors are PenstockErrors."""

    def add(self, program: Program) -> None:
        """Start a program."""
        ...

    def remove(self, name: str, *, wait: bool = True) -> None:
        """End it, gracefully, and forget it. An unknown name is nothing to do."""
        ...

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        """All programs whose name begins with ``prefix``."""
        ...


def base_environment() -> dict[str, str]:
    """What most programs want of the caller's environment, to begin ``Program.env`` with."""
    return {name: os.environ[name] for name in BASE_VARIABLES if name in os.environ}


def replica_environment() -> dict[str, str]:
    """The same for a replica: what Python needs besides, and Penstock's own settings."""
    python = ("TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "OPENBLAS_NUM_THREADS")
    own = {name: value for name, value in os.environ.items() if name in python or name.startswith("PENSTOCK_")}
    return {**base_environment(), **own}


class Supervisor:
    """Client of the daemon at ``endpoint`` (``Endpoints.supervisor``). Errors are PenstockErrors that name the program.

    Each call has a connection of its own: threads may share a client.
    """

    def __init__(self, endpoint: str, timeout_s: float = 5.0) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s

    def add(self, program: Program) -> None:
        """Start a program; returns once its process exists. A taken name is an error."""
        executable = program.command[0]
        if shutil.which(executable, path=program.env.get("PATH", os.defpath)) is None:
            raise PenstockError(f"{program.name}: there is no program {executable}")
        if not program.folder.is_dir():
            raise PenstockError(f"{program.name}: there is no folder {program.folder} to run in")
        program.log.parent.mkdir(parents=True, exist_ok=True)
        answer = self._ask(
            program.name,
            "add",
            name=program.name,
            cmd="/bin/sh",
            args=["-c", APPEND_OUTPUT, program.name, str(program.log.absolute()), *program.command],
            start=True,
            waiting=True,
            options={
                "numprocesses": 1,
                "copy_env": False,
                "env": dict(program.env),
                "working_dir": str(program.folder.absolute()),
                "respawn": program.respawn,
                "stop_signal": int(signal.SIGTERM),
                "graceful_timeout": program.grace_s,
                "max_retry": 1,
            },
        )
        if not answer.get("started"):
            self.remove(program.name)
            raise PenstockError(f"{program.name}: {executable} could not be started in {program.folder}")

    def remove(self, name: str, *, wait: bool = True) -> None:
        """SIGTERM, SIGKILL after ``grace_s``, forget. Without ``wait`` it returns at once and that goes on behind.
        An unknown name is nothing to do.
        """
        try:
            self._ask(name, "rm", wait_s=self._grace_s(name) if wait else 0.0, name=name, waiting=wait)
        except UnknownProgramError:
            return

    def restart(self, name: str) -> None:
        """Stop and start again; returns once the new process exists."""
        self._ask(name, "restart", wait_s=self._grace_s(name), name=name, match="simple", waiting=True)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the program's process. A program that does not run is an error."""
        status = self.programs(name).get(name)
        if status is None:
            raise UnknownProgramError(f"{name}: no such program is supervised")
        if status.pid is None:
            raise PenstockError(f"{name}: cannot be signalled, it does not run ({status.state})")
        self._ask(name, "signal", name=name, signum=int(number))

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        """All programs whose name begins with ``prefix``."""
        answer = self._ask("supervisor", "programs")["programs"]
        return {
            name: ProgramStatus(name, status["pid"], status["state"])
            for name, status in sorted(answer.items())
            if name.startswith(prefix)
        }

    def quit(self) -> None:
        """Tell the daemon to stop all programs, each with its grace, and then itself. Returns at once."""
        self._ask("supervisor", "quit", waiting=False)

    def _grace_s(self, name: str) -> float:
        answer = self._ask(name, "get", name=name, keys=["graceful_timeout"])
        return float(answer["options"]["graceful_timeout"])

    def _ask(self, program: str, command: str, wait_s: float = 0.0, **properties: Any) -> dict[str, Any]:
        """One command, answered within ``timeout_s + wait_s``; asked again while the daemon is at another one."""
        until = time.monotonic() + self.timeout_s + wait_s
        while True:
            answer = self._send(program, command, max(until - time.monotonic(), 0.05), properties)
            if answer.get("status") == "ok":
                return answer
            reason = str(answer.get("reason"))
            if "not found" in reason:
                raise UnknownProgramError(f"{program}: no such program is supervised")
            if "exists already" in reason:
                raise PenstockError(f"{program}: a program of that name is supervised already; remove it first")
            if "already running" not in reason or time.monotonic() > until:
                # The daemon quotes the whole command in its reason, secrets of the environment included.
                raise PenstockError(f"{program}: the supervisor at {self.endpoint} refused `{command}`, see its log")
            time.sleep(0.01)

    def _send(self, program: str, command: str, timeout_s: float, properties: Mapping[str, Any]) -> dict[str, Any]:
        from circus.client import CircusClient
        from circus.exc import CallError

        self._require_daemon()
        client = CircusClient(endpoint=self.endpoint, timeout=timeout_s)
        try:
            answer: dict[str, Any] = client.send_message(command, **properties)
        except CallError as error:
            self._require_daemon()
            raise PenstockError(
                f"{program}: no answer to `{command}` from the supervisor at {self.endpoint}: {error}"
            ) from None
        finally:
            client.stop()
        return answer

    def _require_daemon(self) -> None:
        """ZeroMQ would wait for a daemon that is not there until the time is up; a plain connection knows at once."""
        path = self.endpoint.removeprefix("ipc://")
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
        except OSError as error:
            raise NoSupervisorError(
                f"no supervisor at {self.endpoint or '(not set)'} ({error.strerror or error}): "
                "start the local world with `penstock up`"
            ) from None


class UnknownProgramError(PenstockError):
    """The supervisor keeps no program of that name."""


class NoSupervisorError(PenstockError):
    """No daemon listens at the endpoint."""
