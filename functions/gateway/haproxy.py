"""HAProxy as the data plane: its configuration, its process, and its runtime API.

Backends cannot be added to a running HAProxy 2.6, and a reload would forget which replicas are busy. So there is a
fixed number of slots, each a backend; which function has which slot stands in a map that is changed at run time.
One thread, so that a request is counted before the next one is looked at: with several, two could be let through to
one free place.
"""

import asyncio
import contextlib
import csv
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import PenstockError

log = logging.getLogger("haproxy")

CONFIG: Final = "haproxy.cfg"
CONFIGURED: Final = "configured"
"""A file that is there once configuration and maps are."""
SLOTS: Final = 48
SLOT_PREFIX: Final = "slot-"
START_S: Final = 30.0
ANSWER_S: Final = 5.0
QUEUE_TIMEOUT_S: Final = 600
"""How long a request may wait at the gateway at the most; callers have their own, shorter time."""
KEPT_CONNECTIONS: Final = "pool-max-conn 4 pool-purge-delay 10m"
"""Of a server that is added at run time no connection is kept unless both are said (seen with 2.6.12)."""
LONGEST_ANSWER_MS: Final = 3_600_000

GLOBAL = """\
global
    stats socket unix@runtime.sock mode 600 level admin
    nbthread 1
    maxconn 4000
    log ring@requests local0
# Lines of requests that are over: kept while the control plane is away, read by it in bunches.
ring requests
    format raw
    maxlen 1024
    size 4194304
    timeout connect 1s
    timeout server 10s
    server control unix@requests.sock log-proto legacy
defaults
    mode http
    timeout connect 1s
    timeout client 1h
    timeout server 1h
    timeout queue {queue_s}s
    timeout http-keep-alive 10m
    # A connection that is refused goes to another replica at once: the request has not been seen by anybody.
    option redispatch 1
    retries 3
    http-reuse always
frontend gateway
    bind {address}:{port}
    log global
    log-format "%[var(txn.function)] %ST %Tw %Tr %Ta %s"
    http-request use-service prometheus-exporter if {{ path /haproxy/metrics }}
    http-request set-var(txn.function) path,field(3,/) if {{ path_beg /function/ }}
    http-request set-log-level silent unless {{ var(txn.function) -m found }}
    http-request set-var(txn.slot) var(txn.function),map_str(slots.map) if {{ var(txn.function) -m found }}
    http-request return status 404 content-type text/plain lf-string "there is no function %[var(txn.function)]\\n" \
if {{ var(txn.function) -m found }} !{{ var(txn.slot) -m found }}
    http-request set-path /%[path,field(4,/,0)] if {{ var(txn.slot) -m found }}
    use_backend %[var(txn.slot)] if {{ var(txn.slot) -m found }}
    default_backend control
backend control
    server control unix@control.sock
"""

SLOT = """\
backend {slot}
    balance roundrobin
    http-request set-var(txn.limit) var(txn.function),map_str_int(limits.map,0)
    http-request return status 429 content-type text/plain hdr Retry-After 1 string "all replicas are busy\\n" \
if {{ nbsrv gt 0 }} {{ be_conn_free le 0 }} {{ queue,sub(txn.limit) ge 0 }}
    http-request set-timeout server var(txn.function),map_str_int(timeouts.map,{longest_ms})
    http-response set-header X-Penstock-Replica %s
    http-response set-header X-Penstock-Queue-Ms %Tw
"""


class Slot(msgspec.Struct, frozen=True):
    """One slot now: requests that wait, and requests in each of its servers."""

    waiting: int
    in_server: Mapping[str, int]


class DataPlaneAwayError(PenstockError):
    """HAProxy does not answer."""


class HAProxy:
    """HAProxy of the gateway in ``folder``, listening on ``address``:``port``. It outlives whoever started it.
    ``beside``: somebody else starts it, and again when it has ended, as soon as its configuration is in the folder.
    """

    def __init__(self, folder: Path, port: int, *, address: str = "127.0.0.1", beside: bool = False) -> None:
        self.folder = folder
        self.port = port
        self._address = address
        self._beside = beside
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    # --- the process -------------------------------------------------------------------------------------------------

    async def adopt(self) -> bool:
        """Whether one runs here already, of an earlier control plane."""
        try:
            info = await self.ask("show info")
        except DataPlaneAwayError:
            return False
        pids = [line.split()[1] for line in info.splitlines() if line.startswith("Pid:")]
        self.pid = int(pids[0])
        return True

    async def start(self) -> None:
        """Write the configuration and start it; returns when it answers. Raises PenstockError if it does not."""
        slots = "".join(SLOT.format(slot=slot, longest_ms=LONGEST_ANSWER_MS) for slot in slot_names())
        (self.folder / CONFIG).write_text(
            GLOBAL.format(address=self._address, port=self.port, queue_s=QUEUE_TIMEOUT_S) + slots
        )
        for name in ("slots.map", "limits.map", "timeouts.map"):
            (self.folder / name).touch()
        (self.folder / CONFIGURED).touch()
        output = self.folder / "haproxy.log"
        if not self._beside:
            self._spawn(output)
        until = time.monotonic() + START_S
        while not await self.adopt():
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > until:
                words = output.read_text(errors="replace").splitlines()[-3:] if output.exists() else []
                raise PenstockError(
                    f"haproxy does not start on port {self.port}; the end of {output}: {' | '.join(words)}"
                )
            await asyncio.sleep(0.02)

    def _spawn(self, output: Path) -> None:
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                (find_haproxy(), "-db", "-C", str(self.folder), "-f", CONFIG),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def runs(self) -> bool:
        """Whether its process is there."""
        if self._process is not None:
            return self._process.poll() is None
        try:
            os.kill(self.pid, 0)
        except OSError:
            return False
        return True

    async def stop(self) -> None:
        """End it, with what it still has in hand."""
        (self.folder / CONFIGURED).unlink(missing_ok=True)
        if self.runs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        until = time.monotonic() + ANSWER_S
        while self.runs() and time.monotonic() < until:
            await asyncio.sleep(0.02)

    # --- its runtime API ---------------------------------------------------------------------------------------------

    async def ask(self, command: str) -> str:
        """The answer to one command. Raises DataPlaneAwayError."""
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(self.folder / "runtime.sock"))
                try:
                    writer.write(command.encode() + b"\n")
                    return (await reader.read()).decode().strip()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            raise DataPlaneAwayError(f"haproxy does not answer ({type(error).__name__})") from None

    async def accept(self, accepting: bool) -> None:
        """Whether new connections are taken."""
        await self.ask(f"{'enable' if accepting else 'disable'} frontend gateway")

    async def route(self, routes: Mapping[str, tuple[str, int, int]]) -> None:
        """Function → (slot, queue limit, milliseconds for an answer), all of them; written down for a restart too."""
        for name, column in (("limits.map", 1), ("timeouts.map", 2), ("slots.map", 0)):
            wanted = {function: str(route[column]) for function, route in routes.items()}
            (self.folder / name).write_text("".join(f"{function} {value}\n" for function, value in wanted.items()))
            there = dict(line.split()[1:3] for line in (await self.ask(f"show map {name}")).splitlines())
            for function in there.keys() - wanted.keys():
                await self.ask(f"del map {name} {function}")
            for function, value in wanted.items():
                if function not in there:
                    await self.ask(f"add map {name} {function} {value}")
                elif there[function] != value:
                    await self.ask(f"set map {name} {function} {value}")

    async def add(self, slot: str, server: str, address: str, port: int) -> None:
        """A server that takes requests from now on. Raises PenstockError if HAProxy refuses."""
        answer = await self.ask(f"add server {slot}/{server} {address}:{port} maxconn 1 weight 0 {KEPT_CONNECTIONS}")
        if "registered" not in answer and "already exists" not in answer.lower():
            raise PenstockError(f"haproxy does not take {server}: {answer}")
        await self.open(slot, server)

    async def open(self, slot: str, server: str) -> None:
        """Requests for this server from now on.

        A server that comes up takes a request from the queue, but HAProxy 2.6 counts it a moment later only and may
        choose the same server for one that just came in. With weight 0 it is not chosen meanwhile.
        """
        await self.ask(f"enable server {slot}/{server}")
        await self.ask(f"set server {slot}/{server} weight 1")

    async def close(self, slot: str, server: str) -> None:
        """No more requests for this server; the one in it goes on."""
        await self.ask(f"set server {slot}/{server} state maint")

    async def remove(self, slot: str, server: str) -> bool:
        """Forget a closed server; False while it still has a request."""
        answer = await self.ask(f"del server {slot}/{server}")
        return "deleted" in answer or "no such server" in answer.lower()

    async def slots(self, wanted: Sequence[str]) -> dict[str, Slot]:
        """What happens in slots now."""
        if not wanted:
            return {}
        answer = await self.ask(";".join(f"show stat {slot} 6 -1" for slot in wanted))
        waiting = dict.fromkeys(wanted, 0)
        servers: dict[str, dict[str, int]] = {slot: {} for slot in wanted}
        for row in csv.reader(line for line in answer.splitlines() if line and not line.startswith("#")):
            slot, server, queued, current = row[0], row[1], row[2], row[4]
            if slot not in servers:
                continue
            if server == "BACKEND":
                waiting[slot] = int(queued or 0)
            else:
                servers[slot][server] = int(current or 0)
        return {slot: Slot(waiting[slot], servers[slot]) for slot in wanted}


def find_haproxy() -> str:
    """Its full path; Debian keeps it where an ordinary user's PATH does not lead. PenstockError if it is not there."""
    executable = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if executable is None:
        raise PenstockError("there is no haproxy on PATH: `make setup` installs it, or `apt-get install haproxy`")
    return executable


def slot_names() -> list[str]:
    """All slots."""
    return [f"{SLOT_PREFIX}{number}" for number in range(SLOTS)]
