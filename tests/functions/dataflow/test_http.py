"""Calls over kept connections against a server whose every byte the test decides, and what answers mean."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from functions.dataflow.calls import Answer, call, judge
from functions.dataflow.connectors.kafka import KafkaConnector
from functions.dataflow.http import HttpPool, NotConnectedError, Reply, redacted
from functions.dataflow.replicas import NoAnswerError, ServingReplicas
from infra.local.ports import free_port
from penstock.errors import PenstockError
from penstock.records import Result

Script = Callable[[int, int, asyncio.StreamWriter], Awaitable[bool]]
"""Given the number of the connection and of the call on it: answers, and says whether the connection stays."""


class Server:
    """A server that keeps what it was sent."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Server":
        self.server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Also close connections that were accepted and not served yet: their tasks would never begin."""
        self.server.close()
        await self.server.wait_closed()
        for _turn in range(5):  # a connection that is being accepted becomes known within some turns of the loop
            await asyncio.sleep(0)
        for writer in self.writers:
            writer.close()
        for task in self.serving:
            task.cancel()
        await asyncio.gather(*self.serving, return_exceptions=True)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.serving.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection, number, stays = self.connections, 0, True
        try:
            while stays:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = next(
                    int(x.split(":")[1]) for x in head.lower().split("\r\n") if x.startswith("content-length")
                )
                self.bodies.append(await reader.readexactly(length))
                number += 1
                stays = await self.script(connection, number, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def reply(body: bytes = b"{}", status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def test_a_connection_is_kept_and_carries_what_it_was_given() -> None:
    async def script(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(reply(b"answer", headers="X-Penstock-Replica: f-1\r\n"))
        return True

    async def scene() -> None:
        async with Server(script) as server:
            pool = HttpPool(f"http://admin:p%20w@127.0.0.1:{server.port}")
            for _ in range(3):
                found = await pool.call("POST", "/function/f", b"body", {"X-A": "1"}, timeout_s=5)
            assert found == Reply(200, {"content-length": "6", "x-penstock-replica": "f-1"}, b"answer")
            assert server.connections == 1 and server.bodies == [b"body"] * 3
            assert server.heads[0].startswith("POST /function/f HTTP/1.1\r\n") and "X-A: 1" in server.heads[0]
            assert "Authorization" not in "".join(server.heads)
            await pool.call("GET", "/system/info", timeout_s=5, authorised=True)
            assert "Authorization: Basic YWRtaW46cCB3\r\n" in server.heads[-1]
            pool.close()

    asyncio.run(scene())


def test_calls_at_a_time_have_a_connection_each_and_share_them_afterwards() -> None:
    async def script(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.05)
        writer.write(reply())
        return True

    async def scene() -> None:
        async with Server(script) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            for _ in range(2):
                await asyncio.gather(*(pool.call("POST", "/", timeout_s=5) for _ in range(3)))
            assert server.connections == 3
            pool.close()

    asyncio.run(scene())


async def second_call_is_lost(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
    """A connection that is closed in answer to its second call."""
    if number == 2:
        return False
    writer.write(reply())
    return True


def test_a_question_on_a_kept_connection_that_the_server_has_closed_is_asked_again() -> None:
    async def scene() -> None:
        async with Server(second_call_is_lost) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            assert [(await pool.call("GET", "/", timeout_s=5)).status for _ in range(3)] == [200] * 3
            assert server.connections == 3
            pool.close()

    asyncio.run(scene())


def test_a_call_whose_kept_connection_is_closed_is_made_once_and_has_failed() -> None:
    """However soon: HAProxy closes so when a replica dies with the call in hand."""

    async def scene() -> None:
        async with Server(second_call_is_lost) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            assert (await call(pool, "f", b"1", event=7, deadline_ns=8, timeout_s=5)).verdict == "done"
            answer = await call(pool, "f", b"2", event=7, deadline_ns=8, timeout_s=5)
            assert answer.verdict == "failed" and answer.reason.startswith("connection lost")
            assert server.bodies == [b"1", b"2"]
            pool.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("sent", "verdict", "reason"),
    [
        (b"", "failed", "connection lost"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "failed", "connection lost"),
        (b"no HTTP at all\r\n\r\n", "failed", "connection lost"),
        (reply(b"busy", "429 Too Many Requests"), "refused", "status 429: busy"),
        (reply(b"", "503 Service Unavailable"), "refused", "status 503"),
        (reply(b"Zero\n  Division", "500 Internal Server Error"), "failed", "status 500: Zero Division"),
        (reply(b"", "504 Gateway Timeout"), "failed", "status 504"),
        (reply(b"no JSON", "400 Bad Request"), "impossible", "status 400: no JSON"),
    ],
)
def test_what_an_answer_means(sent: bytes, verdict: str, reason: str) -> None:
    async def script(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(sent)
        return False

    async def scene() -> None:
        async with Server(script) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            answer = await call(pool, "f", b"1", event=7, deadline_ns=8, timeout_s=5)
            assert answer.verdict == verdict and answer.reason.startswith(reason), answer
            assert "X-Penstock-Event: 7" in server.heads[0] and "X-Penstock-Deadline-Ns: 8" in server.heads[0]
            pool.close()

    asyncio.run(scene())


def test_a_silent_function_is_a_failed_call_and_a_gateway_that_is_away_a_refusal() -> None:
    async def script(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(1)
        return False

    async def scene() -> None:
        async with Server(script) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            answer = await call(pool, "f", b"1", event=7, deadline_ns=8, timeout_s=0.1)
            assert answer == Answer("failed", reason="no answer within 0.1 s")
        away = HttpPool(f"http://127.0.0.1:{free_port()}")
        answer = await call(away, "f", b"1", event=7, deadline_ns=8, timeout_s=0.1)
        assert answer.verdict == "refused" and "gateway is away" in answer.reason
        with pytest.raises(NotConnectedError):
            await away.call("GET", "/", timeout_s=1)
        with pytest.raises(NoAnswerError, match="NotConnectedError"):
            await ServingReplicas(away).read(["f"])

    asyncio.run(scene())


def test_processing_time_is_the_replicas_own_or_the_watchdogs() -> None:
    def told(**headers: str) -> Answer:
        return judge(Reply(200, {name.replace("_", "-"): value for name, value in headers.items()}, b""))

    assert told(x_penstock_started_ns="100", x_penstock_finished_ns="350", x_penstock_replica="f-2") == Answer(
        "done", replica="f-2", busy_ns=250
    )
    assert told(x_duration_seconds="0.25").busy_ns == 250_000_000
    assert told().busy_ns is None and told(x_duration_seconds="soon").busy_ns is None


def test_replicas_come_from_our_gateways_report_or_from_openfaas_own() -> None:
    ours = b'[{"name":"f","replicas":{"f-1":"joined","f-2":"first-event","f-3":"requested","f-4":"draining"}}]'
    theirs = b'[{"name":"f","replicas":5,"availableReplicas":4},{"name":"other","replicas":1,"availableReplicas":1}]'

    async def asked(first: bytes, second: bytes) -> dict[str, int]:
        async def script(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
            writer.write(first if number == 1 else second)
            return True

        async with Server(script) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            try:
                return await ServingReplicas(pool).read(["f", "g"])
            finally:
                pool.close()

    assert asyncio.run(asked(reply(ours), b"")) == {"f": 2}
    missing = reply(b"", "404 Not Found")
    assert asyncio.run(asked(missing, reply(theirs))) == {"f": 4}
    with pytest.raises(NoAnswerError, match="answers 401"):
        asyncio.run(asked(missing, reply(b"", "401 Unauthorized")))
    with pytest.raises(NoAnswerError, match="not an answer of a gateway"):
        asyncio.run(asked(reply(b"{"), b""))


def test_a_gateway_that_is_not_ours_is_asked_once_whether_it_is() -> None:
    theirs = reply(b'[{"name":"f","replicas":5,"availableReplicas":4}]')

    async def scene() -> None:
        async def script(connection: int, number: int, writer: asyncio.StreamWriter) -> bool:
            writer.write(theirs if "/system/functions" in server.heads[-1] else reply(b"", "404 Not Found"))
            return True

        async with Server(script) as server:
            pool = HttpPool(f"http://127.0.0.1:{server.port}")
            gateway = ServingReplicas(pool)
            assert [await gateway.read(["f"]) for _ in range(3)] == 3 * [{"f": 4}]
            pool.close()
            paths = [head.split()[1] for head in server.heads]
            assert paths == ["/penstock/functions", *3 * ["/system/functions"]]

    asyncio.run(scene())


def test_an_address_that_is_none_is_told_without_its_password() -> None:
    with pytest.raises(PenstockError, match="expected http://") as caught:
        HttpPool("ftp://admin:secret@host:80")
    assert "secret" not in str(caught.value)
    assert redacted("http://a:b@host:80/x") == "http://host:80/x"


# --- offsets ---------------------------------------------------------------------------------------------------------


class Message:
    """What the client library gives."""

    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def value(self) -> bytes:
        return b"{}"

    def timestamp(self) -> tuple[int, int]:
        return 2, 1234

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


def test_an_offset_is_committed_when_all_before_it_have_left_and_known_records_are_not_fresh() -> None:
    connector = KafkaConnector(
        bootstrap="127.0.0.1:1", topic="t", group="g", partitions=2, client_id="c", seen={"0": 6}
    )
    result = Result(
        id=1, run="r", pipeline="p", stage="s", outcome="completed", queue="q", intended_ns=1, sent_ns=1,
        received_ns=1, started_ns=1, finished_ns=1, worker="w",
    )  # fmt: skip
    records = [connector._delivery(Message(0, offset)) for offset in (4, 5, 6)]  # type: ignore[arg-type]
    other = connector._delivery(Message(1, 0))  # type: ignore[arg-type]
    assert [record.fresh for record in (*records, other)] == [False, False, True, True]
    assert records[0].broker_ns == 1_234_000_000
    assert connector.positions() == {"0": 7, "1": 1}
    records[1].done(result)
    assert connector._committable == {}
    records[0].done(result)
    assert connector._committable == {0: 6}
    other.done(result)
    records[2].done(result)
    assert connector._committable == {0: 7, 1: 1}
    connector._restore({0: 5, 1: 1})  # a commit that failed does not bring back what is older
    assert connector._committable == {0: 7, 1: 1}
    connector._consumer.close()
