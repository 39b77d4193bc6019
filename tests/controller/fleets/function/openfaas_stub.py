"""A real HTTP server that behaves as an OpenFaaS gateway: wanted replicas at once, available ones a while later."""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from penstock.contracts import Phase, ReplicaEvent
from penstock.functions import FunctionReport, ReplicaEvents

SECRET = "a-secret"


class Function:
    """One deployment. ``live``: each replica with when it is there."""

    def __init__(self, body: dict[str, Any], replicas: int) -> None:
        self.body, self.replicas = body, replicas
        self.live: list[tuple[str, float]] = []
        self.born = 0


class StubGateway:
    """``most`` and ``least`` bound what is granted, silently, as the Community Edition does. ``tells_events``: it is
    Penstock's own and has ``/penstock/…`` besides.
    """

    def __init__(
        self, *, least: int = 0, most: int = 100, start_up_s: float = 0.05, tells_events: bool = False, port: int = 0
    ) -> None:
        self.least, self.most, self.start_up_s, self.tells_events = least, most, start_up_s, tells_events
        self.functions: dict[str, Function] = {}
        self.happened: list[ReplicaEvent] = []
        self.asked: list[tuple[str, str]] = []
        self.away = False
        self.refused = ""
        """A function whose deployment and scaling are answered 400."""
        self.late: dict[str, float] = {}
        """By method: seconds by which its next answer comes too late; what was asked for is done."""
        self.lock = threading.RLock()
        self.joined: set[str] = set()
        self.clients: list[Callable[[], None]] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, value = gateway.serve(self.command, self.path, self.headers.get("Authorization", ""), body)
                time.sleep(gateway.late.pop(self.command, 0.0))
                encoded = msgspec.json.encode(value) if value is not None else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)
                self.wfile.flush()

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://admin:{SECRET}@127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        for close in self.clients:
            close()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def put(self, name: str, replicas: int = 0, **body: Any) -> None:
        """A function that somebody has deployed before."""
        with self.lock:
            self.functions[name] = Function({"service": name, "image": "image", **body}, 0)
            self.scale(name, replicas)

    def lose(self, name: str) -> None:
        """A replica dies."""
        with self.lock:
            self.tell(name, self.functions[name].live.pop(0)[0], "gone", "died")

    def serve(self, method: str, path: str, authorisation: str, body: bytes) -> tuple[int, Any]:
        with self.lock:
            self.asked.append((method, path))
            if self.away:
                return 502, {"error": "no provider"}
            if authorisation != "Basic " + base64.b64encode(f"admin:{SECRET}".encode()).decode():
                return 401, {"error": "unauthorized"}
            parts = urlsplit(path)
            self.join_those_that_are_due()
            if parts.path == "/system/functions" and method == "GET":
                return 200, [self.status(name) for name in self.functions]
            if parts.path == "/system/functions" and method in ("POST", "PUT"):
                wanted = msgspec.json.decode(body)
                if wanted["service"] == self.refused:
                    return 400, "validation failed: com.openfaas.scale.max is set too high for Community Edition"
                labels = wanted.get("labels") or {}
                self.functions.setdefault(wanted["service"], Function(wanted, 0)).body = wanted
                if method == "POST":
                    self.scale(wanted["service"], int(labels.get("com.openfaas.scale.min", 1)))
                return 202, None
            if parts.path == "/system/functions" and method == "DELETE":
                name = msgspec.json.decode(body)["functionName"]
                if name not in self.functions:
                    return 404, None
                self.scale(name, 0, forced=True)
                del self.functions[name]
                return 202, None
            if parts.path.startswith("/system/scale-function/") and method == "POST":
                name = parts.path.rpartition("/")[2]
                if name not in self.functions:
                    return 404, {"error": f"no function {name}"}
                if name == self.refused:
                    return 400, "scaling is refused"
                self.scale(name, msgspec.json.decode(body)["replicas"])
                return 202, None
            if self.tells_events and parts.path == "/penstock/events":
                since = int(parse_qs(parts.query)["since"][0])
                since = since if since <= len(self.happened) else 0
                return 200, ReplicaEvents(len(self.happened), tuple(self.happened[since:]))
            if self.tells_events and parts.path == "/penstock/functions":
                return 200, [FunctionReport(name=name, replicas=self.phases(name)) for name in self.functions]
            return 404, None

    def status(self, name: str) -> dict[str, Any]:
        function = self.functions[name]
        available = sum(at_s <= time.monotonic() for _, at_s in function.live)
        return {
            "name": name,
            "image": function.body["image"],
            "annotations": function.body.get("annotations"),
            "replicas": function.replicas,
            "availableReplicas": available,
            "invocationCount": 0,
        }

    def phases(self, name: str) -> dict[str, Phase]:
        return {
            replica: "joined" if replica in self.joined else "requested" for replica, _ in self.functions[name].live
        }

    def scale(self, name: str, replicas: int, *, forced: bool = False) -> None:
        function = self.functions[name]
        function.replicas = replicas if forced else max(self.least, min(replicas, self.most))
        while len(function.live) < function.replicas:
            function.born += 1
            replica = f"{name}-{function.born:04x}"
            function.live.append((replica, time.monotonic() + self.start_up_s))
            self.tell(name, replica, "requested")
        while len(function.live) > function.replicas:
            replica, _ = function.live.pop()
            self.tell(name, replica, "draining")
            self.tell(name, replica, "gone")

    def join_those_that_are_due(self) -> None:
        for name, function in self.functions.items():
            for replica, at_s in function.live:
                if at_s <= time.monotonic() and replica not in self.joined:
                    self.joined.add(replica)
                    self.tell(name, replica, "started")
                    self.tell(name, replica, "joined")

    def tell(self, name: str, replica: str, phase: Phase, reason: str = "") -> None:
        self.happened.append(ReplicaEvent(name, replica, phase, time.time_ns(), reason))


@contextmanager
def stub_gateway(**options: Any) -> Iterator[StubGateway]:
    gateway = StubGateway(**options)
    try:
        yield gateway
    finally:
        gateway.close()
