"""A replica as a process of its own, introduced by a gateway that the test plays."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import msgspec
import pytest

from functions.pod import COUNTERS_PATH, FunctionIdentity
from functions.shared_counters import Counters

pytestmark = pytest.mark.live

PATIENCE_S = 60.0
POD = "function-sha256-5d9f-x2x4z"


class Registry(ThreadingHTTPServer):
    """Says who a pod is; 404 while ``known`` is None."""

    def __init__(self) -> None:
        self.known: FunctionIdentity | None = None
        super().__init__(("127.0.0.1", 0), Asked)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Asked(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        known = self.server.known if self.path.startswith(f"/penstock/pods/{POD}?") else None
        self.send_response(404 if known is None else 200)
        self.end_headers()
        self.wfile.write(b"no replica yet" if known is None else msgspec.json.encode(known))

    def log_message(self, *_: object) -> None:
        pass


class Pod:
    """The process, with what it says."""

    def __init__(self, registry: Registry, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        command = (sys.executable, "-m", "functions.pod", "--gateway", f"http://127.0.0.1:{registry.server_port}")
        with log.open("wb") as out:
            self.process = subprocess.Popen((*command, "--pod", POD, "--port", str(self.port)), stdout=out, stderr=out)

    def tally(self) -> Counters | None:
        try:
            answer = httpx.get(self.url + COUNTERS_PATH, timeout=5, trust_env=False)
        except httpx.HTTPError:
            return None
        return msgspec.json.decode(answer.content, type=Counters)

    def await_tally(self) -> Counters:
        until_s = time.monotonic() + PATIENCE_S
        while (tally := self.tally()) is None:
            assert self.process.poll() is None and time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.05)
        return tally

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def pod(registry: Registry, tmp_path: Path) -> Iterator[Pod]:
    started = Pod(registry, tmp_path / "log")
    yield started
    started.process.kill()
    started.process.wait()


def known(**environment: str) -> FunctionIdentity:
    return FunctionIdentity(
        replica="sha256-7", image="penstock/sha256:1", environment=environment, requested_ns=time.time_ns()
    )


def test_it_serves_once_it_knows_who_it_is_and_its_cold_start_is_over(registry: Registry, pod: Pod) -> None:
    time.sleep(0.5)
    assert pod.tally() is None
    registry.known = introduction = known(cold_start_s="3", floor_s="0.05")
    assert pod.await_tally() == Counters()
    assert time.time_ns() - introduction.requested_ns >= 3_000_000_000
    document = {"id": "d", "content": "aGVsbG8="}
    answer = httpx.post(pod.url + "/", json=document, timeout=30, trust_env=False)
    tally = pod.await_tally()
    assert tally.invocations == 1 and tally.failed == (answer.status_code >= 500)
    assert tally.first_ns > introduction.requested_ns and tally.busy_ns >= 50_000_000
    assert pod.end() == 0


def test_it_finishes_what_it_has_in_hand(registry: Registry, pod: Pod) -> None:
    registry.known = known(floor_s="5")
    pod.await_tally()
    answers: list[int] = []

    def call() -> None:
        answers.append(httpx.post(pod.url + "/", content=b"{}", timeout=30, trust_env=False).status_code)

    calling = threading.Thread(target=call)
    calling.start()
    until_s = time.monotonic() + PATIENCE_S
    while not pod.await_tally().busy:
        assert time.monotonic() < until_s
    assert pod.end() == 0
    calling.join()
    assert len(answers) == 1 and answers[0] < 600


def test_it_ends_at_once_while_it_is_nobody(pod: Pod) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while b"asking again which replica this is" not in pod.log.read_bytes():
        assert pod.process.poll() is None and time.monotonic() < until_s
        time.sleep(0.05)
    assert pod.end() == 0


def test_a_wrong_environment_is_one_line(registry: Registry, pod: Pod) -> None:
    registry.known = known(cold_start_s="soon")
    assert pod.process.wait(PATIENCE_S) == 2
    assert pod.log.read_text().splitlines()[-1].startswith("error: cold_start_s=soon: expected seconds")
    assert os.linesep + "Traceback" not in pod.log.read_text()
