"""Reads a run's results for Locust: ``python -m producers.locust_results --run DIR``.

It writes one line of JSON (``Batch``) per second and stage to standard output, and one (``Trouble``) if it ends by an
error. SIGTERM: read to the end, then exit.
It exits at once when its standard input ends: the session that started it has been killed.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from penstock.adapters.kafka import assign_from_start, broker_errors, make_consumer, partitions_of, values
from penstock.clock import NANOS_PER_SECOND
from penstock.measures import histogram
from penstock.process_main import process_parser, run_main
from penstock.records import Result, read_result
from penstock.rundir import RunDirectory
from penstock.schedule import events_scheduled
from penstock.settings import Endpoints
from producers.locust_messages import Batch, Trouble, in_lines, write_message

FLUSH_S: Final = 0.5
LAST_S: Final = 1.0
"""After SIGTERM, no new result for this long means that all were read."""
KAFKA_S: Final = 10.0


STAGE_LENGTH: Final = 100
"""Longer names of stages are cut: a batch has to fit into a line."""
TROUBLE_LENGTH: Final = 500


class Batches:
    """Terminal results of the ``scheduled`` events of ``run`` by stage and second; of each event, the first one."""

    def __init__(self, run: str, scheduled: int, slo_s: float) -> None:
        self._run, self._scheduled = run, scheduled
        self._slo_ns = round(slo_s * NANOS_PER_SECOND)
        self._seen: set[int] = set()
        self._results: dict[tuple[str, int], list[Result]] = {}

    def add(self, result: Result) -> None:
        """Count a result, unless it is of no event of the run or its event has one already."""
        if result.run != self._run or result.id is None or not 0 <= result.id < self._scheduled:
            return
        if not result.terminal or result.id in self._seen:
            return
        self._seen.add(result.id)
        second = result.finished_ns // NANOS_PER_SECOND
        self._results.setdefault((result.stage[:STAGE_LENGTH], second), []).append(result)

    def drain(self) -> Iterator[Batch]:
        """All results since the last call."""
        results, self._results = self._results, {}
        for (stage, second), found in sorted(results.items(), key=lambda item: item[0]):
            yield from batches_of(stage, second, found, self._slo_ns)


def batches_of(stage: str, second: int, results: Iterable[Result], slo_ns: int) -> Iterator[Batch]:
    """The histogram of one second of a stage, in pieces; the other figures are in the first piece."""
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
    missed = sum(latency > slo_ns for latency in latencies)
    of_all: dict[str, Any] = {"sum_s": float(latency_s.sum()), "missed": missed, "failed": failed}
    for buckets, counts in in_lines(*histogram(latency_s)):
        yield Batch(stage, second, buckets, counts, least_s=least_s, most_s=most_s, **of_all)
        of_all = {}


class Reader:
    """Reads the run's results topic from its beginning."""

    def __init__(self, directory: RunDirectory, bootstrap: str) -> None:
        spec = directory.spec()
        self._batches = Batches(spec.run, events_scheduled(directory.schedule_file), spec.slo_s)
        self._stopping = False
        self._consumer = make_consumer(bootstrap, f"{spec.run}.locust", fetch_wait_max_ms=100)
        with broker_errors():
            partitions = partitions_of(self._consumer, spec.results_topic, KAFKA_S)
        assign_from_start(self._consumer, spec.results_topic, partitions)

    def stop(self, *_: object) -> None:
        """Read to the end, then exit. A signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Write batches until stopped."""
        written_s = news_s = time.monotonic()
        while not (self._stopping and time.monotonic() - news_s > LAST_S):
            for value in values(self._consumer.consume(1000, 0.1)):
                news_s = time.monotonic()
                self._batches.add(read_result(value))
            if time.monotonic() - written_s >= FLUSH_S:
                written_s = time.monotonic()
                self._write()
        self._write()
        self._consumer.close()

    def _write(self) -> None:
        for batch in self._batches.drain():
            write_message(batch)


@contextmanager
def errors_told() -> Iterator[None]:
    """Tell Locust of an error that ends the block: its page shows no further result."""
    try:
        yield
    except Exception as error:
        reason = str(error) or type(error).__name__
        write_message(Trouble(f"results are not read any longer: {reason}"[:TROUBLE_LENGTH]))
        raise


def exit_with_session() -> None:
    """Exit when standard input, a pipe of the session, ends."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> int:
    """Entry point; the exit code."""
    given = process_parser("producers.locust_results", __doc__ or "").parse_args()

    @errors_told()
    def work() -> None:
        reader = Reader(RunDirectory.open(given.run), Endpoints().require("kafka"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one by SIGTERM
        signal.signal(signal.SIGTERM, reader.stop)
        threading.Thread(target=exit_with_session, daemon=True).start()
        reader.run()

    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
