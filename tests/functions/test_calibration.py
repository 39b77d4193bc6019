"""Calibration of functions: what is measured, of what, and that nothing stays deployed."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.amesos.experiments import DOCUMENT
from functions.calibration import PREFIX, calibrate_pipeline
from infra.local.ports import free_port
from penstock.errors import PenstockError
from penstock.function_messages import FINISHED_HEADER, STARTED_HEADER
from penstock.openfaas import RUN, DeleteRequest, DeployedFunction, FunctionDeployment
from penstock.systems import FunctionSpec, FunctionSystem
from tests.functions.gateway_process import PASSWORD, GatewayProcess

DIAMOND = FunctionSystem(
    functions=(
        FunctionSpec(name="split", service_time_s=0.002),
        FunctionSpec(name="left", service_time_s=0.02, after=("split",)),
        FunctionSpec(name="right", service_time_s=0.001, after=("split",)),
        FunctionSpec(name="merge", service_time_s=0.002, after=("left", "right")),
    ),
    deadline_s=1.0,
    when_busy="reject",
)


class StubGateway:
    """Functions that take their floor, one request at a time each, and answer with their name and what they were given.
    A deployed function that is ``stuck`` fails at every call.
    """

    def __init__(self) -> None:
        self.deployed: dict[str, FunctionDeployment] = {}
        self.given: dict[str, set[bytes]] = {}
        self.stuck = ""
        self.ending: dict[str, int] = {}
        """Deleted functions, with how often they are still told of, as OpenFaaS does."""
        self._busy: dict[str, threading.Lock] = {}
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/system/functions":
                    self.reply(stub.deploy(msgspec.json.decode(body, type=FunctionDeployment)))
                else:
                    self.reply(*stub.call(self.path.removeprefix("/function/"), body))

            def do_DELETE(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                name = msgspec.json.decode(body, type=DeleteRequest).function_name
                if name in stub.deployed:
                    stub.ending[name] = 2
                self.reply(202 if name in stub.deployed else 404)

            def do_GET(self) -> None:
                name = self.path.removeprefix("/system/function/")
                stub.look(name)
                if (made := stub.deployed.get(name)) is None:
                    self.reply(404)
                    return
                status = DeployedFunction(name=name, annotations=made.annotations, available_replicas=1)
                self.reply(200, msgspec.json.encode(status))

            def reply(self, status: int, body: bytes = b"", headers: dict[str, int] | None = None) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": len(body), **(headers or {})}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def look(self, name: str) -> None:
        if name in self.ending:
            self.ending[name] -= 1
            if not self.ending[name]:
                del self.ending[name], self.deployed[name]

    def deploy(self, wanted: FunctionDeployment) -> int:
        if wanted.service in self.deployed:
            return 500
        self.deployed[wanted.service] = wanted
        self._busy[wanted.service] = threading.Lock()
        return 202

    def call(self, name: str, body: bytes) -> tuple[int, bytes, dict[str, int]]:
        if name not in self.deployed:
            return 404, b"there is no such function", {}
        if name == self.stuck:
            return 500, b"as it was told", {}
        self.given.setdefault(name, set()).add(body)
        with self._busy[name]:
            started_ns = time.time_ns()
            time.sleep(float(self.deployed[name].environment["floor_s"]))
            finished_ns = time.time_ns()
        answer = msgspec.json.encode({name: msgspec.Raw(body)})
        return 200, answer, {STARTED_HEADER: started_ns, FINISHED_HEADER: finished_ns}


@contextmanager
def stub_gateway() -> Iterator[StubGateway]:
    gateway = StubGateway()
    thread = threading.Thread(target=gateway.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield gateway
    finally:
        gateway.server.shutdown()
        thread.join()
        gateway.server.server_close()


def test_each_function_is_measured_with_what_it_is_given_in_the_pipeline_and_nothing_stays() -> None:
    with stub_gateway() as gateway:
        killed = FunctionDeployment(service=f"{PREFIX}split", image="left", annotations={RUN: "calibration"})
        gateway.deploy(killed)
        found = calibrate_pipeline(gateway.url, "diamond", DIAMOND, [b"1", b"2"], seconds=0.3)
        given = {name.removeprefix(PREFIX): bodies for name, bodies in gateway.given.items()}
        assert gateway.deployed == {}
    assert given["split"] == given["split-work"] == {b"1", b"2"}
    split = {b'{"calibrate-split":1}', b'{"calibrate-split":2}'}
    assert given["left"] == given["right"] == given["right-work"] == split
    assert given["merge"] == {
        b'{"left":{"calibrate-left":%b},"right":{"calibrate-right":%b}}' % (body, body) for body in split
    }
    assert [each.name for each in found.functions] == ["split", "left", "right", "merge"]
    for each in found.functions:
        assert each.service.p50_s >= each.floor_s and each.service.count >= 5
        assert 0 < each.service_rate_per_s < 1.5 / each.floor_s, "one request at a time"
    means_s = {each.name: each.service.mean_s for each in found.functions}
    assert found.total_estimate_s == pytest.approx(means_s["split"] + means_s["left"] + means_s["merge"])
    assert found.whole.p50_s >= 0.024 and found.whole.count >= 5


def test_a_function_that_fails_is_named_and_nothing_stays() -> None:
    with stub_gateway() as gateway:
        gateway.stuck = f"{PREFIX}right"
        with pytest.raises(PenstockError, match=r"^right: a call failed: status 500: as it was told$"):
            calibrate_pipeline(gateway.url, "diamond", DIAMOND, [b"1"], seconds=0.1)
        assert gateway.deployed == {}


def test_a_function_of_a_user_refuses_the_calibration_and_stays() -> None:
    with stub_gateway() as gateway:
        mine = FunctionDeployment(service=f"{PREFIX}right", image="mine", annotations={"topic": "orders"})
        gateway.deploy(mine)
        with pytest.raises(PenstockError, match=r"^calibrate-right: a function of that name, not deployed by Penstock"):
            calibrate_pipeline(gateway.url, "diamond", DIAMOND, [b"1"], seconds=0.1)
        assert gateway.deployed == {mine.service: mine}


def test_a_gateway_that_is_away_is_one_line_that_says_how_to_start_it() -> None:
    port = free_port()
    with pytest.raises(PenstockError, match=rf"no gateway at 127.0.0.1:{port}: .*`penstock up`"):
        calibrate_pipeline(f"http://127.0.0.1:{port}", "diamond", DIAMOND, [b"1"], seconds=0.1)


@pytest.mark.live
def test_real_functions_are_measured_behind_the_real_gateway(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("g")
    gateway = GatewayProcess(folder)
    gateway.start()
    try:
        system = msgspec.structs.replace(DOCUMENT, functions=DOCUMENT.functions[:2])
        url = gateway.url.replace("http://", f"http://admin:{PASSWORD.replace(' ', '%20')}@")
        found = calibrate_pipeline(url, "document", system, [b'{"text": 1}', b'{"text": 2}'], seconds=0.5)
        assert gateway.client.get("/system/functions").json() == []
    finally:
        assert gateway.stop() == 0
    assert [each.name for each in found.functions] == ["sha256", "qrcode"]
    for each in found.functions:
        assert each.service.p50_s >= 0.0125 and each.work.p50_s > 0
        assert 0 < each.service_rate_per_s < 1.5 / 0.0125, "one request at a time"
    assert found.total_estimate_s >= 0.025
    assert found.whole.p50_s >= 0.025
