"""The gateway with real replicas behind it: nothing is lost while they come, go, crash and hang."""

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from tests.functions.gateway_process import GatewayProcess, body

COUNTED = 'gateway_function_invocation_total{code="200",function_name="probe.openfaas-fn"}'
LIFE = ["requested", "started", "joined", "first-event", "draining", "gone"]


@pytest.fixture
def probe(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """The gateway, which has no function before the test nor after it."""
    yield gateway
    for function in gateway.client.get("/system/functions").json():
        gateway.client.request("DELETE", "/system/functions", json={"functionName": function["name"]})
    gateway.wait(lambda: gateway.client.get("/penstock/functions").json() == [])


class Load(threading.Thread):
    """Calls, some side by side, until told to stop; notes every status."""

    def __init__(self, gateway: GatewayProcess, callers: int, do: str) -> None:
        super().__init__()
        self.statuses: Counter[int] = Counter()
        self._gateway, self._callers, self._do = gateway, callers, do
        self._stopping = threading.Event()

    def run(self) -> None:
        with ThreadPoolExecutor(self._callers) as pool:
            for found in pool.map(lambda _: self._call(), range(self._callers)):
                self.statuses += found

    def stop(self) -> Counter[int]:
        self._stopping.set()
        self.join()
        return self.statuses

    def _call(self) -> Counter[int]:
        statuses: Counter[int] = Counter()
        with httpx.Client(base_url=self._gateway.url, timeout=90, trust_env=False) as client:
            while not self._stopping.is_set():
                answer = client.post("/function/probe", content=b"{}", headers={"X-Do": self._do})
                statuses[answer.status_code] += 1
        return statuses


@pytest.mark.live
def test_scaling_1_to_10_to_1_under_load_fails_no_request_and_drains_every_replica(probe: GatewayProcess) -> None:
    before = len(probe.events())
    probe.deploy(replicas=1)
    load = Load(probe, callers=12, do="sleep:0.02")
    load.start()
    probe.scale(10)
    probe.wait(lambda: probe.available() == 10)
    # more callers than replicas: some requests always wait, and no replica may stay idle
    probe.wait(lambda: set(probe.report()["replicas"].values()) == {"first-event"})
    probe.scale(1)
    probe.wait(lambda: len(probe.report()["replicas"]) == 1)
    statuses = load.stop()
    assert set(statuses) == {200}
    report = probe.report()
    assert report["invocations"] == statuses.total()
    assert report["violations"] == 0 and report["failed"] == 0
    lives: dict[str, list[str]] = {}
    for event in probe.events(before):
        lives.setdefault(event["replica"], []).append(event["phase"])
    assert len(lives) == 10
    assert Counter(phases[-1] for phases in lives.values()) == {"gone": 9, "first-event": 1}
    for phases in lives.values():
        assert phases == [phase for phase in LIFE if phase in phases]
        assert {"requested", "started", "joined"} <= set(phases)
    assert all("reason" not in event for event in probe.events(before))


@pytest.mark.smoke
def test_a_replica_has_one_request_at_a_time_and_others_wait_at_the_gateway(probe: GatewayProcess) -> None:
    probe.deploy(replicas=2)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: probe.call("sleep:0.3"), range(8)))
    assert {answer.status_code for answer in answers} == {200}
    spans: dict[str, list[tuple[int, int]]] = {}
    for answer in answers:
        span = (int(answer.headers["x-penstock-started-ns"]), int(answer.headers["x-penstock-finished-ns"]))
        spans.setdefault(answer.headers["x-penstock-replica"], []).append(span)
    assert len(spans) == 2
    for served in spans.values():
        ordered = sorted(served)
        assert all(end <= start for (_, end), (start, _) in pairwise(ordered))
    assert probe.report()["violations"] == 0
    assert max(int(answer.headers["x-penstock-queue-ms"]) for answer in answers) > 0


@pytest.mark.live
@pytest.mark.parametrize("queue", [0, 2])
def test_what_neither_a_replica_nor_the_queue_has_room_for_is_429(
    probe: GatewayProcess, tmp_path: Path, queue: int
) -> None:
    probe.deploy(replicas=2, queue=queue)
    with ThreadPoolExecutor(2 + queue) as pool:
        held = [pool.submit(probe.call, f"until:{tmp_path / 'go'}") for _ in range(2 + queue)]
        probe.wait(lambda: (probe.report()["in_flight"], probe.report()["waiting"]) == (2, queue))
        assert {probe.call().status_code for _ in range(3)} == {429}
        (tmp_path / "go").touch()
        assert {call.result().status_code for call in held} == {200}
    probe.wait(lambda: (probe.report()["waiting"], probe.report()["in_flight"]) == (0, 0))
    report = probe.report()
    assert report["invocations"] == 2 + queue and report["busy_s"] > 0


@pytest.mark.live
def test_an_update_replaces_all_replicas_and_fails_no_request(probe: GatewayProcess) -> None:
    probe.deploy(replicas=2)
    load = Load(probe, callers=3, do="")
    load.start()
    old = set(probe.report()["replicas"])
    updated = body("probe", replicas=2, service_law="exponential", floor_s="0.001")
    assert probe.client.put("/system/functions", json=updated).status_code == 202
    probe.wait(lambda: not old & set(probe.report()["replicas"]) and probe.available() == 2)
    assert set(load.stop()) == {200}
    assert probe.client.get("/system/function/probe").json()["envVars"]["service_law"] == "exponential"


@pytest.mark.live
def test_a_replica_killed_in_mid_request_fails_that_request_alone_and_is_replaced(probe: GatewayProcess) -> None:
    probe.deploy(replicas=2)
    with ThreadPoolExecutor(1) as pool:
        doomed = pool.submit(probe.call, "hang")
        # HAProxy counts a request in flight when it has chosen the replica, which may be about to accept it.
        probe.wait(lambda: any(_busy(probe, pid) for pid in _replica_pids(probe)) and probe.report()["in_flight"] == 1)
        busy = [pid for pid in _replica_pids(probe) if _busy(probe, pid)]
        os.kill(busy[0], signal.SIGKILL)
        assert doomed.result().status_code == 502
    assert probe.call().status_code == 200
    probe.wait(lambda: probe.available() == 2)
    gone = [event for event in probe.events() if event["phase"] == "gone" and event.get("reason")]
    assert gone[-1]["reason"] == "killed by SIGKILL"
    assert {probe.call().status_code for _ in range(4)} == {200}


@pytest.mark.live
def test_a_handler_that_fails_is_500_and_its_replica_goes_on(probe: GatewayProcess) -> None:
    probe.deploy()
    pid = probe.call().headers["x-pid"]
    answer = probe.call("raise")
    assert (answer.status_code, answer.json()) == (500, {"error": "ValueError: as it was told"})
    assert probe.call().headers["x-pid"] == pid
    assert probe.report()["failed"] == 1


@pytest.mark.live
def test_a_handler_that_ends_its_process_is_502_and_the_replica_replaced(probe: GatewayProcess) -> None:
    probe.deploy()
    assert probe.call("exit").status_code == 502
    probe.wait(lambda: probe.call().status_code == 200)
    assert any(event.get("reason") == "ended by itself with code 9" for event in probe.events())


@pytest.mark.live
def test_a_handler_that_hangs_is_504_and_the_replica_replaced(probe: GatewayProcess) -> None:
    probe.deploy(exec_timeout="3s")
    pid = probe.call().headers["x-pid"]
    answer = probe.call("hang")
    assert (answer.status_code, answer.json()) == (504, {"error": "no answer within exec_timeout 3 s"})
    probe.wait(lambda: probe.call().status_code == 200)
    assert probe.call().headers["x-pid"] != pid
    assert any(event.get("reason") == "its handler hung" for event in probe.events())


@pytest.mark.live
def test_the_rest_is_served_while_one_function_fails_at_every_call(probe: GatewayProcess) -> None:
    probe.deploy()
    probe.deploy("sha256")
    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(lambda: [probe.call("exit").status_code for _ in range(3)])
        healthy = pool.submit(lambda: [probe.call(name="sha256").status_code for _ in range(10)])
        assert set(healthy.result()) == {200}
        assert set(failing.result()) <= {502, 503}


@pytest.mark.live
def test_a_payload_of_10_mb_comes_back_as_it_was(probe: GatewayProcess) -> None:
    probe.deploy()
    large = os.urandom(10_000_000)
    assert probe.call(content=large).content == large


@pytest.mark.live
def test_a_caller_that_hangs_up_leaves_its_replica_busy_until_it_is_done(probe: GatewayProcess) -> None:
    probe.deploy()
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{probe.url}/function/probe", headers={"X-Do": "sleep:4"}, timeout=0.3, trust_env=False)
    assert probe.call().status_code == 200
    assert probe.report()["violations"] == 0


@pytest.mark.live
def test_a_cold_start_is_over_before_a_replica_takes_requests(probe: GatewayProcess) -> None:
    before = len(probe.events())
    probe.deploy(cold_start_s="1.5")
    at = {event["phase"]: event["at_ns"] for event in probe.events(before)}
    assert at["joined"] - at["requested"] >= 1_500_000_000


@pytest.mark.live
def test_a_control_plane_started_anew_finds_its_replicas_and_loses_no_request(probe: GatewayProcess) -> None:
    probe.deploy(replicas=3)
    load = Load(probe, callers=2, do="sleep:0.1")
    load.start()
    try:
        for ending in (signal.SIGKILL, signal.SIGHUP):
            before = _replica_pids(probe)
            haproxy = _named(probe, "haproxy")
            probe.stop(ending)
            time.sleep(0.5)
            probe.start()
            probe.wait(lambda: probe.available() == 3)
            assert _replica_pids(probe) == before
            assert _named(probe, "haproxy") == haproxy
            probe.scale(4)
            probe.wait(lambda: probe.available() == 4)
            probe.scale(3)
            probe.wait(lambda: len(probe.report()["replicas"]) == 3)
            probe.wait(lambda: COUNTED in probe.client.get("/metrics").text)
    finally:
        statuses = load.stop()
    assert set(statuses) == {200}
    assert probe.report()["invocations"] == statuses.total()
    assert probe.report()["violations"] == 0


@pytest.mark.live
def test_a_replica_that_joined_while_its_control_plane_died_is_found_to_have_joined(probe: GatewayProcess) -> None:
    probe.deploy()
    probe.stop(signal.SIGKILL)
    file = probe.folder / "gateway.json"
    record = msgspec.json.decode(file.read_bytes())
    record["functions"]["probe"]["replicas"]["probe-1"].update(phase="started", placed=False)  # before it was known
    file.write_bytes(msgspec.json.encode(record))
    probe.start()
    probe.wait(lambda: probe.available() == 1)
    assert probe.call().status_code == 200 and list(probe.report()["replicas"]) == ["probe-1"]


@pytest.mark.live
def test_an_haproxy_that_died_is_started_again_and_no_busy_replica_gets_a_second_request(
    probe: GatewayProcess,
) -> None:
    probe.deploy(replicas=1)
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(probe.call, "sleep:8")
        probe.wait(lambda: probe.report()["in_flight"] == 1)
        for pid in _named(probe, "haproxy"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            cut.result()
    probe.wait(probe._answers)
    probe.wait(lambda: probe.call().status_code == 200)
    assert probe.report()["violations"] == 0
    assert probe.report()["invocations"] >= 2


@pytest.mark.live
def test_redis_away_is_503_and_malformed_json_400_of_a_replica_that_goes_on(probe: GatewayProcess) -> None:
    probe.deploy("store", redis_url="redis://127.0.0.1:1/0")
    answer = probe.call(content=b'{"sha256": "ab", "pdf": {"inline": "aGk="}}', name="store")
    assert (answer.status_code, answer.json()["error"]) == (503, "Redis is away (ConnectionError): try again")
    answer = probe.call(content=b'{"sha256": "ab"', name="store")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the body is not JSON")


@pytest.mark.live
def test_a_handler_that_cannot_be_imported_is_told(probe: GatewayProcess) -> None:
    probe.client.post("/system/functions", json={"service": "broken", "image": "penstock/broken"})
    probe.wait(lambda: "this handler was never finished" in probe.report("broken")["trouble"])
    assert probe.call(name="broken").status_code == 503


@pytest.mark.live
def test_clients_that_never_send_their_requests_hold_no_replica(probe: GatewayProcess) -> None:
    """Replicas take one request at a time: one whose body never comes would keep its replica from all others."""
    probe.deploy(replicas=1)
    whole = b"POST /function/probe HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + b"x" * 99
    slow = [socket.create_connection(("127.0.0.1", probe.port)) for _ in range(40)]
    try:
        for number, client in enumerate(slow):
            client.sendall(whole[: (0, 10, -99, None)[number % 4]])
        for _ in range(5):
            assert probe.call().status_code == 200
            assert probe.client.get("/system/function/probe").status_code == 200
        slow[3].settimeout(90)
        assert slow[3].recv(12) == b"HTTP/1.1 408"
    finally:
        for client in slow:
            client.close()


def _named(gateway: GatewayProcess, name: str) -> list[int]:
    return [process.pid for process in gateway.left() if process.name() == name]


def _replica_pids(gateway: GatewayProcess) -> list[int]:
    """Children of fork servers."""
    parents = [process for process in gateway.left() if "functions.fork_server" in process.cmdline()]
    pids = {process.pid for process in parents}
    return sorted(process.pid for process in parents if process.ppid() in pids)


def _busy(gateway: GatewayProcess, pid: int) -> bool:
    """Whether it has a connection from HAProxy."""
    connections = psutil.Process(pid).net_connections("tcp")
    return any(connection.status == psutil.CONN_ESTABLISHED for connection in connections)
