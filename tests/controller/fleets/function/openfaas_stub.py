"""A real HTTP server that behaves as an OpenFaaS gateway: wanted replicas at once, available ones a while later.

It is as strict as the Community Edition (CE) unless it is Penstock's own: five replicas at most, never none, one
namespace, no labels of Pro, no secret that is not there, 400, 404 and 500 where faas-netes answers them.
"""

import base64
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from penstock.contracts import Phase, ReplicaEvent
from penstock.function_messages import FunctionReport, ReplicaEvents

SECRET = "a-secret"
CE_REPLICAS = 5
CE_FUNCTIONS = 15
MAX_LABEL = "com.openfaas.scale.max"
CE_LABELS = ("com.openfaas.scale.min", MAX_LABEL)
NAMESPACE = "openfaas-fn"
TOO_HIGH = f"validation failed: {MAX_LABEL} is set too high for Community Edition"


def ce_refusal(
    method: str, wanted: Mapping[str, Any], there: Collection[str], secrets: Collection[str]
) -> tuple[int, str] | None:
    """Status and text by which CE refuses a deployment, None if it does not."""
    name, labels = wanted["service"], wanted.get("labels") or {}
    if pro := [each for each in labels if each.startswith("com.openfaas.scale.") and each not in CE_LABELS]:
        return 400, f"validation failed: {pro[0]} is not available in Community Edition"
    if int(labels.get(MAX_LABEL, CE_REPLICAS)) > CE_REPLICAS:
        return 400, TOO_HIGH
    if unknown := [each for each in wanted.get("secrets") or () if each not in secrets]:
        return 400, f'unable to fetch secrets: secrets "{unknown[0]}" not found'
    if method == "PUT" and name not in there:
        return 404, f"deployments.apps {name!r} not found"
    if method == "POST" and name in there:
        return 500, f"deployments.apps {name!r} already exists"
    if method == "POST" and len(there) >= CE_FUNCTIONS:
        return 400, f"Community Edition: at most {CE_FUNCTIONS} functions"
    return None


class Function:
    """One deployment. ``live``: each replica with when it is there."""

    def __init__(self, body: dict[str, Any], replicas: int) -> None:
        self.body, self.replicas = body, replicas
        self.live: list[tuple[str, float]] = []
        self.born = 0


class StubGateway:
    """``most`` and ``least`` bound what is granted, silently; CE's without ``tells_events``, which makes it Penstock's
    own: it has ``/penstock/…`` besides.
    """

    def __init__(
        self,
        *,
        least: int | None = None,
        most: int | None = None,
        start_up_s: float = 0.05,
        tells_events: bool = False,
        port: int = 0,
    ) -> None:
        self.least = least if least is not None else 0 if tells_events else 1
        self.most = most if most is not None else 100 if tells_events else CE_REPLICAS
        self.start_up_s, self.tells_events, self.ce = start_up_s, tells_events, not tells_events
        self.secrets = {"redis-url"}
        self.calls: dict[str, dict[str, float]] = {}
        """By function: how many have ``started`` and were ``answered`` (with 200), ``seconds`` in all."""
        self.metrics_away = False
        self.functions: dict[str, Function] = {}
        self.happened: list[ReplicaEvent] = []
        self.asked: list[tuple[str, str]] = []
        self.away = False
        self.refused = ""
        """A function whose deployment and scaling are answered 400."""
        self.loses_updates = False
        """As faas-netes where it cannot read the image: a PUT is answered, and nothing is changed."""
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
                if self.path == "/metrics":  # OpenFaaS' gateway has it on a port of its own, without a password
                    self.send(404 if gateway.metrics_away else 200, gateway.metrics())
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, value = gateway.serve(self.command, self.path, self.headers.get("Authorization", ""), body)
                time.sleep(gateway.late.pop(self.command, 0.0))
                self.send(status, msgspec.json.encode(value) if value is not None else b"")

            def send(self, status: int, encoded: bytes) -> None:
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
            sent = msgspec.json.decode(body) if body else {}
            asked_for = sent.get("namespace") or parse_qs(parts.query).get("namespace", [""])[0]
            if asked_for not in ("", NAMESPACE):
                return 400, f"namespace must be: {NAMESPACE}"
            self.join_those_that_are_due()
            if parts.path == "/system/functions" and method == "GET":
                return 200, [self.status(name) for name in self.functions]
            if parts.path == "/system/functions" and method in ("POST", "PUT"):
                name, labels = sent["service"], sent.get("labels") or {}
                if refusal := self.refusal(method, sent):
                    return refusal
                if method == "PUT" and self.loses_updates:
                    return 200, None
                self.functions.setdefault(name, Function(sent, 0)).body = sent
                if method == "POST" or self.ce:  # faas-netes sets the label's number with a PUT, too
                    self.scale(name, int(labels.get("com.openfaas.scale.min", 1)))
                return 202, None
            if parts.path == "/system/functions" and method == "DELETE":
                name = sent["functionName"]
                if name not in self.functions:
                    return 404, None
                self.scale(name, 0, forced=True)
                del self.functions[name]
                return 202, None
            if parts.path.startswith("/system/scale-function/") and method == "POST":
                name = parts.path.rpartition("/")[2]
                if name not in self.functions:
                    return 500 if self.ce else 404, {"error": f"no function {name}"}
                if name == self.refused:
                    return 400, "scaling is refused"
                self.scale(name, sent["replicas"])
                return 202, None
            if self.tells_events and parts.path == "/penstock/events":
                since = int(parse_qs(parts.query)["since"][0])
                since = since if since <= len(self.happened) else 0
                return 200, ReplicaEvents(len(self.happened), tuple(self.happened[since:]))
            if self.tells_events and parts.path == "/penstock/functions":
                return 200, [FunctionReport(name=name, replicas=self.phases(name)) for name in self.functions]
            return 404, None

    def refusal(self, method: str, wanted: dict[str, Any]) -> tuple[int, str] | None:
        """Why a deployment is refused, None if it is not."""
        if wanted["service"] == self.refused:
            return 400, TOO_HIGH
        return ce_refusal(method, wanted, self.functions, self.secrets) if self.ce else None

    def count_calls(self, name: str, started: int = 1, answered: int = 1, seconds: float = 0.1) -> None:
        """Calls of a function, of ``seconds`` each."""
        with self.lock:
            counted = self.calls.setdefault(name, {"started": 0, "answered": 0, "seconds": 0})
            counted["started"] += started
            counted["answered"] += answered
            counted["seconds"] += answered * seconds

    def metrics(self) -> bytes:
        """As OpenFaaS' gateway writes them: only what was called has counters."""
        lines = ["# TYPE gateway_service_count gauge"]
        with self.lock:
            lines += [
                f'gateway_service_count{{function_name="{name}.{NAMESPACE}"}} {each.replicas}'
                for name, each in self.functions.items()
            ]
            series = (
                ("gateway_function_invocation_started", "counter", "", "started", ""),
                ("gateway_function_invocation_total", "counter", "", "answered", 'code="200",'),
                ("gateway_functions_seconds", "histogram", "_sum", "seconds", 'code="200",'),
            )
            for metric, kind, suffix, field, labels in series:
                lines.append(f"# TYPE {metric} {kind}")
                lines += [
                    f'{metric}{suffix}{{{labels}function_name="{name}.{NAMESPACE}"}} {counted[field]}'
                    for name, counted in self.calls.items()
                    if counted[field]
                ]
        return ("\n".join(lines) + "\n").encode()

    def status(self, name: str) -> dict[str, Any]:
        function = self.functions[name]
        available = sum(at_s <= time.monotonic() for _, at_s in function.live)
        return {
            "name": name,
            "namespace": NAMESPACE,
            "image": function.body["image"],
            "labels": function.body.get("labels"),
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
            self.joined.discard(replica)  # one of a later function of that name has the same name
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
