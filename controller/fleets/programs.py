"""Programs of a run's replicas on a process manager: start, watch, end."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from penstock.adapters.process_manager import Program, Programs, ProgramStatus, replica_environment
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory

SILENCE_NS: Final = 5 * NANOS_PER_SECOND
"""A program that the process manager gave up after repeated failures is started anew after this long."""


class WorkerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a replica: its own arguments follow ``command``; one log per replica in ``logs``."""

    command: tuple[str, ...]
    folder: Path
    logs: Path
    env: Mapping[str, str]
    grace_s: float = 10.0

    @classmethod
    def of_run(cls, directory: RunDirectory, command: Collection[str]) -> "WorkerProgram":
        """A replica of a run, by ``command`` and ``--run``."""
        return cls(
            command=(*command, "--run", str(directory.path)),
            folder=directory.path,
            logs=directory.logs_folder,
            env=replica_environment(),
        )


class ProgramWork(msgspec.Struct, frozen=True):
    """Replicas whose program is to be started or ended; ``delete``: their program has ended for good."""

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


class ProcessWatch(msgspec.Struct, kw_only=True):
    """The process of a program as last seen, first at ``born_ns``. ``silent_ns``: since when there is none."""

    pid: int | None = None
    born_ns: int = 0
    silent_ns: int | None = None

    def look(self, program: ProgramStatus | None, now_ns: int) -> str:
        """Compare with the process seen before; returns how that one was lost, or an empty text."""
        pid = program.pid if program is not None else None
        lost = f"process {self.pid} ended by itself" if self.pid is not None and pid != self.pid else ""
        if pid is not None and pid != self.pid:
            self.born_ns = now_ns
        self.pid = pid
        self.silent_ns = (self.silent_ns or now_ns) if pid is None else None
        return lost

    def is_given_up(self, program: ProgramStatus, now_ns: int, silence_ns: int = SILENCE_NS) -> bool:
        """Whether the process manager gave the program up, ``silence_ns`` ago or earlier."""
        given_up = program.state in ("stopped", "failed")
        return given_up and self.silent_ns is not None and now_ns - self.silent_ns >= silence_ns


class RunPrograms:
    """Programs of one run, named ``<run>:<name>`` on the process manager; ``name`` here."""

    def __init__(self, run: str, programs: Programs, program: WorkerProgram) -> None:
        self.program = program
        self._prefix = f"{run}:"
        self._programs = programs

    def look(self, prefix: str = "") -> dict[str, ProgramStatus]:
        """Programs whose name begins with ``prefix``."""
        found = self._programs.programs(prefix=self._prefix + prefix)
        return {name.removeprefix(self._prefix): program for name, program in found.items()}

    def start(
        self, name: str, *arguments: str, command: tuple[str, ...] = (), env: Mapping[str, str] | None = None
    ) -> None:
        """Run the worker's command, or another one, followed by ``arguments``."""
        program = self.program
        self._programs.add(
            Program(
                name=self._prefix + name,
                command=(*(command or program.command), *arguments),
                folder=program.folder,
                log=program.logs / f"{name}.log",
                env=program.env if env is None else env,
                respawn=True,
                grace_s=program.grace_s,
            )
        )

    def end(self, name: str) -> None:
        """Send SIGTERM and return at once."""
        self._programs.remove(self._prefix + name, wait=False)

    def end_all(self, *names: str, prefix: str = "", timeout_s: float) -> None:
        """End those ``names``, or all that begin with ``prefix``, and wait. Raises PenstockError if some do not end."""
        deadline_s = time.monotonic() + timeout_s
        ending: set[str] = set()
        while left := [name for name in self.look(prefix) if prefix or name in names]:
            for name in set(left) - ending:
                self.end(name)
                ending.add(name)
            if time.monotonic() > deadline_s:
                raise PenstockError(f"replicas {', '.join(left)} have not ended within {timeout_s:g} s; see their logs")
            time.sleep(0.05)
