"""``external.metrics.k8s.io`` as KEDA's adapter serves it: values that the real HorizontalPodAutoscaler reads.

The API server reaches it by a Service without pods, whose one endpoint is this process.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import msgspec

from infra.kubernetes.kubectl import Kubectl
from tests.support.certificates import Authority

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = f"{GROUP}/v1beta1"
API_SERVICE: Final = f"v1beta1.{GROUP}"
NAME: Final = "external-metrics"
IDLE_S: Final = 5.0
"""A connection without a request ends after this long."""


class ExternalMetrics:
    """Serves ``values`` by name of the metric; a name that is missing has no value now. Counts ``read`` by name."""

    def __init__(self, folder: Path) -> None:
        self.values: dict[str, float] = {}
        self.read: dict[str, int] = {}
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            timeout = IDLE_S

            def do_GET(self) -> None:
                found = metrics.answer(self.path.partition("?")[0].strip("/").split("/"))
                encoded = msgspec.json.encode(found or {"kind": "Status", "apiVersion": "v1", "code": 404})
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that hangs up is no error."""

        certificate, key = Authority().issue(NAME)
        file = folder / "external-metrics.pem"
        file.write_bytes(certificate + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        self._server = Server(("", 0), Handler)
        # the handshake is the connection's own matter: a client that never makes it holds up no other
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def answer(self, path: list[str]) -> dict[str, Any] | None:
        """The object at a path, None for none."""
        if path == ["apis", *VERSION.split("/")]:
            resource = {
                "name": "externalmetrics", "singularName": "", "namespaced": True,
                "kind": "ExternalMetricValueList", "verbs": ["get"],
            }  # fmt: skip
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": [resource]}
        name = path[-1]
        if path[:3] != ["apis", *VERSION.split("/")] or (value := self.values.get(name)) is None:
            return None
        self.read[name] = self.read.get(name, 0) + 1
        item = {
            "metricName": name, "metricLabels": {}, "value": f"{round(1000 * value)}m",
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }  # fmt: skip
        return {"kind": "ExternalMetricValueList", "apiVersion": VERSION, "metadata": {}, "items": [item]}

    def close(self) -> None:
        """End with all connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving_external_metrics(namespace: Kubectl, address: str, folder: Path) -> Iterator[ExternalMetrics]:
    """They are served to the cluster from ``address``, this machine's for it."""
    made = ExternalMetrics(folder)
    try:
        namespace.apply(*objects(namespace.namespace, address, made.port))
        namespace.run("wait", "--for=condition=Available", f"apiservice/{API_SERVICE}", "--timeout=50s")
        yield made
    finally:
        # An APIService that does not answer would keep every namespace from being deleted.
        namespace.run("delete", f"apiservice/{API_SERVICE}", "--ignore-not-found")
        made.close()


def objects(namespace: str, address: str, port: int) -> list[dict[str, Any]]:
    """Service, its endpoint, and the API's registration."""
    metadata = {"name": NAME, "namespace": namespace}
    endpoint = {"addresses": [address], "conditions": {"ready": True}}
    return [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"ports": [{"name": "", "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": NAME}},
            "ports": [{"name": "", "port": port, "protocol": "TCP"}], "endpoints": [endpoint],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API_SERVICE},
            "spec": {
                "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": True, "service": {"name": NAME, "namespace": namespace},
            },
        },
    ]  # fmt: skip
