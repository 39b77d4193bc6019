"""What the sender costs against a bare confluent-kafka loop, and how punctual it is at 2,000 events/s.

Run as ``python tests/bench/bench_sender.py`` with PENSTOCK_KAFKA set (`penstock up`, then `eval "$(penstock env)"`).
Repetitions alternate, so that whatever else the machine does meets every contender alike; ratios are taken within one.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.clock import NANOS_PER_SECOND
from penstock.records import encode
from penstock.runspec import Arrivals, RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from producers.delivery import SenderFigures, figures_of
from producers.encoding import signed_records
from producers.schedule import make_schedule
from producers.sender import AHEAD, Sender, make_producer
from producers.workloads.synthetic import Constant

PARTITIONS = 5
SIGNING_KEY = bytes(range(32))
PUNCTUAL_PER_S = 2_000.0
LEAD_S = 3.0
"""From a run's preparation to its first event; the local world leaves about as much."""

Contender = Callable[[str, RunSpec, Schedule], float]


def bare_loop_of_ready_records(kafka: str, spec: RunSpec, schedule: Schedule) -> float:
    """Events/s of produce() and delivery reports alone: the signed records were made before the clock started."""
    records = [(record.key, record.value(time.time_ns())) for record in signed_records(spec, schedule, SIGNING_KEY)]
    return _bare(kafka, spec, schedule, iter(records))


def bare_loop_that_signs(kafka: str, spec: RunSpec, schedule: Schedule) -> float:
    """Events/s where the same loop also encodes and signs, one record after the other."""
    signed = signed_records(spec, schedule, SIGNING_KEY)
    return _bare(kafka, spec, schedule, ((record.key, record.value(time.time_ns())) for record in signed))


def sender_that_starts_late(kafka: str, spec: RunSpec, schedule: Schedule) -> float:
    """Events/s of the sender when everything is due already: it makes and signs each record within the time taken."""
    return _rate(_sender(kafka, spec, schedule, 0.0), schedule)


def sender_that_starts_in_time(kafka: str, spec: RunSpec, schedule: Schedule) -> float:
    """Events/s from the intended time on, when the sender had a run's lead before it to make and sign the records."""
    assert len(schedule) <= AHEAD
    return _rate(_sender(kafka, spec, schedule, LEAD_S), schedule)


def _sender(kafka: str, spec: RunSpec, schedule: Schedule, lead_s: float) -> Sender:
    """A connected sender whose run starts so many seconds from now."""
    started = msgspec.structs.replace(spec, start_ns=time.time_ns() + int(lead_s * NANOS_PER_SECOND))
    sending = Sender(started, schedule, SIGNING_KEY, make_producer(kafka, schedule))
    sending.check_topic()
    return sending


def _rate(sending: Sender, schedule: Schedule) -> float:
    began_ns = max(int(sending.log.intended_ns[0]), time.time_ns())
    sending.run()
    took_s = (time.time_ns() - began_ns) / NANOS_PER_SECOND
    assert sending.log.acknowledged == len(schedule)
    return len(schedule) / took_s


def _bare(kafka: str, spec: RunSpec, schedule: Schedule, records: Iterator[tuple[bytes, bytes]]) -> float:
    producer = make_producer(kafka, schedule)
    producer.list_topics(spec.events_topic, timeout=10)
    acknowledged = 0

    def reported(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1

    partitions = schedule.partition.tolist()
    began_s = time.perf_counter()
    for partition, (key, value) in zip(partitions, records, strict=True):
        producer.produce(spec.events_topic, value, key, partition, reported)
        producer.poll(0)
    producer.flush(60)
    took_s = time.perf_counter() - began_s
    assert acknowledged == len(schedule)
    return len(schedule) / took_s


def punctuality(kafka: str, arrivals: Arrivals, seconds: float) -> SenderFigures:
    """The sender's figures at 2,000 events/s."""
    workload = Constant(rate_per_s=PUNCTUAL_PER_S, duration_s=seconds)
    schedule = make_schedule(workload, seed=1, partitions=PARTITIONS, arrivals=arrivals)
    with _topic(kafka, f"bench-sender-{arrivals}-{time.time_ns()}", seconds) as spec:
        sending = _sender(kafka, spec, schedule, LEAD_S)
        sending.run()
        return figures_of(sending.log.table(unsent="not sent"))


def plain_sleep_p99_ms(seconds: float) -> float:
    """Lateness of time.sleep() towards absolute deadlines at the same rate: what this machine allows at best."""
    interval_s = 1 / PUNCTUAL_PER_S
    began_s = time.perf_counter()
    late_s = []
    for event in range(int(seconds * PUNCTUAL_PER_S)):
        deadline_s = began_s + event * interval_s
        while (left_s := deadline_s - time.perf_counter()) > 0:
            time.sleep(left_s)
        late_s.append(time.perf_counter() - deadline_s)
    return float(np.percentile(late_s, 99)) * 1e3


@contextmanager
def _topic(kafka: str, run: str, seconds: float) -> Iterator[RunSpec]:
    """A run's topic, there for as long as it is needed."""
    admin = AdminClient({"bootstrap.servers": kafka})
    spec = RunSpec(
        run=run, experiment="bench", world="local", scaler=ScalerSpec(name="none"), partitions=PARTITIONS,
        duration_s=seconds, start_ns=time.time_ns(),
    )  # fmt: skip
    admin.create_topics([NewTopic(spec.events_topic, PARTITIONS, 1)])[spec.events_topic].result(10)
    try:
        yield spec
    finally:
        admin.delete_topics([spec.events_topic])[spec.events_topic].result(10)


def throughput(kafka: str, events: int, repetitions: int) -> None:
    """Print events/s of each contender and the sender's ratio to the others."""
    at_once = Schedule(
        intended_offset_ns=np.zeros(events, dtype=np.int64),
        partition=(np.arange(events) % PARTITIONS).astype(np.int16),
        duration_s=1.0,
    )
    bare: tuple[Contender, ...] = (bare_loop_of_ready_records, bare_loop_that_signs)
    ours: tuple[Contender, ...] = (sender_that_starts_in_time, sender_that_starts_late)
    contenders = bare + ours
    rates: dict[Contender, list[float]] = {contender: [] for contender in contenders}
    for repetition in range(-1, repetitions):
        with _topic(kafka, f"bench-sender-{time.time_ns()}", 1.0) as spec:
            # The order turns with each repetition; the first one only warms the broker up.
            for turn in range(len(contenders)):
                contender = contenders[(turn + repetition) % len(contenders)]
                rate = contender(kafka, spec, at_once)
                if repetition >= 0:
                    rates[contender].append(rate)
    print(f"{events:,} records of {_record_bytes(spec, at_once)} B, {repetitions} alternating repetitions, events/s")
    for contender in contenders:
        print(f"  {contender.__name__:28s} {_spread(rates[contender], '{:9,.0f}')}")
    for mine, other in zip(ours, bare, strict=True):
        ratios = [one / another for one, another in zip(rates[mine], rates[other], strict=True)]
        print(f"  {mine.__name__} / {other.__name__}: {_spread(ratios, '{:.2f}')}")


def _record_bytes(spec: RunSpec, schedule: Schedule) -> int:
    return len(next(signed_records(spec, schedule, SIGNING_KEY)).value(time.time_ns()))


def _spread(values: list[float], form: str) -> str:
    middle, low, high = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return f"median {middle}  (min {low}, max {high})"


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each punctuality run")
    arguments = parser.parse_args()
    kafka = Endpoints().require("kafka")
    throughput(kafka, arguments.events, arguments.repetitions)
    print(f"{PUNCTUAL_PER_S:,.0f} events/s for {arguments.seconds:g} s")
    print(f"  plain sleep to absolute deadlines: p99 late {plain_sleep_p99_ms(arguments.seconds):.2f} ms")
    for arrivals in ("uniform", "poisson", "burst"):
        print(f"  sender, {arrivals}: {encode(punctuality(kafka, arrivals, arguments.seconds)).decode()}")


if __name__ == "__main__":
    main()
