"""The OpenFaaS provider API: calls and status codes, as an OpenFaaS client makes them."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import __version__
from penstock.openfaas import FunctionDeployment, deployment
from penstock.systems import FunctionSpec, FunctionSystem
from tests.functions.gateway_process import GatewayProcess, body
from tests.support.eventually import eventually

pytestmark = pytest.mark.live


@pytest.fixture(scope="module", name="gateway")
def gateway_with_probe(gateway: GatewayProcess) -> GatewayProcess:
    """It has one function, ``probe``."""
    gateway.deploy()
    return gateway


@pytest.fixture
def api(gateway: GatewayProcess) -> httpx.Client:
    """As admin."""
    return gateway.client


def test_who_is_not_admin_is_401(gateway: GatewayProcess) -> None:
    for method, path in (
        ("GET", "functions"),
        ("POST", "functions"),
        ("POST", "scale-function/probe"),
        ("GET", "info"),
    ):
        for auth in (None, ("admin", "guessed"), ("root", "open sesame")):
            answer = httpx.request(method, f"{gateway.url}/system/{path}", auth=auth, trust_env=False)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic")


def test_a_function_is_told_as_openfaas_tells_it(api: httpx.Client) -> None:
    status = api.get("/system/function/probe").json()
    assert {"name", "image", "namespace", "replicas", "availableReplicas", "invocationCount", "createdAt"} <= set(
        status
    )
    assert (status["name"], status["image"], status["replicas"]) == ("probe", "penstock/probe:latest", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["createdAt"])
    listed = api.get("/system/functions").json()
    assert [each["name"] for each in listed] == ["probe"]


NAMED = "probe.openfaas-fn"


def test_a_function_is_called_by_name_and_namespace_as_the_sdk_does(api: httpx.Client) -> None:
    """Requests of go-sdk's InvokeFunction, which `faas-cli invoke` uses since 0.16.30."""
    before = api.get("/system/function/probe").json()["invocationCount"]
    answer = api.post(f"/function/{NAMED}", content=b"text", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.content) == (200, b"text")
    answer = api.get(f"/function/{NAMED}/a.b/c.d?e=f.g")
    assert (answer.status_code, answer.headers["x-path"]) == (200, "/a.b/c.d")
    assert api.get("/system/function/probe").json()["invocationCount"] == before + 2


def test_namespaces_are_those_of_openfaas_ce(api: httpx.Client) -> None:
    assert api.get("/system/namespaces").json() == ["openfaas-fn"]
    assert api.get(f"/system/function/{NAMED}").json()["namespace"] == "openfaas-fn"
    for path in ("/system/functions", "/system/function/probe"):
        assert api.get(path, params={"namespace": "openfaas-fn"}).status_code == 200
    for method in ("GET", "POST"):
        assert api.request(method, "/system/namespace/other").status_code == 501


def test_a_function_in_its_namespace_is_deployed_scaled_and_removed(api: httpx.Client, gateway: GatewayProcess) -> None:
    """Bodies as faas-cli sends them with `--namespace openfaas-fn`."""
    namespace = {"namespace": "openfaas-fn"}
    assert api.post("/system/functions", json={**body("pdf"), **namespace}).status_code == 202
    gateway.wait(lambda: gateway.available("pdf") == 1)
    assert api.put("/system/functions", json={**body("pdf"), **namespace}).status_code == 202
    scale = {"serviceName": "pdf", "replicas": 2, **namespace}
    assert api.post("/system/scale-function/pdf.openfaas-fn", json=scale).status_code == 202
    assert api.get("/system/function/pdf.openfaas-fn").json()["replicas"] == 2
    deleted = api.request("DELETE", "/system/functions", json={"functionName": "pdf", **namespace})
    assert deleted.status_code == 202
    gateway.wait(lambda: all(each["name"] != "pdf" for each in api.get("/penstock/functions").json()))


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/system/functions?namespace=other", None),
        ("GET", "/system/function/probe?namespace=other", None),
        ("GET", "/system/function/probe.other", None),
        ("POST", "/system/functions", {**body("pdf"), "namespace": "other"}),
        ("PUT", "/system/functions", {**body("probe"), "namespace": "other"}),
        ("DELETE", "/system/functions", {"functionName": "probe", "namespace": "other"}),
        ("POST", "/system/scale-function/probe", {"replicas": 2, "namespace": "other"}),
        ("POST", "/system/scale-function/probe?namespace=other", {"replicas": 2}),
        ("POST", "/system/scale-function/probe.other", {"replicas": 2}),
        ("POST", "/function/probe.other", {}),
        ("POST", "/function/probe.", {}),
        ("POST", "/function/probe.other.openfaas-fn", {}),
        ("POST", "/async-function/probe.other", {}),
        ("POST", "/async-function/probe.other.openfaas-fn", {}),
    ],
)
def test_any_other_namespace_is_400_and_changes_nothing(
    api: httpx.Client, method: str, path: str, content: dict[str, Any] | None
) -> None:
    before = api.get("/system/functions").json()
    answer = api.request(method, path, json=content)
    assert (answer.status_code, answer.text) == (400, "namespace must be: openfaas-fn\n")
    assert api.get("/system/functions").json() == before


def test_what_a_go_client_leaves_out_may_be_null(api: httpx.Client, gateway: GatewayProcess) -> None:
    nothing = dict.fromkeys(
        ("envProcess", "envVars", "labels", "annotations", "secrets", "constraints", "limits", "requests")
    )
    assert api.post("/system/functions", json={**body("pdf"), **nothing}).status_code == 202
    gateway.wait(lambda: gateway.available("pdf") == 1)
    api.request("DELETE", "/system/functions", json={"functionName": "pdf"})


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("secrets", ["redis-url"], 'unable to fetch secrets: secrets "redis-url" not found'),
        ("constraints", ["node=a"], "constraints: "),
        ("limits", {"memory": "64Mi"}, "limits: "),
        ("requests", {"cpu": "100m"}, "requests: "),
        ("readOnlyRootFilesystem", True, "readOnlyRootFilesystem: "),
    ],
)
def test_what_a_deployment_cannot_have_is_refused_by_name(api: httpx.Client, field: str, value: Any, why: str) -> None:
    answer = api.post("/system/functions", json={**body("pdf"), field: value})
    assert (answer.status_code, answer.text.startswith(why)) == (400, True), answer.text


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "secrets"), ("PUT", "secrets"), ("DELETE", "secrets"), ("GET", "logs?name=probe")]
)
def test_what_the_gateway_does_not_do_is_501_with_the_way_out(api: httpx.Client, method: str, path: str) -> None:
    answer = api.request(method, f"/system/{path}")
    assert (answer.status_code, answer.text.count("\n")) == (501, 1)
    assert api.get("/system/secrets").json() == []


def test_a_function_that_is_deleted_can_be_deployed_again_at_once(api: httpx.Client, gateway: GatewayProcess) -> None:
    """`faas-cli deploy --replace --update=false`."""
    gateway.deploy("pdf")
    assert api.request("DELETE", "/system/functions", json={"functionName": "pdf"}).status_code == 202
    assert api.post("/system/functions", json=body("pdf", replicas=2)).status_code == 202
    gateway.wait(lambda: gateway.available("pdf") == 2)
    api.request("DELETE", "/system/functions", json={"functionName": "pdf"})


def test_answers_have_the_headers_of_openfaas(api: httpx.Client) -> None:
    before_ns = time.time_ns()
    answer = api.post("/function/probe")
    assert before_ns - 1_000_000 <= int(answer.headers["x-start-time"]) <= time.time_ns()
    assert float(answer.headers["x-duration-seconds"]) > 0
    assert len(answer.headers["x-call-id"]) == 36
    assert answer.headers["x-called-by"] == answer.headers["x-call-id"], "the function has it, too"
    assert answer.headers["x-served-by"] == f"penstock/{__version__}"
    assert api.post("/function/probe", headers={"X-Call-Id": "mine"}).headers["x-call-id"] == "mine"


def test_invocations_are_counted(api: httpx.Client) -> None:
    before = api.get("/system/function/probe").json()["invocationCount"]
    for _ in range(3):
        assert api.post("/function/probe").status_code == 200
    assert api.get("/system/function/probe").json()["invocationCount"] == before + 3


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_a_function_is_called_by_any_method_with_what_follows_its_name(api: httpx.Client, method: str) -> None:
    answer = api.request(method, "/function/probe/a/b?c=d", content=b"text")
    assert (answer.status_code, answer.headers["x-path"]) == (200, "/a/b")
    assert answer.content == b"text"


def test_the_life_of_a_function(api: httpx.Client, gateway: GatewayProcess) -> None:
    assert api.post("/system/functions", json=body("sha256", replicas=2)).status_code == 202
    assert api.post("/system/functions", json=body("sha256")).status_code == 409
    gateway.wait(lambda: gateway.available("sha256") == 2)
    assert api.post("/system/scale-function/sha256", json={"serviceName": "sha256", "replicas": 3}).status_code == 202
    assert api.get("/system/function/sha256").json()["replicas"] == 3
    gateway.wait(lambda: gateway.available("sha256") == 3)
    assert api.post("/system/scale-function/sha256", json={"replicas": 0}).status_code == 202
    gateway.wait(lambda: gateway.report("sha256")["replicas"] == {})
    answer = api.post("/function/sha256")
    assert (answer.status_code, answer.text) == (503, "no replica takes requests\n")
    assert api.request("DELETE", "/system/functions", json={"functionName": "sha256"}).status_code == 202
    assert api.post("/function/sha256").status_code == 404
    assert api.get("/system/function/sha256").status_code == 404
    gateway.wait(lambda: all(each["name"] != "sha256" for each in api.get("/penstock/functions").json()))
    assert api.post("/system/functions", json=body("sha256")).status_code == 202
    assert api.request("DELETE", "/system/functions", json={"functionName": "sha256"}).status_code == 202


def test_more_replicas_than_the_label_allows_are_not_granted(api: httpx.Client, gateway: GatewayProcess) -> None:
    labelled = {**body("store"), "labels": {"com.openfaas.scale.min": "0", "com.openfaas.scale.max": "2"}}
    assert api.post("/system/functions", json=labelled).status_code == 202
    assert api.post("/system/scale-function/store", json={"serviceName": "store", "replicas": 8}).status_code == 202
    assert api.get("/system/function/store").json()["replicas"] == 2
    api.request("DELETE", "/system/functions", json={"functionName": "store"})


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "why"),
    [
        ("POST", "/system/functions", "{", 400, "not a FunctionDeployment"),
        ("POST", "/system/functions", '{"service": "x"}', 400, "missing required field `image`"),
        ("POST", "/system/functions", '{"service": "x", "image": "penstock/none"}', 400, "no handler for it here"),
        ("POST", "/system/functions", '{"service": "A b", "image": "penstock/pdf"}', 400, "function name 'A b'"),
        (
            "POST",
            "/system/functions",
            '{"service": "x", "image": "penstock/pdf", "envVars": {"exec_timeout": "soon"}}',
            400,
            "exec_timeout=soon: expected seconds",
        ),
        (
            "PUT",
            "/system/functions",
            '{"service": "none", "image": "penstock/pdf"}',
            404,
            "there is no function 'none'",
        ),
        ("DELETE", "/system/functions", '{"functionName": "none"}', 404, "there is no function 'none'; deployed are"),
        ("DELETE", "/system/functions", "{}", 400, "functionName"),
        ("GET", "/system/function/none", "", 404, "there is no function 'none'"),
        ("POST", "/system/scale-function/none", '{"replicas": 1}', 404, "there is no function 'none'"),
        ("POST", "/system/scale-function/probe", '{"replicas": -1}', 400, "replicas -1"),
        ("POST", "/system/scale-function/probe", '{"replicas": "many"}', 400, "Expected `int`"),
        ("POST", "/function/none", "", 404, "there is no function none"),
        ("POST", "/async-function/none", "", 404, "there is no function 'none'"),
        ("GET", "/penstock/events?since=x", "", 400, "since='x'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    api: httpx.Client, method: str, path: str, content: str, status: int, why: str
) -> None:
    answer = api.request(method, path, content=content)
    assert answer.status_code == status
    assert why in answer.text
    assert answer.text.count("\n") == 1


def test_who_the_provider_is(api: httpx.Client) -> None:
    info = api.get("/system/info").json()
    assert {"provider", "version"} <= set(info)
    assert info["provider"]["orchestration"] == "processes"
    assert api.get("/healthz").status_code == 200


def test_an_asynchronous_call_is_made_and_told(api: httpx.Client) -> None:
    told: list[tuple[dict[str, str], bytes]] = []
    heard = threading.Event()

    class Callback(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            told.append(({name.lower(): value for name, value in self.headers.items()}, content))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            heard.set()

        def log_message(self, *arguments: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Callback) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        answer = api.post(f"/async-function/{NAMED}/x", content=b"later", headers={"X-Callback-Url": url})
        assert answer.status_code == 202
        assert heard.wait(60)
        server.shutdown()
        thread.join()
    headers, content = told[0]
    assert content == b"later"
    assert headers["x-call-id"] == answer.headers["x-call-id"]
    assert (headers["x-function-name"], headers["x-function-status"]) == ("probe", "200")
    assert headers["x-path"] == "/x", "the function's own headers are there"
    assert float(headers["x-duration-seconds"]) > 0


def test_an_asynchronous_call_passes_all_headers_on(api: httpx.Client) -> None:
    """Which the probe shows by what it does for one of them."""
    before = api.get("/system/function/probe").json()["invocationCount"]
    assert api.post("/async-function/probe", headers={"X-Do": "raise"}).status_code == 202
    eventually(lambda: api.get("/system/function/probe").json()["invocationCount"] == before + 1)
    eventually(lambda: f'code="500",function_name="{NAMED}"' in api.get("/metrics").text)


def test_an_asynchronous_call_keeps_the_id_that_it_was_given(api: httpx.Client) -> None:
    answer = api.post("/async-function/probe", headers={"X-Call-Id": "mine"})
    assert (answer.status_code, answer.headers["x-call-id"]) == (202, "mine")


def test_metrics_under_openfaas_names(api: httpx.Client, gateway: GatewayProcess) -> None:
    api.post("/function/probe", headers={"X-Do": "raise"})

    def metrics() -> dict[str, dict[tuple[str, ...], float]]:
        """Values by metric and by what its labels say, in the order of the labels' names."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(api.get("/metrics").text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    gateway.wait(lambda: ("500", NAMED) in metrics().get("gateway_function_invocation_total", {}))
    found = metrics()
    assert found["gateway_function_invocation_total"]["500", NAMED] >= 1
    assert found["gateway_service_count"][NAMED,] == 1
    started = found["gateway_function_invocation_started_total"][NAMED,]  # the parser's own suffix of a counter
    counted = found["gateway_function_invocation_total"]
    assert started >= sum(value for (_, name), value in counted.items() if name == NAMED)
    assert ("500", NAMED) in found["gateway_functions_seconds_count"]
    assert "haproxy_backend_http_responses_total" in api.get("/haproxy/metrics").text


def test_a_function_of_an_experiment_is_deployed_with_its_floor(api: httpx.Client, gateway: GatewayProcess) -> None:
    function = FunctionSpec(name="sha256", service_time_s=0.03)
    system = FunctionSystem(functions=(function,), deadline_s=1.0, cold_start_s=0.1, when_busy="reject")
    made = deployment(function, system, replicas=1, max_replicas=3, seed=1, run="run-1", environment={})
    gateway.wait(lambda: api.get("/system/function/sha256").status_code == 404)
    gateway.wait(lambda: all(each["name"] != "sha256" for each in api.get("/penstock/functions").json()))
    assert api.post("/system/functions", content=_json(made)).status_code == 202
    gateway.wait(lambda: gateway.available("sha256") == 1)
    answer = api.post("/function/sha256", content=b"x")
    started_ns, finished_ns = (int(answer.headers[f"x-penstock-{what}-ns"]) for what in ("started", "finished"))
    assert finished_ns - started_ns >= 29_000_000  # 30 ms, by a wall clock that may be set right meanwhile
    assert api.post("/system/scale-function/sha256", json={"replicas": 9}).status_code == 202
    assert api.get("/system/function/sha256").json()["replicas"] == 3


def _json(made: FunctionDeployment) -> bytes:
    import msgspec

    assert json.loads(msgspec.json.encode(made))["envVars"]["floor_s"] == "0.03"
    return msgspec.json.encode(made)
