"""What the report draws of one run, read from its directory: nothing finer than a second, however long the run."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from controller.journal import TickRecord
from experiments.analysis.decisions import Step, read_records, steps
from experiments.analysis.measurement import paid_replicas, summary_of
from experiments.analysis.outcomes import read_completions
from experiments.analysis.summary import Summary
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import StreamObservation
from penstock.measures import Completions, Floats, Ints, bucket_upper_s, histogram, percentiles_s, replicas_over_time
from penstock.rundir import Manifest, RunDirectory, read_lines
from penstock.runspec import FaultRecord, RunSpec
from penstock.schedule import Schedule

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

    ``publish_delay_s``: how long after its end Spark had each second's figures out, while the run went on.
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


@dataclass(frozen=True, slots=True, eq=False)
class RunEvidence:
    """One run as the report shows it. Times are seconds from its start."""

    directory: RunDirectory
    spec: RunSpec
    summary: Summary
    manifest: Manifest | None
    tail: LatencyTail
    latency: LatencySeries
    arrivals_per_s: Ints
    replica_time_s: Floats
    replicas: Ints
    records: list[TickRecord]
    steps: list[Step]
    lag: LagSeries
    faults: list[FaultRecord]

    def second_of(self, at_ns: int) -> float:
        """Seconds from the start of the run."""
        return (at_ns - self.spec.start_ns) / NANOS_PER_SECOND


def read_run(directory: RunDirectory) -> RunEvidence:
    """Everything of a run. Raises PenstockError that names what an incomplete directory lacks."""
    summary = summary_of(directory)
    spec = directory.spec()
    done = read_completions(directory)
    records = read_records(directory)
    at_ns, replicas = replicas_over_time(paid_replicas(directory, spec))
    return RunEvidence(
        directory=directory,
        spec=spec,
        summary=summary,
        manifest=directory.manifest() if directory.finished else None,
        tail=latency_tail(done.latency_s),
        latency=latency_series(directory, spec, done),
        arrivals_per_s=Schedule.read(directory.schedule_file).arrivals_per_second(),
        replica_time_s=(at_ns - spec.start_ns) / NANOS_PER_SECOND,
        replicas=replicas,
        records=records,
        steps=steps(records),
        lag=lag_series(records),
        faults=list(read_lines(directory.faults_file, FaultRecord)),
    )


def latency_tail(latency_s: Floats) -> LatencyTail:
    """The complementary CDF of raw latencies, one point a log bucket."""
    buckets, counts = histogram(latency_s)
    slower = 1 - np.cumsum(counts) / max(1, len(latency_s))
    return LatencyTail(bucket_upper_s(buckets), np.maximum(slower, 0.0))


def latency_series(directory: RunDirectory, spec: RunSpec, done: Completions) -> LatencySeries:
    """Spark's per-second figures where they cover the run, else the same measures from the raw results."""
    return _from_spark(directory, spec, events=len(done.event_id)) or _from_results(spec, done)


def _from_spark(directory: RunDirectory, spec: RunSpec, *, events: int) -> LatencySeries | None:
    """What ``pipelines`` wrote, if it saw the events and speaks of one stage (several cannot be made one)."""
    path = directory.per_second_file
    if not path.exists():
        return None
    table = pq.read_table(path, columns=["stage", "second", "count", "p50_s", "p99_s", "published_ns"])
    table = table.filter(pc.is_valid(table["p50_s"])).sort_by("second")
    covered = pc.sum(table["count"]).as_py() or 0
    if covered < COVERED_SHARE * events or pc.count_distinct(table["stage"]).as_py() != 1:
        return None
    second = table["second"].to_numpy()
    delay_s = (table["published_ns"].to_numpy() - (second + 1) * NANOS_PER_SECOND) / NANOS_PER_SECOND
    return LatencySeries(
        second=second - spec.start_ns // NANOS_PER_SECOND,
        p50_s=table["p50_s"].to_numpy(),
        p99_s=table["p99_s"].to_numpy(),
        source="Spark",
        publish_delay_s=delay_s[table["published_ns"].to_numpy() > 0],
    )


def _from_results(spec: RunSpec, done: Completions) -> LatencySeries:
    second = (done.finished_ns - spec.start_ns) // NANOS_PER_SECOND
    order = np.argsort(second, kind="stable")
    seconds, first = np.unique(second[order], return_index=True)
    parts = np.split(done.latency_s[order], first[1:]) if len(seconds) else []
    both = np.array([percentiles_s(part, (50.0, 99.0)) for part in parts]).reshape(-1, 2)
    return LatencySeries(seconds, both[:, 0], both[:, 1], source="raw results", publish_delay_s=np.empty(0))


def lag_series(records: list[TickRecord]) -> LagSeries:
    """Lag of each partition at each tick at which the controller could see the group."""
    seen = [record.observation for record in records if isinstance(record.observation, StreamObservation)]
    partitions = tuple(sorted({part.partition for observation in seen for part in observation.partitions}))
    column = {partition: index for index, partition in enumerate(partitions)}
    lag = np.full((len(seen), len(partitions)), np.nan)
    for row, observation in enumerate(seen):
        for part in observation.partitions:
            lag[row, column[part.partition]] = np.nan if part.lag is None else part.lag
    return LagSeries(np.array([observation.time_s for observation in seen]), partitions, lag)
