"""What the pipeline manager adds to each hop at 100 requests/s, beside a bare httpx loop that makes the same calls.

Run as ``python tests/bench/bench_dataflow.py`` with the services' endpoints in the environment (`penstock env`). A
chain of four functions of 5 ms, served by one process that does nothing else. A hop begins with the answer of the
function before (the first one with the request's arrival in the manager, or with the call) and ends with its own, so
that a request's hops add up to its time in the pipeline: queue, call and what is done between two calls, with Kafka,
Redis and snapshots going on around it. Of both the floor of 5 ms is taken off; the server's own lateness stays in.
Claimed: p50 of the manager ≤ 2 ms a hop.
"""

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from infra.local.ports import free_port
from infra.local.service import listens
from penstock.adapters.topics import admin_client, create_topics, delete_topics
from penstock.function_messages import FunctionReport
from penstock.records import Event, encode, result_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.signing import Signer
from penstock.systems import FunctionSpec, FunctionSystem

CLAIM_S = 0.002
FLOOR_S = 0.005
FUNCTIONS = ("one", "two", "three", "four")
REPLICAS = 16
WARM_UP = 0.2
"""Share of the first requests that do not count."""
BODY = b'{"text": "' + b"x" * 200 + b'"}'


# --- the functions ---------------------------------------------------------------------------------------------------


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every call after the floor with what it was sent."""
    loop = asyncio.get_running_loop()
    reports = msgspec.json.encode(
        [FunctionReport(name=name, replicas=dict.fromkeys(map(str, range(REPLICAS)), "joined")) for name in FUNCTIONS]
    )
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            due_s = None
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            body = await reader.readexactly(length)
            if head.startswith(b"GET"):
                body = reports
            else:
                due_s = loop.time() + FLOOR_S
            if due_s is not None:
                await asyncio.sleep(due_s - loop.time())
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    writer.close()


async def serve_functions(port: int) -> None:
    """All functions, as many at a time as are called."""
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


# --- the bare loop ---------------------------------------------------------------------------------------------------


async def bare_loop(port: int, rate_per_s: float, seconds: float) -> None:
    """Calls the four functions one after the other for each request; prints the hops' times in ns."""
    hops: list[int] = []
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", trust_env=False, limits=httpx.Limits(), timeout=60.0
    ) as client:

        async def request() -> None:
            body, before_ns = BODY, time.time_ns()
            for name in FUNCTIONS:
                body = (await client.post(f"/function/{name}", content=body)).content
                finished_ns = time.time_ns()
                hops.append(finished_ns - before_ns)
                before_ns = finished_ns

        began_s = time.monotonic()
        running = []
        for number in range(int(rate_per_s * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / rate_per_s - time.monotonic()))
            running.append(asyncio.ensure_future(request()))
        await asyncio.gather(*running)
    print(*hops)


# --- the manager -----------------------------------------------------------------------------------------------------


def managed(endpoints: Endpoints, port: int, rate_per_s: float, seconds: float) -> tuple[list[int], float]:
    """Hops' times in ns and the manager's CPU seconds."""
    spec = RunSpec(
        run=f"bench-{secrets.token_hex(4)}",
        experiment="bench",
        world="local",
        scaler=ScalerSpec(name="rps"),
        duration_s=seconds,
        partitions=1,
        pipeline="bench",
        initial_replicas=REPLICAS,
        system=FunctionSystem(
            functions=tuple(
                FunctionSpec(name=name, service_time_s=FLOOR_S, after=FUNCTIONS[max(0, i - 1) : i])
                for i, name in enumerate(FUNCTIONS)
            ),
            deadline_s=1.0,
        ),
    )
    admin = admin_client(endpoints.kafka)
    create_topics(admin, {spec.events_topic: 1, spec.results_topic: 1})
    try:
        with tempfile.TemporaryDirectory() as folder:
            directory = RunDirectory(Path(folder))
            directory.write(directory.spec_file, spec)
            command = [sys.executable, "-m", "functions.dataflow", "--run", folder]
            env = {**os.environ, "PENSTOCK_GATEWAY": f"http://127.0.0.1:{port}"}
            with child(command, env) as process:
                wait(lambda: (directory.path / "dataflow-ready").exists(), "the manager")
                before_s = cpu_s(process)
                send(endpoints, spec, rate_per_s, seconds)
                hops = collect(endpoints, spec, int(rate_per_s * seconds) * len(FUNCTIONS))
                return hops, cpu_s(process) - before_s
    finally:
        delete_topics(admin, [spec.events_topic, spec.results_topic])


def send(endpoints: Endpoints, spec: RunSpec, rate_per_s: float, seconds: float) -> None:
    """Open loop."""
    signer = Signer(endpoints.signing_key_bytes(), spec.run)
    producer = Producer({"bootstrap.servers": endpoints.kafka, "linger.ms": 0})
    began_s = time.monotonic()
    for number in range(int(rate_per_s * seconds)):
        time.sleep(max(0.0, began_s + number / rate_per_s - time.monotonic()))
        now_ns = time.time_ns()
        event = Event(
            id=number, run=spec.run, pipeline=spec.pipeline, key="k", intended_ns=now_ns, sent_ns=now_ns,
            payload=msgspec.Raw(BODY), mac=signer.sign(number, BODY),
        )  # fmt: skip
        producer.produce(spec.events_topic, encode(event))
        producer.poll(0)
    producer.flush(30)


def collect(endpoints: Endpoints, spec: RunSpec, count: int) -> list[int]:
    """From one answer to the next, in the order of the Results: those of one request come in the order of its way."""
    consumer = Consumer({"bootstrap.servers": endpoints.kafka, "group.id": f"{spec.run}.bench"})
    consumer.assign([TopicPartition(spec.results_topic, 0, 0)])
    hops: list[int] = []
    before_ns: dict[int | None, int] = {}
    until_s = time.monotonic() + 60
    while len(hops) < count:
        if time.monotonic() > until_s:
            raise SystemExit(f"only {len(hops)} of {count} results came")
        for message in consumer.consume(1000, timeout=0.2):
            if message.error() is None:
                result = result_decoder.decode(message.value() or b"")
                hops.append(result.finished_ns - before_ns.get(result.id, result.received_ns))
                before_ns[result.id] = result.finished_ns
    consumer.close()
    return hops


# --- both ------------------------------------------------------------------------------------------------------------


@contextmanager
def child(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    process = subprocess.Popen(command, env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds so far."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def wait(condition: object, what: str) -> None:
    """Until it holds."""
    assert callable(condition)
    until_s = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until_s:
            raise SystemExit(f"{what} did not start within 60 s")
        time.sleep(0.05)


def bare(port: int, rate_per_s: float, seconds: float) -> tuple[list[int], float]:
    """Hops' times in ns and the loop's CPU seconds, interpreter and imports included."""
    command = [sys.executable, __file__, "--bare", str(port), "--rate", str(rate_per_s), "--seconds", str(seconds)]
    before = os.times()
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    after = os.times()
    spent_s = after.children_user + after.children_system - before.children_user - before.children_system
    return [int(each) for each in printed.split()], spent_s


def main() -> None:
    """Print p50 and p99 of the overhead of a hop, median over rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--functions", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.functions is not None:
        asyncio.run(serve_functions(given.functions))
    if given.bare is not None:
        asyncio.run(bare_loop(given.bare, given.rate, given.seconds))
        return
    endpoints, port = Endpoints(), free_port()
    found: dict[str, list[tuple[float, float, float]]] = {"manager": [], "bare httpx": []}
    with child([sys.executable, __file__, "--functions", str(port)], dict(os.environ)):
        wait(lambda: listens(port), "the functions")
        for _ in range(given.rounds):
            for who, (hops, spent_s) in (
                ("manager", managed(endpoints, port, given.rate, given.seconds)),
                ("bare httpx", bare(port, given.rate, given.seconds)),
            ):
                counted = np.sort(np.asarray(hops[int(WARM_UP * len(hops)) :]) / 1e9 - FLOOR_S)
                p50, p99 = (float(counted[int(q * (len(counted) - 1))]) for q in (0.5, 0.99))
                found[who].append((p50, p99, spent_s / len(hops)))
    for who, rounds in found.items():
        p50, p99, cpu = (float(np.median([each[i] for each in rounds])) for i in range(3))
        lowest, highest = min(each[0] for each in rounds), max(each[0] for each in rounds)
        print(
            f"{who:10s}: p50 {p50 * 1e3:.2f} ms a hop ({lowest * 1e3:.2f}–{highest * 1e3:.2f} over {given.rounds} "
            f"rounds), p99 {p99 * 1e3:.2f} ms, {cpu * 1e3:.2f} ms of CPU"
        )
    p50 = float(np.median([each[0] for each in found["manager"]]))
    print(f"claimed ≤ {CLAIM_S * 1e3:g} ms: {'holds' if p50 <= CLAIM_S else 'DOES NOT HOLD'}")


if __name__ == "__main__":
    main()
