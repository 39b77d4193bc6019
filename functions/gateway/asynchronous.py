"""Asynchronous invocations: answered 202 at once, executed in order, reported to the callback URL.

They are kept in memory only: a control plane that ends loses them and logs their number.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

import httpx

from penstock.adapters.tls import tls_context
from penstock.errors import PenstockError

log = logging.getLogger("asynchronous")

MOST_WAITING: Final = 1000
MOST_WAITING_BYTES: Final = 256 * 1_048_576
AT_ONCE: Final = 32
ATTEMPTS: Final = 10
RETRY_S: Final = (0.1, 5.0)
CALL_TIMEOUT_S: Final = 3600.0
OWN_HEADERS: Final = frozenset(
    ("host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect")
)
"""Headers of one connection or one message, which are not passed on. All others are."""
RETRIED: Final = (429, 502, 503)


class Invocation(NamedTuple):
    """One pending call."""

    call_id: str
    function: str
    request: httpx.Request
    callback_url: str


class Invoker:
    """Makes the calls through the gateway at ``url``, several concurrently."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=CALL_TIMEOUT_S, trust_env=False, verify=tls_context())
        self._waiting: asyncio.Queue[Invocation] = asyncio.Queue(MOST_WAITING)
        self._bytes = 0
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the workers."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(AT_ONCE)]

    def submit(self, function: str, path: str, body: bytes, headers: Mapping[str, str]) -> str | None:
        """The call's id, or None if too many or too large ones wait. ``path``: function name and the rest of the path.
        PenstockError if it can be none of a URL.
        """
        if self._waiting.full() or self._bytes + len(body) > MOST_WAITING_BYTES:
            return None
        call_id = headers.get("x-call-id") or str(uuid.uuid4())
        kept = {**_passed_on(headers), "x-call-id": call_id}
        kept.pop("x-callback-url", None)
        try:
            request = self._client.build_request("POST", f"/function/{path}", content=body, headers=_headers(kept))
        except httpx.InvalidURL as error:
            raise PenstockError(f"path: {error}") from None
        self._bytes += len(body)
        self._waiting.put_nowait(Invocation(call_id, function, request, headers.get("x-callback-url", "")))
        return call_id

    async def stop(self) -> None:
        """Stop, and log the number of lost calls."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        if self._waiting.qsize():
            log.warning("%d asynchronous invocations were not made", self._waiting.qsize())
        await self._client.aclose()

    async def _work(self) -> None:
        while True:
            invocation = await self._waiting.get()
            try:
                await self._make(invocation)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # such as a callback URL that is none
                log.warning("call %s of %s: %s", invocation.call_id, invocation.function, error)
            finally:
                self._bytes -= len(invocation.request.content)

    async def _make(self, invocation: Invocation) -> None:
        """Call, retried while all replicas are busy; then call back."""
        delay_s = RETRY_S[0]
        for attempt in range(1, ATTEMPTS + 1):
            with contextlib.suppress(httpx.TransportError):
                answer = await self._client.send(invocation.request)
                took_s = answer.elapsed.total_seconds()
                if answer.status_code not in RETRIED or attempt == ATTEMPTS:
                    break
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S[1])
        else:
            log.warning("call %s of %s: the gateway did not answer", invocation.call_id, invocation.function)
            return
        if invocation.callback_url:
            report = {
                "x-duration-seconds": f"{took_s:.6f}",
                **_passed_on(answer.headers),
                "x-call-id": invocation.call_id,
                "x-function-name": invocation.function,
                "x-function-status": str(answer.status_code),
            }
            report.pop("content-encoding", None)  # httpx has decoded the body
            await self._client.post(invocation.callback_url, content=answer.content, headers=_headers(report))


def _headers(headers: Mapping[str, str]) -> httpx.Headers:
    """As bytes, in the encoding in which starlette reads those of requests."""
    return httpx.Headers(dict(headers), encoding="latin-1")


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in OWN_HEADERS}
