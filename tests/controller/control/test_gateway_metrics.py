"""Calls of functions from a gateway's metrics: cumulative, and unknown where nothing was read."""

import json
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from controller.control.gateway_metrics import (
    Calls,
    Exposition,
    GatewayCounters,
    MetricsAwayError,
    Sample,
    open_counters,
)
from penstock.errors import PenstockError


class Page:
    """A server with one page; ``asked``: the paths that were requested."""

    def __init__(self) -> None:
        self.status, self.text = 200, ""
        self.asked: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                self.send_response(page.status)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


REAL = """\
# HELP gateway_function_invocation_started The total number of function HTTP requests started.
# TYPE gateway_function_invocation_started counter
gateway_function_invocation_started{function_name="a.openfaas-fn"} 12
# HELP gateway_function_invocation_total Function metrics
# TYPE gateway_function_invocation_total counter
gateway_function_invocation_total{code="200",function_name="a.openfaas-fn"} 6
gateway_function_invocation_total{code="404",function_name="a.openfaas-fn"} 1
gateway_function_invocation_total{code="429",function_name="a.openfaas-fn"} 2
gateway_function_invocation_total{code="500",function_name="a.openfaas-fn"} 1
gateway_function_invocation_total{code="200",function_name="a.elsewhere"} 99
# HELP gateway_functions_seconds Function time taken
# TYPE gateway_functions_seconds histogram
gateway_functions_seconds_bucket{code="200",function_name="a.openfaas-fn",le="+Inf"} 6
gateway_functions_seconds_sum{code="200",function_name="a.openfaas-fn"} 3.5
gateway_functions_seconds_count{code="200",function_name="a.openfaas-fn"} 6
# HELP gateway_service_count Current count of replicas for function
# TYPE gateway_service_count gauge
gateway_service_count{function_name="a.openfaas-fn"} 1
gateway_service_count{function_name="idle.openfaas-fn"} 1
go_goroutines 31
"""


def test_the_page_of_openfaas_gateway_is_read(page: Page) -> None:
    page.text = REAL
    counters = open_counters(page.url, ["a", "idle", "gone"], metrics="", prometheus="")
    found = counters.read()
    counters.close()
    assert page.asked == ["/metrics"]
    # 429 and 5xx are answers, but nothing was completed.
    assert found["a"] == Calls(arrived=12, completed=7, busy_s=3.5, unanswered=2)
    assert found["idle"] == Calls(arrived=0, completed=0, busy_s=0.0, unanswered=0)  # known: never called
    assert found["gone"] == "the gateway's metrics do not name this function"


@pytest.mark.parametrize(("status", "text", "message"), [
    (404, "404 page not found", "status 404; OpenFaaS has them at port 8082"),
    (200, "<html>", "no page of metrics"),
])  # fmt: skip
def test_what_is_no_page_of_metrics_is_told_with_its_address(page: Page, status: int, text: str, message: str) -> None:
    page.status, page.text = status, text
    source = Exposition(page.url.replace("127", "admin:secret@127") + "/metrics")
    with pytest.raises(MetricsAwayError, match=message) as told:
        source.read()
    source.close()
    assert page.url in str(told.value) and "secret" not in str(told.value)


def test_what_is_no_url_is_told() -> None:
    with pytest.raises(PenstockError, match=r"localhost:9090.*: no URL"):
        open_counters("http://g", ["a"], metrics="", prometheus="localhost:9090")


def prometheus(*series: tuple[str, Mapping[str, str], list[tuple[float, str]]]) -> str:
    result: list[dict[str, Any]] = [
        {"metric": {"__name__": name, "function_name": "a.openfaas-fn", "job": "gateway", **labels}, "values": values}
        for name, labels, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_prometheus_is_asked_for_samples_with_their_times_and_an_old_one_is_not_used_twice(page: Page) -> None:
    counters = open_counters("http://g", ["a"], metrics="", prometheus=page.url)
    now = time.time()

    def scraped(at_s: float, calls: int) -> str:
        return prometheus(
            ("gateway_service_count", {}, [(at_s - 15, "1"), (at_s, "1")]),
            ("gateway_function_invocation_started", {}, [(at_s - 15, "3"), (at_s, str(calls))]),
            ("gateway_function_invocation_total", {"code": "200"}, [(at_s, str(calls - 1))]),
            ("gateway_functions_seconds_sum", {"code": "200"}, [(at_s, "0.5")]),
        )

    page.text = scraped(now - 10, 4)
    assert counters.read() == {"a": Calls(arrived=4, completed=3, busy_s=0.5, unanswered=1)}
    assert counters.read() == {"a": "no newer metrics since the last observation"}
    page.text = scraped(now + 5, 10)
    assert counters.read() == {"a": Calls(arrived=10, completed=9, busy_s=0.5, unanswered=1)}
    page.text = prometheus()  # nothing within the last minute
    assert counters.read() == {"a": "the gateway's metrics do not name this function"}
    page.text = "{}"
    with pytest.raises(MetricsAwayError, match="not Prometheus' answer"):
        counters.read()
    counters.close()
    asked = urlsplit(page.asked[0])
    query = parse_qs(asked.query)["query"][0]
    assert asked.path == "/api/v1/query"
    assert query.endswith("[60s]") and r'function_name=~"a\\.openfaas-fn"' in query


class Given:
    """A source that has what the test gives it."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.at_s = 0.0

    def read(self) -> list[Sample]:
        self.at_s += 1
        labels = {"function_name": "a.openfaas-fn", "code": "200"}
        deployed = Sample("gateway_service_count", labels, 1, self.at_s)
        return [deployed, *(Sample(name, labels, value, self.at_s) for name, value in self.values.items())]

    def close(self) -> None:
        pass


def test_a_gateway_that_was_started_again_goes_on_counting() -> None:
    source = Given()
    counters = GatewayCounters(source, ["a"])

    def read(**values: float) -> Calls | str:
        source.values = {f"gateway_{name}": value for name, value in values.items()}
        return counters.read()["a"]

    read(function_invocation_started=10, function_invocation=9, functions_seconds_sum=2.0)
    assert read() == Calls(arrived=10, completed=9, busy_s=2.0, unanswered=0)  # anew, and nobody has called yet
    after = read(function_invocation_started=3, function_invocation=1, functions_seconds_sum=0.5)
    assert after == Calls(arrived=13, completed=10, busy_s=2.5, unanswered=2)


def test_waiting_at_penstocks_gateway_is_no_service() -> None:
    source = Given()
    source.values = {"gateway_functions_seconds_sum": 5.0, "gateway_queue_seconds_sum": 4.0}
    found = GatewayCounters(source, ["a"]).read()["a"]
    assert isinstance(found, Calls) and found.busy_s == 1.0
