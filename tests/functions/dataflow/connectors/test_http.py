"""The HTTP connector before hostile clients: every request is answered, large ones are refused, and others go on."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from functions.dataflow.connectors.http import HttpConnector
from functions.dataflow.request import Delivery
from penstock.records import rejected
from tests.support.mutations import mutations

REQUEST = b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
PATIENCE_S = 30


async def served(client: "Client") -> None:
    """A connector whose requests all leave at once as rejected, for one client."""
    connector = HttpConnector()
    client.seen = []

    def receive(deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            client.seen.append(delivery.value)
            delivery.done(rejected(None, run="r", pipeline="p", queue="q", at_ns=1, reason="no event"))

    await connector.start(receive, lambda: False)
    try:
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(base_url=connector.url, trust_env=False) as http:
            client.http, client.port = http, int(connector.url.rpartition(":")[2])
            await client.act()
    finally:
        await connector.stop()


class Client:
    """What a test does, and what the pipeline was given meanwhile."""

    http: httpx.AsyncClient
    port: int
    seen: list[bytes]

    async def act(self) -> None:
        raise NotImplementedError

    async def raw(self, content: bytes) -> asyncio.StreamWriter:
        """Bytes of a client that does not wait for an answer."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(content)
            await writer.drain()
        except BaseException:
            writer.close()
            raise
        return writer


def test_a_large_request_is_refused_and_never_given_to_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.dataflow.connectors.http.LARGEST_REQUEST_BYTES", 1000)

    class Large(Client):
        async def act(self) -> None:
            assert (await self.http.post("/requests", content=b"x" * 1001)).status_code == 413

            async def endless() -> AsyncIterator[bytes]:
                for _ in range(100):
                    yield b"x" * 100

            assert (await self.http.post("/requests", content=endless())).status_code == 413
            assert (await self.http.post("/requests", content=b"x" * 1000)).status_code == 429
            assert self.seen == [b"x" * 1000]

    asyncio.run(served(Large()))


def test_a_client_that_never_ends_its_request_hinders_no_other() -> None:
    class Slow(Client):
        async def act(self) -> None:
            writers = [await self.raw(REQUEST[:cut]) for cut in (0, 4, 30, len(REQUEST) - 1)]
            assert (await self.http.post("/requests", content=b"{}")).status_code == 429
            for writer in writers:
                writer.close()
                await writer.wait_closed()

    asyncio.run(served(Slow()))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(contents=st.lists(st.binary(max_size=80) | mutations(REQUEST), max_size=8))
def test_whatever_is_sent_the_next_request_is_answered(contents: list[bytes]) -> None:
    class Fuzz(Client):
        async def act(self) -> None:
            for content in contents:
                writer = await self.raw(content)
                writer.close()
                await writer.wait_closed()
            assert (await self.http.get("/healthz")).status_code == 200

    asyncio.run(served(Fuzz()))
