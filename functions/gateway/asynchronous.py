"""Asynchronous invocations: answered 202 at once, done in turn, told to whoever asked to be called back.

They are kept in memory only: a control plane that is killed forgets them, as its log says.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping
from typing import Final

import httpx
import msgspec

log = logging.getLogger("asynchronous")

MOST_WAITING: Final = 1000
AT_ONCE: Final = 32
ATTEMPTS: Final = 10
RETRY_S: Final = (0.1, 5.0)
CALL_TIMEOUT_S: Final = 3600.0
PASSED_ON: Final = ("content-type", "accept", "x-penstock-event", "x-penstock-deadline-ns")
RETRIED: Final = (429, 502, 503)


class Invocation(msgspec.Struct, frozen=True):
    """One call to be made. ``path``: of the function and what follows it."""

    call_id: str
    function: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    callback_url: str


class Invoker:
    """Makes the calls through the gateway at ``url``, some side by side."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=CALL_TIMEOUT_S, trust_env=False)
        self._waiting: asyncio.Queue[Invocation] = asyncio.Queue(MOST_WAITING)
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin working."""
        self._workers = [asyncio.create_task(self._work()) for _ in range(AT_ONCE)]

    def submit(
        self, function: str, path: str, body: bytes, headers: Mapping[str, str], callback_url: str
    ) -> str | None:
        """The call's id, or None if too many wait."""
        call_id = headers.get("x-call-id") or str(uuid.uuid4())
        kept = {name: headers[name] for name in PASSED_ON if name in headers}
        try:
            self._waiting.put_nowait(Invocation(call_id, function, path, body, kept, callback_url))
        except asyncio.QueueFull:
            return None
        return call_id

    async def stop(self) -> None:
        """End, and tell what is lost."""
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
            except httpx.HTTPError as error:
                log.warning("call %s of %s: %s", invocation.call_id, invocation.function, error)

    async def _make(self, invocation: Invocation) -> None:
        """Call; again while all replicas are busy; then call back."""
        headers = {**invocation.headers, "X-Call-Id": invocation.call_id}
        delay_s = RETRY_S[0]
        for attempt in range(1, ATTEMPTS + 1):
            with contextlib.suppress(httpx.TransportError):
                answer = await self._client.post(
                    f"/function/{invocation.path}", content=invocation.body, headers=headers
                )
                if answer.status_code not in RETRIED or attempt == ATTEMPTS:
                    break
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S[1])
        else:
            log.warning("call %s of %s: the gateway did not answer", invocation.call_id, invocation.function)
            return
        if invocation.callback_url:
            told = {
                "X-Call-Id": invocation.call_id,
                "X-Function-Name": invocation.function,
                "X-Function-Status": str(answer.status_code),
            }
            if "content-type" in answer.headers:
                told["Content-Type"] = answer.headers["content-type"]
            await self._client.post(invocation.callback_url, content=answer.content, headers=told)
