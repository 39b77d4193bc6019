"""The query that brings Prometheus' series of a run (replicas, lag, arrival rates, decisions) into its directory."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock import metrics
from pipelines.prometheus_source import PrometheusSource, RangeReader, Row, options_of
from pipelines.publication import write_table
from pipelines.results_query import await_first_trigger, failure_of, stop_between_batches

TRIGGER: Final = "5 seconds"
STEP_S: Final = 1.0

SERIES: Final = {
    "replicas": metrics.REPLICAS,
    "desired_replicas": metrics.REPLICAS_DESIRED,
    "lag": metrics.LAG,
    "arrival_rate": metrics.ARRIVAL_RATE,
    "plan_epoch": metrics.PLAN_EPOCH,
    "holding": metrics.HOLDING,
}
"""Name in the file → PromQL."""

SERIES_SCHEMA: Final = pa.schema(
    [
        ("metric", pa.string()),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("at_ns", pa.int64()),
        ("value", pa.float64()),
    ]
)


class PrometheusQuery:
    """Keeps ``path`` up to date with ``SERIES``, one row an instant and series. It never fails a run: see ``watch``."""

    def __init__(self, spark: SparkSession, *, url: str, path: Path, folder: Path, start_ns: int) -> None:
        self._spark = spark
        self._url = url
        self._path = path
        self._checkpoint = folder / "prometheus"
        self._start_ns = start_ns
        self._rows: dict[tuple[str, tuple[tuple[str, str], ...], int], float] = {}
        self._query: StreamingQuery | None = None
        spark.dataSource.register(PrometheusSource)

    def start(self, stop: threading.Event) -> None:
        """Begin; return once Prometheus has been asked for the first time (or ``stop`` is set)."""
        self._query = self._begin()
        await_first_trigger(self._query, stop)

    def _begin(self) -> StreamingQuery:
        """From ``start_ns``, or from the checkpoint where there is one."""
        return (
            self._spark.readStream.format(PrometheusSource.name())
            .options(**options_of(self._url, SERIES, start_ns=self._start_ns, step_s=STEP_S))
            .load()
            .writeStream.trigger(processingTime=TRIGGER)
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("prometheus")
            .foreachBatch(self._take)
            .start()
        )

    def _take(self, batch: DataFrame, number: int) -> None:  # noqa: ARG002
        """Rows are keyed by series and instant: a batch that is run again changes nothing."""
        self._keep(tuple(row) for row in batch.collect())
        self._write()

    def _keep(self, rows: Iterable[Row]) -> None:
        for metric, labels, at_ns, value in rows:
            self._rows[metric, tuple(sorted(labels.items())), at_ns] = value

    def _write(self) -> None:
        columns = list(zip(*((*key, value) for key, value in sorted(self._rows.items())), strict=True)) or [()] * 4
        write_table(pa.table(dict(zip(SERIES_SCHEMA.names, columns, strict=True)), schema=SERIES_SCHEMA), self._path)

    def watch(self) -> None:
        """Begin the query again if it ended; what it read so far stays."""
        if self._query is not None and not self._query.isActive:
            print(f"prometheus query begins again: {failure_of(self._query)}", flush=True)  # noqa: T201
            self._query = self._begin()

    def finish(self) -> None:
        """Stop, read what came since the last batch, write."""
        if self._query is not None:
            stop_between_batches(self._query)
        newest_ns = max((at_ns for _, _, at_ns in self._rows), default=self._start_ns)
        rows, _ = RangeReader(self._url, SERIES, step_s=STEP_S, settle_s=0).read(newest_ns // 1_000_000)
        self._keep(rows)
        self._write()
