"""Prometheus metrics of one process: served on a free loopback port and announced through Prometheus' file discovery.

In a pod they are served on a port that is known beforehand (``PENSTOCK_METRICS``), and Prometheus finds the pods.
"""

import atexit
import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, make_server

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from penstock.errors import PenstockError
from penstock.settings import Exposition

MOST_CONNECTIONS: Final = 16
"""Each has a thread. One more closes the oldest: its client sends or reads slowly, for an answer takes milliseconds."""


class Exposed(NamedTuple):
    """Metrics that are being served."""

    port: int
    close: Callable[[], None]
    """Withdraws the announcement and stops serving."""


def expose(
    name: str, folder: Path | None, labels: Mapping[str, str] | None = None, registry: CollectorRegistry = REGISTRY
) -> Exposed:
    """Serve ``registry`` and write ``folder/name.json``, removed again at exit. PenstockError if the address of the
    settings can't be had.

    A killed process leaves its file behind: a successor of the same name overwrites it, the world removes the rest.
    """
    address = Exposition().metrics
    host, _, wanted = address.rpartition(":")
    try:
        server = make_server(host, int(wanted), make_wsgi_app(registry), _Server, _Handler)
    except (OSError, ValueError, OverflowError) as error:
        raise PenstockError(f"PENSTOCK_METRICS={address}: metrics cannot be served there ({error})") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    port = int(server.server_port)
    target = None if folder is None else folder / f"{name}.json"

    def withdraw() -> None:
        if target is not None:
            target.unlink(missing_ok=True)

    def close() -> None:
        withdraw()
        server.shutdown()
        server.server_close()
        thread.join()

    if folder is not None and target is not None:
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{name}.partial"
        partial.write_bytes(
            msgspec.json.encode([{"targets": [f"127.0.0.1:{port}"], "labels": {"process": name, **(labels or {})}}])
        )
        partial.replace(target)
        atexit.register(withdraw)
    return Exposed(port, close)


class _Server(ThreadingWSGIServer):
    """Serves at most ``MOST_CONNECTIONS`` at a time."""

    request_queue_size = 128
    """Connections that wait to be accepted. Beyond them a client, Prometheus too, tries again after 1 s, 3 s, …"""

    def __init__(self, *arguments: Any) -> None:
        self._open: list[socket.socket] = []
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, in place of the oldest if there are too many."""
        self._open.append(request)
        while len(self._open) > MOST_CONNECTIONS:
            with contextlib.suppress(OSError, IndexError):  # it ends just now
                self._open.pop(0).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection ends."""
        with contextlib.suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error of this process."""


class _Handler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it so
        """Nothing."""
