"""A real HTTP server in the place of the gateway: functions are Python functions of (event id, body)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import msgspec

from penstock.function_messages import (
    DEADLINE_HEADER,
    EVENT_HEADER,
    FINISHED_HEADER,
    REPLICA_HEADER,
    STARTED_HEADER,
    FunctionReport,
)

Answer = tuple[int, bytes]
Behaviour = Callable[[int, bytes], Answer]


def echo(event: int, body: bytes) -> Answer:
    """Answers what it was sent."""
    return 200, body


class FunctionServer:
    """Functions by name, each with ``replicas`` that take requests. ``busy``: an answer 429 when more come at once."""

    def __init__(self, **functions: Behaviour) -> None:
        self.functions = {name.replace("_", "-"): behaviour for name, behaviour in functions.items()}
        self.replicas = dict.fromkeys(self.functions, 4)
        self.calls: Counter[tuple[str, int]] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most_in_flight: Counter[str] = Counter()
        self.deadlines: dict[int, int] = {}
        self.lock = threading.Lock()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                event = int(self.headers[EVENT_HEADER])
                name = unquote(self.path.rpartition("/")[2])
                with served.lock:
                    served.deadlines[event] = int(self.headers[DEADLINE_HEADER])
                started_ns = time.time_ns()
                status, answer = served.call(name, event, body)
                self.reply(status, answer, {STARTED_HEADER: started_ns, FINISHED_HEADER: time.time_ns()}, f"{name}-1")

            def do_GET(self) -> None:
                reports = [
                    FunctionReport(name=name, replicas={f"{name}-{i}": "joined" for i in range(count)})
                    for name, count in served.replicas.items()
                ]
                found = self.path == "/penstock/functions"
                self.reply(200 if found else 404, msgspec.json.encode(reports) if found else b"", {}, "")

            def reply(self, status: int, body: bytes, times: dict[str, int], replica: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, at_ns in times.items():
                    self.send_header(name, str(at_ns))
                if replica:
                    self.send_header(REPLICA_HEADER, replica)
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://admin:secret@127.0.0.1:{self.server.server_port}"

    def call(self, name: str, event: int, body: bytes) -> Answer:
        with self.lock:
            self.calls[name, event] += 1
            self.in_flight[name] += 1
            self.most_in_flight[name] = max(self.most_in_flight[name], self.in_flight[name])
        try:
            return self.functions[name](event, body)
        finally:
            with self.lock:
                self.in_flight[name] -= 1

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextmanager
def serving(**functions: Behaviour) -> Iterator[FunctionServer]:
    server = FunctionServer(**functions)
    try:
        yield server
    finally:
        server.close()


def slowly(seconds: float, then: Behaviour = echo) -> Behaviour:
    """A function with a service time."""

    def work(event: int, body: bytes) -> Answer:
        time.sleep(seconds)
        return then(event, body)

    return work


def constant(value: Any) -> Behaviour:
    """A function with one answer."""
    encoded = msgspec.json.encode(value)
    return lambda event, body: (200, encoded)
