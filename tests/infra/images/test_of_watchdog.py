"""The stand-in of of-watchdog does what the real one (0.11.6) was seen to do, case by case."""

import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import PATIENCE_S, eventually
from tests.support.watchdog import WatchdogPod, closing_all

UPSTREAM = """
import os, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

class Handler(BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        what, _, value = (self.headers.get("X-Do") or "").partition(":")
        if what == "until":
            Path(value + ".begun").touch()
            while not Path(value).exists():
                time.sleep(0.01)
        elif what == "exit":
            os._exit(3)
        self.send_response(200)
        self.send_header("X-Method", self.command)
        self.send_header("X-Call-Id", self.headers.get("X-Call-Id", ""))
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = answer

    def log_message(self, *_):
        pass

while not Path("listen").exists():
    time.sleep(0.01)
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
HTTPServer(("127.0.0.1", urlsplit(os.environ["upstream_url"]).port), Handler).serve_forever()
"""
"""A function with one request at a time; it listens when there is a file `listen`. An argument: it ignores SIGTERM."""

pytestmark = pytest.mark.long
INTERNAL = "x-openfaas-internal"


class Pods:
    """Pods of this function, in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[WatchdogPod] = []
        (folder / "index.py").write_text(UPSTREAM)
        self.go, self.begun = folder / "go", folder / "go.begun"

    def start(self, *, listening: bool = True, **environment: str) -> WatchdogPod:
        (self.folder / "listen").touch() if listening else (self.folder / "listen").unlink(missing_ok=True)
        pod = WatchdogPod(
            self.folder / f"{len(self.started)}",
            self.folder,
            **{"suppress_lock": "false", "ready_path": "", **environment},
        )
        self.started.append(pod)
        if listening:
            eventually(lambda: pod.call().status_code == 200, pod.log)
        return pod

    def hold(self, pod: WatchdogPod, **options: object) -> httpx.Response:
        """A request that is answered when ``go`` is there."""
        return pod.call(f"until:{self.go}", **options)  # type: ignore[arg-type]

    def await_begin(self) -> None:
        eventually(self.begun.exists)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    made = Pods(tmp_path)
    with closing_all(made.started):
        yield made
        made.go.touch()


@pytest.fixture
def caller() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_at_sigterm_it_is_unhealthy_then_drains_if_the_function_stays(pods: Pods, caller: ThreadPoolExecutor) -> None:
    pod = pods.start(fprocess="python index.py stay", healthcheck_interval="2s")
    in_hand = caller.submit(pods.hold, pod)
    pods.await_begin()
    pod.terminate()
    eventually(lambda: pod.health() == 503)
    assert (pod.health("/_/ready"), pod.lock.exists()) == (503, False)
    eventually(lambda: pod.health() is None)
    assert pod.process.poll() is None, "it waits for the request in hand"
    pods.go.touch()
    assert in_hand.result().status_code == 200
    assert pod.process.wait(PATIENCE_S) == 0


def test_at_sigterm_a_request_in_flight_is_500_if_the_function_ends(pods: Pods, caller: ThreadPoolExecutor) -> None:
    pod = pods.start()
    in_hand = caller.submit(pods.hold, pod)
    pods.await_begin()
    pod.terminate()
    assert in_hand.result().status_code == 500
    assert pod.process.wait(PATIENCE_S) == 1


def test_before_the_function_listens_it_is_healthy_and_requests_are_500(pods: Pods) -> None:
    pod = pods.start(listening=False)
    assert (pod.health(), pod.lock.exists()) == (200, True)
    answer = pod.call()
    assert (answer.status_code, answer.content, answer.headers[INTERNAL]) == (500, b"", "of-watchdog")
    pods.go.touch()


def test_with_suppress_lock_it_is_healthy_once_somebody_writes_the_lock_file(pods: Pods) -> None:
    pod = pods.start(listening=False, suppress_lock="true")
    assert (pod.health(), pod.health("/_/ready")) == (503, 503)
    pod.lock.touch()
    assert (pod.health(), pod.health("/_/ready")) == (200, 200)


def test_while_it_is_busy_probes_and_requests_are_answered_at_once(pods: Pods, caller: ThreadPoolExecutor) -> None:
    pod = pods.start()
    in_hand = caller.submit(pods.hold, pod)
    pods.await_begin()
    assert (pod.health(), pod.health("/_/ready")) == (200, 429)
    second = pod.call()
    assert (second.status_code, second.headers["content-type"]) == (429, "text/plain")
    assert second.text.strip() == "Concurrent request limit exceeded. Max concurrent requests: 1"
    pods.go.touch()
    assert in_hand.result().status_code == 200


def test_a_caller_that_hangs_up_frees_its_place_and_the_next_one_waits(pods: Pods, caller: ThreadPoolExecutor) -> None:
    pod = pods.start()
    with socket.create_connection(("127.0.0.1", pod.port)) as hanging_up:
        hanging_up.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nX-Do: until:{pods.go}\r\n\r\n".encode())
        pods.await_begin()
    eventually(lambda: pod.health("/_/ready") == 200)
    following = caller.submit(pod.call)
    eventually(lambda: pod.health("/_/ready") == 429)
    pods.go.touch()
    assert following.result().status_code == 200


@pytest.mark.parametrize(
    ("setting", "header"), [("500ms", {}), ("60s", {"X-Timeout": "500ms"}), ("0", {"X-Timeout": "500ms"})]
)
def test_a_request_that_takes_too_long_is_504(pods: Pods, setting: str, header: dict[str, str]) -> None:
    pod = pods.start(exec_timeout=setting)
    answer = pods.hold(pod, headers=header)
    assert (answer.status_code, answer.content) == (504, b"")
    assert float(answer.headers["x-duration-seconds"]) >= 0.5
    assert pods.hold(pod, headers={"X-Timeout": "100ms"}).status_code == 504, "the handler is still at work"


def test_an_answer_after_the_write_timeout_is_a_closed_connection(pods: Pods, caller: ThreadPoolExecutor) -> None:
    pod = pods.start(write_timeout="1s")
    in_hand = caller.submit(pods.hold, pod)
    pods.await_begin()
    time.sleep(1.1)
    pods.go.touch()
    with pytest.raises(httpx.RemoteProtocolError):
        in_hand.result()


@pytest.mark.parametrize("text", ["500ms", "1m0s", "1h", "1.5h", "0", "30", "abc", ""])
def test_go_durations_whole_seconds_and_nonsense_are_taken(pods: Pods, text: str) -> None:
    assert pods.start(exec_timeout=text, read_timeout="1m30s").call(content=b"x").content == b"x"


def test_a_chunked_body_and_a_large_one_arrive_whole(pods: Pods) -> None:
    pod = pods.start()
    chunks = (b"%d" % i * 10 for i in range(100))
    assert len(pod.call(content=chunks).content) == 1900
    large = bytes(range(256)) * 65536
    assert pod.call(content=large, headers={"Expect": "100-continue"}).content == large


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"])
def test_every_method_and_header_is_passed_on(pods: Pods, method: str) -> None:
    answer = pods.start().call(method=method, headers={"X-Call-Id": "mine"})
    assert (answer.status_code, answer.headers["x-method"], answer.headers["x-call-id"]) == (200, method, "mine")
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert float(answer.headers["x-duration-seconds"]) > 0


def test_probes_are_get_only(pods: Pods) -> None:
    pod = pods.start()
    for path in ("/_/health", "/_/ready"):
        assert httpx.post(pod.url + path, trust_env=False).status_code == 405


def test_a_connection_is_kept(pods: Pods) -> None:
    pod = pods.start()
    with socket.create_connection(("127.0.0.1", pod.port)) as connection, connection.makefile("rb") as answers:
        for _ in range(3):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            while answers.readline() != b"\r\n":
                pass
            assert answers.read(1) == b"x"


def test_an_answer_is_sent_in_one_piece(pods: Pods) -> None:
    """In two, the second one waits 40 ms for the caller's delayed acknowledgement of the first."""
    pod = pods.start()
    with socket.create_connection(("127.0.0.1", pod.port)) as connection:
        for _ in range(5):
            connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nend")
            assert connection.recv(65536).endswith(b"\r\n\r\nend")


def test_requests_are_counted_at_the_metrics_port(pods: Pods) -> None:
    pod = pods.start()
    pod.call(method="PUT")
    answer = httpx.get(f"http://127.0.0.1:{pod.metrics_port}/metrics", trust_env=False)
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    counted = {tuple(each.labels.values()): each.value for each in families["http_requests"].samples}
    assert counted["200", "put"] == 1
    assert {"http_request_duration_seconds", "http_requests_in_flight"} <= families.keys()


def test_quotes_in_fprocess_are_no_quotes(pods: Pods) -> None:
    pod = pods.start(listening=False, fprocess='python -c "import time; time.sleep(60)"')
    assert pod.process.wait(PATIENCE_S) == 1
    assert "SyntaxError" in pod.log()


def test_a_function_that_ends_takes_the_watchdog_with_it(pods: Pods) -> None:
    pod = pods.start()
    assert pod.call("exit").status_code == 500
    assert pod.process.wait(PATIENCE_S) == 1


def test_at_sigterm_without_a_request_it_ends_with_its_function(pods: Pods) -> None:
    pod = pods.start()
    pod.process.send_signal(signal.SIGTERM)
    assert pod.process.wait(PATIENCE_S) == 1
    staying = pods.start(fprocess="python index.py stay", healthcheck_interval="100ms")
    staying.terminate()
    assert staying.process.wait(PATIENCE_S) == 0
