"""The data of one recorded run: read from its directory once, then passed by value."""

import gc
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from controller.journal import TickRecord, read_replica_events, read_ticks
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import ReplicaEvent
from penstock.errors import PenstockError
from penstock.measures import Completions, Floats, Ints, completions, replicas_over_time
from penstock.results import outcomes_among
from penstock.rundir import Manifest, RunDirectory, read_lines
from penstock.runspec import FaultRecord
from penstock.schedule import Schedule, events_scheduled
from penstock.systems import QueueSystem
from report.analysis.decisions import Step, steps
from report.analysis.needed import needed_replicas
from report.series import LagSeries, LatencySeries, LatencyTail, lag_series, latency_series, latency_tail

RESULT_TIMES = ["intended_ns", "sent_ns", "started_ns", "finished_ns"]
RESULT_NAMES = ["run", "stage", "outcome", "reason"]
"""Few different texts in many rows: read as a dictionary, in a third of the time."""
RESULT_COLUMNS = ["id", "run", "stage", "outcome", "terminal", "reason", *RESULT_TIMES]


class RunData:
    """One recorded run. Properties are read when they are first used and kept; raw tables are methods and not kept.

    Raises PenstockError that names what an incomplete directory lacks.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.spec = directory.spec()
        self._verified = False

    def verify(self) -> None:
        """Compare the files of a finished run with the checksums in its manifest, once. Raises ChangedRunError."""
        if self.manifest is not None and not self._verified:
            self.directory.verify(self.manifest)
        self._verified = True

    @property
    def name(self) -> str:
        """The run's name."""
        return self.directory.name

    @cached_property
    def manifest(self) -> Manifest | None:
        """The environment of the run and its verdict; None if the run did not finish."""
        return self.directory.manifest() if self.directory.finished else None

    @cached_property
    def ticks(self) -> list[TickRecord]:
        """The journal's ticks within the time of the schedule, in order.

        Without garbage collection: decoding makes millions of objects and no cycle.
        """
        enabled = gc.isenabled()
        gc.disable()
        try:
            return [tick for tick in read_ticks(self.directory) if 0 <= tick.time_s <= self.spec.duration_s]
        finally:
            if enabled:
                gc.enable()

    @cached_property
    def steps(self) -> list[Step]:
        """The decisions that changed something."""
        return steps(self.ticks)

    @cached_property
    def replica_events(self) -> list[ReplicaEvent]:
        """Every phase of every replica, in order."""
        return list(read_replica_events(self.directory))

    @property
    def paid_replicas(self) -> list[ReplicaEvent]:
        """Events of the replicas that cost money: in a queue fleet of its containers, not of its queues."""
        if isinstance(self.spec.system, QueueSystem) and self.spec.system.scaled == "queues":
            return [event for event in self.replica_events if event.fleet != self.spec.fleet]
        return self.replica_events

    @cached_property
    def replica_counts(self) -> tuple[Floats, Ints]:
        """(seconds from the start, replicas from then on), a step function."""
        at_ns, replicas = replicas_over_time(self.paid_replicas)
        return (at_ns - self.spec.start_ns) / NANOS_PER_SECOND, replicas

    @cached_property
    def faults(self) -> list[FaultRecord]:
        """The faults that were injected."""
        return list(read_lines(self.directory.faults_file, FaultRecord))

    def second_of(self, at_ns: int) -> float:
        """Seconds from the start of the run."""
        return (at_ns - self.spec.start_ns) / NANOS_PER_SECOND

    # --- tables ------------------------------------------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """Intended times of all events."""
        return Schedule.read(self.directory.schedule_file)

    def results(self, *more: str) -> pa.Table:
        """All results: ``RESULT_COLUMNS`` and ``more``."""
        files = sorted(self.directory.results_folder.glob("*.parquet"))
        if not files:
            raise PenstockError(
                f"{self.directory.path}: incomplete run directory, missing results/*.parquet; run it again"
            )
        columns = [*RESULT_COLUMNS, *more]
        parts = [pq.read_table(file, columns=columns, read_dictionary=RESULT_NAMES) for file in files]
        return pa.concat_tables(parts).unify_dictionaries()

    def outcomes(self, *more: str) -> pa.Table:
        """Terminal results of the run's scheduled events; of a redelivered event there are several."""
        return self.outcomes_among(self.results(*more))

    def outcomes_among(self, results: pa.Table) -> pa.Table:
        """Those of ``results`` that are terminal results of scheduled events of this run."""
        return outcomes_among(results, self.spec.run, events_scheduled(self.directory.schedule_file))

    def completions(self) -> Completions:
        """Earliest terminal result of each completed event."""
        return completions_among(self.outcomes())

    def deliveries(self) -> pa.Table:
        """The sender's delivery reports."""
        columns = ["id", "intended_ns", "sent_ns", "acked_ns", "error"]
        return pq.read_table(self.directory.delivery_file, columns=columns)

    def booked(self) -> Ints:
        """Ids of the events in the ledger."""
        return ints(pq.read_table(self.directory.ledger_file, columns=["id"])["id"])

    # --- curves ------------------------------------------------------------------------------------------------------

    @cached_property
    def arrivals_per_s(self) -> Ints:
        """Events that the schedule has in each second."""
        return self.schedule().arrivals_per_second()

    @cached_property
    def needed_replicas(self) -> Ints:
        """Replicas that were needed in each second."""
        return needed_replicas(self.spec, self.schedule())

    @cached_property
    def _latency(self) -> tuple[LatencyTail, LatencySeries]:
        done = self.completions()
        return latency_tail(done.latency_s), latency_series(self.directory.per_second_file, done, self.spec.start_ns)

    @property
    def tail(self) -> LatencyTail:
        """The tail of the latency distribution."""
        return self._latency[0]

    @property
    def latency(self) -> LatencySeries:
        """Latency percentiles by second."""
        return self._latency[1]

    @cached_property
    def lag(self) -> LagSeries:
        """Lag of each partition by tick."""
        return lag_series(self.ticks)


def completions_among(outcomes: pa.Table) -> Completions:
    """Earliest terminal result of each completed event in a table of outcomes."""
    rows = outcomes.filter(pc.equal(outcomes["outcome"], "completed"))
    return completions(ints(rows["id"]), *(ints(rows[name]) for name in RESULT_TIMES))


def ints(column: pa.ChunkedArray) -> Ints:
    """A column without nulls as numbers."""
    return np.asarray(column.to_numpy(), dtype=np.int64)
