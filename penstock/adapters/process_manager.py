"""Client of a process supervisor: a circus daemon, which the entry point ``penstock.daemons`` names.

The daemon outlives the process that started it: a restarted controller finds its replicas.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from penstock.errors import PenstockError

APPEND_OUTPUT: Final = 'log=$1; shift; exec "$@" >>"$log" 2>&1'
"""A program writes its log itself: no output is lost in the daemon, and no SIGPIPE follows when the daemon dies."""
BASE_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "JAVA_HOME", "LD_LIBRARY_PATH")
OF_REPLICAS: Final = "PENSTOCK_REPLICAS_"
"""Prefix of variables for replicas alone, in the environment of the process that starts them."""
START_TIMEOUT_S: Final = 30.0
DEFAULT_TIMEOUT_S: Final = 5.0
PATIENCE_S: Final = 30.0
"""For the answer of a daemon that lives, where giving up ends a run: a machine with all cores busy may hold it up."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A supervised process. ``respawn``: restart it when it ends, until it has ended five times within ten seconds.
    ``grace_s``: SIGTERM to SIGKILL. ``env`` is its whole environment.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    respawn: bool = False
    grace_s: float = 10.0


class ProgramStatus(msgspec.Struct, frozen=True):
    """``pid`` is None without a process. ``state``: ``starting``, ``active``, ``stopping``, ``stopped`` or ``failed``
    (ended too often to be restarted). ``former_ended_ns``: when the process before ended, by its machine's clock; None
    where that is not told.
    """

    name: str
    pid: int | None
    state: str
    former_ended_ns: int | None = None


class Programs(Protocol):
    """Interface of a process manager to actuators. Errors are PenstockErrors."""

    def add(self, program: Program) -> None:
        """Start a program."""

    def remove(self, name: str, *, wait: bool = True) -> None:
        """End a program gracefully and remove it. An unknown name is ignored."""

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        """All programs whose name begins with ``prefix``."""


def base_environment() -> dict[str, str]:
    """Variables of the caller's environment that most programs need."""
    return {name: os.environ[name] for name in BASE_VARIABLES if name in os.environ}


def replica_environment() -> dict[str, str]:
    """``base_environment`` with the variables of Python and of Penstock's settings, for a replica. A variable
    ``PENSTOCK_REPLICAS_<NAME>`` is its ``PENSTOCK_<NAME>``.
    """
    python = ("TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "OPENBLAS_NUM_THREADS")
    own = {name: value for name, value in os.environ.items() if name in python or name.startswith("PENSTOCK_")}
    for name in [name for name in own if name.startswith(OF_REPLICAS)]:
        own[f"PENSTOCK_{name.removeprefix(OF_REPLICAS)}"] = own.pop(name)
    return {**base_environment(), **own}


def start_supervisor(folder: Path, log: Path, environment: Mapping[str, str] | None = None) -> None:
    """Start the daemon of a state folder. PenstockError with the end of its log if it does not start."""
    (point,) = entry_points(group="penstock.daemons", name="supervisor")
    with log.open("ab") as output:
        done = subprocess.run(
            (sys.executable, "-m", point.module, str(folder.absolute())),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            timeout=START_TIMEOUT_S,
        )
    if done.returncode != 0:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise PenstockError(f"the supervisor does not start; the end of {log}:\n{last}")


class Supervisor:
    """Client of the daemon at ``endpoint``; threads may share it. Errors are PenstockErrors that name the program."""

    def __init__(self, endpoint: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.endpoint = endpoint
        self.timeout_s = timeout_s

    def add(self, program: Program) -> None:
        """Start a program; return once its process exists. A name in use is an error."""
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
        """End a program (SIGTERM, SIGKILL after ``grace_s``) and remove it. An unknown name is ignored."""
        try:
            options = self._ask(name, "get", name=name, keys=["graceful_timeout"])["options"]
            grace_s = float(options["graceful_timeout"]) if wait else 0.0
            self._ask(name, "rm", wait_s=grace_s, name=name, waiting=wait)
        except UnknownProgramError:
            return

    def signal(self, name: str, number: int) -> None:
        """Send a signal to the program's process. A program without a process is an error."""
        status = self.programs(name).get(name)
        if status is not None and status.pid is None:
            raise NotRunningError(f"{name}: cannot be signalled, it does not run ({status.state})")
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
        """Make the daemon stop all programs gracefully, and then itself. Return at once."""
        self._ask("supervisor", "quit", waiting=False)

    def _ask(self, program: str, command: str, wait_s: float = 0.0, **properties: Any) -> dict[str, Any]:
        """Answer to one command within ``timeout_s + wait_s``; repeated while the daemon runs another command."""
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
        """Fail at once without a daemon; ZeroMQ would wait until the timeout."""
        path = self.endpoint.removeprefix("ipc://")
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
        except OSError as error:
            raise NoSupervisorError(
                f"no supervisor at {self.endpoint or '(not set)'} ({error.strerror or error}): "
                "start the local world with `penstock up`"
            ) from None


class NotRunningError(PenstockError):
    """A program has no process now."""


class UnknownProgramError(NotRunningError):
    """The supervisor has no program of that name."""


class NoSupervisorError(PenstockError):
    """No daemon listens at the endpoint."""
