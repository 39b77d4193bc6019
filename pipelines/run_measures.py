"""Latency measures of a whole run from its directory's raw results; this engine is numpy, ``pipelines.batch`` is Spark.

Both answer with the same numbers to the last bit: sums and ranks are taken over integer nanoseconds.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.measures import (
    PARTS,
    RANKED,
    Distribution,
    Ints,
    Part,
    completions,
    histogram,
    nearest_ranks,
    ranked_distribution,
    slo_share,
)
from penstock.results import outcomes_among
from penstock.rundir import RunDirectory
from penstock.schedule import events_scheduled

COLUMNS: Final = ("id", "run", "outcome", "terminal", "intended_ns", "sent_ns", "started_ns", "finished_ns")
"""Columns of results/*.parquet that measures are taken from."""


class RunMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """Measures of a run's raw results. ``parts`` is empty where no event completed; ``negative`` counts the values of a
    part below zero.

    ``redelivered``: results of completed events beyond the first of each id; ``other_outcomes``: terminal results that
    are not completed; ``unmeasured``: completed ones without times; ``external``: terminal ones of another run or of no
    event of the schedule, which count nowhere else. ``histogram``: log bucket → events.
    """

    completed: int
    redelivered: int
    unmeasured: int
    external: int
    other_outcomes: Mapping[str, int]
    slo_s: float
    slo_share: float | None
    parts: Mapping[Part, Distribution]
    negative: Mapping[Part, int]
    histogram: Mapping[int, int]


def exact_distribution(total_ns: int, ranked_ns: Ints, count: int) -> Distribution:
    """From the exact sum and the values at the ranks of ``penstock.measures.RANKED``."""
    return ranked_distribution(total_ns / count / NANOS_PER_SECOND, ranked_ns / NANOS_PER_SECOND)


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
    spec = directory.spec()
    # The run's name, the same in millions of rows, is read as a dictionary.
    tables = (pq.read_table(file, columns=list(COLUMNS), read_dictionary=["run"]) for file in result_files(directory))
    terminal = pa.concat_tables(tables).filter(pc.field("terminal"))
    outcomes = outcomes_among(terminal, spec.run, events_scheduled(directory.schedule_file))
    completed = outcomes.filter(pc.field("outcome") == "completed")
    measured = completed.drop_null()
    times = {name: measured[name].to_numpy() for name in COLUMNS if name.endswith("_ns")}
    events = completions(measured["id"].to_numpy(), **times)
    counts = outcomes["outcome"].value_counts().to_pylist()
    buckets, bucket_counts = histogram(events.latency_s)
    share = slo_share(events.latency_s, spec.slo_s)
    ordered_ns = {part: np.sort(events.part_ns(part)) for part in PARTS if len(events.event_id)}
    return RunMeasures(
        completed=len(events.event_id),
        redelivered=events.redelivered,
        unmeasured=len(completed) - len(measured),
        external=len(terminal) - len(outcomes),
        other_outcomes={entry["values"]: entry["counts"] for entry in counts if entry["values"] != "completed"},
        slo_s=spec.slo_s,
        slo_share=None if math.isnan(share) else share,
        parts={part: _distribution(values_ns) for part, values_ns in ordered_ns.items()},
        negative={part: int(np.searchsorted(values_ns, 0)) for part, values_ns in ordered_ns.items()},
        histogram=dict(zip(buckets.tolist(), bucket_counts.tolist(), strict=True)),
    )


def _distribution(ordered_ns: Ints) -> Distribution:
    count = len(ordered_ns)
    return exact_distribution(int(ordered_ns.sum()), ordered_ns[nearest_ranks(count, RANKED) - 1], count)
