"""The query over a run's results topic: parse and measure each result in Spark, hand each micro-batch to a sink.

Stateless on purpose. Keeping the deduplication as state in Spark was measured at up to twice the CPU, taken from the
very workers whose latencies are measured (and a watermark would make late results a matter of luck).
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from pipelines.columns import bucket_of, is_completed, is_of_run, parse_results, seconds
from pipelines.figures import NO_LATENCY, ResultColumns
from pipelines.publication import Publication

TRIGGER: Final = "1 second"
VISIBLE_NS: Final = NANOS_PER_SECOND // 10
"""A result may reach the topic this long after it was finished; a second counts as complete only that much later."""
IDLE_S: Final = 2.0
"""Without a batch for this long, the topic has nothing new."""
GIVE_UP_S: Final = 120.0
"""A query that fails again and again, without one good trigger in between, is given up after this."""

KAFKA_OPTIONS: Final = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    "fetchOffset.numRetries": "20",
    "fetchOffset.retryIntervalMs": "500",
    "kafka.reconnect.backoff.max.ms": "500",
    "kafkaConsumer.pollTimeoutMs": "30000",
}
"""The topic is the run's own and keeps everything. A broker that is away for seconds is waited for by the client."""


Take = Callable[[DataFrame, int], None]
"""Receiver of a query's batches, each with its number."""


class RestartableQuery:
    """A streaming query of ``stream`` that continues from its checkpoint in ``folder`` when it is begun again."""

    def __init__(self, name: str, stream: DataFrame, take: Take, *, trigger: str, folder: Path) -> None:
        writer = stream.writeStream.queryName(name).trigger(processingTime=trigger).foreachBatch(take)
        self._writer = writer.option("checkpointLocation", str(folder / name))
        self._name = name
        self._query: StreamingQuery | None = None

    @property
    def active(self) -> bool:
        """Whether it runs."""
        return self._query is not None and self._query.isActive

    @property
    def waiting(self) -> bool:
        """Whether it has seen all its source offered, and waits for its next trigger or for data."""
        return self._query is not None and str(self._query.status["message"]).startswith("Waiting for")

    @property
    def failure(self) -> str:
        """Why it ended, in one line."""
        failure = self._query.exception() if self._query else None
        return str(failure).strip().splitlines()[0] if failure else "it ended by itself"

    def start(self, stop: threading.Event) -> None:
        """Begin; return once the source has been asked for the first time, or the query ended, or ``stop`` is set."""
        self._query = self._writer.start()
        while self.active and not stop.wait(0.1):
            if self._query.lastProgress or self.waiting:
                return

    def again(self) -> None:
        """Begin again."""
        print(f"pipelines: {self._name} query begins again from its checkpoint: {self.failure}", flush=True)  # noqa: T201
        self._query = self._writer.start()

    def drain(self, timeout_s: float) -> bool:
        """Process all there is; False if the query failed or the time was too short."""
        if not self.active:
            self._query = self._writer.start()
        query, done = self._query, threading.Event()
        assert query is not None

        def wait() -> None:
            with suppress(StreamingQueryException):
                query.processAllAvailable()
                done.set()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        thread.join(timeout_s)
        return done.is_set()

    def stop(self) -> None:
        """Stop, if it was started."""
        if self._query is not None:
            stop_between_batches(self._query)


def stop_between_batches(query: StreamingQuery, patience_s: float = 3.0) -> None:
    """Stop a query while it waits for its next trigger: one that is interrupted in a batch logs an error."""
    deadline_s = time.monotonic() + patience_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(0.02)
    query.stop()


def measured_results(raw: DataFrame, run: str, scheduled: int, slo_s: float) -> DataFrame:
    """Terminal Results of the ``scheduled`` events of ``run`` in the ``value`` of Kafka records, measured: the columns
    of ``ResultColumns``.

    All other records are left out; a Result without latency (not completed) has bucket ``NO_LATENCY``.
    """
    latency_s = seconds(sql.col("finished_ns") - sql.col("intended_ns"))
    completed = is_completed(sql.col("outcome"), sql.col("intended_ns"))
    return (
        parse_results(raw)
        .where(sql.col("terminal") & is_of_run(run, scheduled))
        .where(sql.col("stage").isNotNull() & sql.col("finished_ns").isNotNull())
        .select(
            "stage",
            sql.col("id").alias("event_id"),
            "finished_ns",
            sql.when(completed, bucket_of(latency_s)).otherwise(NO_LATENCY).alias("bucket"),
            (completed & (latency_s <= slo_s)).alias("met"),
        )
    )


def to_columns(measured: DataFrame) -> ResultColumns:
    """Run the query and bring its rows here, column by column."""
    table = measured.toArrow()
    stage, event_id, finished_ns, bucket, met = (column.to_numpy() for column in table.columns)
    return ResultColumns(stage, event_id, finished_ns, bucket, met)


class ResultsQuery:
    """Structured Streaming over the topic of ``run`` (of ``scheduled`` events) into ``sink``, begun again from its
    checkpoint where it fails.
    """

    def __init__(
        self, spark: SparkSession, sink: Publication, *, bootstrap: str, run: RunSpec, scheduled: int, folder: Path
    ) -> None:
        self._sink = sink
        self._topic = run.results_topic
        options = {**KAFKA_OPTIONS, "kafka.bootstrap.servers": bootstrap, "subscribe": self._topic}
        records = spark.readStream.format("kafka").options(**options).load()
        stream = measured_results(records, run.run, scheduled, run.slo_s)
        self._query = RestartableQuery("results", stream, self._take, trigger=TRIGGER, folder=folder)
        self._read_until_ns = 0
        self._batch_s = time.monotonic()
        self._failing_since_s: float | None = None

    def start(self, stop: threading.Event) -> None:
        """Begin with the topic's first record; return once the topic has been looked at (or ``stop`` is set).

        Raises PenstockError where it cannot be read.
        """
        self._query.start(stop)
        if not self._query.active:
            raise PenstockError(f"topic {self._topic} cannot be read: {self._query.failure}")

    def _take(self, batch: DataFrame, number: int) -> None:
        self._sink.take(number, to_columns(batch), complete_until_ns=self._read_until_ns)
        # The next batch looks up the end of the topic after this instant.
        self._read_until_ns = time.time_ns() - VISIBLE_NS
        self._batch_s = time.monotonic()

    def watch(self) -> bool:
        """Look after the query: begin it again if it ended. Whether the topic had nothing new for ``IDLE_S``.

        Raises PenstockError when it keeps failing.
        """
        now_s = time.monotonic()
        if not self._query.active:
            self._failing_since_s = self._failing_since_s or now_s
            if now_s - self._failing_since_s > GIVE_UP_S:
                reason = f"no results could be read for {GIVE_UP_S:g} s: {self._query.failure}"
                raise PenstockError(f"topic {self._topic}: {reason}")
            self._query.again()
            return False
        if not self._query.waiting:
            return False
        self._failing_since_s = None
        return now_s - self._batch_s > IDLE_S

    def finish(self, timeout_s: float) -> bool:
        """Read what the topic holds now and stop; whether that was done in time."""
        deadline_s = time.monotonic() + timeout_s
        finished = False
        while not finished and (left_s := deadline_s - time.monotonic()) > 0:
            finished = self._query.drain(left_s)
        self._query.stop()
        return finished
