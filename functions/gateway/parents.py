"""What keeps a function's replicas, as the control plane sees it, and warm parents as the one kind of it: starting one,
finding it again, commands and what comes back. The other kind, pods, is in ``functions.gateway.pods``.
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
from typing import Final, Protocol

import msgspec

from functions.brood import Brood, Command
from functions.gateway.haproxy import SLOT_PREFIX
from functions.gateway.roster import FunctionRecord
from penstock.errors import PenstockError

log = logging.getLogger("parents")

PARENTS: Final = "parents"
"""Within the gateway's: the socket of each."""
WARM_UP_S: Final = 120.0
ANSWER_S: Final = 10.0
LONGEST_LINE: Final = 1 << 22


class ParentAwayError(PenstockError):
    """The warm parent does not answer, or is not there."""


class Parent(Protocol):
    """What keeps the replicas of one generation of a function."""

    @property
    def brood(self) -> Brood | None:
        """As last heard of; None before."""
        ...

    @property
    def there(self) -> bool:
        """Whether it can be spoken to."""
        ...

    async def start(self) -> None:
        """Make it. Raises PenstockError if that cannot be."""
        ...

    async def adopt(self) -> bool:
        """Whether a predecessor has left it."""
        ...

    async def ask(self, *, start: str = "", requested_ns: int = 0, end: str = "") -> Brood:
        """Give a command; returns the state after it. Raises ParentAwayError."""
        ...

    async def quit(self, timeout_s: float) -> None:
        """Have it end its replicas and itself; what has not ended in time is killed."""
        ...

    def leave(self) -> None:
        """Hang up; it goes on."""
        ...


class Parents(Protocol):
    """Makes the control plane's view of what keeps replicas."""

    def of(self, record: FunctionRecord, generation: int, changed: Callable[[], None]) -> Parent:
        """Of one generation of a function. ``changed`` is called whenever its brood is a new one or it is lost."""
        ...


class WarmParents:
    """Warm parents of the gateway in ``state``: replicas are processes beside it."""

    def __init__(
        self,
        state: Path,
        handler_of: Callable[[str], Path],
        environment_of: Callable[[FunctionRecord], Mapping[str, str]],
    ) -> None:
        self.state = state
        self.handler_of = handler_of
        self.environment_of = environment_of

    def of(self, record: FunctionRecord, generation: int, changed: Callable[[], None]) -> "WarmParent":
        """See ``Parents``."""
        return WarmParent(self, record, generation, changed)


class WarmParent:
    """The warm parent of one generation of a function."""

    def __init__(self, kept: WarmParents, record: FunctionRecord, generation: int, changed: Callable[[], None]) -> None:
        self.function = record.name
        # A function's name would make the path too long for a socket.
        self.path = kept.state / PARENTS / f"{record.slot.removeprefix(SLOT_PREFIX)}.{generation}"
        self.brood: Brood | None = None
        self._kept = kept
        self._record = record
        self._changed = changed
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Brood]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def there(self) -> bool:
        """Whether it can be spoken to."""
        return self._writer is not None

    async def start(self) -> None:
        """Start it and return when it is warm. Raises PenstockError with its last words if it ends before."""
        handler = self._kept.handler_of(self._record.deployment.image)
        environment = self._kept.environment_of(self._record)
        output = self._kept.state / "logs" / f"{self.function}.log"
        self.path.unlink(missing_ok=True)
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                (
                    *(sys.executable, "-m", "functions.nursery", "--function", self.function),
                    *("--handler", str(handler), "--socket", str(self.path)),
                ),
                cwd=output.parent,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            await self._await_warmth(self._process, output)
        except BaseException:  # nobody would know of it: its socket is not there yet
            self._process.kill()
            raise

    async def _await_warmth(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        until = time.monotonic() + WARM_UP_S
        while not await self.adopt():
            if process.poll() is not None:
                words = output.read_text(errors="replace").splitlines()[-1:]
                raise PenstockError(f"{self.function}: its warm parent has ended: {''.join(words)} (see {output})")
            if time.monotonic() > until:
                raise PenstockError(
                    f"{self.function}: its handler was not imported within {WARM_UP_S:g} s; see {output}"
                )
            await asyncio.sleep(0.02)

    async def adopt(self) -> bool:
        """Whether one answers at the socket."""
        try:
            reader, self._writer = await asyncio.open_unix_connection(str(self.path), limit=LONGEST_LINE)
        except OSError:
            return False
        self._reading = asyncio.create_task(self._read(reader))
        with contextlib.suppress(ParentAwayError):
            await self.ask()
        return self.there

    async def ask(self, *, start: str = "", requested_ns: int = 0, end: str = "", quit: bool = False) -> Brood:  # noqa: A002 - the command's own name
        """Give a command; returns the state after it. Raises ParentAwayError."""
        if self._writer is None:
            raise ParentAwayError(f"{self.function}: there is no warm parent")
        number = next(self._numbers)
        answer: asyncio.Future[Brood] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        command = Command(number, start=start, requested_ns=requested_ns, end=end, quit=quit)
        try:
            self._writer.write(msgspec.json.encode(command) + b"\n")
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise ParentAwayError(f"{self.function}: its warm parent has not answered within {ANSWER_S:g} s") from None
        finally:
            self._answers.pop(number, None)

    async def quit(self, timeout_s: float) -> None:
        """Have it end its replicas and itself; what has not ended in time is killed."""
        pid = self.brood.pid if self.brood is not None else None
        with contextlib.suppress(ParentAwayError):
            await self.ask(quit=True)
        until = time.monotonic() + timeout_s
        while self.there and time.monotonic() < until:
            await asyncio.sleep(0.02)
        if self.there and pid is not None:
            log.warning("%s: replicas that have not ended within %g s are killed", self.function, timeout_s)
            left = (
                [pid, *(replica.pid for replica in self.brood.replicas.values())] if self.brood is not None else [pid]
            )
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def leave(self) -> None:
        """Hang up; it goes on."""
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self.brood = brood = msgspec.json.decode(line, type=Brood)
                answer = self._answers.get(brood.answers)
                if answer is None:
                    self._changed()
                elif not answer.done():
                    answer.set_result(brood)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            log.warning("%s: lost its warm parent: %s", self.function, error)
        self._lost()

    def _lost(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        if self._process is not None:
            self._process.poll()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ParentAwayError(f"{self.function}: its warm parent has gone"))
        self._changed()
