"""The curves that the report draws of one run: nothing finer than a second, however long the run is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from controller.journal import TickRecord
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import StreamObservation
from penstock.measures import Completions, Floats, Ints, bucket_upper_s, histogram, percentiles_s

MOST_POINTS = 900
"""Of a curve over time in a chart."""
COVERED_SHARE = 0.999
"""Share of the completed events that Spark must have seen for its figures to be shown."""


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTail:
    """How many events took longer: ``slower_share`` of all completed events exceed ``latency_s`` (1 % log buckets)."""

    latency_s: Floats
    slower_share: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LatencySeries:
    """Latency percentiles of the events that finished in each second of the run; seconds without any are left out.

    ``publish_delay_s``: how long after its end Spark had published each second's figures, during the run.
    """

    second: Ints
    p50_s: Floats
    p99_s: Floats
    source: Literal["Spark", "raw results"]
    publish_delay_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LagSeries:
    """``lag[tick, partition]`` in events as the controller saw it, NaN where it was unknown."""

    time_s: Floats
    partitions: tuple[int, ...]
    lag: Floats


def thinned(
    time_s: npt.NDArray[np.floating[Any]], values: Floats | Ints, most: int = MOST_POINTS
) -> tuple[Floats, Floats]:
    """At most ``most`` points of a curve: of neighbours the highest one, at the time of the first; shapes (points,).
    NaN only where all of them are NaN.
    """
    at_s, high = np.asarray(time_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    every = -(-len(high) // most)
    if every <= 1:
        return at_s, high
    starts = np.arange(0, len(high), every)
    return at_s[starts], np.fmax.reduceat(high, starts)


def latency_tail(latency_s: Floats) -> LatencyTail:
    """The complementary CDF of raw latencies, one point a log bucket."""
    buckets, counts = histogram(latency_s)
    slower = 1 - np.cumsum(counts) / max(1, len(latency_s))
    return LatencyTail(bucket_upper_s(buckets), np.maximum(slower, 0.0))


def latency_series(per_second: Path, done: Completions, start_ns: int) -> LatencySeries:
    """Spark's figures per second where they cover the run, else the same measures from the raw results."""
    if series := _from_spark(per_second, start_ns, events=len(done.event_id)):
        return series
    second = (done.finished_ns - start_ns) // NANOS_PER_SECOND
    order = np.argsort(second, kind="stable")
    seconds, first = np.unique(second[order], return_index=True)
    parts = np.split(done.latency_s[order], first[1:]) if len(seconds) else []
    both = np.array([percentiles_s(part, (50.0, 99.0)) for part in parts]).reshape(-1, 2)
    return LatencySeries(seconds, both[:, 0], both[:, 1], source="raw results", publish_delay_s=np.empty(0))


def _from_spark(file: Path, start_ns: int, *, events: int) -> LatencySeries | None:
    """Spark's figures, if they cover the events of exactly one stage: percentiles of several cannot be merged."""
    if not file.exists():
        return None
    table = pq.read_table(file, columns=["stage", "second", "count", "p50_s", "p99_s", "published_ns"])
    table = table.filter(pc.is_valid(table["p50_s"])).sort_by("second")
    covered = pc.sum(table["count"]).as_py() or 0
    if covered < COVERED_SHARE * events or pc.count_distinct(table["stage"]).as_py() != 1:
        return None
    second, published_ns = (table[name].to_numpy() for name in ("second", "published_ns"))
    delay_s = (published_ns - (second + 1) * NANOS_PER_SECOND) / NANOS_PER_SECOND
    return LatencySeries(
        second=second - start_ns // NANOS_PER_SECOND,
        p50_s=table["p50_s"].to_numpy(),
        p99_s=table["p99_s"].to_numpy(),
        source="Spark",
        publish_delay_s=delay_s[published_ns > 0],
    )


def lag_series(ticks: Sequence[TickRecord]) -> LagSeries:
    """Lag of each partition at each tick with an observation of the group."""
    seen = [record.observation for record in ticks if isinstance(record.observation, StreamObservation)]
    partitions = tuple(sorted({part.partition for observation in seen for part in observation.partitions}))
    column = {partition: index for index, partition in enumerate(partitions)}
    lag = np.full((len(seen), len(partitions)), np.nan)
    for row, observation in enumerate(seen):
        for part in observation.partitions:
            lag[row, column[part.partition]] = np.nan if part.lag is None else part.lag
    return LagSeries(np.array([observation.time_s for observation in seen]), partitions, lag)
