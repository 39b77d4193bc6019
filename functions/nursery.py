"""A function's warm parent: ``python -m functions.nursery --function NAME --handler FOLDER --socket PATH``.

It imports the handler once and forks a replica whenever the gateway asks for one, which costs milliseconds instead of
the second that a Python with Flask takes to start. Its environment is the function's. It does nothing else: it runs no
thread and serves no request, so that forking is safe. It outlives the gateway, which finds it again by its socket.
SIGTERM: it ends its replicas, each after the request in hand, and then itself; SIGHUP is ignored.
"""

import argparse
import contextlib
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from functions.brood import Brood, Command, Departure, Hatchling
from functions.loading import Handle, load_handler
from functions.replica import BROKEN, EXIT_BROKEN, FIRST, READY, Replica, ReplicaSettings
from functions.tally import Row, Tally
from penstock.errors import PenstockError

log = logging.getLogger("nursery")

MOST: Final = 512
"""Replicas at a time."""
REMEMBERED: Final = 1000
"""Departures that a gateway which was away can still learn of."""
BACKLOG: Final = 16
PATIENCE_S: Final = 1.0
"""With a gateway that does not read what it is told: replicas come before it."""
CHUNK: Final = 65536


class Child:
    """A replica as its parent keeps it. ``asked``: it was told to end."""

    def __init__(self, state: Hatchling, voice: socket.socket, row: Row) -> None:
        self.state = state
        self.voice = voice
        self.row = row
        self.asked = False


class Nursery:
    """See the module. ``run`` returns when all is over."""

    def __init__(self, function: str, handle: Handle, path: Path) -> None:
        self.function = function
        self._handle = handle
        self._path = path
        self._tally = Tally(MOST)
        self._children: dict[str, Child] = {}
        self._gone: deque[Departure] = deque(maxlen=REMEMBERED)
        self._callers: dict[socket.socket, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._quitting = False
        self._wake, wake_write = socket.socketpair()
        for end in (self._wake, wake_write):
            end.setblocking(False)
        self._wake_write = wake_write
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._quit())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _require_nobody(path)
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(BACKLOG)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._door, selectors.EVENT_READ)
        gc.collect()
        gc.freeze()  # what was imported stays shared with every replica

    def run(self) -> None:
        """Until told to quit and the last replica is gone."""
        while not (self._quitting and not self._children):
            changed = False
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        ready.recv(CHUNK)
                elif ready is self._door:
                    caller, _ = ready.accept()
                    caller.settimeout(PATIENCE_S)
                    self._callers[caller] = bytearray()
                    self._selector.register(caller, selectors.EVENT_READ)
                elif ready in self._callers:
                    self._hear_caller(ready)
                else:
                    changed |= self._hear_child(str(key.data))
            changed |= self._reap()
            if changed:
                self._tell(-1, tuple(self._callers))
        self._path.unlink(missing_ok=True)

    # --- callers -----------------------------------------------------------------------------------------------------

    def _hear_caller(self, caller: socket.socket) -> None:
        try:
            heard = caller.recv(CHUNK)
        except OSError:
            heard = b""
        if not heard:
            self._hang_up(caller)
            return
        lines = self._callers[caller]
        lines += heard
        while (end := lines.find(b"\n")) >= 0:
            line = bytes(lines[:end])
            del lines[: end + 1]
            try:
                command = msgspec.json.decode(line, type=Command)
            except msgspec.DecodeError as error:
                log.warning("not a command: %s", error)
                self._hang_up(caller)
                return
            if command.start and not self._quitting:
                self._fork(command.start, command.requested_ns or time.time_ns())
            if command.end in self._children:
                self._end(self._children[command.end])
            if command.quit:
                self._quit()
            self._tell(command.number, (caller,))

    def _tell(self, number: int, callers: Sequence[socket.socket]) -> None:
        for child in self._children.values():
            child.state.busy = bool(child.row["busy"])
            child.state.first_ns = child.row["first_ns"]
        line = msgspec.json.encode(
            Brood(
                answers=number,
                function=self.function,
                pid=os.getpid(),
                replicas={name: child.state for name, child in self._children.items()},
                gone=tuple(self._gone),
                invocations=self._tally.total("invocations"),
                failed=self._tally.total("failed"),
                busy_s=self._tally.total("busy_ns") / 1e9,
                violations=self._tally.total("violations"),
            )
        )
        for caller in callers:
            if caller in self._callers:
                try:
                    caller.sendall(line + b"\n")
                except OSError:
                    self._hang_up(caller)

    def _hang_up(self, caller: socket.socket) -> None:
        del self._callers[caller]
        self._selector.unregister(caller)
        caller.close()

    # --- replicas ----------------------------------------------------------------------------------------------------

    def _fork(self, name: str, requested_ns: int) -> None:
        row = None if name in self._children else self._tally.take()
        if row is None:
            log.warning("%s is not started: it runs already, or %d others do", name, MOST)
            return
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(BACKLOG)
        voice, childs_voice = socket.socketpair()
        # A replica may be told to end right after it was forked: until it has its own handler it must not run this
        # one, which would end its siblings and leave it alive.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            try:
                self._become(name, listener, childs_voice, voice, row, requested_ns)
            except BaseException:
                log.exception("%s could not begin", name)
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        childs_voice.close()
        state = Hatchling(pid=pid, port=listener.getsockname()[1], phase="cold", started_ns=time.time_ns())
        listener.close()
        self._children[name] = Child(state, voice, row)
        self._selector.register(voice, selectors.EVENT_READ, name)

    def _become(
        self,
        name: str,
        listener: socket.socket,
        childs_voice: socket.socket,
        voice: socket.socket,
        row: Row,
        requested_ns: int,
    ) -> None:
        """In the child: keep nothing of the parent's that would hide its end from a sibling, or a caller's from it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._selector.close()
        kept = [voice, self._wake, self._wake_write, self._door, *self._callers]
        for inherited in (*kept, *(child.voice for child in self._children.values())):
            inherited.close()
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_format(name))
        Replica(
            name, self._handle, os.environ, listener=listener, tell=childs_voice, row=row, requested_ns=requested_ns
        ).run()

    def _hear_child(self, name: str) -> bool:
        """What a replica says of itself; its silence is told by SIGCHLD."""
        child = self._children.get(name)
        if child is None:
            return False
        said = child.voice.recv(16)
        if not said:
            self._selector.unregister(child.voice)
            return False
        if READY in said:
            child.state.ready_ns = time.time_ns()
            if child.state.phase == "cold":
                child.state.phase = "ready"
        if BROKEN in said:
            child.state.phase = "broken"
        return FIRST in said or READY in said or BROKEN in said

    def _reap(self) -> bool:
        changed = False
        for name, child in list(self._children.items()):
            pid, status = os.waitpid(child.state.pid, os.WNOHANG)
            if pid == 0:
                continue
            changed = True
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.voice)
            child.voice.close()
            del self._children[name]
            self._tally.free(child.row)
            reason = "" if child.asked else _reason(status)
            if reason:
                log.warning("%s (pid %d): %s", name, child.state.pid, reason)
            self._gone.append(Departure(name, time.time_ns(), reason))
        return changed

    def _end(self, child: Child) -> None:
        child.asked = True
        child.state.phase = "ending"
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.state.pid, signal.SIGTERM)

    def _quit(self) -> None:
        self._quitting = True
        for child in self._children.values():
            self._end(child)


def _require_nobody(path: Path) -> None:
    """Free the socket of a parent that has died. PenstockError if one answers: a gateway that was started anew while
    this one was warming up has begun another.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise PenstockError(f"{path}: a warm parent is there already")
    path.unlink(missing_ok=True)


def _format(name: str) -> logging.Formatter:
    return logging.Formatter(f"%(asctime)s {name} %(levelname)s: %(message)s")


def _reason(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code == EXIT_BROKEN:
        return "its handler hung"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended by itself with code {code}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The process. Exit code 2 with one line for a handler that cannot be imported or an environment that is wrong."""
    parser = argparse.ArgumentParser(prog="python -m functions.nursery", description="Warm parent of replicas.")
    parser.add_argument("--function", required=True, help="its name")
    parser.add_argument("--handler", type=Path, required=True, help="folder with handler.py")
    parser.add_argument("--socket", type=Path, required=True, help="where the gateway calls; made new")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_format(given.function))
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    try:
        ReplicaSettings(os.environ)
        nursery = Nursery(given.function, load_handler(given.handler), given.socket)
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except Exception as error:  # whatever a handler's import raises is its author's to mend
        log.exception("%s cannot be imported", given.handler / "handler.py")
        sys.stderr.write(f"error: {given.function}: {type(error).__name__}: {error}\n")
        return PenstockError.exit_code
    nursery.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
