"""Sinks of the figures: Parquet files of the run directory, replaced as a whole, and Prometheus metrics."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from penstock import metrics
from penstock.clock import NANOS_PER_SECOND
from penstock.measures import PERCENTILE_FIELDS, Ints, bucket_upper_s
from penstock.rundir import RunDirectory
from pipelines.figures import Figures, ResultColumns, Second, StageFigures

WRITING_SHARE: Final = 0.05
"""Share of the time that may go into rewriting a file that grows with the run."""

LATENCY_BUCKETS: Final = np.arange(700, 1880, 20)
LATENCY_BOUNDS: Final = (*(f"{bound:.6g}" for bound in bucket_upper_s(LATENCY_BUCKETS)), "+Inf")
"""Every twentieth log bucket from 1 ms to 110 s, and its upper bound: counts are exact, bounds 22 % apart."""

PER_SECOND_SCHEMA: Final = pa.schema(
    [
        ("stage", pa.string()),
        ("second", pa.int64()),
        ("count", pa.int64()),
        ("failed", pa.int64()),
        ("slo_met", pa.int64()),
        ("slo_share", pa.float64()),
        *((name, pa.float64()) for name in PERCENTILE_FIELDS),
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


def histogram_table(totals: Mapping[str, Figures]) -> pa.Table:
    """Whole-run histogram of each stage, buckets ascending."""
    rows = [
        {"stage": stage, "bucket": bucket, "upper_s": float(bucket_upper_s(bucket)), "count": count}
        for stage in sorted(totals)
        for bucket, count in sorted(totals[stage].counts.items())
    ]
    return pa.Table.from_pylist(rows, schema=HISTOGRAM_SCHEMA)


def _row(stage: str, second: int, entry: Second) -> dict[str, Any]:
    figures, percentiles = entry.figures, entry.figures.percentiles_s()
    buckets, counts = figures.histogram()
    return {
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
        **({} if percentiles is None else dict(zip(PERCENTILE_FIELDS, percentiles.tolist(), strict=True))),
    }


class StageMetrics(Collector):
    """Counters and latency histogram of each stage since the start of the run, so that no second is lost between two
    scrapes. They never fall: an earlier result of an event that is found later moves it only within the files. The
    first scrape of a stage finds zeros: a rate counts from the first value that was scraped, and would lose what the
    stage had by then.
    """

    def __init__(self) -> None:
        self._shown: dict[str, tuple[Ints, float | None]] = {}
        self._scraped: set[str] = set()

    def show(self, figures: StageFigures) -> None:
        """Take in what has been read so far."""
        newest = figures.newest_published()
        shown = {}
        for stage, total in figures.totals.items():
            buckets, counts = total.histogram()
            below = np.append(0, np.cumsum(counts))[np.searchsorted(buckets, LATENCY_BUCKETS, side="right")]
            now = np.array([*below, total.completed, total.met, total.completed + total.failed])
            before, delay_s = self._shown.get(stage, (now, None))
            if stage in newest:
                second, entry = newest[stage]
                delay_s = (entry.published_ns - (second + 1) * NANOS_PER_SECOND) / NANOS_PER_SECOND
            shown[stage] = np.maximum(before, now), delay_s
        self._shown = shown

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        label = ["stage"]
        latency = HistogramMetricFamily(
            metrics.STAGE_LATENCY, "Latency of completed events from intended send time", labels=label
        )
        met = CounterMetricFamily(metrics.STAGE_SLO_MET, "Events completed within the SLO", labels=label)
        results = CounterMetricFamily(
            metrics.STAGE_RESULTS, "Events that have a result, also failed and refused ones", labels=label
        )
        delay = GaugeMetricFamily(
            metrics.STAGE_PUBLISH_DELAY,
            "From the end of the newest complete second to its figures being out",
            labels=label,
        )
        for stage, (read, delay_s) in self._shown.items():
            counts = read if stage in self._scraped else np.zeros_like(read)
            self._scraped.add(stage)
            latency.add_metric([stage], list(zip(LATENCY_BOUNDS, counts[:-2].tolist(), strict=True)), None)
            met.add_metric([stage], counts[-2])
            results.add_metric([stage], counts[-1])
            if delay_s is not None:
                delay.add_metric([stage], delay_s)
        yield from (latency, met, results, delay)


class Publication:
    """Figures of a run as they grow: merged under a lock, shown as metrics at once, and written to its directory."""

    def __init__(self, directory: RunDirectory, registry: CollectorRegistry) -> None:
        self._directory = directory
        self._figures = StageFigures()
        self._metrics = StageMetrics()
        registry.register(self._metrics)
        self._rows: dict[tuple[str, int], dict[str, Any]] = {}
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
        self._metrics.show(self._figures)
        self._file.write(self._per_second_table, last=last)

    def _per_second_table(self) -> pa.Table:
        """All seconds so far, by stage and second; only rows that changed are computed again."""
        for key, entry in self._figures.seconds.items():
            row = self._rows.get(key)
            if row is None or (row["published_ns"], row["updated_ns"]) != (entry.published_ns, entry.updated_ns):
                self._rows[key] = _row(*key, entry)
        return pa.Table.from_pylist([self._rows[key] for key in sorted(self._rows)], schema=PER_SECOND_SCHEMA)
