"""Fork servers as backends, which keep a function's replicas: they are started, found again and given commands over a
socket. The other kind of backend, pods, is in ``functions.gateway.pods``.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from functions.fork_protocol import BackendState, Command
from functions.gateway.haproxy import SLOT_PREFIX
from functions.gateway.replica_set import FunctionRecord
from penstock.errors import PenstockError

log = logging.getLogger("backends")

SOCKETS: Final = "backends"
"""Folder of the fork servers' sockets, in the gateway's state folder."""
WARM_UP_S: Final = 120.0
ANSWER_S: Final = 10.0
LONGEST_LINE: Final = 1 << 22


class BackendAwayError(PenstockError):
    """The backend does not answer or does not exist."""


class ForkServerBackend:
    """The fork server of one generation of a function, for the gateway in ``folder``: replicas are local processes.
    ``changed`` is called when its state changes or it is lost.
    """

    def __init__(
        self,
        folder: Path,
        handler_of: Callable[[str], Path],
        environment_of: Callable[[FunctionRecord], Mapping[str, str]],
        record: FunctionRecord,
        generation: int,
        changed: Callable[[], None],
    ) -> None:
        self.function = record.name
        # A function's name would make the path too long for a socket.
        self.path = folder / SOCKETS / f"{record.slot.removeprefix(SLOT_PREFIX)}.{generation}"
        self.state: BackendState | None = None
        """As last reported; None before."""
        self._output = folder / "logs" / f"{self.function}.log"
        self._handler_of, self._environment_of = handler_of, environment_of
        self._record = record
        self._changed = changed
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[BackendState]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def there(self) -> bool:
        """Whether it is connected."""
        return self._writer is not None

    async def start(self) -> None:
        """Start it; returns when the handler is imported. Raises PenstockError with its last log line if it ends."""
        handler = self._handler_of(self._record.deployment.image)
        self.path.unlink(missing_ok=True)
        with self._output.open("ab") as out:
            self._process = process = subprocess.Popen(
                (
                    *(sys.executable, "-m", "functions.fork_server", "--function", self.function),
                    *("--handler", str(handler), "--socket", str(self.path)),
                ),
                cwd=self._output.parent,
                env=dict(self._environment_of(self._record)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        until = time.monotonic() + WARM_UP_S
        try:
            while not await self.adopt():
                if process.poll() is not None:
                    last = "".join(self._output.read_text(errors="replace").splitlines()[-1:])
                    raise PenstockError(f"{self.function}: its fork server has ended: {last} (see {self._output})")
                if time.monotonic() > until:
                    why = f"its handler was not imported within {WARM_UP_S:g} s"
                    raise PenstockError(f"{self.function}: {why}; see {self._output}")
                await asyncio.sleep(0.02)
        except BaseException:  # it has no socket yet by which it could be found
            process.kill()
            raise

    async def adopt(self) -> bool:
        """Connect; whether one answers at the socket."""
        try:
            reader, self._writer = await asyncio.open_unix_connection(str(self.path), limit=LONGEST_LINE)
        except OSError:
            return False
        self._reading = asyncio.create_task(self._read(reader))
        with contextlib.suppress(BackendAwayError):
            await self.ask()
        return self.there

    async def ask(self, *, start: str = "", requested_ns: int = 0, end: str = "", quit: bool = False) -> BackendState:  # noqa: A002 - the command's own name
        """Give a command; returns the state after it. Raises BackendAwayError."""
        if self._writer is None:
            raise BackendAwayError(f"{self.function}: no fork server is connected")
        number = next(self._numbers)
        answer: asyncio.Future[BackendState] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        command = Command(number, start=start, requested_ns=requested_ns, end=end, quit=quit)
        try:
            self._writer.write(msgspec.json.encode(command) + b"\n")
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise BackendAwayError(f"{self.function}: its fork server has not answered within {ANSWER_S:g} s") from None
        finally:
            self._answers.pop(number, None)

    async def quit(self, timeout_s: float) -> None:
        """End its replicas and itself; those that have not ended in time are killed."""
        with contextlib.suppress(BackendAwayError):
            await self.ask(quit=True)
        until = time.monotonic() + timeout_s
        while self.there and time.monotonic() < until:
            await asyncio.sleep(0.02)
        if self.there and self.state is not None:
            log.warning("%s: replicas that have not ended within %g s are killed", self.function, timeout_s)
            for pid in (self.state.pid, *(replica.pid for replica in self.state.replicas.values())):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def leave(self) -> None:
        """Disconnect; it continues."""
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self.state = state = msgspec.json.decode(line, type=BackendState)
                answer = self._answers.get(state.answers)
                if answer is None:
                    self._changed()
                elif not answer.done():
                    answer.set_result(state)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            log.warning("%s: lost its fork server: %s", self.function, error)
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        if self._process is not None:
            self._process.poll()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BackendAwayError(f"{self.function}: its fork server has gone"))
        self._changed()
