"""Messages between simulated processes and services, and what a fault does to them."""

import asyncio
import http.client
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tests.faults.kernel import SECOND, Kernel, Process, SimLoop, kernel

Modes = ("silent", "deaf", "late", "reset", "wrong", "flaky")
"""A request, or its answer, is stuck until the fault is over, when the client may have given up; it comes late; the
connection breaks after it; it is refused; any of these.
"""


NOT_THERE = object()
"""In place of an answer: nobody has taken the request."""


class Trouble(Exception):  # noqa: N818 - what a client makes an error of its own library of
    """Why there is no answer: refused, timeout, reset or wrong."""


class LinkFault(msgspec.Struct):
    """``client`` and ``service`` as kinds, "*" for all, until a time."""

    client: str
    service: str
    mode: str
    until_ns: int


class Lane:
    """A connection whose requests arrive in order; what is under way when it is closed does not arrive."""

    __slots__ = ("closed", "in_ns")

    def __init__(self) -> None:
        self.in_ns = 0
        self.closed = False


class Reply:
    """The way back of one request."""

    __slots__ = ("_done", "_mode", "_network", "_stuck_ns", "over")

    def __init__(self, network: "Network", done: Callable[[Any, str], None], mode: str, stuck_ns: int) -> None:
        self._network, self._done, self._mode, self._stuck_ns = network, done, mode, stuck_ns
        self.over = False

    def __call__(self, value: Any = None) -> None:
        """Answer."""
        self._finish(value, "")

    def fail(self, trouble: str) -> None:
        """There is no answer."""
        self._finish(None, trouble)

    def _finish(self, value: Any, trouble: str) -> None:
        if self.over:
            return
        self.over = True
        if self._mode == "reset":
            value, trouble = None, "reset"
        network, done = self._network, self._done
        delay_ns = network.delay_ns()
        if self._mode == "deaf":
            delay_ns = max(delay_ns, self._stuck_ns - network.kernel.now_ns)
        network.kernel.soon(lambda: done(value, trouble), delay_ns)


class Network:
    """Every link between a process and a service. A service that is ``away`` refuses at once."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._random = kernel.random.random
        self.away: dict[str, int] = {}
        self.faults: list[LinkFault] = []
        self.servers: dict[int, HttpServer] = {}
        self.next_port = 20_000

    def delay_ns(self) -> int:
        """The time of one way."""
        return 100_000 + int(self._random() * 1_200_000)

    def is_away(self, service: str) -> bool:
        """Whether nobody answers there."""
        return self.away.get(service, 0) > self.kernel.now_ns

    def mode(self, client: str, service: str) -> tuple[str, int]:
        """What happens to a message that is sent now, empty for nothing, and until when."""
        for fault in self.faults:
            if fault.until_ns > self.kernel.now_ns and fault.client in ("*", client) and fault.service == service:
                mode = fault.mode
                if mode == "flaky":
                    draw = self.kernel.random.random()
                    mode = Modes[int(draw * 10)] if draw < 0.5 else ""
                return mode, fault.until_ns
        return "", 0

    def request(
        self,
        client: Process,
        service: str,
        handle: Callable[[Reply], None],
        done: Callable[[Any, str], None],
        lane: Lane | None = None,
    ) -> None:
        """Send; ``handle`` is called at the service, ``done(answer, trouble)`` at the client, once at most."""
        k = self.kernel
        mode, until_ns = self.mode(client.kind, service) if self.faults else ("", 0)
        there_ns = self.delay_ns()
        if mode == "late":
            there_ns += int(self._random() * 3 * SECOND)
        elif mode == "silent":
            there_ns += until_ns - k.now_ns
        if lane is not None:
            there_ns = max(there_ns, lane.in_ns - k.now_ns)
            lane.in_ns = k.now_ns + there_ns
        reply = Reply(self, done, mode, until_ns)

        def arrive() -> None:
            if self.away.get(service, 0) > k.now_ns or (lane is not None and lane.closed):
                reply.fail("refused")
            elif mode == "wrong":
                reply.fail("wrong")
            else:
                handle(reply)

        k.soon(arrive, there_ns)

    def call(
        self,
        service: str,
        what: str,
        handle: Callable[[Reply], None],
        timeout_s: float,
        lane: Lane | None = None,
    ) -> Any:
        """Ask and wait, in a simulated thread. Raises Trouble."""
        k = self.kernel
        k.step(f"{service} {what}")
        me = k.current
        assert me is not None
        answer: list[tuple[Any, str]] = []
        waiting = True

        def done(value: Any, trouble: str) -> None:
            if waiting:
                answer.append((value, trouble))
                k.wake(me)

        self.request(me.process, service, handle, done, lane)
        k.park(round(timeout_s * SECOND))
        waiting = False
        k.step(f"{service} {what} answered")
        if not answer:
            raise Trouble("timeout")
        value, trouble = answer[0]
        if trouble:
            raise Trouble(trouble)
        return value

    def ask(self, service: str, what: str, effect: Callable[[], Any], timeout_s: float) -> Any:
        """``call`` of something that a service does at once. Without faults of links it takes fewer steps."""
        if self.faults:
            return self.call(service, what, lambda reply: reply(effect()), timeout_s)
        k, delay_ns = self.kernel, self.delay_ns
        k.step(f"{service} {what}")
        me = k.current
        assert me is not None
        given: Any = NOT_THERE
        arrived, waiting = False, True

        def arrive() -> None:
            nonlocal given
            if self.away.get(service, 0) <= k.now_ns:
                given = effect()
            k.soon(done, delay_ns())

        def done() -> None:
            nonlocal arrived
            if waiting:
                arrived = True
                k.wake(me)

        k.soon(arrive, delay_ns())
        k.park(round(timeout_s * SECOND))
        waiting = False
        k.step(f"{service} {what} answered")
        if not arrived:
            raise Trouble("timeout")
        if given is NOT_THERE:
            raise Trouble("refused")
        return given


# --- HTTP ----------------------------------------------------------------------------------------------------------


class HttpServer:
    """What ``uvicorn.Server`` is to an application, in an event loop of a simulated process."""

    def __init__(self, config: "HttpConfig") -> None:
        self.app = config.app
        self.started = False
        self._exit = False
        self._over: asyncio.Event | None = None
        self._loop: Any = None
        self._pending: list[Reply] = []
        self.process: Process | None = None

    @property
    def should_exit(self) -> bool:
        return self._exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._exit = value
        if value and self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)

    async def serve(self, sockets: list["Listener"]) -> None:
        k = kernel()
        assert k.current is not None
        self.process = k.current.process
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        assert isinstance(self._loop, SimLoop)
        network, port = sockets[0].network, sockets[0].port
        network.servers[port] = self
        self.process.on_death.append(lambda: self._close(network, port))
        self.started = True
        if not self._exit:
            await self._over.wait()
        await asyncio.sleep(0.002)
        self._close(network, port)

    def _close(self, network: Network, port: int) -> None:
        if network.servers.get(port) is self:
            del network.servers[port]
        pending, self._pending = self._pending, []
        for reply in pending:
            reply.fail("reset")

    def receive(self, method: str, path: str, body: bytes, reply: Reply) -> None:
        """A request has come in."""
        self._pending.append(reply)
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._answer(method, path, body, reply)))

    async def _answer(self, method: str, path: str, body: bytes, reply: Reply) -> None:
        bare, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": bare,
            "root_path": "",
            "query_string": query.encode(),
            "headers": [],
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        answer: tuple[int, bytes] = 404, b"Not Found"
        for route in self.app.routes:
            match, child = route.matches(scope)
            if match.value == 2:
                try:
                    response = await route.endpoint(Request({**scope, **child}, receive))
                    answer = response.status_code, bytes(response.body)
                except HTTPException as error:
                    answer = error.status_code, str(error.detail).encode()
                break
        if reply in self._pending:
            self._pending.remove(reply)
            reply(answer)


class HttpConfig:
    """``uvicorn.Config``."""

    def __init__(self, app: Any, **_: Any) -> None:
        self.app = app


class Uvicorn:
    """The module ``uvicorn``."""

    Config, Server = HttpConfig, HttpServer


class Listener:
    """A listening socket."""

    def __init__(self, network: Network, port: int) -> None:
        self.network, self.port = network, port

    def close(self) -> None:
        return


class HttpConnection:
    """``http.client.HTTPConnection`` to a simulated server. ``service`` names the link."""

    network: Network
    service = "plans"

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._port, self.timeout = port, timeout
        self.sock: Any = None
        self._server: HttpServer | None = None
        self._request: tuple[str, str, bytes] | None = None

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        del headers
        self._request = method, path, body or b""
        if self.sock is None:
            self._server = self.network.servers.get(self._port)
            self.sock = self

    def settimeout(self, timeout_s: float) -> None:
        self.timeout = timeout_s

    def getresponse(self) -> "HttpResponse":
        assert self._request is not None
        method, path, body = self._request

        def handle(reply: Reply) -> None:
            server = self.network.servers.get(self._port)
            if server is None:
                reply.fail("refused")
            elif server is not self._server:
                reply.fail("reset")
            else:
                server.receive(method, path, body, reply)

        try:
            status, content = self.network.call(self.service, f"{method} {path}", handle, self.timeout)
        except Trouble as trouble:
            if str(trouble) == "wrong":
                return HttpResponse(500, b"Internal Server Error")
            if str(trouble) == "timeout":
                raise TimeoutError("timed out") from None
            if str(trouble) == "refused":
                raise ConnectionRefusedError("connection refused") from None
            raise http.client.RemoteDisconnected("remote end closed connection without response") from None
        return HttpResponse(status, content)

    def close(self) -> None:
        self.sock = None


class HttpResponse:
    """``http.client.HTTPResponse``."""

    def __init__(self, status: int, content: bytes) -> None:
        self.status, self._content = status, content

    def read(self) -> bytes:
        return self._content


class HttpClient:
    """The package ``http`` with its module ``client``."""

    HTTPConnection = HttpConnection
    HTTPException = http.client.HTTPException

    @property
    def client(self) -> "HttpClient":
        return self
