"""A function over HTTP: Flask around ``handle(event, context)``, as in OpenFaaS' python3-http template.

Every answer tells in ``X-Penstock-Started-Ns`` and ``X-Penstock-Finished-Ns`` (wall clock) when the request began to be
served and when the service time had passed. In an image this is the upstream of of-watchdog; locally the same
application runs in the replicas of the gateway, whose server says in ``RECEIVED`` when it had read the request.
"""

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from claim_check import FunctionError
from flask import Flask, Request, Response, request
from service_floor import Floor

log = logging.getLogger("function")

PORT = 5000
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
            answer = as_response(handle(Event(request), context))
        except FunctionError as error:
            answer = failure(error.status_code, str(error))
        except Exception as error:
            log.exception("the handler failed")
            answer = failure(500, f"{type(error).__name__}: {error}")
        floor.wait(floor.deadline_ns(received_ns))
        answer.headers[STARTED] = str(started_ns)
        answer.headers[FINISHED] = str(time.time_ns())
        return answer

    return app


def as_response(answer: Any) -> Response:
    """What a handler returned: ``{"statusCode", "body", "headers"}``, or the body alone. A body that is neither text
    nor bytes is sent as JSON.
    """
    if not (isinstance(answer, Mapping) and "body" in answer):
        answer = {"body": answer}
    body = answer["body"]
    headers = dict(answer.get("headers") or {})
    if not isinstance(body, (str, bytes, bytearray)):
        body = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    return Response(bytes(body) if isinstance(body, bytearray) else body, int(answer.get("statusCode", 200)), headers)


def failure(status: int, message: str) -> Response:
    """An error as JSON."""
    return Response(json.dumps({"error": message}), status, content_type="application/json")


def main() -> None:
    """Serve the handler beside this file, for of-watchdog."""
    from function import handler
    from waitress import serve  # type: ignore[import-untyped]

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    serve(make_app(handler.handle, Floor(os.environ, socket.gethostname())), host="127.0.0.1", port=PORT, threads=1)


if __name__ == "__main__":
    main()
