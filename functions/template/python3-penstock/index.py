"""A function over HTTP: Flask around ``handle(event, context)``, as in OpenFaaS' python3-http template.

Every answer tells in ``X-Penstock-Started-Ns`` and ``X-Penstock-Finished-Ns`` (wall clock) when the request began to be
served and when the service time had passed. In an image this is the upstream of of-watchdog; locally the same
application runs in the replicas of the gateway, whose server says in ``RECEIVED`` when it had read the request.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from claim_check import FunctionError
from flask import Flask, Request, Response, request
from service_floor import Floor

log = logging.getLogger("function")

UPSTREAM = "http://127.0.0.1:5000"
"""Where to serve without ``upstream_url``, the watchdog's setting."""
LOOK_S = 0.05
METHODS = ["GET", "PUT", "POST", "PATCH", "DELETE"]
STARTED, FINISHED = "X-Penstock-Started-Ns", "X-Penstock-Finished-Ns"
RECEIVED = "penstock.received_ns"
"""Of the WSGI environment, on the monotonic clock: what comes before the handler belongs to the service time, too."""


class Event:
    """One request. ``body`` are its bytes."""

    def __init__(self, received: Request) -> None:
        self.body = received.get_data()
        self.headers = received.headers
        self.method = received.method
        self.query = received.args
        self.path = received.path


class Context:
    """Where the function runs."""

    def __init__(self) -> None:
        self.hostname = os.getenv("HOSTNAME") or socket.gethostname()


Handle = Callable[[Event, Context], Any]


def make_app(handle: Handle, floor: Floor) -> Flask:
    """The application. A handler that raises is answered with 500 (FunctionError: with its own status)."""
    app = Flask(__name__)
    context = Context()

    @app.get("/_/health")
    @app.get("/_/ready")
    def ready() -> str:
        return "OK\n"

    @app.route("/", defaults={"path": ""}, methods=METHODS)
    @app.route("/<path:path>", methods=METHODS)
    def call(path: str) -> Response:
        del path
        now_ns = time.monotonic_ns()
        received_ns = request.environ.get(RECEIVED, now_ns)
        started_ns = time.time_ns() - (now_ns - received_ns)
        try:
            answer = as_response(app, handle(Event(request), context))
        except FunctionError as error:
            answer = as_response(app, failure(error.status_code, str(error)))
        except Exception as error:
            log.exception("the handler failed")
            answer = as_response(app, failure(500, f"{type(error).__name__}: {error}"))
        floor.wait(floor.deadline_ns(received_ns))
        answer.headers[STARTED] = str(started_ns)
        answer.headers[FINISHED] = str(time.time_ns())
        return answer

    return app


def as_response(app: Flask, returned: Any) -> Response:
    """What a handler returned, as python3-http takes it: None, a dictionary with "statusCode", "body" and "headers",
    each optional, or what a Flask view returns: text, bytes, (body, status), (body, status, headers). A body that is a
    dictionary or list is sent as JSON, other ones as text. Bytes are sent as they are, where python3-http sends their
    ``repr``.
    """
    if isinstance(returned, dict):
        body = returned.get("body", "")
        if isinstance(body, (dict, list)):
            body = app.json.response(body)
        elif not isinstance(body, (bytes, bytearray)):
            body = str(body)
        returned = body, returned.get("statusCode", 200), returned.get("headers") or []
    return app.make_response("" if returned is None else returned)


def failure(status: int, message: str) -> dict[str, Any]:
    """An error as JSON."""
    return {"statusCode": status, "body": {"error": message}}


def main() -> None:
    """Serve the handler beside this file, for of-watchdog.

    The watchdog answers health and readiness probes 200 while its lock file exists. It would write the file before this
    program listens, and answer requests 500 until then; with ``suppress_lock`` the file is written here. At SIGTERM the
    watchdog is unhealthy for ``healthcheck_interval`` but passes requests on, then refuses new ones and waits for those
    in flight; it sends SIGTERM on at once. So this program serves until the watchdog has ended.
    """
    from function import handler
    from waitress import create_server  # type: ignore[import-untyped]

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    application = make_app(handler.handle, Floor(os.environ, socket.gethostname()))
    upstream = urlsplit(os.environ.get("upstream_url") or UPSTREAM)  # noqa: SIM112 - its name
    server = create_server(application, host=upstream.hostname, port=upstream.port, threads=1)
    if "fprocess" in os.environ:
        watchdog = os.getppid()
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_end_with, args=(watchdog,)).start())
        Path(os.environ.get("TMPDIR") or "/tmp", ".lock").touch()  # noqa: S108 - the watchdog's place for it
    server.run()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(0)


if __name__ == "__main__":
    main()
