"""Latency measures of a whole run by Spark, for results that outgrow one machine: equal to ``pipelines.run_measures``.

Exact percentiles without a global sort: the log-bucket histogram tells in which bucket a rank lies and how many values
are before it; only the distinct values of those few buckets are then counted and looked at.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from penstock.measures import PARTS, RANKED, Ints, Part, nearest_ranks
from penstock.rundir import RunDirectory
from penstock.schedule import events_scheduled
from pipelines.columns import bucket_of, is_of_run, seconds
from pipelines.run_measures import COLUMNS, RunMeasures, exact_distribution, result_files

TIMES: Final = ("finished_ns", "intended_ns", "sent_ns", "started_ns")


def measure(spark: SparkSession, directory: RunDirectory) -> RunMeasures:
    """Measures by Spark. Raises PenstockError for an incomplete run directory."""
    spec, scheduled = directory.spec(), events_scheduled(directory.schedule_file)
    files = [f"file://{file}" for file in result_files(RunDirectory(directory.path.absolute()))]
    marked = spark.read.parquet(*files).select(*COLUMNS).where("terminal")
    marked = marked.withColumn("known", is_of_run(spec.run, scheduled))
    counts = marked.groupBy("outcome", "known").count().collect()
    outcomes: dict[str, int] = {row["outcome"]: row["count"] for row in counts if row["known"]}
    measured = marked.where("known and outcome = 'completed'").dropna()
    events = _earliest(measured).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        rows, summary = measured.count(), _summary(events, spec.slo_s)
        count = int(summary["count"])
        return RunMeasures(
            completed=count,
            redelivered=rows - count,
            unmeasured=outcomes.pop("completed", 0) - rows,
            external=sum(row["count"] for row in counts if not row["known"]),
            other_outcomes=outcomes,
            slo_s=spec.slo_s,
            slo_share=summary["met"] / count if count else None,
            parts={
                part: exact_distribution(int(summary[part]), _ranked(events, part, nearest_ranks(count, RANKED)), count)
                for part in PARTS
                if count
            },
            negative={part: int(summary[f"{part}_negative"]) for part in PARTS if count},
            histogram=_histogram(events, "latency"),
        )
    finally:
        events.unpersist()


def _earliest(measured: DataFrame) -> DataFrame:
    """Earliest completed result of each id, as one column of nanoseconds for each part of the latency."""
    first = measured.groupBy("id").agg(sql.min(sql.struct(*TIMES)).alias("first"))
    return first.select(
        *((sql.col(f"first.{end}") - sql.col(f"first.{begin}")).alias(part) for part, (begin, end) in PARTS.items())
    )


def _summary(events: DataFrame, slo_s: float) -> Mapping[str, Any]:
    totals: list[Column] = [
        sql.count("*").alias("count"),
        sql.count_if(seconds(sql.col("latency")) <= slo_s).alias("met"),
    ]
    for part in PARTS:
        totals += [sql.sum(part).alias(part), sql.count_if(sql.col(part) < 0).alias(f"{part}_negative")]
    row = events.agg(*totals).first()
    return row.asDict() if row else {}


def _bucket(part: Part) -> Column:
    return bucket_of(seconds(sql.col(part))).alias("bucket")


def _histogram(events: DataFrame, part: Part) -> dict[int, int]:
    """Log bucket → events, buckets ascending."""
    rows = events.groupBy(_bucket(part)).agg(sql.count("*").alias("events")).collect()
    return dict(sorted((row["bucket"], row["events"]) for row in rows))


def _ranked(events: DataFrame, part: Part, ranks: Ints) -> Ints:
    """Values in nanoseconds at ``ranks`` (1 is the smallest)."""
    counts_of = _histogram(events, part)
    buckets = np.fromiter(counts_of.keys(), dtype=np.int64)
    cumulative = np.cumsum(np.fromiter(counts_of.values(), dtype=np.int64))
    position = np.searchsorted(cumulative, ranks)
    before = np.concatenate(([0], cumulative))[position]
    inside = events.select(_bucket(part), sql.col(part).alias("value")).where(
        sql.col("bucket").isin(np.unique(buckets[position]).tolist())
    )
    rows = inside.groupBy("bucket", "value").agg(sql.count("*").alias("events")).orderBy("value").toArrow()
    bucket, value, events_at = (rows[name].to_numpy() for name in ("bucket", "value", "events"))
    ranked = []
    for target, rank in zip(buckets[position], ranks - before, strict=True):
        here = np.flatnonzero(bucket == target)
        ranked.append(value[here[np.searchsorted(np.cumsum(events_at[here]), rank)]])
    return np.asarray(ranked, dtype=np.int64)
