"""Latency measures of a whole run from its directory's raw results; this engine is numpy, ``pipelines.batch`` is Spark.

Both answer with the same numbers to the last bit: sums and ranks are taken over integer nanoseconds.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.measures import PERCENTILES, Completions, Ints, completions, histogram, nearest_ranks, slo_share
from penstock.rundir import RunDirectory

COLUMNS: Final = ("id", "outcome", "terminal", "intended_ns", "sent_ns", "started_ns", "finished_ns")
"""Columns of results/*.parquet that measures are taken from."""

Part = Literal["latency", "send_delay", "queueing", "service"]
PARTS: Final[Mapping[Part, tuple[str, str]]] = {
    "latency": ("intended_ns", "finished_ns"),
    "send_delay": ("intended_ns", "sent_ns"),
    "queueing": ("sent_ns", "started_ns"),
    "service": ("started_ns", "finished_ns"),
}
"""Each part of the latency: from, to."""


class Distribution(msgspec.Struct, frozen=True):
    """Mean and exact nearest-rank percentiles (``p50`` …) in seconds, and how many values lie below zero."""

    mean_s: float
    percentiles_s: Mapping[str, float]
    negative: int


class RunMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's raw results say. ``parts`` is empty where no event completed.

    ``redelivered``: results of completed events beyond the first of each id; ``other_outcomes``: terminal results that
    are not completed; ``unmeasured``: completed ones without id or times. ``histogram``: log bucket → events.
    """

    completed: int
    redelivered: int
    unmeasured: int
    other_outcomes: Mapping[str, int]
    slo_s: float
    slo_share: float | None
    parts: Mapping[Part, Distribution]
    histogram: Mapping[int, int]


def percentile_names() -> list[str]:
    """``p50`` … ``p99.9``."""
    return [f"p{percentile:g}" for percentile in PERCENTILES]


def distribution(total_ns: int, ranked_ns: Ints, count: int, negative: int) -> Distribution:
    """From the exact sum, the values at ``nearest_ranks(count)``, and counts."""
    values = (ranked_ns / NANOS_PER_SECOND).tolist()
    return Distribution(
        mean_s=total_ns / count / NANOS_PER_SECOND,
        percentiles_s=dict(zip(percentile_names(), values, strict=True)),
        negative=negative,
    )


def result_files(directory: RunDirectory) -> list[str]:
    """The run's raw results. Raises PenstockError where there are none."""
    files = sorted(str(file) for file in directory.results_folder.glob("*.parquet"))
    if not files:
        raise PenstockError(
            f"{directory.path}: incomplete run directory, no results/*.parquet; it did not end: run it again"
        )
    for file in files:
        try:
            missing = set(COLUMNS).difference(pq.read_schema(file).names)
        except (OSError, pa.ArrowInvalid) as error:
            raise PenstockError(f"{file}: cannot be read as Parquet ({error}); run it again") from None
        if missing:
            raise PenstockError(f"{file}: not results of a run, lacks {', '.join(sorted(missing))}")
    return files


def measure(directory: RunDirectory) -> RunMeasures:
    """Measures by numpy. Raises PenstockError for an incomplete run directory."""
    slo_s = directory.spec().slo_s
    table = pa.concat_tables(pq.read_table(file, columns=list(COLUMNS)) for file in result_files(directory))
    terminal = table.filter(pc.field("terminal"))
    completed = terminal.filter(pc.field("outcome") == "completed")
    measured = completed.drop_null()
    times = {name: measured[name].to_numpy() for name in COLUMNS if name.endswith("_ns")}
    events = completions(measured["id"].to_numpy(), **times)
    counts = terminal["outcome"].value_counts().to_pylist()
    buckets, bucket_counts = histogram(events.latency_s)
    share = slo_share(events.latency_s, slo_s)
    return RunMeasures(
        completed=len(events.event_id),
        redelivered=events.redelivered,
        unmeasured=len(completed) - len(measured),
        other_outcomes={entry["values"]: entry["counts"] for entry in counts if entry["values"] != "completed"},
        slo_s=slo_s,
        slo_share=None if math.isnan(share) else share,
        parts={part: _distribution(events, *ends) for part, ends in PARTS.items() if len(events.event_id)},
        histogram=dict(zip(buckets.tolist(), bucket_counts.tolist(), strict=True)),
    )


def _distribution(events: Completions, begin: str, end: str) -> Distribution:
    values_ns: Ints = np.sort(getattr(events, end) - getattr(events, begin))
    ranks = nearest_ranks(len(values_ns))
    return distribution(
        int(values_ns.sum()), values_ns[ranks - 1], len(values_ns), int(np.count_nonzero(values_ns < 0))
    )
