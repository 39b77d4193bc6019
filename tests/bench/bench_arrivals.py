"""What reading arrivals by slot costs: CPU of the broker and of the reader, beside a broker that nobody reads.

Run as ``python tests/bench/bench_arrivals.py`` with the services' endpoints in the environment (`penstock env`). The
broker is the process that listens on Kafka's port. Claimed: 20 readings a second of 100 partitions take ≤ 2 % of one
core of the broker. Rounds without and with readings take turns; the median difference and its range are printed.
"""

import argparse
import secrets
import time
from statistics import median

import psutil

from controller.fleets.stream.arrivals import ArrivalSampler
from controller.fleets.stream.offset_reader import OffsetReader
from penstock.adapters.topics import admin_client, create_topics, delete_topics
from penstock.clock import WallClock
from penstock.settings import Endpoints

CLAIM = 0.02


def broker_of(bootstrap: str) -> psutil.Process:
    """The process that listens there."""
    port = int(bootstrap.rpartition(":")[2])
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid is not None:
            return psutil.Process(each.pid)
    raise SystemExit(f"no process listens on {bootstrap}")


def cores(process: psutil.Process, seconds: float) -> float:
    """Cores that a process uses over a time."""
    before, since = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - since)


def main() -> None:
    """Print cores of broker and reader by round, and the difference."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--partitions", type=int, default=100)
    options.add_argument("--seconds", type=float, default=10.0, help="of each half of a round")
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    bootstrap, topic = Endpoints().require("kafka"), f"bench-arrivals-{secrets.token_hex(4)}"
    broker, own, clock = broker_of(bootstrap), psutil.Process(), WallClock()
    admin = admin_client(bootstrap)
    create_topics(admin, {topic: given.partitions})
    reader = OffsetReader(
        bootstrap=bootstrap, topic=topic, group=topic, partitions=given.partitions, clock=clock, timeout_s=0.4
    )
    try:
        reader.read()
        added, reading = [], []
        cores(broker, given.seconds)  # the broker's preparations for the topic
        for round_number in range(given.rounds):
            idle = cores(broker, given.seconds)
            sampler = ArrivalSampler(lambda: reader.ends(0.4, {}), lambda: None, clock)
            sampler.start()
            before, since = own.cpu_times(), time.monotonic()
            busy = cores(broker, given.seconds)
            after = own.cpu_times()
            used = (after.user + after.system - before.user - before.system) / (time.monotonic() - since)
            sampler.close()
            added.append(busy - idle)
            reading.append(used)
            print(f"round {round_number}: broker {idle:.3f} → {busy:.3f} cores, reader {used:.3f} cores", flush=True)
        verdict = "holds" if median(added) <= CLAIM else "does not hold"
        print(
            f"broker: +{median(added):.4f} cores ({min(added):.4f} to {max(added):.4f}) at {given.partitions} "
            f"partitions, ≤ {CLAIM} {verdict}; reader {median(reading):.4f} cores"
        )
    finally:
        reader.close()
        delete_topics(admin, [topic])


if __name__ == "__main__":
    main()
