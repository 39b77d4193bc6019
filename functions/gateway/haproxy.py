"""HAProxy as the data plane: its configuration, its process, and its runtime API.

A running HAProxy 2.6 cannot add backends, and a reload would lose the busy replicas. So there is a fixed number of
slots, each a backend, and a map from function to slot that changes at run time. HAProxy runs one thread: with several,
two requests could be admitted to one free replica.
"""

import asyncio
import contextlib
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
import psutil

from penstock import __version__
from penstock.errors import PenstockError
from penstock.openfaas import NAMESPACE
from penstock.sockets import EVERYWHERE

log = logging.getLogger("haproxy")

CONFIG: Final = "haproxy.cfg"
CONFIGURED: Final = "configured"
"""File that exists once configuration and maps are written."""
SLOTS: Final = 48
SLOT_PREFIX: Final = "slot-"
START_S: Final = 30.0
ANSWER_S: Final = 5.0
QUEUE_TIMEOUT_S: Final = 600
"""Longest wait of a request at the gateway; callers have their own, shorter timeouts."""
KEPT_CONNECTIONS: Final = "pool-max-conn 4 pool-purge-delay 10m"
"""HAProxy 2.6.12 keeps connections to a server added at run time only with both options."""
LONGEST_ANSWER_S: Final = 3600
REQUEST_TIMEOUT_S: Final = 10
"""A client that has not sent its request by then is answered 408."""
IDLE_S: Final = 60
"""Of a client's connection between two requests."""

GLOBAL = """\
global
    stats socket unix@runtime.sock mode 600 level admin
    nbthread 1
    maxconn 4000
    log ring@requests local0
# Lines of finished requests: kept while the control plane is away, read in bunches.
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
    # A slow client: a request that has not come within this time (its head, and its body up to a buffer) is a 408.
    timeout http-request {request_s}s
    option http-buffer-request
    timeout http-keep-alive {idle_s}s
    # A refused connection is tried at another replica at once: no replica has received the request.
    option redispatch 1
    retries 3
    http-reuse always
frontend gateway
    bind {address}:{port}
    log global
    log-format "%[var(txn.function)] %ST %Tw %Tr %Ta %s"
    http-request use-service prometheus-exporter if {{ path /haproxy/metrics }}
    http-request return status 400 content-type text/plain string "namespace must be: {namespace}\\n" \
if {{ path_beg /function/ }} {{ path,field(3,/) -m sub . }} !{{ path,field(3,/),field(2,.,0) -m str {namespace} }}
    http-request set-var(txn.function) path,field(3,/),field(1,.) if {{ path_beg /function/ }}
    http-request set-log-level silent unless {{ var(txn.function) -m found }}
    http-request set-header X-Call-Id %[uuid] if {{ var(txn.function) -m found }} !{{ req.hdr(X-Call-Id) -m found }}
    http-request set-header X-Start-Time %[date(0,us)]000 if {{ var(txn.function) -m found }}
    http-request set-var(txn.call) req.hdr(X-Call-Id) if {{ var(txn.function) -m found }}
    http-request set-var(txn.start) req.hdr(X-Start-Time) if {{ var(txn.function) -m found }}
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
    http-error status 503 content-type text/plain string "no replica takes requests\\n"
    http-response set-header X-Call-Id %[var(txn.call)]
    http-response set-header X-Start-Time %[var(txn.start)]
    http-response set-header X-Served-By penstock/{version}
    http-response set-header X-Penstock-Replica %s
    http-response set-header X-Penstock-Queue-Ms %Tw
"""


class Slot(msgspec.Struct):
    """Present state of a slot: waiting requests, and requests in each of its servers."""

    waiting: int = 0
    in_server: dict[str, int] = {}

    @property
    def in_flight(self) -> int:
        """Requests in all servers."""
        return sum(self.in_server.values())


class DataPlaneAwayError(PenstockError):
    """HAProxy does not answer."""


class HAProxy:
    """HAProxy of the gateway in ``folder``, on ``port``. It outlives the control plane. ``beside``: another container
    starts and restarts it once its configuration is in the folder, and it listens on all addresses.
    """

    def __init__(self, folder: Path, port: int, *, beside: bool = False) -> None:
        self.folder = folder
        self.port = port
        self._beside = beside
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None

    # --- the process -------------------------------------------------------------------------------------------------

    async def adopt(self) -> bool:
        """Connect to the HAProxy of an earlier control plane; return whether there is one."""
        try:
            info = await self.ask("show info")
        except DataPlaneAwayError:
            return False
        self.pid = next(int(line.split()[1]) for line in info.splitlines() if line.startswith("Pid:"))
        return True

    async def start(self) -> None:
        """Write the configuration, start it and wait for an answer. PenstockError if there is none."""
        slots = "".join(
            SLOT.format(slot=slot, longest_ms=1000 * LONGEST_ANSWER_S, version=__version__) for slot in slot_names()
        )
        address = EVERYWHERE if self._beside else "127.0.0.1"
        configuration = GLOBAL.format(
            address=address,
            port=self.port,
            queue_s=QUEUE_TIMEOUT_S,
            namespace=NAMESPACE,
            request_s=REQUEST_TIMEOUT_S,
            idle_s=IDLE_S,
        )
        (self.folder / CONFIG).write_text(configuration + slots)
        for name in ("slots.map", "limits.map", "timeouts.map"):
            (self.folder / name).touch()
        (self.folder / CONFIGURED).touch()
        output = self.folder / "haproxy.log"
        if not self._beside:
            with output.open("ab") as out:
                self._process = subprocess.Popen(
                    (find_haproxy(), "-db", "-C", str(self.folder), "-f", CONFIG),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            self.pid = self._process.pid  # also if it answers too late
        until = time.monotonic() + START_S
        while not await self.adopt():
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > until:
                last = output.read_text(errors="replace").splitlines()[-3:] if output.exists() else []
                raise PenstockError(
                    f"haproxy does not start on port {self.port}; the end of {output}: {' | '.join(last)}"
                )
            await asyncio.sleep(0.02)

    def runs(self) -> bool:
        """Whether its process exists."""
        return psutil.pid_exists(self.pid) if self._process is None else self._process.poll() is None

    async def stop(self) -> None:
        """End it, and the requests in it."""
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
        """Set all routes: function → (slot, queue limit, answer timeout in ms), also in the files of a restart."""
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
        """Add a server and open it. PenstockError if HAProxy refuses."""
        answer = await self.ask(f"add server {slot}/{server} {address}:{port} maxconn 1 weight 0 {KEPT_CONNECTIONS}")
        if "registered" not in answer and "already exists" not in answer.lower():
            raise PenstockError(f"haproxy does not take {server}: {answer}")
        await self.open(slot, server)

    async def open(self, slot: str, server: str) -> None:
        """Send requests to this server.

        An enabled server takes a request from the queue, which HAProxy 2.6 counts a moment later: it may choose the
        server for a new request as well. Weight 0 prevents that. A server with a weight takes requests from the queue
        when it ends one, or when its limit is set: without that, a new one would be idle as long as requests wait.
        """
        await self.ask(f"enable server {slot}/{server}")
        await self.ask(f"set server {slot}/{server} weight 1")
        await self.ask(f"set maxconn server {slot}/{server} 1")

    async def close(self, slot: str, server: str) -> None:
        """Send no more requests to this server; its present request continues."""
        await self.ask(f"set server {slot}/{server} state maint")

    async def remove(self, slot: str, server: str) -> bool:
        """Remove a closed server; False while it still has a request."""
        answer = await self.ask(f"del server {slot}/{server}")
        return "deleted" in answer or "no such server" in answer.lower()

    async def slots(self, wanted: Sequence[str]) -> dict[str, Slot]:
        """Present state of slots."""
        if not wanted:
            return {}
        answer = await self.ask(";".join(f"show stat {slot} 6 -1" for slot in wanted))
        found = {slot: Slot() for slot in wanted}
        for line in filter(None, answer.splitlines()):
            name, server, queued, _, current = line.split(",")[:5]
            if name in found and server == "BACKEND":
                found[name].waiting = int(queued or 0)
            elif name in found:
                found[name].in_server[server] = int(current or 0)
        return found


def find_haproxy() -> str:
    """Its full path, also outside a user's PATH (Debian). PenstockError if it is not installed."""
    executable = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if executable is None:
        raise PenstockError("there is no haproxy on PATH: `penstock setup` installs it, or `apt-get install haproxy`")
    return executable


def slot_names() -> list[str]:
    """All slots."""
    return [f"{SLOT_PREFIX}{number}" for number in range(SLOTS)]
