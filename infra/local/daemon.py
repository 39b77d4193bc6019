"""The process supervisor of one state folder: ``python -m infra.local.daemon STATE_FOLDER``.

A circus arbiter without a config file. Clients add and remove programs through its command socket
(``penstock.adapters.process_manager``).
Circus holds a lock for as long as a stop takes; a fleet starts and stops replicas side by side, so here stops do not.
"""

import fcntl
import os
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
from circus import logger
from circus.arbiter import Arbiter
from circus.commands.base import Command
from circus.exc import MessageError
from circus.util import configure_logger
from circus.watcher import Watcher
from tornado import gen, locks

from infra.local.state import MARKER, StateFolder

CHECK_DELAY_S: Final = 0.25
CRASHES: Final = 5
CRASH_WINDOW_S: Final = 10.0


class ProgramWatcher(Watcher):  # type: ignore[misc]  # circus ships no types
    """One program: concurrent stops are one, its children end with it, and repeated crashes end its restarts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.turn = locks.Lock()
        self._stopped: Any = None
        self._spawned: deque[float] = deque(maxlen=CRASHES)
        self._gave_up = False

    def spawn_process(self, recovery_wid: Any = None) -> Any:
        """Circus' own, but False (do not start again) after ``CRASHES`` starts within ``CRASH_WINDOW_S``."""
        now = time.monotonic()
        if len(self._spawned) == CRASHES and now - self._spawned[0] < CRASH_WINDOW_S:
            logger.error("%s ended %d times within %g s: not started again", self.name, CRASHES, CRASH_WINDOW_S)
            self._gave_up = True
            return False
        self._spawned.append(now)
        return super().spawn_process(recovery_wid)

    def status(self) -> str:
        """Circus' states, and ``failed`` for a program that was given up."""
        return "failed" if self._gave_up and self.is_stopped() else str(super().status())

    def _stop(self, close_output_streams: bool = False) -> Any:
        # Circus' own second stop would block the whole daemon until the first has come to its end.
        if self._stopped is None or self._stopped.done():
            self._stopped = super()._stop(close_output_streams)
        return self._stopped

    @gen.coroutine
    def restart(self) -> Generator[Any, Any, None]:
        """Stop and start again, forgiving earlier crashes."""
        with (yield self.turn.acquire()):
            yield self._stop()
            self._spawned.clear()
            self._gave_up = False
            yield self._start()

    @gen.coroutine
    def kill_process(
        self, process: Any, stop_signal: Any = None, graceful_timeout: Any = None
    ) -> Generator[Any, Any, Any]:
        """Circus' own, then wait for the process' children to end; SIGKILL after the grace."""
        until = time.monotonic() + self.graceful_timeout
        children: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children(recursive=True)
        stopped = yield super().kill_process(process, stop_signal, graceful_timeout)
        while (left := _alive(children)) and time.monotonic() < until:
            yield gen.sleep(0.05)
        for child in left:
            child.kill()
        return stopped


class ProgramArbiter(Arbiter):  # type: ignore[misc]  # circus ships no types
    """Adds programs that carry the state folder's mark, and removes them without keeping others waiting."""

    def __init__(self, state: StateFolder) -> None:
        super().__init__(
            [], state.supervisor_endpoint, f"ipc://{state.events_socket}", check_delay=CHECK_DELAY_S, umask=0o077
        )
        self.mark = {MARKER: str(state.path)}

    def add_watcher(self, name: str, cmd: str, **options: Any) -> ProgramWatcher:
        """A new program, not yet started."""
        if name.lower() in self._watchers_names:
            raise MessageError(f"{name} exists already")
        watcher = ProgramWatcher(name, cmd, **{**options, "env": {**options.get("env", {}), **self.mark}})
        watcher.initialize(self.evpub_socket, self.sockets, self)
        self.watchers.append(watcher)
        self._watchers_names[name.lower()] = watcher
        return watcher

    @gen.coroutine
    def rm_watcher(self, name: str, nostop: bool = False) -> Generator[Any, Any, None]:
        """Stop a program and forget it; it is still listed, as stopping, until it has ended."""
        watcher = self.get_watcher(name)
        with (yield watcher.turn.acquire()):
            if not nostop:
                yield watcher._stop()
            if self._watchers_names.get(name.lower()) is watcher:
                del self._watchers_names[name.lower()]
                self.watchers.remove(watcher)

    def manage_watchers(self) -> Any:
        """Check the programs, unless a command is running: then a quarter of a second later."""
        return None if self._exclusive_running_command else super().manage_watchers()


class Programs(Command):  # type: ignore[misc]  # circus ships no types
    """All programs in one answer: name → state and pid."""

    name = "programs"

    def execute(self, arbiter: ProgramArbiter, props: Mapping[str, Any]) -> dict[str, Any]:
        """The answer's content; the command has no properties."""
        del props
        return {
            "programs": {
                watcher.name: {"state": watcher.status(), "pid": next(iter(watcher.get_active_pids()), None)}
                for watcher in arbiter.watchers
            }
        }


def main() -> None:
    """Go into the background; exit code 0 once the supervisor serves."""
    state = StateFolder(Path(sys.argv[1]))
    ready, announce = os.pipe()
    if os.fork():
        os.close(announce)
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    with state.supervisor_lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another supervisor keeps {state.path}")
        state.supervisor_pid.write_text(str(os.getpid()))
        configure_logger(logger, "warning", str(state.supervisor_log))
        ProgramArbiter(state).start(cb=lambda _: os.write(announce, b"."))


def _alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; zombies do not count."""

    def runs(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [process for process in processes if runs(process)]


if __name__ == "__main__":
    main()
