"""Requests by HTTP: ``POST /requests`` with an event's JSON is answered when the request has left the pipeline.

A caller without an answer can repeat the request: the outcome of an event id never changes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from functions.dataflow.connectors.connector import Connector, Receive
from functions.dataflow.request import Delivery
from penstock.adapters.http_server import configuration, read_body
from penstock.records import Result
from penstock.sockets import listen

STOP_S: Final = 3
"""How long answers on their way may take at the end; a client may hold its connection open for longer."""
LARGEST_REQUEST_BYTES: Final = 64 * 1_048_576
"""Of an event with its payload."""
STATUS: Final = {"completed": 200, "failed": 422, "rejected": 429, "dead-lettered": 502}
"""By the outcome of the request. The body is its last Result."""


class _Server(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpConnector(Connector):
    """Connector port that listens on ``host:port``, 0 for any free one."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host, self._port = host, port
        self._receive: Receive | None = None
        self._full: Callable[[], bool] = lambda: False
        self._waiting: set[asyncio.Future[Result]] = set()
        app = Starlette(routes=[Route("/requests", self._post, methods=["POST"]), Route("/healthz", _healthz)])
        self._server = _Server(configuration(app, timeout_graceful_shutdown=STOP_S))
        self._serving: asyncio.Task[None] | None = None

    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Listen. Raises PenstockError where it cannot."""
        listener, port = listen(self._host, self._port, "choose another --listen")
        self.url = f"http://{self._host}:{port}"
        self._receive, self._full = receive, full
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            await asyncio.sleep(0.01)
        return self._serving

    async def pause(self) -> None:
        """Refuse further requests with 503."""
        self._receive = None

    async def stop(self) -> None:
        """Callers whose requests have not left get 503."""
        for answer in self._waiting:
            answer.cancel()
        await asyncio.sleep(0)
        self._server.should_exit = True
        if self._serving is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._serving, 2 * STOP_S)

    async def _post(self, request: Request) -> Response:
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def done(result: Result) -> None:
            if not answer.done():  # the caller still waits
                answer.set_result(result)

        delivery = Delivery(await read_body(request, LARGEST_REQUEST_BYTES), done)
        if self._receive is None or self._full():
            return _text(503, "the pipeline takes no requests now: try again")
        self._waiting.add(answer)
        try:
            self._receive([delivery])
            result = await answer
        except asyncio.CancelledError:
            if not answer.cancelled():
                raise
            return _text(503, "the pipeline manager is being stopped: try again")
        finally:
            self._waiting.discard(answer)
        return Response(msgspec.json.encode(result), STATUS[result.outcome], media_type="application/json")


async def _healthz(_request: Request) -> Response:
    return _text(200, "ok")


def _text(status: int, message: str) -> Response:
    return Response(message + "\n", status_code=status, media_type="text/plain")
