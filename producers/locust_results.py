"""Reads a run's results and hands them to Locust: ``python -m producers.locust_results --run DIR``.

One line of JSON (``Batch``) a second and stage on standard output. SIGTERM: read what is there, then end.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.measures import histogram
from penstock.records import Result, result_decoder
from penstock.rundir import RunDirectory
from penstock.settings import Endpoints
from producers.locust_messages import Batch, in_lines, tell

FLUSH_S: Final = 0.5
LAST_S: Final = 1.0
"""After SIGTERM, nothing new for this long means that everything was read."""
LOOK_S: Final = 10.0


class Batches:
    """Terminal results by stage and second, each event once (its earliest result here is the first one read)."""

    def __init__(self, slo_s: float) -> None:
        self._slo_ns = round(slo_s * NANOS_PER_SECOND)
        self._seen: set[int] = set()
        self._results: dict[tuple[str, int], list[Result]] = {}

    def add(self, result: Result) -> None:
        """Count a result, unless its event has one already."""
        if not result.terminal or (result.id is not None and result.id in self._seen):
            return
        if result.id is not None:
            self._seen.add(result.id)
        self._results.setdefault((result.stage, result.finished_ns // NANOS_PER_SECOND), []).append(result)

    def drain(self) -> Iterator[Batch]:
        """Everything since the last time."""
        results, self._results = self._results, {}
        for (stage, second), found in sorted(results.items(), key=lambda item: item[0]):
            yield from batches_of(stage, second, found, self._slo_ns)


def batches_of(stage: str, second: int, results: Iterable[Result], slo_ns: int) -> Iterator[Batch]:
    """The histogram of one second of a stage, in pieces; all that is not the histogram is in the first of them."""
    latencies, failed = [], 0
    for result in results:
        if result.outcome == "completed" and result.intended_ns is not None:
            latencies.append(result.finished_ns - result.intended_ns)
        else:
            failed += 1
    if not latencies:
        yield Batch(stage, second, failed=failed)
        return
    latency_s = np.asarray(latencies) / NANOS_PER_SECOND
    least_s, most_s = float(latency_s.min()), float(latency_s.max())
    first = True
    for buckets, counts in in_lines(*histogram(latency_s)):
        batch = Batch(stage, second, buckets, counts, least_s=least_s, most_s=most_s)
        if first:
            missed = sum(latency > slo_ns for latency in latencies)
            batch = msgspec.structs.replace(batch, sum_s=float(latency_s.sum()), missed=missed, failed=failed)
        yield batch
        first = False


class Reader:
    """Reads the results topic from its beginning: the topic is the run's own."""

    def __init__(self, directory: RunDirectory, bootstrap: str) -> None:
        spec = directory.spec()
        self._batches = Batches(spec.slo_s)
        self._stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{spec.run}.locust",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        try:
            partitions = self._consumer.list_topics(spec.results_topic, timeout=LOOK_S).topics[spec.results_topic]
        except KafkaException as error:
            raise PenstockError(f"Kafka does not answer ({error.args[0].str()})") from None
        self._consumer.assign([TopicPartition(spec.results_topic, each, 0) for each in partitions.partitions])

    def stop(self, *_: object) -> None:
        """Read what is there, then end. Takes what a signal handler is given."""
        self._stopping = True

    def run(self) -> None:
        """Tell batches until stopped."""
        told_s = news_s = time.monotonic()
        while not (self._stopping and time.monotonic() - news_s > LAST_S):
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is None:
                    news_s = time.monotonic()
                    self._batches.add(result_decoder.decode(message.value() or b""))
            if time.monotonic() - told_s >= FLUSH_S:
                told_s = time.monotonic()
                self._tell()
        self._tell()
        self._consumer.close()

    def _tell(self) -> None:
        for batch in self._batches.drain():
            tell(batch)


def main() -> None:
    """Entry point: an error in one line on standard error and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m producers.locust_results", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory with its run.json")
    arguments = parser.parse_args()
    try:
        reader = Reader(RunDirectory.open(arguments.run), Endpoints().require("kafka"))
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us says when
    signal.signal(signal.SIGTERM, reader.stop)
    reader.run()


if __name__ == "__main__":
    main()
