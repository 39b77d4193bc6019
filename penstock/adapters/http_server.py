"""HTTP servers on uvicorn with limits: many or slow clients and large requests neither stop one nor grow its memory.

uvicorn has no timeout for a client that never sends its request, and at its own limit (``limit_concurrency``) it
refuses everybody. Here a connection above the limit takes the place of another one.
"""

import asyncio
from typing import Any, Final

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS: Final = 512
"""Of one server."""
MOST_HELD_BYTES: Final = 256 * 1_048_576
"""Of all request bodies that a process is receiving."""


class Connection(H11Protocol):
    """A connection. Above ``MOST_CONNECTIONS`` the oldest is closed of those that never sent a whole request, then of
    those that are idle, then of those that wait for an answer.
    """

    made_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.made_s = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            there = [each for each in self.connections if isinstance(each, Connection)]
            there = [each for each in there if not each.transport.is_closing()]
            if len(there) > MOST_CONNECTIONS:
                min(there, key=lambda each: (each.progress, each.made_s)).transport.abort()

    @property
    def progress(self) -> int:
        """0: no whole request so far, 1: idle after one, 2: it waits for an answer."""
        if self.cycle is None or self.cycle.more_body:
            return 0
        return 1 if self.cycle.response_complete else 2


def configuration(app: Any, **more: Any) -> uvicorn.Config:
    """How all servers run ``app``; ``more`` are further settings of uvicorn."""
    return uvicorn.Config(app, http=Connection, log_level="warning", access_log=False, lifespan="off", **more)


_held_bytes = 0


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The body of a request. HTTPException 413: larger than ``most_bytes``; 503: all bodies together are too large;
    400: the client has gone.
    """
    global _held_bytes
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            _held_bytes += len(chunk)
            if len(body) > most_bytes:
                raise HTTPException(413, f"a request has at most {most_bytes} bytes\n")
            if _held_bytes > MOST_HELD_BYTES:
                raise HTTPException(503, "too many large requests at a time: try again\n")
        return bytes(body)
    except ClientDisconnect:
        raise HTTPException(400, "the client has gone\n") from None
    finally:
        _held_bytes -= len(body)
