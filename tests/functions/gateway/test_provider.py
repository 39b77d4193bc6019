"""The provider API before hostile clients: every request gets an answer in one line, and the gateway goes on."""

import asyncio
import base64
import errno
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from functions.gateway import asynchronous, provider
from functions.gateway.control_plane import ControlPlane
from functions.gateway.events import EventLog
from functions.gateway.haproxy import DataPlaneAwayError, Slot
from functions.gateway.provider import Provider
from tests.functions.gateway_process import TEST_HANDLERS, body
from tests.support.mutations import NASTY, mutations

DEPLOYMENT = msgspec.json.encode(
    {**body("probe", floor_s="0.1", exec_timeout="20s"), "secrets": [], "envProcess": "", "namespace": "openfaas-fn"}
)
SCALE = b'{"serviceName":"probe","replicas":3,"namespace":"openfaas-fn"}'
DELETE = b'{"functionName":"probe","namespace":"openfaas-fn"}'
JSON = st.sampled_from((DEPLOYMENT, SCALE, DELETE)).flatmap(mutations) | st.binary(max_size=60)
PATHS = (
    "/system/functions", "/system/function/probe", "/system/scale-function/probe", "/system/info", "/system/logs",
    "/system/namespaces", "/system/namespace/a", "/system/secrets", "/async-function/probe",
    "/async-function/probe/a?b",
    "/penstock/functions", "/penstock/pods/p?wait_s=0", "/penstock/events?since=1", "/metrics", "/healthz",
)  # fmt: skip
NUMBERS = st.sampled_from(("9" * 5000, "1e999", "nan", "-1", "٣", "", "0", "1e300", "9" * 400 + "h", "inf", "x"))
NAMES = st.sampled_from(("probe", "probe ", "a" * 100, "../probe", "probe\n", "", "probe.openfaas-fn", "a b"))
TEXTS = st.text(max_size=12) | NUMBERS


class Gateway:
    """The application with its control plane, without HAProxy and replicas. An error that it does not handle is raised
    at the client."""

    def __init__(self, folder: Path, password: str = "", **environment: str) -> None:
        self.control = ControlPlane(folder, 1, handlers=(TEST_HANDLERS,), environment=environment)
        self.control.events = EventLog(folder / "events.jsonl", fresh=True)
        self.routes: list[Any] = []

        async def route(routes: Any) -> None:
            self.routes.append(routes)

        self.control.plane.route = route  # type: ignore[method-assign]
        self.control.plane.runs = lambda: True  # type: ignore[method-assign]
        self.control._make_fleet = self.make_fleet  # type: ignore[method-assign]
        self.control._run = lambda fleet: None  # type: ignore[method-assign]
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Provider(self.control, password).application), base_url="http://gateway"
        )

    def make_fleet(self, record: Any) -> Any:
        class Replicas:
            trouble = ""

            async def refresh(self) -> None: ...
            def wake(self) -> None: ...
            def done(self, _: str) -> float:
                return 0.0

        return Replicas()

    async def request(self, method: str, path: str, content: bytes = b"", **more: Any) -> httpx.Response:
        answer = await self.client.request(method, path, content=content, **more)
        if answer.status_code >= 400:
            known = (400, 401, 404, 405, 409, 413, 429, 501, 503)
            assert answer.status_code in known, (answer.status_code, answer.text)
            assert answer.text.count("\n") <= 1 and "Traceback" not in answer.text
        return answer

    async def close(self) -> None:
        await self.client.aclose()
        await self.control.invoker.stop()
        self.control.events.close()


def with_gateway(scene: Any, password: str = "", **environment: str) -> None:
    async def whole() -> None:
        with tempfile.TemporaryDirectory() as folder:
            gateway = Gateway(Path(folder), password, **environment)
            try:
                async with asyncio.timeout(60):
                    await scene(gateway)
            finally:
                await gateway.close()

    asyncio.run(whole())


async def still_serves(gateway: Gateway) -> None:
    """A good deployment is accepted, scaled and deleted, whatever came before."""
    good = msgspec.json.encode(body("pdf") | {"image": "penstock/probe:latest"})
    assert (await gateway.request("POST", "/system/functions", good)).status_code == 202
    assert (await gateway.request("POST", "/system/scale-function/pdf", b'{"replicas":2}')).status_code == 202
    assert (await gateway.request("GET", "/system/function/pdf")).json()["replicas"] == 2
    assert (await gateway.request("DELETE", "/system/functions", b'{"functionName":"pdf"}')).status_code == 202
    assert (await gateway.request("GET", "/metrics")).status_code == 200


@given(
    requests=st.lists(
        st.tuples(st.sampled_from(("GET", "POST", "PUT", "DELETE")), st.sampled_from(PATHS), JSON), max_size=8
    )
)
def test_whatever_is_sent_is_answered_in_one_line(requests: list[tuple[str, str, bytes]]) -> None:
    async def scene(gateway: Gateway) -> None:
        for method, path, content in requests:
            await gateway.request(method, path, content)
        await still_serves(gateway)

    with_gateway(scene)


@given(
    name=NAMES | st.text(max_size=8),
    variables=st.dictionaries(st.sampled_from(("floor_s", "exec_timeout", "service_scv", "seed")) | TEXTS, TEXTS),
    labels=st.dictionaries(st.sampled_from(("com.openfaas.scale.min", "com.openfaas.scale.max")) | TEXTS, TEXTS),
    annotations=st.dictionaries(st.just("com.penstock.queue-limit") | TEXTS, TEXTS),
    replicas=st.integers(-(2**70), 2**70),
)
def test_a_deployment_of_any_values_is_refused_or_has_bounds(
    name: str, variables: dict[str, str], labels: dict[str, str], annotations: dict[str, str], replicas: int
) -> None:
    async def scene(gateway: Gateway) -> None:
        wanted = {"service": name, "image": "penstock/probe", "envVars": variables}
        content = msgspec.json.encode({**wanted, "labels": labels, "annotations": annotations})
        await gateway.request("POST", "/system/functions", content)
        await gateway.request("PUT", "/system/functions", content)
        for record in gateway.control._record.functions.values():
            await gateway.request("POST", f"/system/scale-function/{record.name}", b'{"replicas":%d}' % replicas)
            assert 0 <= record.target <= 10_000
            assert not any("\0" in each for pair in record.deployment.environment.items() for each in pair)
            assert msgspec.json.encode(gateway.control._record)
        for routes in gateway.routes:
            for _, waiting, answer_ms in routes.values():
                assert 0 <= waiting <= 10_000 and 0 < answer_ms < 2**31
        await still_serves(gateway)

    with_gateway(scene)


@example(value="\n", header=b"")
@given(value=TEXTS, header=st.binary(max_size=20).filter(lambda each: b"\n" not in each and b"\r" not in each))
def test_no_query_path_or_header_breaks_the_gateway(value: str, header: bytes) -> None:
    async def scene(gateway: Gateway) -> None:
        await gateway.request("POST", "/system/functions", DEPLOYMENT)
        for path in ("/penstock/events?since=", "/penstock/pods/x?wait_s=", "/system/functions?namespace="):
            name, _, parameter = path.partition("?")
            if value != "nan" and "wait_s" not in parameter:
                await gateway.request("GET", name, params={parameter.rstrip("="): value})
        await gateway.request("GET", "/penstock/pods/x", params={"wait_s": value if value != "3" else "x"})
        quoted = httpx.QueryParams({"a": value})
        named = {
            b"X-Callback-Url": header,
            b"X-Call-Id": header,
            b"X-Other": header,
            b"Authorization": b"Basic " + header,
        }
        await gateway.request("POST", f"/async-function/probe/{str(quoted)[2:]}", b"x", headers=list(named.items()))
        await still_serves(gateway)

    with_gateway(scene)


@pytest.mark.parametrize("given_", [*NASTY, base64.b64encode(b"admin:\xff"), base64.b64encode(b"admin"), b"=" * 9000])
def test_no_credentials_but_the_right_ones_are_taken(given_: bytes) -> None:
    async def scene(gateway: Gateway) -> None:
        for scheme in (b"Basic ", b"Bearer ", b""):
            headers = [(b"Authorization", scheme + given_.replace(b"\r\n", b" "))]
            assert (await gateway.request("GET", "/system/functions", headers=headers)).status_code == 401

    with_gateway(scene, "secret")


def test_large_bodies_are_refused_before_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "LARGEST_BODY_BYTES", 1000)
    monkeypatch.setattr(provider, "LARGEST_CALL_BYTES", 2000)
    monkeypatch.setattr(asynchronous, "MOST_WAITING_BYTES", 5000)

    async def scene(gateway: Gateway) -> None:
        assert (await gateway.request("POST", "/system/functions", DEPLOYMENT.ljust(1001))).status_code == 413
        assert (await gateway.request("POST", "/system/functions", DEPLOYMENT.ljust(1000))).status_code == 202
        called = "/async-function/probe"
        assert (await gateway.request("POST", called, b"x" * 2001)).status_code == 413
        statuses = [(await gateway.request("POST", called, b"x" * 2000)).status_code for _ in range(4)]
        assert statuses == [202, 202, 429, 429]

    with_gateway(scene)


@pytest.mark.parametrize("callback", ["not a url", "http://[", "ftp://a", "http://a:99999999/", "\x7f", "http://é/"])
def test_no_callback_url_ends_the_invoker(callback: str) -> None:
    async def scene(gateway: Gateway) -> None:
        invoker = gateway.control.invoker
        calls = 0

        async def content() -> AsyncIterator[bytes]:
            yield b"x"

        def answer(_: httpx.Request) -> httpx.Response:
            nonlocal calls
            calls += 1
            return httpx.Response(200, content=content())

        await invoker._client.aclose()
        invoker._client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://gateway")
        invoker.start()
        for _ in range(2 * asynchronous.AT_ONCE):
            assert invoker.submit("probe", "probe", b"abc", {"x-callback-url": callback}) is not None
        while invoker._waiting.qsize() or invoker._bytes:
            await asyncio.sleep(0.01)
        assert calls >= 2 * asynchronous.AT_ONCE
        assert not any(worker.done() for worker in invoker._workers)

    with_gateway(scene)


def test_what_is_deployed_is_told_as_it_was_sent_so_that_a_diff_finds_nothing() -> None:
    """`faas-cli diff`; labels of OpenFaaS Pro are kept and have no effect."""
    sent = {
        **body("probe", floor_s="0.1"),
        "envProcess": "python index.py",
        "secrets": ["redis-url"],
        "labels": {"com.openfaas.scale.min": "0", "com.openfaas.scale.zero": "true", "com.openfaas.scale.target": "9"},
        "annotations": {"topic": "orders"},
    }

    async def scene(gateway: Gateway) -> None:
        assert (await gateway.request("POST", "/system/functions", msgspec.json.encode(sent))).status_code == 202
        told = (await gateway.request("GET", "/system/function/probe")).json()
        compared = ("image", "envProcess", "envVars", "labels", "annotations", "secrets")
        assert {name: told[name] for name in compared} == {name: sent[name] for name in compared}
        named = {"name": "redis-url", "namespace": "openfaas-fn"}
        assert (await gateway.request("GET", "/system/secrets")).json() == [named]
        assert told["replicas"] == 0, "a least number of 0 is taken at its word"

    with_gateway(scene, redis_url="redis://127.0.0.1:1/0")


def test_metrics_have_the_types_of_openfaas() -> None:
    types = {
        "gateway_function_invocation": "counter",
        "gateway_function_invocation_started": "counter",
        "gateway_functions_seconds": "histogram",
        "gateway_service_count": "gauge",
    }

    async def scene(gateway: Gateway) -> None:
        page = (await gateway.request("GET", "/metrics")).text
        assert "# TYPE gateway_function_invocation_started counter" in page.splitlines()
        found = {family.name: family.type for family in text_string_to_metric_families(page)}
        assert {name: found.get(name) for name in types} == types

    with_gateway(scene)


async def is_not_deployed(gateway: Gateway) -> None:
    """Nothing is left of a deployment that failed, and the watch will take its route back."""
    assert (await gateway.request("GET", "/penstock/functions")).json() == []
    assert (await gateway.request("GET", "/system/functions")).json() == []
    assert (await gateway.request("GET", "/system/function/pdf")).status_code == 404
    assert gateway.control._changed.is_set() and not gateway.control._routed


def test_a_deployment_while_haproxy_does_not_answer_is_503_and_leaves_nothing() -> None:
    async def scene(gateway: Gateway) -> None:
        route = gateway.control.plane.route

        async def away(routes: Any) -> None:
            raise DataPlaneAwayError("haproxy does not answer (TimeoutError)")

        gateway.control.plane.route = away  # type: ignore[method-assign]
        good = msgspec.json.encode(body("pdf") | {"image": "penstock/probe:latest"})
        answer = await gateway.request("POST", "/system/functions", good)
        assert (answer.status_code, answer.text) == (503, "haproxy does not answer (TimeoutError)\n")
        await is_not_deployed(gateway)
        gateway.control.plane.route = route  # type: ignore[method-assign]
        await still_serves(gateway)

    with_gateway(scene)


def test_a_deployment_on_a_full_disk_leaves_nothing() -> None:
    async def scene(gateway: Gateway) -> None:
        save = gateway.control._save

        def full() -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        gateway.control._save = full  # type: ignore[method-assign]
        good = msgspec.json.encode(body("pdf") | {"image": "penstock/probe:latest"})
        with pytest.raises(OSError, match="No space left"):
            await gateway.request("POST", "/system/functions", good)
        await is_not_deployed(gateway)
        gateway.control._save = save  # type: ignore[method-assign]
        await still_serves(gateway)

    with_gateway(scene)


def test_functions_are_told_while_one_is_being_deployed() -> None:
    async def scene(gateway: Gateway) -> None:
        asked, answers = asyncio.Event(), asyncio.Event()

        async def slow(routes: Any) -> None:
            asked.set()
            await answers.wait()
            assert list(routes) == ["pdf"]

        async def slots(wanted: Any) -> Any:
            return {slot: Slot() for slot in wanted}

        gateway.control.plane.route, gateway.control.plane.slots = slow, slots  # type: ignore[method-assign]
        good = msgspec.json.encode(body("pdf") | {"image": "penstock/probe:latest"})
        deploying = asyncio.create_task(gateway.request("POST", "/system/functions", good))
        await asked.wait()
        assert [each["name"] for each in (await gateway.request("GET", "/penstock/functions")).json()] == ["pdf"]
        assert (await gateway.request("POST", "/system/scale-function/pdf", b'{"replicas":2}')).status_code == 202
        assert (await gateway.request("GET", "/metrics")).status_code == 200
        answers.set()
        assert (await deploying).status_code == 202

    with_gateway(scene)


@pytest.mark.parametrize("path", ["/system/alert", "/system/telemetry", "/ui/"])
def test_parts_of_openfaas_that_are_not_here_are_404(path: str) -> None:
    async def scene(gateway: Gateway) -> None:
        assert (await gateway.request("GET", path)).status_code == 404

    with_gateway(scene)
