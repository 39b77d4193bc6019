"""A front that makes Penstock's gateway as strict as OpenFaaS' Community Edition (CE).

Calls of functions pass; of the provider API only what CE has, under its rules: five replicas, never none, no
environment in a function's status, none of Penstock's own routes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import httpx
import msgspec

from tests.controller.fleets.function.openfaas_stub import CE_REPLICAS, NAMESPACE, ce_refusal

HOP_BY_HOP: Final = ("connection", "content-length", "transfer-encoding", "host", "date", "server")
SECRETS: Final = ("redis-url",)


class CeFront:
    """In front of the gateway at ``behind``, a URL with credentials, which are this front's, too."""

    def __init__(self, behind: str) -> None:
        self._client = httpx.Client(base_url=behind, timeout=90, trust_env=False, limits=httpx.Limits())
        self.changes: list[tuple[str, str, int]] = []
        """(method, function, status) of every request that would change something."""
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                status, given, content = front.serve(self.command, self.path, headers, body)
                self.send_response(status)
                for name, value in given.items():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        own = httpx.URL(behind).copy_with(port=self._server.server_port)
        self.url = str(own).rstrip("/")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()

    def functions(self) -> dict[str, dict[str, Any]]:
        """Status by name."""
        return {each["name"]: each for each in self._client.get("/system/functions").json()}

    def serve(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """Status, headers and body of an answer."""
        if path.startswith("/penstock/"):
            return 404, {}, b"404 page not found"
        if path.startswith("/system/") and method != "GET":
            return self._change(method, path, headers, msgspec.json.decode(body))
        reply = self._client.request(method, path, headers=headers, content=body)
        content = reply.content
        if path == "/system/functions" and reply.status_code == 200:
            shown = [{**each, "envVars": None} for each in reply.json()]
            content = msgspec.json.encode(shown)
        return reply.status_code, _plain(reply), content

    def _change(self, method: str, path: str, headers: dict[str, str], sent: Any) -> tuple[int, Any, bytes]:
        there, name = self.functions(), sent.get("service") or sent.get("functionName") or path.rpartition("/")[2]
        refusal: tuple[int, str] | None = None
        if sent.get("namespace", "") not in ("", NAMESPACE):
            refusal = 400, f"namespace must be: {NAMESPACE}"
        elif path.startswith("/system/scale-function/"):
            refusal = None if name in there else (500, f"no function {name}")
            sent = {**sent, "replicas": min(max(sent["replicas"], 1), CE_REPLICAS)}
        elif method in ("POST", "PUT"):
            refusal = ce_refusal(method, sent, there, SECRETS)
        if refusal is not None:
            status, text = refusal
            self.changes.append((method, name, status))
            return status, {}, text.encode()
        reply = self._client.request(method, path, headers=headers, content=msgspec.json.encode(sent))
        self.changes.append((method, name, reply.status_code))
        return reply.status_code, _plain(reply), reply.content


def _plain(reply: httpx.Response) -> dict[str, str]:
    """Headers of an answer whose content was decoded."""
    return {name: value for name, value in reply.headers.items() if name != "content-encoding"}


@contextmanager
def ce_front(behind: str) -> Iterator[CeFront]:
    front = CeFront(behind)
    try:
        yield front
    finally:
        front.close()
