"""A run whose broker keeps no offsets: it is over when every acknowledged event has its outcome."""

import pyarrow.parquet as pq

from infra.local.collect import OutcomeCounter
from infra.local.runs.run import LocalRun


class OutcomesRun(LocalRun):
    """Counts outcomes against what the sender's broker has acknowledged."""

    _counter: OutcomeCounter | None = None
    _acknowledged: int | None = None

    def left(self) -> int | None:
        """Acknowledged events without a terminal result; the sender has written its delivery reports by then."""
        if self._acknowledged is None:
            reports = pq.read_table(self.directory.delivery_file, columns=["acked_ns"])
            self._acknowledged = reports.num_rows - reports.column("acked_ns").null_count
        if self._counter is None:
            self._counter = OutcomeCounter(self.endpoints.require("kafka"), self.spec.results_topic)
        return max(0, self._acknowledged - self._counter.count())

    def close_readers(self) -> None:
        """The reader of results."""
        if self._counter is not None:
            self._counter.close()
            self._counter = None
