"""A function's fork server: ``python -m functions.fork_server --function NAME --handler FOLDER --socket PATH``.

It imports the handler once and forks a replica at the gateway's command: milliseconds instead of the second that Python
with Flask takes to start. Its environment is the function's. It runs no thread and serves no request, so that forking
is safe. It outlives the gateway, which finds it by its socket. SIGTERM: it ends its replicas, each after its present
request, and then itself; SIGHUP is ignored.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from functions.fork_protocol import BackendReplica, BackendState, Command, Departure
from functions.loading import Handle, load_handler
from functions.replica import BROKEN, EXIT_BROKEN, FIRST, READY, Replica, ReplicaSettings
from functions.shared_counters import SharedCounters, SharedRow
from penstock.errors import PenstockError
from penstock.process_main import run_main
from penstock.sockets import listen

log = logging.getLogger("fork_server")

MOST: Final = 512
"""Replicas at a time."""
REMEMBERED: Final = 1000
"""Replicas that are gone, kept for a gateway that was away."""
BACKLOG: Final = 16
PATIENCE_S: Final = 1.0
"""Time-out of a send to a gateway that does not read: replicas come first."""
CHUNK: Final = 65536


@dataclass(slots=True)
class ForkedReplica:
    """A child process. ``asked``: it was asked to end."""

    state: BackendReplica
    channel: socket.socket
    row: SharedRow
    asked: bool = False


class ForkServer:
    """See the module. ``run`` returns when it and its replicas have ended."""

    def __init__(self, handle: Handle, path: Path) -> None:
        self._handle = handle
        self._path = path
        self._counters = SharedCounters(MOST)
        self._children: dict[str, ForkedReplica] = {}
        self._gone: deque[Departure] = deque(maxlen=REMEMBERED)
        self._callers: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._quitting = False
        self._wake, self._wake_write = socket.socketpair()
        for end in (self._wake, self._wake_write):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._quit())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        _require_unused(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(BACKLOG)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        gc.collect()
        gc.freeze()  # what was imported stays shared with every replica

    def run(self) -> None:
        """Work until ``quit`` and until the last replica is gone."""
        while not (self._quitting and not self._children):
            changed = False
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._wake:
                    with contextlib.suppress(BlockingIOError):
                        ready.recv(CHUNK)
                elif ready is self._listener:
                    caller, _ = ready.accept()
                    caller.settimeout(PATIENCE_S)
                    self._callers[caller] = b""
                    self._selector.register(caller, selectors.EVENT_READ)
                elif ready in self._callers:
                    self._receive_commands(ready)
                else:
                    changed |= self._receive_status(str(key.data))
            changed |= self._reap()
            if changed:
                self._send_state(-1, tuple(self._callers))
        self._path.unlink(missing_ok=True)

    # --- callers -----------------------------------------------------------------------------------------------------

    def _receive_commands(self, caller: socket.socket) -> None:
        try:
            received = caller.recv(CHUNK)
        except OSError:
            received = b""
        if not received:
            self._disconnect(caller)
            return
        *lines, self._callers[caller] = (self._callers[caller] + received).split(b"\n")
        for line in lines:
            try:
                command = msgspec.json.decode(line, type=Command)
            except msgspec.DecodeError as error:
                log.warning("not a command: %s", error)
                self._disconnect(caller)
                return
            if command.start and not self._quitting:
                self._fork(command.start, command.requested_ns or time.time_ns())
            if command.end in self._children:
                self._end(self._children[command.end])
            if command.quit:
                self._quit()
            self._send_state(command.number, (caller,))

    def _send_state(self, number: int, callers: Sequence[socket.socket]) -> None:
        for child in self._children.values():
            child.state.busy = bool(child.row.busy)
            child.state.first_ns = child.row.first_ns
        state = BackendState(
            answers=number,
            pid=os.getpid(),
            replicas={name: child.state for name, child in self._children.items()},
            gone=tuple(self._gone),
            **self._counters.totals(),
        )
        line = msgspec.json.encode(state) + b"\n"
        for caller in callers:
            if caller in self._callers:
                try:
                    caller.sendall(line)
                except OSError:
                    self._disconnect(caller)

    def _disconnect(self, caller: socket.socket) -> None:
        del self._callers[caller]
        self._selector.unregister(caller)
        caller.close()

    # --- replicas ----------------------------------------------------------------------------------------------------

    def _fork(self, name: str, requested_ns: int) -> None:
        row = None if name in self._children else self._counters.take()
        if row is None:
            log.warning("%s is not started: it runs already, or %d others do", name, MOST)
            return
        listener, port = listen("127.0.0.1", 0, "")
        listener.listen(BACKLOG)
        channel, own_channel = socket.socketpair()
        # A replica may get SIGTERM right after the fork: until it has its own handler it must not run this one, which
        # would end its siblings and leave it alive.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            try:
                channel.close()
                self._forget_parent()
                _label_log(name)
                Replica(
                    *(name, self._handle, os.environ),
                    listener=listener,
                    status=own_channel,
                    row=row,
                    requested_ns=requested_ns,
                ).run()
            except BaseException:
                log.exception("%s could not begin", name)
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        own_channel.close()
        state = BackendReplica(pid=pid, port=port, phase="cold", started_ns=time.time_ns())
        listener.close()
        self._children[name] = ForkedReplica(state, channel, row)
        self._selector.register(channel, selectors.EVENT_READ, name)

    def _forget_parent(self) -> None:
        """In the child: close the inherited sockets, which would hide the server's end from siblings and callers."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._selector.close()
        siblings = (child.channel for child in self._children.values())
        for inherited in (self._wake, self._wake_write, self._listener, *self._callers, *siblings):
            inherited.close()

    def _receive_status(self, name: str) -> bool:
        """Status bytes of a replica; SIGCHLD reports its end."""
        child = self._children.get(name)
        if child is None:
            return False
        status = child.channel.recv(16)
        if not status:
            self._selector.unregister(child.channel)
            return False
        if READY in status and child.state.phase == "cold":
            child.state.phase = "ready"
        if BROKEN in status:
            child.state.phase = "broken"
        return FIRST in status or READY in status or BROKEN in status

    def _reap(self) -> bool:
        changed = False
        for name, child in list(self._children.items()):
            pid, status = os.waitpid(child.state.pid, os.WNOHANG)
            if pid == 0:
                continue
            changed = True
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.channel)
            child.channel.close()
            del self._children[name]
            self._counters.free(child.row)
            reason = "" if child.asked else _reason(status)
            if reason:
                log.warning("%s (pid %d): %s", name, child.state.pid, reason)
            self._gone.append(Departure(name, time.time_ns(), reason))
        return changed

    def _end(self, child: ForkedReplica) -> None:
        child.asked = True
        child.state.phase = "ending"
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.state.pid, signal.SIGTERM)

    def _quit(self) -> None:
        self._quitting = True
        for child in self._children.values():
            self._end(child)


def _require_unused(path: Path) -> None:
    """Remove the socket of a server that has died. PenstockError if one answers: a restarted gateway has started
    another meanwhile.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise PenstockError(f"{path}: a fork server runs there already")
    path.unlink(missing_ok=True)


def _label_log(name: str) -> None:
    """The log is shared with other processes: every line has a name."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, force=True, format=f"%(asctime)s {name} %(levelname)s: %(message)s"
    )


def _reason(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code == EXIT_BROKEN:
        return "its handler hung"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"ended by itself with code {code}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 2 with one line for a handler that cannot be imported or a wrong environment."""
    parser = argparse.ArgumentParser(prog="python -m functions.fork_server", description="Fork server of a function.")
    parser.add_argument("--function", required=True, help="name of the function")
    parser.add_argument("--handler", type=Path, required=True, help="folder with handler.py")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket for the gateway")
    given = parser.parse_args(arguments)
    _label_log(given.function)
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)

    def work() -> None:
        ReplicaSettings(os.environ)
        ForkServer(load_handler(given.handler), given.socket).run()

    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
