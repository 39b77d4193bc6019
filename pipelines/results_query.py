"""The query over a run's results topic: parse and measure each result in Spark, hand each micro-batch to a sink.

Stateless on purpose. Keeping the deduplication as state in Spark was measured at up to twice the CPU, taken from the
very workers whose latencies are measured (and a watermark would make late results a matter of luck).
"""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from pipelines.columns import bucket_of, is_completed, parse_results, seconds
from pipelines.figures import NO_LATENCY, ResultColumns

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


class Sink(Protocol):
    """Where a query puts what it found."""

    def take(self, batch: int, results: ResultColumns, *, complete_until_ns: int) -> None:
        """Results of one batch; everything finished before ``complete_until_ns`` has then been read."""
        ...


def measured_results(raw: DataFrame, slo_s: float) -> DataFrame:
    """Terminal Results in the ``value`` of Kafka records, measured: the columns of ``ResultColumns``.

    A text that is no Result is left out; a Result without latency (not completed) has bucket ``NO_LATENCY``.
    """
    latency_s = seconds(sql.col("finished_ns") - sql.col("intended_ns"))
    completed = is_completed(sql.col("outcome"), sql.col("id"), sql.col("intended_ns"))
    return (
        parse_results(raw)
        .where(sql.col("terminal") & sql.col("stage").isNotNull() & sql.col("finished_ns").isNotNull())
        .select(
            "stage",
            sql.coalesce("id", sql.lit(-1)).alias("event_id"),
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
    """Structured Streaming over one topic, begun again from its checkpoint where it fails."""

    def __init__(
        self, spark: SparkSession, sink: Sink, *, bootstrap: str, topic: str, slo_s: float, folder: Path
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._topic = topic
        self._options = {**KAFKA_OPTIONS, "kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        self._slo_s = slo_s
        self._checkpoint = folder / "results"
        self._query: StreamingQuery | None = None
        self._read_until_ns = 0
        self._batch_s = time.monotonic()
        self._failing_since_s: float | None = None

    def start(self, stop: threading.Event) -> None:
        """Begin with the topic's first record; return once the topic has been looked at (or ``stop`` is set).

        Raises PenstockError where it cannot be read.
        """
        self._query = self._begin()
        await_first_trigger(self._query, stop)
        if not self._query.isActive:
            raise PenstockError(f"topic {self._topic} cannot be read: {failure_of(self._query)}")

    def _begin(self) -> StreamingQuery:
        """From the beginning, or from the checkpoint where there is one."""
        raw = self._spark.readStream.format("kafka").options(**self._options).load()
        return (
            measured_results(raw, self._slo_s)
            .writeStream.trigger(processingTime=TRIGGER)
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("results")
            .foreachBatch(self._take)
            .start()
        )

    def _take(self, batch: DataFrame, number: int) -> None:
        self._sink.take(number, to_columns(batch), complete_until_ns=self._read_until_ns)
        # The next batch looks up the end of the topic after this instant.
        self._read_until_ns = time.time_ns() - VISIBLE_NS
        self._batch_s = time.monotonic()

    def watch(self) -> bool:
        """Look after the query: begin it again if it ended. Whether the topic had nothing new for ``IDLE_S``.

        Raises PenstockError when it keeps failing.
        """
        if self._query is None or not self._query.isActive:
            self._restart()
            return False
        if not is_waiting(self._query):
            return False
        self._failing_since_s = None
        return time.monotonic() - self._batch_s > IDLE_S

    def _restart(self) -> None:
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        reason = failure_of(self._query)
        if now_s - self._failing_since_s > GIVE_UP_S:
            raise PenstockError(f"topic {self._topic}: no results could be read for {GIVE_UP_S:g} s: {reason}")
        print(f"pipelines: results query begins again from its checkpoint: {reason}", flush=True)  # noqa: T201
        self._query = self._begin()

    def finish(self, timeout_s: float) -> bool:
        """Read what the topic holds now and stop; whether that was done in time."""
        deadline_s = time.monotonic() + timeout_s
        finished = False
        while not finished and (left_s := deadline_s - time.monotonic()) > 0:
            if self._query is None or not self._query.isActive:
                self._query = self._begin()
            finished = _drain(self._query, left_s)
        if self._query is not None:
            stop_between_batches(self._query)
        return finished


def _drain(query: StreamingQuery, timeout_s: float) -> bool:
    """Wait until a query has processed all there is; False if it failed or the time was too short."""
    done = threading.Event()

    def wait() -> None:
        with suppress(StreamingQueryException):
            query.processAllAvailable()
            done.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return done.is_set()


def is_waiting(query: StreamingQuery) -> bool:
    """Whether a query has seen all its source offered, and waits for its next trigger or for data."""
    return str(query.status["message"]).startswith("Waiting for")


def await_first_trigger(query: StreamingQuery, stop: threading.Event) -> None:
    """Return once a query has asked its source for the first time, or ended, or ``stop`` is set."""
    while query.isActive and not stop.wait(0.1):
        if query.lastProgress or is_waiting(query):
            return


def stop_between_batches(query: StreamingQuery, patience_s: float = 3.0) -> None:
    """Stop a query while it waits for its next trigger: one that is interrupted in a batch tells it as an error."""
    deadline_s = time.monotonic() + patience_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
        time.sleep(0.02)
    query.stop()


def failure_of(query: StreamingQuery | None) -> str:
    """Why a query ended, in one line."""
    failure = query.exception() if query else None
    return str(failure).strip().splitlines()[0] if failure else "it ended by itself"
