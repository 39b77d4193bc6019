"""One machine: files in memory, and a process manager that behaves as ``infra.local.daemon``."""

import errno
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.adapters.process_manager import Program, ProgramStatus, UnknownProgramError
from penstock.errors import PenstockError
from tests.faults.kernel import SECOND, Kernel, Process, kernel
from tests.faults.network import Network, Trouble

RESTART_NS = SECOND // 4
CRASHES, CRASH_WINDOW_NS = 5, 10 * SECOND


class Disk:
    """Files by path. While it is full, ``room`` bytes are written and no more."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.full_until = 0
        self.room = 0


class SimPath:
    """The part of ``pathlib.Path`` that a run directory uses. A write is a step at which its process may die."""

    disk: Disk

    def __init__(self, path: str) -> None:
        self._path = path

    def __truediv__(self, other: str) -> "SimPath":
        return SimPath(f"{self._path}/{other}")

    def __str__(self) -> str:
        return self._path

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def parent(self) -> "SimPath":
        return SimPath(self._path.rpartition("/")[0])

    def with_name(self, name: str) -> "SimPath":
        return self.parent / name

    def absolute(self) -> "SimPath":
        return self

    def exists(self) -> bool:
        return self._path in self.disk.files

    is_file = exists

    def is_dir(self) -> bool:
        return True

    def mkdir(self, **_: Any) -> None:
        return

    def unlink(self, missing_ok: bool = False) -> None:
        self.disk.files.pop(self._path, None)

    def stat(self) -> "SimPath":
        return self

    @property
    def st_size(self) -> int:
        return len(self.disk.files[self._path])

    def read_bytes(self) -> bytes:
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", self._path)
        return self.disk.files[self._path]

    def write_bytes(self, content: bytes) -> int:
        if (written := self._write(content)) < len(content):
            self._write(content[written:], content[:written])
        return len(content)

    def _write(self, content: bytes, before: bytes = b"") -> int:
        k = kernel()
        process = k.current.process if k.current is not None else None
        if process is not None and process.crash_after == 0:  # half of it, then the process is gone
            self.disk.files[self._path] = before + content[: len(content) // 2]
        k.step(f"write {self.name}")
        if self.disk.full_until > k.now_ns:
            content = content[: self.disk.room]
            self.disk.room -= len(content)
            if not content:
                raise OSError(errno.ENOSPC, "No space left on device", self._path)
        self.disk.files[self._path] = before + content
        return len(content)

    def replace(self, other: "SimPath") -> None:
        kernel().step(f"rename {other.name}")
        self.disk.files[str(other)] = self.disk.files.pop(self._path)

    def open(self, mode: str, buffering: int = -1) -> "SimPath":
        del mode, buffering
        self.disk.files.setdefault(self._path, b"")
        return self

    def write(self, content: bytes) -> int:
        """As the file that ``open`` returns, at its end; how many bytes found room."""
        return self._write(bytes(content), self.disk.files[self._path])

    def close(self) -> None:
        return


class Managed:
    """A program with its process."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: Process | None = None
        self.state = "active"
        self.started: deque[int] = deque(maxlen=CRASHES)
        self.removed = False


class ProcessManager:
    """``launch(program, process)`` gives the main function of a program's process."""

    def __init__(
        self, kernel: Kernel, network: Network, launch: Callable[[Program, Process], Callable[[], Any] | None]
    ) -> None:
        self.kernel, self.network, self._launch = kernel, network, launch
        self.programs: dict[str, Managed] = {}
        self.essential: set[str] = set()
        """Programs without which there is no run: an operator starts them again."""
        self.kind_of: Callable[[str], str] = lambda name: name

    def add(self, program: Program) -> None:
        if program.name in self.programs:
            raise PenstockError(f"{program.name}: a program of that name is supervised already; remove it first")
        managed = self.programs[program.name] = Managed(program)
        self._start(managed)

    def remove(self, name: str) -> None:
        managed = self.programs.get(name)
        if managed is None:
            raise UnknownProgramError(f"{name}: no such program is supervised")
        managed.removed = True
        self._stop(managed)
        self._forget_if_gone(managed)

    def stop(self, name: str) -> None:
        """Another client's ``stop``: it stays in the list without a process."""
        if (managed := self.programs.get(name)) is not None:
            self._stop(managed)

    def statuses(self, prefix: str) -> dict[str, ProgramStatus]:
        return {
            name: ProgramStatus(name, managed.process.pid if managed.process is not None else None, managed.state)
            for name, managed in sorted(self.programs.items())
            if name.startswith(prefix)
        }

    def process_of(self, name: str) -> Process | None:
        managed = self.programs.get(name)
        return None if managed is None else managed.process

    def _start(self, managed: Managed) -> None:
        now_ns, starts = self.kernel.now_ns, managed.started
        if len(starts) == CRASHES and now_ns - starts[0] < CRASH_WINDOW_NS:
            managed.state = "failed"
            if managed.program.name in self.essential:
                self.kernel.soon(lambda: self._restart(managed), 2 * SECOND)
            return
        starts.append(now_ns)
        name = managed.program.name
        process = self.kernel.process(self.kind_of(name), name, lambda how: self._exited(managed, how))
        managed.process, managed.state = process, "active"
        main = self._launch(managed.program, process)
        if main is not None:
            process.start(main)

    def _stop(self, managed: Managed) -> None:
        process = managed.process
        managed.state = "stopping" if process is not None else "stopped"
        if process is not None:
            process.terminate()
            self.kernel.soon(process.kill, round(managed.program.grace_s * SECOND))

    def _exited(self, managed: Managed, how: str) -> None:
        del how
        managed.process = None
        if managed.state == "stopping":
            managed.state = "stopped"
            self._forget_if_gone(managed)
        elif managed.program.respawn:
            self.kernel.soon(lambda: self._respawn(managed), RESTART_NS)
        else:
            managed.state = "stopped"

    def _restart(self, managed: Managed) -> None:
        managed.state = "active"
        managed.started.clear()
        self._respawn(managed)

    def _respawn(self, managed: Managed) -> None:
        there = self.programs.get(managed.program.name) is managed
        if there and managed.process is None and managed.state == "active":
            self._start(managed)

    def _forget_if_gone(self, managed: Managed) -> None:
        name = managed.program.name
        if managed.removed and managed.process is None and self.programs.get(name) is managed:
            del self.programs[name]


class ManagerClient:
    """``penstock.adapters.process_manager.Supervisor``."""

    manager: ProcessManager

    def __init__(self, endpoint: str, timeout_s: float = 5.0) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s

    def add(self, program: Program) -> None:
        self._ask(f"add {program.name}", lambda: self.manager.add(program))

    def remove(self, name: str, *, wait: bool = True) -> None:
        try:
            self._ask(f"remove {name}", lambda: self.manager.remove(name))
        except UnknownProgramError:
            return
        while wait and self.programs(name):
            kernel().sleep(0.05)

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        found: dict[str, ProgramStatus] = self._ask("programs", lambda: self.manager.statuses(prefix))
        return found

    def _ask(self, what: str, effect: Callable[[], Any]) -> Any:
        def answer() -> Any:
            try:
                return effect()
            except PenstockError as error:
                return error

        try:
            found = self.manager.network.ask("supervisor", what, answer, self.timeout_s)
        except Trouble as trouble:
            raise PenstockError(f"the supervisor: {what}: {trouble}") from None
        if isinstance(found, PenstockError):
            raise found
        return found
