"""The forwarder against a bare loop that takes, publishes, waits for the confirm and acknowledges, with the same
prefetch and confirm window.

Run as ``python tests/bench/bench_forwarder.py`` with the services' endpoints in the environment (`penstock env`). Both
are processes of their own on a preloaded main queue and two sub-queues, in turn, several rounds. Claimed: the forwarder
does ≥ 0.9 of the bare loop.
"""

import argparse
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pika
import psutil

from controller.fleets.queue.routing import Routing
from controller.fleets.queue.routing_store import RoutingBoard
from penstock.adapters.amqp import PUBLISHED_NS, Depths, Management, main_queue, sub_queue
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.systems import QueueSystem

CLAIM = 0.9
EVENTS = 20_000
PREFETCH = 100
WARM_UP = 0.2
"""Share of the first events that do not count."""
LOOK_S = 0.01
QUEUES = ("bank-1", "bank-2")


def bare_loop(directory: Path) -> None:
    """Straight on the client library: no draws, no counts, no report, no care for what goes wrong. The two queues take
    turns.
    """
    spec = RunDirectory.open(directory).spec()
    queues = cycle([sub_queue(spec.run, queue) for queue in QUEUES])
    unconfirmed: dict[int, int] = {}
    published = 0

    def opened(channel: Any) -> None:
        def take(_: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal published
            published += 1
            unconfirmed[published] = method.delivery_tag
            channel.basic_publish("", next(queues), body, properties, mandatory=True)

        def confirmed(frame: Any) -> None:
            last = frame.method.delivery_tag
            tags = [tag for tag in unconfirmed if tag <= last] if frame.method.multiple else [last]
            for tag in tags:
                channel.basic_ack(unconfirmed.pop(tag))

        channel.basic_qos(prefetch_count=PREFETCH)
        channel.confirm_delivery(confirmed)
        channel.basic_consume(main_queue(spec.run), take)

    pika.SelectConnection(
        pika.URLParameters(Endpoints().require("rabbitmq")),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
    ).ioloop.start()


def preload(endpoints: Endpoints, directory: RunDirectory, management: Management) -> None:
    """A run of its own, with its events in the main queue."""
    spec = RunSpec(
        run=f"bench-{secrets.token_hex(4)}",
        experiment="bench",
        world="local",
        scaler=ScalerSpec(name="none"),
        duration_s=0,
        system=QueueSystem(service_rate_per_s=1.0, capacity=None),
    )
    directory.write(directory.spec_file, spec)
    for queue in (main_queue(spec.run), *(sub_queue(spec.run, queue) for queue in QUEUES)):
        management.declare_queue(queue)
    RoutingBoard(endpoints.require("redis"), spec.run).route(Routing(1, dict.fromkeys(QUEUES, 0.5)))
    connection = pika.BlockingConnection(pika.URLParameters(endpoints.require("rabbitmq")))
    channel = connection.channel()
    for event_id in range(EVENTS):
        # As a sender does it; the payload's length is that of a signed payment.
        properties = pika.BasicProperties(
            delivery_mode=2, message_id=str(event_id), headers={PUBLISHED_NS: time.time_ns()}
        )
        channel.basic_publish("", main_queue(spec.run), b"x" * 350, properties)
    connection.close()


class Pace(NamedTuple):
    """Of one process: events per second of wall time, and how much of a processor it took for each."""

    per_s: float
    cpu_us: float


def pace(endpoints: Endpoints, *, bare: bool) -> Pace:
    """From a share of the events to the last one in a sub-queue."""
    management = Management(endpoints.require("rabbitmq_management"))
    depths = Depths(endpoints.require("rabbitmq"), "bench")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        directory = RunDirectory(Path(folder))
        preload(endpoints, directory, management)
        run = directory.spec().run
        program = (
            (__file__, "--bare") if bare else ("-m", "controller.fleets.queue.forwarder", "--prefetch", str(PREFETCH))
        )
        process = subprocess.Popen((sys.executable, *program, "--run", folder))
        try:
            return measured(depths, [sub_queue(run, queue) for queue in QUEUES], process)
        finally:
            process.kill()
            process.wait()
            depths.close()
            management.delete_run(run)


def measured(depths: Depths, queues: Sequence[str], process: "subprocess.Popen[bytes]") -> Pace:
    """Watch the sub-queues fill."""
    watched = psutil.Process(process.pid)
    begun: tuple[float, float, int] | None = None
    while process.poll() is None:
        moved, now_s = sum(depths.read(queues).values()), time.monotonic()
        cpu_s = sum(watched.cpu_times()[:2])
        if begun is None and moved >= WARM_UP * EVENTS:
            begun = now_s, cpu_s, moved
        if begun is not None and moved >= EVENTS:
            events = moved - begun[2]
            return Pace(events / (now_s - begun[0]), (cpu_s - begun[1]) / events * 1e6)
        time.sleep(LOOK_S)
    raise SystemExit("it ended before its time")


def main() -> None:
    """Print events/s of both and the ratio, median and range over rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        bare_loop(given.run)
        return
    endpoints = Endpoints()
    paces = np.array(
        [(pace(endpoints, bare=False), pace(endpoints, bare=True)) for _ in range(given.rounds)]
    )  # (round, forwarder or bare loop, events/s or µs)
    (rate, bare_rate), (cpu_us, bare_cpu_us) = np.median(paces, axis=0).T
    ratios = paces[:, 0, 0] / paces[:, 1, 0]
    print(
        f"prefetch {PREFETCH}: forwarder {rate:6.0f}/s, bare loop {bare_rate:6.0f}/s, "
        f"ratio {np.median(ratios):.2f} ({ratios.min():.2f}–{ratios.max():.2f}) over {given.rounds} rounds; "
        f"processor time an event {cpu_us:.0f} µs and {bare_cpu_us:.0f} µs; "
        f"claimed ≥ {CLAIM}: {'holds' if np.median(ratios) >= CLAIM else 'DOES NOT HOLD'}"
    )


if __name__ == "__main__":
    main()
