"""Servers under floods and slow clients: those who send a request are answered, and what is held is bounded."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.adapters import http_server
from penstock.adapters.http_server import configuration, read_body
from penstock.sockets import listen

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
PATIENCE_S = 60
MOST = 10

pytestmark = pytest.mark.usefixtures("servers_end_soon")


class Scene:
    """A server, and clients that never end what they begin."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self.server, self.port = server, port
        self.url = f"http://127.0.0.1:{port}"
        self.writers: list[asyncio.StreamWriter] = []
        self.readers: list[asyncio.StreamReader] = []
        self.release = asyncio.Event()

    async def begin(self, content: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(content)
        self.readers.append(reader)
        self.writers.append(writer)

    async def echo(self, content: bytes = b"good") -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=PATIENCE_S) as http:
            return await http.post("/echo", content=content)

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)


def play(act: Callable[[Scene], Awaitable[None]]) -> None:
    async def echo(request: Request) -> Response:
        return Response(await read_body(request, 1000))

    async def wait(request: Request) -> Response:
        await request.app.state.scene.release.wait()
        return Response(b"late")

    async def whole() -> None:
        listener, port = listen("127.0.0.1", 0, "")
        app = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/wait", wait)])
        scene = app.state.scene = Scene(uvicorn.Server(configuration(app, timeout_graceful_shutdown=1)), port)
        serving = asyncio.create_task(scene.server._serve([listener]))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not scene.server.started:
                    await asyncio.sleep(0.01)
                await act(scene)
        finally:
            scene.release.set()
            for writer in scene.writers:
                writer.close()
            scene.server.should_exit = True
            await serving

    asyncio.run(whole())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"P",
        HEAD[:-2],
        HEAD,
        HEAD + b"x" * 99,
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: x\r\n\r\n5\r\n",
    ],
    ids=["silent", "a byte", "no end of head", "no body", "a byte short", "no chunk"],
)
def test_a_flood_of_slow_clients_is_bounded_and_others_are_answered(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", MOST)

    async def act(scene: Scene) -> None:
        for number in range(5 * MOST):
            await scene.begin(content)
            if number % MOST == 0:
                answer = await scene.echo()
                assert (answer.status_code, answer.content) == (200, b"good")
                assert scene.connections <= MOST + 1
        while scene.connections > MOST:
            await asyncio.sleep(0.01)

    play(act)


def test_who_waits_for_an_answer_keeps_the_connection_in_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", MOST)

    async def act(scene: Scene) -> None:
        async with httpx.AsyncClient(base_url=scene.url, trust_env=False, timeout=PATIENCE_S) as http:
            waiting = asyncio.create_task(http.get("/wait"))
            while not scene.server.server_state.tasks:
                await asyncio.sleep(0.01)
            for _ in range(5 * MOST):
                await scene.begin(b"")
            assert (await scene.echo()).status_code == 200
            scene.release.set()
            assert (await waiting).content == b"late"

    play(act)


def test_bodies_are_bounded_one_by_one_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_HELD_BYTES", 1500)

    async def act(scene: Scene) -> None:
        answer = await scene.echo(b"x" * 1001)
        assert (answer.status_code, answer.text) == (413, "a request has at most 1000 bytes\n")
        large = HEAD.replace(b"100", b"900") + b"x" * 899
        await scene.begin(large)
        while http_server._held_bytes < 899:
            await asyncio.sleep(0.01)
        answer = await scene.echo(b"x" * 700)
        assert (answer.status_code, answer.text) == (503, "too many large requests at a time: try again\n")
        scene.writers[0].close()
        while http_server._held_bytes:
            await asyncio.sleep(0.01)
        assert (await scene.echo(b"x" * 700)).status_code == 200

    play(act)


def test_a_head_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(scene: Scene) -> None:
        await scene.begin(b"GET /wait HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert (await scene.readers[0].read(12)) == b"HTTP/1.1 400"

    play(act)
