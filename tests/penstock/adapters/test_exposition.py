"""Metrics of a process under a flood: they are still served, by a bounded number of threads."""

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge

from penstock.adapters.exposition import MOST_CONNECTIONS, Exposed, expose
from tests.support.eventually import eventually
from tests.support.mutations import mutations

GET = b"GET /metrics?name[]=x HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n"


@pytest.fixture
def exposed() -> Iterator[Exposed]:
    registry = CollectorRegistry()
    Gauge("replicas", "Replicas", registry=registry).set(3)
    found = expose("test", None, registry=registry)
    yield found
    found.close()


def scrape(exposed: Exposed) -> str:
    return httpx.get(f"http://127.0.0.1:{exposed.port}/metrics", timeout=30, trust_env=False).text


def connect(exposed: Exposed, content: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", exposed.port))
    client.sendall(content)
    return client


@pytest.mark.parametrize("content", [b"", b"G", GET[:-2]], ids=["silent", "a byte", "no end of head"])
def test_a_flood_of_slow_clients_is_bounded_and_metrics_are_served(exposed: Exposed, content: bytes) -> None:
    before = threading.active_count()
    clients = []
    for _ in range(5):
        clients += [connect(exposed, content) for _ in range(MOST_CONNECTIONS)]
        assert "replicas 3.0" in scrape(exposed)
    eventually(lambda: threading.active_count() - before <= MOST_CONNECTIONS)
    for client in clients:
        client.close()
    eventually(lambda: threading.active_count() <= before)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=80) | mutations(GET))
def test_whatever_is_sent_metrics_are_served(
    exposed: Exposed, capfd: pytest.CaptureFixture[str], content: bytes
) -> None:
    with connect(exposed, content) as client:
        client.shutdown(socket.SHUT_WR)
        client.settimeout(30)
        answer = client.recv(65536)
    assert not answer.startswith((b"HTTP/1.0 5", b"HTTP/1.1 5")), answer
    assert "replicas 3.0" in scrape(exposed)
    assert "Traceback" not in capfd.readouterr().err
