"""A gateway of functions: the stub that the actuator's tests use, without its HTTP server, and clients of it."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import httpx
import msgspec

from functions.dataflow.http import NotConnectedError
from functions.dataflow.http import Reply as HttpReply
from tests.controller.fleets.function import openfaas_stub
from tests.controller.fleets.function.openfaas_stub import StubGateway
from tests.faults.kernel import SECOND, Kernel, Time, kernel
from tests.faults.network import Network, Reply, Trouble

SERVICE_NS = SECOND // 40
RESTART_NS = SECOND // 2


class Gateway(StubGateway):
    """One request at a time in each replica; a replica that dies is replaced."""

    def __init__(self, kernel: Kernel, *, tells_events: bool, most: int) -> None:
        setattr(openfaas_stub, "time", Time())  # noqa: B010 - not what the module exports
        self.kernel = kernel
        self.least, self.most, self.start_up_s, self.tells_events = 0, most, 0.3, tells_events
        self.ce = False
        self.functions, self.happened, self.asked = {}, [], []
        self.away, self.refused, self.late, self.joined, self.clients = False, "", {}, set(), []
        self.lock = contextlib.nullcontext()  # type: ignore[assignment]
        self.busy: dict[str, Reply] = {}
        self.called: list[tuple[str, int]] = []

    def lose(self, name: str) -> None:
        """A replica dies, with the request that it has."""
        if not self.functions[name].live:
            return
        replica = self.functions[name].live[0][0]
        super().lose(name)
        if (reply := self.busy.pop(replica, None)) is not None:
            reply.fail("reset")
        self.kernel.soon(lambda: self._replace(name), RESTART_NS)

    def _replace(self, name: str) -> None:
        if name in self.functions:
            self.scale(name, self.functions[name].replicas, forced=True)

    def call(self, name: str, event: int, reply: Reply) -> None:
        """A request for a function."""
        self.join_those_that_are_due()
        if name not in self.functions:
            reply((404, {}, b"no such function"))
            return
        there = [replica for replica, _ in self.functions[name].live if replica in self.joined]
        free = next((replica for replica in there if replica not in self.busy), None)
        if free is None:
            reply((429 if there else 503, {}, b"busy"))
            return
        self.busy[free] = reply
        self.called.append((name, event))
        k = self.kernel
        started_ns = k.now_ns + k.wall_ns

        def done() -> None:
            if self.busy.get(free) is not reply:
                return
            del self.busy[free]
            headers = {
                "x-penstock-replica": free,
                "x-penstock-started-ns": str(started_ns),
                "x-penstock-finished-ns": str(started_ns + SERVICE_NS),
            }
            reply((200, headers, b"1"))

        k.soon(done, SERVICE_NS)


class Httpx:
    """The module ``httpx`` for a client of the gateway."""

    network: Network
    gateway: Gateway

    def __getattr__(self, name: str) -> Any:
        return getattr(httpx, name)

    class Client:
        """``httpx.Client``."""

        def __init__(self, *, base_url: Any, timeout: float, trust_env: bool, verify: object) -> None:
            del trust_env, verify
            request = httpx.Request("GET", base_url)
            password = httpx.URL(base_url)
            self._auth = httpx.BasicAuth(password.username, password.password)._auth_header
            self._timeout_s, self._request = timeout, request

        def request(self, method: str, path: str, *, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
            del headers
            gateway = Httpx.gateway
            try:
                status, value = Httpx.network.ask(
                    "gateway",
                    f"{method} {path}",
                    lambda: gateway.serve(method, path, self._auth, content),
                    self._timeout_s,
                )
            except Trouble as trouble:
                if str(trouble) == "wrong":
                    status, value = 500, {"error": "internal"}
                elif str(trouble) == "timeout":
                    raise httpx.ReadTimeout("timed out") from None
                elif str(trouble) == "refused":
                    raise httpx.ConnectError("connection refused") from None
                else:
                    raise httpx.RemoteProtocolError("server disconnected") from None
            body = msgspec.json.encode(value) if value is not None else b""
            return _response(method, path, status, body)

        def close(self) -> None:
            return


@lru_cache(1000)
def _response(method: str, path: str, status: int, body: bytes) -> httpx.Response:
    """An answer, made once: most of them repeat the one before, and to read an address takes time."""
    return httpx.Response(status, content=body, request=httpx.Request(method, f"http://gateway{path}"))


class Pool:
    """``functions.dataflow.http.HttpPool``."""

    def __init__(self, url: str) -> None:
        self._auth = httpx.BasicAuth(httpx.URL(url).username, httpx.URL(url).password)._auth_header

    async def call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float,
        authorised: bool = False,
    ) -> HttpReply:
        del authorised
        k, loop, gateway = kernel(), asyncio.get_running_loop(), Httpx.gateway
        k.step(f"gateway {method} {path}")
        future: asyncio.Future[tuple[Any, str]] = loop.create_future()

        def done(value: Any, trouble: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result((value, trouble)))

        def handle(reply: Reply) -> None:
            if path.startswith("/function/"):
                gateway.call(path.removeprefix("/function/"), int((headers or {})["X-Penstock-Event"]), reply)
                return
            status, value = gateway.serve(method, path, self._auth, body)
            reply((status, {}, msgspec.json.encode(value) if value is not None else b""))

        assert k.current is not None
        Httpx.network.request(k.current.process, "gateway", handle, done)
        async with asyncio.timeout(timeout_s):
            answer, trouble = await future
        k.step("gateway answered")
        if trouble == "wrong":
            return HttpReply(500, {}, b"internal")
        if trouble == "refused":
            raise NotConnectedError("refused")
        if trouble:
            raise EOFError(trouble)
        return HttpReply(*answer)

    def close(self) -> None:
        return
