"""What the gateway adds to a call, measured at the client: added latency and throughput, side by side with calling the
replica directly and with proxy.py, a well-known reverse proxy in Python.

Run as ``python tests/bench/bench_gateway.py``; proxy.py needs ``uv sync --group bench``. Real replicas of a real
function (SHA-256, no floor) behind all three. Contenders take turns, in every other round from behind, so that whatever
else the machine does meets them alike; what is added is the difference of medians within one round. One call at a time
goes to the replicas in turn also where they are called directly, as through a gateway: a replica that has just answered
is warm. Under full load there are as many callers as replicas, and called directly each has its own: what is lost to
that is what a gateway costs a machine on which callers, gateway and replicas share the processors. How often a replica
was given a second request is what the replicas themselves have counted. Claimed: added p50 ≤ 0.3 ms.
"""

import argparse
import importlib.util
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from functions.fork_protocol import BackendState, look
from functions.gateway.backends import SOCKETS
from infra.local.ports import free_port

FUNCTION = "sha256"
PAYLOAD = b'{"document": "' + b"x" * 1000 + b'"}'
CLAIM_MS = 0.3
REPLICAS = 2
READY_S = 60.0
INSTALL = "not installed: uv sync --group bench"

PLUGIN = """\
from proxy.http.server import ReverseProxyBasePlugin

class Replicas(ReverseProxyBasePlugin):
    def routes(self):
        return [(r"/function/{function}$", [{urls}])]
"""


class Caller:
    """A bare HTTP client on one kept connection, so that the client's own part is as small as can be."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = (
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (path.encode(), len(PAYLOAD), PAYLOAD)
        )
        self._connect()

    def call(self) -> int:
        """One request; returns the status. ConnectionError if it was dropped; the next one has a new connection."""
        try:
            return self._exchange()
        except ConnectionError:
            self.close()
            self._connect()
            raise

    def _exchange(self) -> int:
        self._socket.sendall(self._request)
        received = self._receive()
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, content = received.partition(b"\r\n\r\n")
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        while len(content) < length:
            content += self._receive()
        if b"connection: close" in lower:
            self.close()
            self._connect()
        return int(head[9:12])

    def _receive(self) -> bytes:
        received = self._socket.recv(65536)
        if not received:
            raise ConnectionError("closed in mid-answer")
        return received

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _connect(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


Contender = Callable[[int], Caller]
"""Makes the client number n."""


class Load(NamedTuple):
    """Answers with 200 per second, calls that ended otherwise, and second requests that replicas were given."""

    answers_per_s: float
    others: int
    violations: int


def latencies_ms(make: Contender, calls: int) -> list[float]:
    """Sorted times of calls one after the other, taken in turn by as many clients as there are replicas."""
    callers = [make(number) for number in range(REPLICAS)]
    times = []
    for number in range(calls):
        caller = callers[number % REPLICAS]
        began = time.perf_counter()
        status = caller.call()
        times.append((time.perf_counter() - began) * 1000)
        assert status == 200, status
    for caller in callers:
        caller.close()
    return sorted(times)


def full_load(make: Contender, seconds: float, violations: Callable[[], int]) -> Load:
    """As many callers as there are replicas, none of which ever pauses."""
    before = violations()
    until = time.perf_counter() + seconds
    served, others = [0] * REPLICAS, [0] * REPLICAS

    def work(number: int) -> None:
        caller = make(number)
        while time.perf_counter() < until:
            try:
                answered = caller.call() == 200
            except ConnectionError:
                answered = False
            served[number] += answered
            others[number] += not answered
        caller.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(REPLICAS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Load(sum(served) / seconds, sum(others), violations() - before)


@contextmanager
def gateway(state: Path) -> Iterator[int]:
    """A gateway with the function; gives its port."""
    port = free_port()
    with (state / "control.log").open("wb") as log:
        process = subprocess.Popen(
            (sys.executable, "-m", "functions.gateway", "--state", str(state), "--port", str(port)),
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait(lambda: client.get("/healthz").status_code == 200)
            body = {
                "service": FUNCTION,
                "image": f"penstock/{FUNCTION}",
                "labels": {"com.openfaas.scale.min": str(REPLICAS)},
                "annotations": {"com.penstock.queue-limit": "100"},
            }
            client.post("/system/functions", json=body).raise_for_status()
            wait(lambda: client.get(f"/system/function/{FUNCTION}").json()["availableReplicas"] == REPLICAS)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextmanager
def reverse_proxy(folder: Path, ports: Sequence[int]) -> Iterator[int]:
    """proxy.py in front of the same replicas; gives its port."""
    urls = ", ".join(f'b"http://127.0.0.1:{port}/"' for port in ports)
    (folder / "replicas_plugin.py").write_text(PLUGIN.format(function=FUNCTION, urls=urls))
    port = free_port()
    with (folder / "proxy.log").open("wb") as log:
        process = subprocess.Popen(
            (
                *(sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", str(port), "--num-workers", "1"),
                *("--num-acceptors", "1", "--enable-reverse-proxy", "--plugins", "replicas_plugin.Replicas"),
                *("--threaded", "--log-level", "ERROR"),  # its event loop dies of a client that hangs up
            ),
            env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
            stdout=log,
            stderr=log,
        )
    try:
        wait(lambda: httpx.post(f"http://127.0.0.1:{port}/function/{FUNCTION}", trust_env=False).status_code == 200)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def wait(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    until = time.monotonic() + READY_S
    while True:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            sys.exit(f"not ready within {READY_S:g} s")
        time.sleep(0.05)


def brood(state: Path) -> BackendState:
    """The function's replicas, as their fork server tells."""
    (parent,) = (state / SOCKETS).iterdir()
    return look(parent)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=500, help="one after the other, per round and contender")
    parser.add_argument("--seconds", type=float, default=2.0, help="of full load, per round and contender")
    given = parser.parse_args()
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        port = stack.enter_context(gateway(state))
        ports = [replica.port for replica in brood(state).replicas.values()]
        contenders: dict[str, Contender] = {
            "replica, called directly": lambda number: Caller(ports[number], "/"),
            "gateway (HAProxy)": lambda number: Caller(port, f"/function/{FUNCTION}"),
        }
        if importlib.util.find_spec("proxy") is None:
            print(f"proxy.py: {INSTALL}")
        else:
            proxy_port = stack.enter_context(reverse_proxy(state, ports))
            contenders["proxy.py"] = lambda number: Caller(proxy_port, f"/function/{FUNCTION}")
        for make in contenders.values():
            latencies_ms(make, given.calls // 5)
        rounds: list[dict[str, list[float]]] = []
        loads: list[dict[str, Load]] = []
        for number in range(given.rounds):
            turns = list(contenders.items())[:: -1 if number % 2 else 1]
            rounds.append({name: latencies_ms(make, given.calls) for name, make in turns})
            loads.append(
                {name: full_load(make, given.seconds, lambda: brood(state).violations) for name, make in turns}
            )
    report(rounds, loads, list(contenders))


def report(rounds: Sequence[dict[str, list[float]]], loads: Sequence[dict[str, Load]], names: Sequence[str]) -> None:
    """The table, and whether what is claimed holds."""
    print(
        f"{'':26} {'p50':>9} {'p99':>9} {'added p50':>10} {'answers/s':>10} {'share':>6} {'others':>7} "
        f"{'two at once':>12}"
    )
    added_ms = {}
    for name in names:
        middle = statistics.median(found[name][len(found[name]) // 2] for found in rounds)
        tail = statistics.median(found[name][int(len(found[name]) * 0.99)] for found in rounds)
        added_ms[name] = statistics.median(
            found[name][len(found[name]) // 2] - found[names[0]][len(found[names[0]]) // 2] for found in rounds
        )
        per_s = statistics.median(found[name].answers_per_s for found in loads)
        share = statistics.median(found[name].answers_per_s / found[names[0]].answers_per_s for found in loads)
        others, violations = (sum(getattr(found[name], what) for found in loads) for what in ("others", "violations"))
        print(
            f"{name:26} {middle:6.3f} ms {tail:6.3f} ms {added_ms[name]:7.3f} ms {per_s:10.0f} {share:6.0%} {others:7} "
            f"{violations:12}"
        )
    verdict = "holds" if added_ms[names[1]] <= CLAIM_MS else "DOES NOT HOLD"
    print(f"gateway adds {added_ms[names[1]]:.3f} ms at p50 (claimed: at most {CLAIM_MS} ms): {verdict}")


if __name__ == "__main__":
    main()
