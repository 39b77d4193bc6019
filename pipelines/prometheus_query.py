"""The query that brings Prometheus' series of a run (replicas, lag, arrival rates, decisions) into its directory."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock import metrics
from penstock.errors import PenstockError
from pipelines.prometheus_source import PrometheusSource, RangeReader, Row, options_of
from pipelines.publication import GrowingFile
from pipelines.results_query import RestartableQuery

TRIGGER: Final = "5 seconds"
RESTART_S: Final = 30.0

SERIES: Final = {
    "replicas": (metrics.REPLICAS, ("fleet", "phase")),
    "desired_replicas": (metrics.REPLICAS_DESIRED, ("fleet", "scaler")),
    "holding": (metrics.HOLDING, ("fleet", "scaler", "cause")),
    "lag": (metrics.LAG, ("fleet", "partition")),
    "arrival_rate": (metrics.ARRIVAL_RATE, ("fleet", "partition")),
    "plan_epoch": (metrics.PLAN_EPOCH, ("fleet",)),
}
"""Name in the file → metric, and the labels that are kept of it."""

SERIES_SCHEMA: Final = pa.schema(
    {"metric": pa.string(), "labels": pa.map_(pa.string(), pa.string()), "at_ns": pa.int64(), "value": pa.float64()}
)


def queries_of(run: str) -> dict[str, str]:
    """PromQL of each series of one run: a restarted process is a new target, and continues the same series."""
    return {
        name: f'max by ({", ".join(labels)}) ({metric}{{run="{run}"}})' for name, (metric, labels) in SERIES.items()
    }


class PrometheusQuery:
    """Keeps ``path`` up to date with a run's ``SERIES``, one row an instant and series. It never fails a run."""

    def __init__(self, spark: SparkSession, *, url: str, run: str, path: Path, folder: Path, start_ns: int) -> None:
        self._url = url
        self._queries = queries_of(run)
        self._file = GrowingFile(path)
        self._start_ns = start_ns
        self._rows: dict[tuple[str, tuple[tuple[str, str], ...], int], float] = {}
        self._restart_after_s = 0.0
        spark.dataSource.register(PrometheusSource)
        options = options_of(url, self._queries, start_ns=start_ns)
        stream = spark.readStream.format(PrometheusSource.name()).options(**options).load()
        self._query = RestartableQuery("prometheus", stream, self._take, trigger=TRIGGER, folder=folder)

    def start(self, stop: threading.Event) -> None:
        """Begin; return once Prometheus has been asked for the first time (or ``stop`` is set)."""
        self._query.start(stop)

    def _take(self, batch: DataFrame, number: int) -> None:  # noqa: ARG002
        """Rows are keyed by series and instant: a batch that is run again changes nothing."""
        self._keep(tuple(row) for row in batch.collect())
        self._file.write(self._table)

    def _keep(self, rows: Iterable[Row]) -> None:
        for metric, labels, at_ns, value in rows:
            self._rows[metric, tuple(sorted(labels.items())), at_ns] = value

    def _table(self) -> pa.Table:
        columns = list(zip(*((*key, value) for key, value in sorted(self._rows.items())), strict=True)) or [()] * 4
        return pa.table(dict(zip(SERIES_SCHEMA.names, columns, strict=True)), schema=SERIES_SCHEMA)

    def watch(self) -> None:
        """Begin the query again if it ended, but not all the time; what it read so far stays."""
        now_s = time.monotonic()
        if not self._query.active and now_s > self._restart_after_s:
            self._restart_after_s = now_s + RESTART_S
            self._query.again()

    def finish(self) -> None:
        """Stop, read what came since the last batch, write."""
        self._query.stop()
        newest_ns = max((at_ns for _, _, at_ns in self._rows), default=self._start_ns)
        try:
            self._keep(RangeReader(self._url, self._queries, settle_s=0).read(newest_ns // 1_000_000)[0])
        except PenstockError as error:
            print(f"pipelines: {error}", flush=True)  # noqa: T201
        self._file.write(self._table, last=True)
