"""One replica: a process that serves one handler on its own port, one request at a time.

The fork server forks it (``functions.fork_server``), or it runs in a pod (``functions.pod``). After its cold start it
runs the template's application on waitress. It refuses a second concurrent request. At SIGTERM or the end of its parent
it finishes its request and ends.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NoReturn

import waitress  # type: ignore[import-untyped]
from waitress.channel import HTTPChannel  # type: ignore[import-untyped]
from waitress.task import WSGITask  # type: ignore[import-untyped]

from functions.loading import Handle, use_template
from functions.shared_counters import Counters, SharedRow
from penstock.errors import PenstockError

use_template()
import index  # noqa: E402 - the template's modules are found from here on
from service_floor import Floor  # noqa: E402

log = logging.getLogger("replica")

READY, FIRST, BROKEN = b"r", b"f", b"x"
"""Status bytes that a replica sends to its parent."""
EXIT_BROKEN: Final = 70
"""Exit code of a replica whose handler exceeded ``exec_timeout``."""
PROBES: Final = ("/_/health", "/_/ready")
THREADS: Final = 4
"""More than one, to refuse a second request and to answer probes during a request."""
LARGEST_BODY: Final = 1 << 30
IDLE_S: Final = 86_400
"""Only the gateway closes idle connections: a closing replica could lose a request."""
UNITS_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

StartResponse = Callable[..., Any]


class ReplicaSettings:
    """Variables ``cold_start_s`` and ``exec_timeout`` (``20s``, ``1m30s``, ``500ms``; default 60s; 0: None, no limit)
    of a function. PenstockError names a wrong variable.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.cold_start_s = _seconds("cold_start_s", environment.get("cold_start_s") or "0")
        self.exec_timeout_s = _seconds("exec_timeout", environment.get("exec_timeout") or "60s") or None
        try:
            Floor(environment)
        except ValueError as error:
            raise PenstockError(str(error)) from None


class Replica:
    """Serves ``handle`` on ``listener`` until SIGTERM. ``status`` is a socket to the parent, ``row`` its counters."""

    def __init__(
        self,
        name: str,
        handle: Handle,
        environment: Mapping[str, str],
        *,
        listener: socket.socket,
        status: socket.socket,
        row: Counters | SharedRow,
        requested_ns: int,
    ) -> None:
        self.name = name
        self._handle = handle
        self._settings = ReplicaSettings(environment)
        self._floor = Floor(environment, stream=name)
        self._listener = listener
        self._status = status
        self._row = row
        self._ready_at_ns = requested_ns + round(self._settings.cold_start_s * 1e9)
        self._occupied = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="handler")
        self._ending = threading.Event()
        self._exit_code = 0
        self._server: Any = None

    def run(self) -> NoReturn:
        """Serve until the end of the process. Before it serves, the caller's signal handler ends it at SIGTERM."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(max(0.0, (self._ready_at_ns - time.time_ns()) / 1e9))
        self._application = index.make_app(self._call, self._floor)
        self._server = waitress.create_server(
            self.serve,
            sockets=[self._listener],
            threads=THREADS,
            channel_timeout=IDLE_S,
            max_request_body_size=LARGEST_BODY,
            ident=None,
        )
        self._server.channel_class = Channel
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        threading.Thread(target=self._outlive_parent, name="lifeline", daemon=True).start()
        self._status.send(READY)
        self._server.run()
        os._exit(self._exit_code)

    # --- one request -------------------------------------------------------------------------------------------------

    def serve(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The WSGI application: admits one request at a time and counts it; probes pass."""
        if environ["PATH_INFO"] in PROBES:
            return list(self._application(environ, start_response))
        if self._ending.is_set():
            return self._refuse("503 Service Unavailable", "ending", start_response)
        if not self._occupied.acquire(blocking=False):
            self._row.violations += 1
            log.error("%s: a second request during another one", self.name)
            return self._refuse("500 Internal Server Error", "busy", start_response)
        self._row.busy = True
        if not self._row.first_ns:
            self._row.first_ns = time.time_ns()
            self._status.send(FIRST)
        failed = True

        def note(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            nonlocal failed
            failed = status >= "500"
            # as of-watchdog does it
            took_s = (time.monotonic_ns() - environ[index.RECEIVED]) / 1e9
            headers.append(("X-Duration-Seconds", f"{took_s:.6f}"))
            return start_response(status, headers, *more)

        try:
            return list(self._application(environ, note))
        finally:  # counted before the answer is sent: the next request may follow at once
            self._row.busy_ns += time.monotonic_ns() - environ[index.RECEIVED]
            self._row.invocations += 1
            self._row.failed += failed
            self._row.busy = False
            self._occupied.release()

    def _refuse(self, status: str, why: str, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [("Content-Type", "application/json")])
        return [b'{"error": "replica %s is %s"}' % (self.name.encode(), why.encode())]

    def _call(self, event: Any, context: Any) -> Any:
        """Run the handler in a thread. A replica whose handler hangs answers 504, stops accepting and ends."""
        limit_s = self._settings.exec_timeout_s
        future = self._worker.submit(self._handle, event, context)
        try:
            return future.result(limit_s)
        except FutureTimeoutError:
            if limit_s is None or future.done():  # the handler itself raised it
                raise
        log.error("%s: the handler has not answered within %g s", self.name, limit_s)
        self._status.send(BROKEN)
        self.end(EXIT_BROKEN)
        message = f"no answer within exec_timeout {limit_s:g} s"
        return {"statusCode": 504, "body": {"error": message}}

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, exit_code: int = 0) -> None:
        """Stop accepting; exit once the last answer is sent."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._exit_code = exit_code
        self._server.accepting = False
        with contextlib.suppress(OSError):  # the listener was closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        threading.Thread(target=self._exit_when_idle, name="end", daemon=True).start()

    def _exit_when_idle(self) -> None:
        while self._row.busy or any(
            channel.requests or channel.total_outbufs_len for channel in list(self._server.active_channels.values())
        ):
            time.sleep(0.002)
        os._exit(self._exit_code)

    def _outlive_parent(self) -> None:
        """The parent never sends: ``recv`` returns when it has ended."""
        with contextlib.suppress(OSError):
            self._status.recv(1)
        self.end()


class Task(WSGITask):  # type: ignore[misc]
    """A waitress request with its reception time in the WSGI environment."""

    def get_environment(self) -> dict[str, Any]:
        """The WSGI environment."""
        environment: dict[str, Any] = super().get_environment()
        environment[index.RECEIVED] = self.channel.received_ns
        return environment


class Channel(HTTPChannel):  # type: ignore[misc]
    """A waitress connection, one request at a time. ``received_ns``: time of the last read."""

    task_class = Task
    received_ns = 0

    def received(self, data: bytes) -> bool:
        """A piece of a request was read."""
        self.received_ns = time.monotonic_ns()
        took: bool = super().received(data)
        return took


def _seconds(name: str, text: str) -> float:
    """Seconds of a number or of a Go duration: ``1.5``, ``1m30s``, ``200ms``, ``1h``."""
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * UNITS_S[unit] for number, unit in parts)
    if re.fullmatch(r"\d+\.?\d*|\.\d+", text):
        return float(text)
    raise PenstockError(f"{name}={text}: expected seconds, such as 1.5, 20s, 200ms or 1m30s")
