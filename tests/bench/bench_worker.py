"""Worker with floor 0 against a bare loop that does the same poll, ledger, produce and commit with the same batch size.

Run as ``python tests/bench/bench_worker.py`` with the services' endpoints in the environment (`penstock env`). Both are
processes of their own on a preloaded topic, in turn, several rounds. Claimed: the worker does ≥ 0.7 of the bare loop.
"""

import argparse
import sys
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from consumers.ledger import Booking, Ledger
from penstock.records import Event, Result, encode, event_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from tests.consumers.observed_run import ObservedRun

CLAIM = 0.7
WARM_UP = 0.2
"""Share of the first results that do not count."""
BATCHES = {1: 4000, 100: 30_000}
"""Events by batch size."""


def bare_loop(directory: Path) -> None:
    """Poll, book, produce with delivery reports, commit what is out; no signature checked, nothing validated, scored or
    paced, no meters, no plan, no care for what goes wrong.
    """
    spec = RunDirectory.open(directory).spec()
    endpoints = Endpoints()
    batch = spec.worker.commit_every
    ledger = Ledger(endpoints.require("redis"), spec.ledger_key)
    producer = Producer({"bootstrap.servers": endpoints.kafka, "acks": "all", "linger.ms": 0})
    out = 0
    handed = 0
    waiting: deque[tuple[int, TopicPartition, int]] = deque()

    def delivered(error: object, message: object) -> None:
        nonlocal out
        out += 1

    consumer = KafkaConsumer(
        spec.events_topic,
        bootstrap_servers=endpoints.kafka,
        group_id=spec.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        check_crcs=False,
        metrics_enabled=False,
        fetch_max_wait_ms=30,
    )
    while True:
        for source, records in consumer.poll(timeout_ms=100, max_records=batch).items():
            received_ns = time.time_ns()
            events = [event_decoder.decode(record.value) for record in records]
            ledger.book([Booking(event.id, event.key, 1, "EUR", 0, False, "bare", received_ns) for event in events])
            for record, event in zip(records, events, strict=True):
                result = bare_result(record, event, received_ns)
                producer.produce(spec.results_topic, encode(result), b"%d" % event.id, on_delivery=delivered)
            handed += len(records)
            waiting.append((handed, source, records[-1].offset + 1))
        producer.poll(0)
        while waiting and waiting[0][0] <= out:
            _, source, offset = waiting.popleft()
            commit(consumer, source, offset)


def bare_result(record: Any, event: Event, received_ns: int) -> Result:
    """The Result a worker would publish."""
    return Result(
        id=event.id,
        run=event.run,
        pipeline=event.pipeline,
        stage="payment",
        outcome="completed",
        queue=f"payments/{record.partition}",
        intended_ns=event.intended_ns,
        sent_ns=event.sent_ns,
        received_ns=received_ns,
        started_ns=received_ns,
        finished_ns=time.time_ns(),
        worker="bare",
    )


def commit(consumer: Any, source: TopicPartition, offset: int) -> None:
    """Without waiting for it."""
    consumer.commit_async({source: OffsetAndMetadata(offset, "", -1)})


def rate(endpoints: Endpoints, batch: int, events: int, *, bare: bool) -> float:
    """Events per second of one process on a preloaded topic of its own."""
    with ObservedRun(
        endpoints, purpose="bench", worker=WorkerSpec(service_time_s=0, commit_every=batch, session_timeout_s=10)
    ) as run:
        run.send(range(events))
        if bare:
            run.commands["bare"] = (sys.executable, __file__, "--bare", str(run.path))
            run.start("bare")
        else:
            run.start("worker")
        finished = np.sort([result.finished_ns for result in islice(run.results(20), events)])
    if len(finished) < events:
        raise SystemExit(f"{'bare loop' if bare else 'worker'}: only {len(finished)} of {events} results came")
    counted = finished[int(WARM_UP * events) :]
    return float((len(counted) - 1) * 1e9 / (counted[-1] - counted[0]))


def main() -> None:
    """Print events/s of both and the ratio, median and range over rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare is not None:
        bare_loop(given.bare)
    endpoints = Endpoints()
    for batch, events in BATCHES.items():
        worker, bare = [], []
        for _ in range(given.rounds):
            worker.append(rate(endpoints, batch, events, bare=False))
            bare.append(rate(endpoints, batch, events, bare=True))
        ratios = np.array(worker) / np.array(bare)
        print(
            f"batch {batch:4d}: worker {np.median(worker):7.0f}/s, bare loop {np.median(bare):7.0f}/s, "
            f"ratio {np.median(ratios):.2f} ({ratios.min():.2f}–{ratios.max():.2f}) over {given.rounds} rounds; "
            f"claimed ≥ {CLAIM}: {'holds' if np.median(ratios) >= CLAIM else 'DOES NOT HOLD'}"
        )


if __name__ == "__main__":
    main()
