"""One replica: a process that serves one handler on its own port, one request at a time.

It is forked from the function's warm parent (``functions.nursery``) or has a pod of its own (``functions.pod``). It
takes its cold start and then runs the application of the template on waitress. It makes sure by itself that it is never
given a second request while it has one. SIGTERM, or the end of its parent: it finishes the request in hand and ends.
"""

import logging
import os
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
from functions.tally import Counters
from penstock.errors import PenstockError

use_template()
import index  # noqa: E402 - the template's modules are found from here on
from floor import Floor  # noqa: E402

log = logging.getLogger("replica")

READY, FIRST, BROKEN = b"r", b"f", b"x"
"""What a replica tells its parent, a byte each."""
EXIT_BROKEN: Final = 70
"""Exit code of a replica whose handler hung past its time."""
PROBES: Final = ("/_/health", "/_/ready")
THREADS: Final = 4
"""More than one, so that a second request is seen and refused, and probes are answered meanwhile."""
LARGEST_BODY: Final = 1 << 30
IDLE_S: Final = 86_400
"""The gateway closes idle connections, never the replica: a request might be on its way."""

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class ReplicaSettings:
    """Of a function's environment: ``cold_start_s``, ``exec_timeout`` (OpenFaaS: ``20s``, ``1m``, ``500ms``; 60s).
    Raises PenstockError that names the variable.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.cold_start_s = _seconds("cold_start_s", environment.get("cold_start_s") or "0")
        self.exec_timeout_s = _seconds("exec_timeout", environment.get("exec_timeout") or "60s")
        try:
            Floor(environment)
        except ValueError as error:
            raise PenstockError(str(error)) from None


class Replica:
    """Serves ``handle`` on ``listener`` until SIGTERM. ``tell`` is a socket to the parent, ``row`` its counters.
    ``outermost``: what else the port has to answer, around the application.
    """

    def __init__(
        self,
        name: str,
        handle: Handle,
        environment: Mapping[str, str],
        *,
        listener: socket.socket,
        tell: socket.socket,
        row: Counters,
        requested_ns: int,
        outermost: Callable[[Any], Any] = lambda application: application,
    ) -> None:
        self.name = name
        self._handle = handle
        self._settings = ReplicaSettings(environment)
        self._floor = Floor(environment, stream=name)
        self._listener = listener
        self._tell = tell
        self._row = row
        self._outermost = outermost
        self._ready_at_ns = requested_ns + round(self._settings.cold_start_s * 1e9)
        self._occupied = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="handler")
        self._ending = threading.Event()
        self._exit_code = 0
        self._server: Any = None

    def run(self) -> NoReturn:
        """The life of the process. Until it serves, whoever forked it sees to it that SIGTERM ends it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(max(0.0, (self._ready_at_ns - time.time_ns()) / 1e9))
        application = self._outermost(Guard(self, index.make_app(self._call, self._floor)))
        self._server = waitress.create_server(
            application,
            sockets=[self._listener],
            threads=THREADS,
            channel_timeout=IDLE_S,
            max_request_body_size=LARGEST_BODY,
            ident=None,
        )
        self._server.channel_class = Channel
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        threading.Thread(target=self._outlive_parent, name="lifeline", daemon=True).start()
        self._tell.send(READY)
        self._server.run()
        os._exit(self._exit_code)

    # --- one request -------------------------------------------------------------------------------------------------

    def enter(self) -> str:
        """Take the request, or say why not."""
        if self._ending.is_set():
            return "ending"
        if not self._occupied.acquire(blocking=False):
            self._row["violations"] += 1
            log.error("%s: a second request while one is in hand", self.name)
            return "busy"
        self._row["busy"] = 1
        if not self._row["first_ns"]:
            self._row["first_ns"] = time.time_ns()
            self._tell.send(FIRST)
        return ""

    def leave(self, began_ns: int, *, failed: bool) -> None:
        """The request is done; called before its answer goes out, since the next one may come right after."""
        self._row["busy_ns"] += time.monotonic_ns() - began_ns
        self._row["invocations"] += 1
        self._row["failed"] += failed
        self._row["busy"] = 0
        self._occupied.release()

    def _call(self, event: Any, context: Any) -> Any:
        """The handler, in a thread of its own that can be left behind. A replica whose handler hangs is not used again:
        it answers 504, takes no more connections, and ends.
        """
        future = self._worker.submit(self._handle, event, context)
        try:
            return future.result(self._settings.exec_timeout_s)
        except FutureTimeoutError:
            if future.done():  # the handler itself raised it
                raise
        log.error("%s: the handler has not answered within %g s", self.name, self._settings.exec_timeout_s)
        self._tell.send(BROKEN)
        self.end(EXIT_BROKEN)
        message = f"no answer within exec_timeout {self._settings.exec_timeout_s:g} s"
        return {"statusCode": 504, "body": {"error": message}}

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self, exit_code: int = 0) -> None:
        """Take no more connections; once the last answer is out, exit."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._exit_code = exit_code
        self._server.accepting = False
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            log.debug("the listener was closed already")
        threading.Thread(target=self._exit_when_idle, name="end", daemon=True).start()

    def _exit_when_idle(self) -> None:
        while self._row["busy"] or any(
            channel.requests or channel.total_outbufs_len for channel in list(self._server.active_channels.values())
        ):
            time.sleep(0.002)
        os._exit(self._exit_code)

    def _outlive_parent(self) -> None:
        """The parent never says anything: when this returns, it is gone."""
        try:
            self._tell.recv(1)
        except OSError:
            log.debug("lifeline broke")
        self.end()


class Task(WSGITask):  # type: ignore[misc]
    """A request of waitress', which tells the application when it was received."""

    def get_environment(self) -> dict[str, Any]:
        """The WSGI environment."""
        environment: dict[str, Any] = super().get_environment()
        environment[index.RECEIVED] = self.channel.received_ns
        return environment


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection of waitress', one request at a time. ``received_ns``: when it last read something."""

    task_class = Task
    received_ns = 0

    def received(self, data: bytes) -> bool:
        """A piece of a request was read."""
        self.received_ns = time.monotonic_ns()
        took: bool = super().received(data)
        return took


class Guard:
    """WSGI: lets one request in at a time and counts it; probes pass."""

    def __init__(self, replica: Replica, application: Any) -> None:
        self._replica = replica
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        if environ["PATH_INFO"] in PROBES:
            answered: Iterable[bytes] = self._application(environ, start_response)
            return answered
        refusal = self._replica.enter()
        if refusal:
            status = "503 Service Unavailable" if refusal == "ending" else "500 Internal Server Error"
            start_response(status, [("Content-Type", "application/json")])
            return [b'{"error": "replica %s is %s"}' % (self._replica.name.encode(), refusal.encode())]
        began_ns = environ[index.RECEIVED]
        failed = True

        def note(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            nonlocal failed
            failed = status >= "500"
            return start_response(status, headers, *more)

        try:
            return list(self._application(environ, note))
        finally:
            self._replica.leave(began_ns, failed=failed)


def _seconds(name: str, text: str) -> float:
    """``1.5``, ``1.5s``, ``200ms``, ``1m``."""
    for unit, factor in (("ms", 0.001), ("m", 60.0), ("s", 1.0), ("", 1.0)):
        if text.endswith(unit):
            try:
                value = float(text.removesuffix(unit)) * factor
            except ValueError:
                break
            if 0 <= value < float("inf"):
                return value
            break
    raise PenstockError(f"{name}={text}: expected seconds, such as 1.5, 20s, 200ms or 1m")
