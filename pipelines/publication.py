"""Where figures go: Parquet files of the run directory, whole at every instant, and Prometheus gauges."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry, Gauge

from penstock import metrics
from penstock.clock import NANOS_PER_SECOND
from penstock.measures import PERCENTILES, bucket_upper_s
from penstock.rundir import RunDirectory
from pipelines.figures import Figures, ResultColumns, Second, StageFigures

WRITING_SHARE: Final = 0.05
"""Share of the time that may go into rewriting a file that grows with the run."""


def percentile_column(percentile: float) -> str:
    """99.9 → ``p99_9_s``."""
    return f"p{percentile:g}_s".replace(".", "_")


PERCENTILE_COLUMNS: Final = tuple(percentile_column(percentile) for percentile in PERCENTILES)

PER_SECOND_SCHEMA: Final = pa.schema(
    [
        ("stage", pa.string()),
        ("second", pa.int64()),
        ("count", pa.int64()),
        ("failed", pa.int64()),
        ("slo_met", pa.int64()),
        ("slo_share", pa.float64()),
        *((name, pa.float64()) for name in PERCENTILE_COLUMNS),
        ("buckets", pa.list_(pa.int32())),
        ("counts", pa.list_(pa.int64())),
        ("published_ns", pa.int64()),
        ("updated_ns", pa.int64()),
    ]
)
"""One row a second and stage; ``second`` since the epoch, by finishing time. ``buckets``, ``counts``: the histogram.
``published_ns`` (0: not yet) and ``updated_ns`` as in ``pipelines.figures.Second``.
"""

HISTOGRAM_SCHEMA: Final = pa.schema(
    [("stage", pa.string()), ("bucket", pa.int32()), ("upper_s", pa.float64()), ("count", pa.int64())]
)
"""The whole run: bucket, its upper bound, completed events in it."""


def write_table(table: pa.Table, path: Path) -> None:
    """Written beside and moved into place, so that a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    pq.write_table(table, partial, compression="zstd")
    partial.replace(path)


class GrowingFile:
    """A table that is rewritten as it grows, for at most ``WRITING_SHARE`` of the time: in a long run less often."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._again_s = 0.0

    def write(self, build: Callable[[], pa.Table], *, last: bool = False) -> None:
        """Write what ``build`` gives, unless it is too early and there is more to come."""
        began_s = time.monotonic()
        if began_s < self._again_s and not last:
            return
        write_table(build(), self._path)
        ended_s = time.monotonic()
        self._again_s = ended_s + (ended_s - began_s) / WRITING_SHARE


class PerSecondTable:
    """The table of all seconds so far; only rows that changed are computed again."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}

    def build(self, figures: StageFigures) -> pa.Table:
        """Ordered by stage and second."""
        for key, entry in figures.seconds.items():
            row = self._rows.get(key)
            if row is None or (row["published_ns"], row["updated_ns"]) != (entry.published_ns, entry.updated_ns):
                self._rows[key] = _row(*key, entry)
        return pa.Table.from_pylist([self._rows[key] for key in sorted(self._rows)], schema=PER_SECOND_SCHEMA)


def histogram_table(totals: Mapping[str, Figures]) -> pa.Table:
    """Whole-run histogram of each stage, buckets ascending."""
    rows: list[dict[str, Any]] = []
    for stage in sorted(totals):
        buckets, counts = totals[stage].histogram()
        rows.extend(
            {"stage": stage, "bucket": bucket, "upper_s": upper_s, "count": count}
            for bucket, upper_s, count in zip(buckets, bucket_upper_s(buckets), counts, strict=True)
        )
    return pa.Table.from_pylist(rows, schema=HISTOGRAM_SCHEMA)


def _row(stage: str, second: int, entry: Second) -> dict[str, Any]:
    figures = entry.figures
    buckets, counts = figures.histogram()
    percentiles = figures.percentiles_s()
    row = {
        "stage": stage,
        "second": second,
        "count": figures.completed,
        "failed": figures.failed,
        "slo_met": figures.met,
        "slo_share": figures.slo_share,
        "buckets": buckets,
        "counts": counts,
        "published_ns": entry.published_ns,
        "updated_ns": entry.updated_ns,
    }
    if percentiles is not None:
        row |= zip(PERCENTILE_COLUMNS, percentiles.tolist(), strict=True)
    return row


class StageGauges:
    """Gauges of each stage: its newest complete second (``scope="second"``) and the run so far (``scope="run"``)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Gauge(
            metrics.STAGE_EVENTS, "Events completed in the newest complete second", ["stage"], registry=registry
        )
        self._latency = Gauge(
            metrics.STAGE_LATENCY,
            "Latency from intended send time, upper bound of its log bucket",
            ["stage", "scope", "quantile"],
            registry=registry,
        )
        self._share = Gauge(
            metrics.STAGE_SLO_SHARE, "Share of completed events within the SLO", ["stage", "scope"], registry=registry
        )
        self._delay = Gauge(
            metrics.STAGE_PUBLISH_DELAY,
            "From the end of the newest complete second to its figures being out",
            ["stage"],
            registry=registry,
        )

    def show(self, figures: StageFigures) -> None:
        """Set every gauge."""
        for stage, (second, entry) in figures.newest_published().items():
            self._events.labels(stage).set(entry.figures.completed)
            self._delay.labels(stage).set((entry.published_ns - (second + 1) * NANOS_PER_SECOND) / NANOS_PER_SECOND)
            self._show(stage, "second", entry.figures)
        for stage, total in figures.totals.items():
            self._show(stage, "run", total)

    def _show(self, stage: str, scope: str, figures: Figures) -> None:
        values = figures.percentiles_s()
        for index, percentile in enumerate(PERCENTILES):
            value = math.nan if values is None else float(values[index])
            self._latency.labels(stage, scope, f"{percentile / 100:g}").set(value)
        share = figures.slo_share
        self._share.labels(stage, scope).set(math.nan if share is None else share)


class Publication:
    """Figures of a run as they grow: merged under a lock, shown as gauges at once, and written to its directory."""

    def __init__(self, directory: RunDirectory, registry: CollectorRegistry) -> None:
        self._directory = directory
        self._figures = StageFigures()
        self._gauges = StageGauges(registry)
        self._table = PerSecondTable()
        self._file = GrowingFile(directory.per_second_file)
        self._lock = threading.Lock()

    def take(self, batch: int, results: ResultColumns, *, complete_until_ns: int) -> None:
        """Merge a batch (once, however often Spark runs it) and publish."""
        with self._lock:
            self._figures.merge(batch, results)
            self._publish(complete_until_ns)

    def publish(self, complete_until_ns: int) -> None:
        """Publish although nothing came: seconds that are now over are complete."""
        with self._lock:
            if self._figures.incomplete:
                self._publish(complete_until_ns)

    def finish(self) -> None:
        """Everything has been read: write all figures and the whole run's histogram."""
        with self._lock:
            self._publish(time.time_ns(), last=True)
            write_table(histogram_table(self._figures.totals), self._directory.latency_file)

    def _publish(self, complete_until_ns: int, *, last: bool = False) -> None:
        self._figures.publish(time.time_ns(), complete_until_ns)
        self._gauges.show(self._figures)
        self._file.write(lambda: self._table.build(self._figures), last=last)
