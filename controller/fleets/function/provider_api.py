"""A client of the OpenFaaS provider API and of the extensions in Penstock's own gateway.

From OpenFaaS' sources: ``POST /system/scale-function/{name}`` answers 202 before the number is granted; a function's
status has ``replicas`` (wanted) and ``availableReplicas`` (those that take requests).
"""

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from penstock.adapters.tls import tls_context
from penstock.errors import PenstockError
from penstock.function_messages import FunctionReport, ReplicaEvents
from penstock.openfaas import DeleteRequest, DeployedFunction, FunctionDeployment, ScaleRequest


class GatewayError(Exception):
    """A request failed; the text is the reason in one line."""


class SlowGatewayError(GatewayError):
    """The gateway has not answered in time; it may still execute the request."""


class RefusedError(GatewayError):
    """The gateway will never do that (status 400, or 401): there is no use in repeating it."""


class ProviderApi:
    """``url``: http://user:password@host:port, from the setting ``of``. Every method raises GatewayError. Safe to use
    from several threads.
    """

    def __init__(self, url: str, timeout_s: float = 2.0, *, of: str = "PENSTOCK_GATEWAY") -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise PenstockError(f"{of} is no URL ({error}): http://user:password@host:port") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise PenstockError(f"{of} is no URL: expected http://user:password@host:port")
        self._of = of
        self.where = f"{parsed.host}:{parsed.port}" if parsed.port else parsed.host
        self._url, self._timeout_s = parsed, timeout_s
        self._client = self._new_client()
        self._has_events = True

    def functions(self) -> dict[str, DeployedFunction]:
        """Deployed functions by name."""
        found = self._decode(self._ask("GET", "/system/functions"), tuple[DeployedFunction, ...])
        return {each.name: each for each in found}

    def deploy(self, wanted: FunctionDeployment, *, again: bool = False) -> None:
        """Deploy a function, or (``again``) change a deployed one."""
        self._ask("PUT" if again else "POST", "/system/functions", wanted)

    def delete(self, function: str) -> None:
        """Remove a function and its replicas, if it is deployed."""
        self._ask("DELETE", "/system/functions", DeleteRequest(function_name=function), accept=(404,))

    def scale(self, function: str, replicas: int) -> None:
        """Request a number of replicas. The granted number is in a later status."""
        request = ScaleRequest(service_name=function, replicas=replicas)
        self._ask("POST", f"/system/scale-function/{function}", request)

    def events(self, since: int) -> ReplicaEvents | None:
        """Replica events from number ``since`` on; None if the gateway does not report them."""
        if not self._has_events:
            return None
        reply = self._ask("GET", f"/penstock/events?since={since}", accept=(404, 405))
        if reply.status_code != 200:
            self._has_events = False
            return None
        events: ReplicaEvents = self._decode(reply, ReplicaEvents)
        return events

    def reports(self) -> tuple[FunctionReport, ...] | None:
        """Every function with its replicas; None if the gateway does not report them."""
        reply = self._ask("GET", "/penstock/functions", accept=(404, 405))
        return self._decode(reply, tuple[FunctionReport, ...]) if reply.status_code == 200 else None

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        self._client.close()
        self._client = self._new_client()

    def _new_client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, timeout=self._timeout_s, trust_env=False, verify=tls_context())

    def _ask(
        self, method: str, path: str, body: msgspec.Struct | None = None, accept: tuple[int, ...] = ()
    ) -> httpx.Response:
        content = msgspec.json.encode(body) if body is not None else b""
        headers: Mapping[str, str] = {"Content-Type": "application/json"} if body is not None else {}
        try:
            reply = self._client.request(method, path, content=content, headers=headers)
        except httpx.HTTPError as error:
            kind = SlowGatewayError if isinstance(error, httpx.TimeoutException) else GatewayError
            raise kind(f"gateway {self.where}: {type(error).__name__}: {error}".rstrip(": ")) from None
        if reply.is_success or reply.status_code in accept:
            return reply
        if reply.status_code == 401:
            raise RefusedError(f"gateway {self.where}: user or password in {self._of} is wrong (401)")
        said = " ".join(reply.text.split())[:200]
        kind = RefusedError if reply.status_code == 400 else GatewayError
        raise kind(f"gateway {self.where}: {method} {path}: status {reply.status_code} {said}".rstrip())

    def _decode(self, reply: httpx.Response, kind: Any) -> Any:
        try:
            return msgspec.json.decode(reply.content, type=kind)
        except msgspec.DecodeError as error:
            raise GatewayError(f"gateway {self.where}: {reply.request.url.path}: unexpected answer: {error}") from None
