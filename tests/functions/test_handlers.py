"""The work of the functions, through the application that their replicas run, without a gateway."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pypdfium2  # type: ignore[import-untyped]
import pytest
import redis
import zxingcpp

from experiments.amesos.experiments import PIPELINES
from functions.loading import HANDLERS, PACKAGE, handler_folder, load_handler, use_template
from penstock.errors import PenstockError
from penstock.graph import topological
from penstock.settings import Endpoints
from penstock.systems import FunctionSpec
from producers.workloads.azure import Pipeline

use_template()
import arrays  # noqa: E402
import claim_check  # noqa: E402
import index  # noqa: E402 - found from here on
from service_floor import Floor  # noqa: E402

LOCK = PACKAGE.parent / "uv.lock"
PAYMENT = {
    "account": "account-000-0001",
    "merchant": "merchant-0001",
    "amount_cents": 4250,
    "currency": "EUR",
    "country": "DE",
}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Redis but what a test sets; no connection outlives a test."""
    for name in ("redis_url", "matrix_size", "text_bytes", "cycles", "floor_s"):
        monkeypatch.delenv(name, raising=False)
    yield
    if claim_check._redis.cache_info().currsize:
        claim_check._redis().close()
    claim_check._redis.cache_clear()


def call(name: str, body: bytes | Mapping[str, Any], floor_s: float = 0.0) -> Any:
    """The answer of a function to one request."""
    app = index.make_app(load_handler(handler_folder(name)), Floor({"floor_s": str(floor_s)}))
    return app.test_client().post("/", data=body if isinstance(body, bytes) else json.dumps(body))


def run_pipeline(
    pipeline: Pipeline, payload: bytes, status: Mapping[str, int] = MappingProxyType({})
) -> dict[str, bytes]:
    """All functions of a pipeline, one after the other. ``status``: what they answer with, where it is not 200."""
    results: dict[str, bytes] = {}
    for function in topological(PIPELINES[pipeline].functions):
        answer = call(function.name, given_to(function, payload, results))
        assert answer.status_code == status.get(function.name, 200), answer.text
        results[function.name] = answer.data
    return results


def given_to(function: FunctionSpec, payload: bytes, results: Mapping[str, bytes]) -> bytes:
    """What the pipeline manager would give it."""
    if not function.after:
        return payload
    if len(function.after) == 1:
        return results[function.after[0]]
    return json.dumps({name: json.loads(results[name]) for name in function.after}).encode()


FIRST_REQUESTS = """
import json, os, sys
from functions.loading import handler_folder, load_handler
from functions.replica import index
from service_floor import Floor

for name, status, body in json.load(sys.stdin):
    if os.fork() == 0:  # nothing that one function imports is there for the next
        client = index.make_app(load_handler(handler_folder(name)), Floor({})).test_client()
        client.get("/_/ready")
        before = set(sys.modules)
        answer = client.post("/", data=body.encode())
        assert answer.status_code == status, answer.text
        print(name, *sorted(set(sys.modules) - before))
        sys.exit()
    assert os.wait()[1] == 0, name
"""


@pytest.mark.long
def test_a_replica_imports_nothing_with_its_first_request() -> None:
    """What it would import, each replica would import anew, where its fork server does it once."""
    status = {"store": 503}  # there is no Redis here
    requests = []
    for pipeline, spec in PIPELINES.items():
        results = run_pipeline(pipeline, json.dumps(PAYMENT).encode(), status)
        requests += [(f.name, status.get(f.name, 200), given_to(f, b"{}", results).decode()) for f in spec.functions]
    command = [sys.executable, "-c", FIRST_REQUESTS]
    ended = subprocess.run(command, input=json.dumps(requests).encode(), capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    assert ended.stdout.decode().splitlines() == [name for name, _, _ in requests]


# --- document -----------------------------------------------------------------------------------------------------


def test_a_reader_finds_the_documents_digest_in_the_pdf() -> None:
    document = json.dumps(PAYMENT).encode()
    digest = call("sha256", document)
    assert digest.json == {"sha256": hashlib.sha256(document).hexdigest(), "bytes": len(document)}
    pdf = call("pdf", call("qrcode", digest.data).data).json
    with pypdfium2.PdfDocument(claim_check.unpack(pdf["pdf"])) as opened:
        assert len(opened) == 1
        page = opened[0]
        assert digest.json["sha256"] in page.get_textpage().get_text_range()
        (code,) = zxingcpp.read_barcodes(page.render(scale=2).to_pil())
    assert code.text == digest.json["sha256"]


def test_store_says_that_there_is_no_redis() -> None:
    answer = call("store", {"sha256": "ab", "pdf": {"inline": base64.b64encode(b"%PDF").decode()}})
    assert (answer.status_code, answer.json) == (503, {"error": "there is no Redis: set redis_url"})


@pytest.mark.live
def test_the_document_pipeline_keeps_its_document_in_redis_for_a_while(
    services: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("redis_url", services.require("redis"))
    results = run_pipeline("document", b"a contract")
    stored = json.loads(results["store"])
    with redis.Redis.from_url(services.require("redis")) as client:
        assert bytes(client.get(stored["document"])) == claim_check.unpack(json.loads(results["pdf"])["pdf"])
        assert 0 < client.ttl(stored["document"]) <= claim_check.TTL_S


# --- AES ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"\x00\xff", json.dumps(PAYMENT).encode(), bytes(200_000)])
def test_what_the_aes_pipeline_encrypts_it_decrypts_and_verifies(payload: bytes) -> None:
    results = run_pipeline("synthetic", payload)
    assert json.loads(results["verify"]) == {"verified": True, "bytes": 64 * 1024}
    ciphertext = claim_check.unpack(json.loads(results["encrypt"])["ciphertext"])
    assert (payload * 32 or bytes(32))[:32] not in ciphertext


def test_a_ciphertext_that_was_changed_is_told() -> None:
    encrypted = call("encrypt", b"text").json
    changed = bytearray(claim_check.unpack(encrypted["ciphertext"]))
    changed[0] ^= 1
    answer = call("decrypt", {**encrypted, "ciphertext": {"inline": base64.b64encode(changed).decode()}})
    assert (answer.status_code, answer.json) == (400, {"error": "cannot be decrypted: InvalidTag"})


# --- matrix ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4, 2), (1, 1, 1), (5, 3, 7)])
def test_the_matrix_pipeline_multiplies_as_numpy_does(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal(shape[:2]), rng.standard_normal(shape[1:])
    results = run_pipeline("matrix", json.dumps({"a": a.tolist(), "b": b.tolist()}).encode())
    merged = json.loads(results["merge"])
    assert (merged["rows"], merged["columns"]) == (shape[0], shape[2])
    np.testing.assert_allclose(arrays.unpack_array(merged["product"]), a @ b, rtol=1e-12, atol=1e-12)


def test_a_request_without_matrices_is_given_two_that_are_its_own() -> None:
    results = run_pipeline("matrix", json.dumps(PAYMENT).encode())
    split = json.loads(results["split"])
    pairs = [[arrays.unpack_array(pair[name]) for name in ("a", "b")] for pair in (*split["left"], *split["right"])]
    a, b = np.hstack([pair[0] for pair in pairs]), np.vstack([pair[1] for pair in pairs])
    assert a.shape == b.shape == (64, 64)
    np.testing.assert_allclose(arrays.unpack_array(json.loads(results["merge"])["product"]), a @ b, rtol=1e-9)
    assert results["split"] == call("split", json.dumps(PAYMENT).encode()).data
    assert results["split"] != call("split", b"{}").data


@pytest.mark.live
def test_large_intermediate_results_lie_in_redis_and_expire(
    services: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("redis_url", services.require("redis"))
    results = run_pipeline("matrix", b"{}")
    assert max(len(result) for result in results.values()) < 4096
    reduced = json.loads(results["left-reduce"])["left"]
    with redis.Redis.from_url(services.require("redis")) as client:
        assert 0 < client.ttl(reduced["redis"]) <= claim_check.TTL_S
        client.delete(reduced["redis"])
    halves = {name: json.loads(results[name]) for name in ("left-reduce", "right-reduce")}
    answer = call("merge", halves)
    assert answer.status_code == 410
    assert "not in Redis any more" in answer.json["error"]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b'{"a": [[1, 2', "the body is not JSON"),
        (b'{"a": [[1, 2]], "b": [[1, 2]]}', "a (1, 2) and b (1, 2) cannot be multiplied"),
        (b'{"a": [["x"]], "b": [[1]]}', "lists of rows of numbers"),
        (b'{"a": [[1, 2], [3]], "b": [[1]]}', "lists of rows of numbers"),
    ],
)
def test_matrices_that_cannot_be_multiplied_are_told(payload: bytes, why: str) -> None:
    answer = call("split", payload)
    assert answer.status_code == 400
    assert why in answer.json["error"]


def test_the_critical_path_of_the_matrix_pipeline_is_1300_ms() -> None:
    ends: dict[str, float] = {}
    for function in topological(PIPELINES["matrix"].functions):
        ends[function.name] = max((ends[name] for name in function.after), default=0.0) + function.service_time_s
    assert max(ends.values()) == pytest.approx(1.3)


# --- bank -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "regular"),
        ({"amount_cents": 1_234_567}, "large"),
        ({"amount_cents": 5_000_000, "currency": "USD"}, "suspicious"),
    ],
)
def test_a_transaction_is_classified(changed: dict[str, Any], name: str) -> None:
    answer = call("bank-classify", {**PAYMENT, **changed}).json
    assert answer["class"] == name
    assert 0 < answer["score"] < 1


def test_more_money_is_never_less_suspicious() -> None:
    scores = [call("bank-classify", {**PAYMENT, "amount_cents": 10**n + 1}).json["score"] for n in range(9)]
    assert scores == sorted(scores)


# --- what all share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["qrcode", "pdf", "store", "decrypt", "verify", "left-multiply", "right-reduce", "merge"]
)
@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"sha256": 1', b"\xff"])
def test_a_request_that_is_not_what_a_function_reads_is_400_in_one_line(name: str, payload: bytes) -> None:
    answer = call(name, payload)
    assert answer.status_code == 400, answer.text
    assert "\n" not in answer.json["error"]


def test_every_function_of_every_pipeline_has_a_handler_and_stands_in_the_stack() -> None:
    stack = (PACKAGE / "stack.yaml").read_text()
    built = dict(
        re.findall(r"^  ([a-z0-9-]+):\n    lang: python3-penstock\n    handler: \./handlers/(\w+)$", stack, re.M)
    )
    needed = {function.name for system in PIPELINES.values() for function in system.functions}
    assert needed <= built.keys()
    assert {folder.parent.name for folder in HANDLERS.glob("*/handler.py")} == set(built.values())
    for name, folder in built.items():
        assert handler_folder(f"penstock/{name}:latest") == HANDLERS / folder
        assert (HANDLERS / folder / "requirements.txt").is_file()


def test_images_install_versions_that_the_lock_has() -> None:
    locked = {(each["name"], each["version"]) for each in tomllib.loads(LOCK.read_text())["package"]}
    wanted = [line.split("==") for file in PACKAGE.rglob("requirements.txt") for line in file.read_text().split()]
    assert {name for name, *_ in wanted} >= {"numpy", "cryptography", "fpdf2", "segno", "flask"}
    assert {tuple(each) for each in wanted} <= locked


def test_the_floors_of_the_stack_are_the_experiments_service_times() -> None:
    stack = (PACKAGE / "stack.yaml").read_text()
    floors = dict(re.findall(r"^  ([a-z0-9-]+):(?:\n    .*)*?\n      floor_s: \"([0-9.]+)\"", stack, re.M))
    for system in PIPELINES.values():
        for function in system.functions:
            assert float(floors[function.name]) == pytest.approx(function.service_time_s, abs=1e-4)


@pytest.mark.parametrize("image", ["sha256", "penstock/sha256", "registry:5000/x/sha256:1.2", "sha256@sha256:00"])
def test_an_image_names_its_handler(image: str) -> None:
    assert handler_folder(image) == HANDLERS / "sha256"


@pytest.mark.parametrize("image", ["", "..", "penstock/none:latest", "__pycache__"])
def test_an_image_without_handler_is_told_with_those_that_there_are(image: str) -> None:
    with pytest.raises(PenstockError, match=r"no handler for it here; there are .*left-multiply"):
        handler_folder(image)


def test_a_folder_without_handle_is_told(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("x = 1\n")
    with pytest.raises(PenstockError, match=r"there is no handle\(event, context\)"):
        load_handler(tmp_path)


def test_the_answer_waits_for_the_floor_and_tells_its_times() -> None:
    before_ns = time.time_ns()
    answer = call("sha256", b"x", floor_s=0.05)
    started_ns, finished_ns = (int(answer.headers[f"X-Penstock-{what}-Ns"]) for what in ("Started", "Finished"))
    assert before_ns <= started_ns
    assert finished_ns - started_ns >= 50_000_000
    assert finished_ns <= time.time_ns()


@pytest.mark.parametrize(
    ("returned", "status", "content", "kind"),
    [
        ({"statusCode": 201, "body": "made", "headers": {"X-A": "b"}}, 201, b"made", "text/html"),
        ({"statusCode": 404}, 404, b"", "text/html"),
        ({"body": {"a": 1}}, 200, b'{"a":1}\n', "application/json"),
        ({"body": [1]}, 200, b"[1]\n", "application/json"),
        ({"body": 5}, 200, b"5", "text/html"),
        ({"body": b"\xff"}, 200, b"\xff", "text/html"),
        ({"body": "{}", "headers": {"Content-Type": "application/json"}}, 200, b"{}", "application/json"),
        ({"a": 1}, 200, b"", "text/html"),
        (None, 200, b"", "text/html"),
        ("text", 200, b"text", "text/html"),
        (b"bytes", 200, b"bytes", "text/html"),
        (("made", 201), 201, b"made", "text/html"),
        (("made", 201, {"X-A": "b"}), 201, b"made", "text/html"),
    ],
)
def test_a_handler_returns_what_python3_http_takes(returned: Any, status: int, content: bytes, kind: str) -> None:
    response = index.make_app(lambda *_: returned, Floor({})).test_client().post("/")
    assert (response.status_code, response.data, response.mimetype) == (status, content, kind)


def test_two_headers_of_one_name_are_both_sent() -> None:
    returned = {"body": "", "headers": [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]}
    response = index.make_app(lambda *_: returned, Floor({})).test_client().post("/")
    assert response.headers.getlist("Set-Cookie") == ["a=1", "b=2"]


def test_a_value_that_is_no_answer_is_500() -> None:
    response = index.make_app(lambda *_: 5, Floor({})).test_client().post("/")
    assert (response.status_code, "TypeError" in response.text) == (500, True)


@pytest.mark.parametrize(("law", "scv"), [("exponential", 1.0), ("gamma", 0.25), ("pareto", 0.5)])
def test_service_times_have_the_mean_and_the_variation_that_was_asked_for(law: str, scv: float) -> None:
    given = {"floor_s": "0.02", "service_law": law, "service_scv": str(scv)}
    draws = np.array([Floor(given, stream="f-1").deadline_ns(0) for _ in range(3)])
    assert (draws == draws[0]).all(), "same seed and replica, same draws"
    floor = Floor(given, stream="f-1")
    times = np.array([floor.deadline_ns(0) / 1e9 for _ in range(200_000)])
    assert times.mean() == pytest.approx(0.02, rel=0.02)
    if law != "pareto":  # whose fourth moment is infinite here: its sample variance says little
        assert times.var() / times.mean() ** 2 == pytest.approx(scv, rel=0.05)
    assert Floor({**given, "seed": "2"}, stream="f-1").deadline_ns(0) != draws[0]
    assert Floor(given, stream="f-2").deadline_ns(0) != draws[0]


@pytest.mark.parametrize(
    ("name", "value"), [("floor_s", "fast"), ("floor_s", "-1"), ("floor_s", "inf"), ("service_law", "normal")]
)
def test_a_wrong_floor_is_told_with_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}={value}"):
        Floor({name: value})


def test_a_setting_that_is_no_number_is_500_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("matrix_size", "large")
    answer = call("split", b"{}")
    assert (answer.status_code, answer.json) == (500, {"error": "matrix_size=large: expected a whole number above 0"})
