"""The outcome of each event of a schedule for its sender: the first of a run's three counts.

An event is acknowledged by the broker's delivery report. Every other event was never sent, for a stated reason.
"""

from array import array
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.measures import percentiles_s
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from producers.shard import WHOLE, Shard

Ints = npt.NDArray[np.int64]


class SenderFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How honest the sender was. scheduled = acknowledged + never_sent.

    ``issued`` events were handed to the client library; ``failed`` ones among them ended in an error or without a
    report. Send delay runs from intended to handed over; None where nothing was issued.
    """

    scheduled: int
    issued: int
    acknowledged: int
    failed: int
    never_sent: int
    issued_share: float
    send_delay_p50_s: float | None
    send_delay_p99_s: float | None
    send_delay_max_s: float | None


def figures_of(deliveries: pa.Table) -> SenderFigures:
    """The figures of rows of ``delivery.parquet``."""
    # numpy, since a query of Arrow starts threads in a process that is about to end.
    sent_ns, intended_ns = (deliveries[name].fill_null(0).to_numpy() for name in ("sent_ns", "intended_ns"))
    delay_s = (sent_ns - intended_ns)[sent_ns > 0] / 1e9
    scheduled, issued = len(deliveries), len(delay_s)
    acknowledged = scheduled - deliveries["acked_ns"].null_count
    p50, p99, most = percentiles_s(delay_s, (50.0, 99.0, 100.0)).tolist() if issued else (None, None, None)
    return SenderFigures(
        scheduled=scheduled,
        issued=issued,
        acknowledged=acknowledged,
        failed=issued - acknowledged,
        never_sent=scheduled - acknowledged,
        issued_share=issued / scheduled if scheduled else 1.0,
        send_delay_p50_s=p50,
        send_delay_p99_s=p99,
        send_delay_max_s=most,
    )


class DeliveryLog:
    """One entry an event of the schedule, or of a shard of one, in its order. The sender writes plain arrays,
    everything else is computed from them.

    ``sent_ns`` and ``acked_ns`` are 0 and ``offset`` is -1 while unknown; ``intended_ns`` is shape (events,).
    ``reached``: the sender is done with so many of them.
    """

    def __init__(self, spec: RunSpec, schedule: Schedule, shard: Shard = WHOLE) -> None:
        schedule = shard.part(schedule)
        self.run = spec.run
        self._ids = shard.ids(len(schedule))
        self.intended_ns: Ints = spec.start_ns + schedule.intended_offset_ns
        self.partition = schedule.partition
        self.sent_ns = array("q", bytes(8 * len(schedule)))
        self.acked_ns = array("q", bytes(8 * len(schedule)))
        self.offset = array("q", [-1]) * len(schedule)
        self.errors: dict[int, str] = {}
        self.reached = 0

    def __len__(self) -> int:
        return len(self.sent_ns)

    @property
    def issued(self) -> int:
        """Events handed to the client library."""
        return int(np.count_nonzero(np.frombuffer(self.sent_ns, dtype=np.int64)))

    @property
    def acknowledged(self) -> int:
        """Events with a positive delivery report."""
        return int(np.count_nonzero(np.frombuffer(self.acked_ns, dtype=np.int64)))

    def send_delay_s(self, first: int, end: int) -> npt.NDArray[np.float64]:
        """Intended to handed over, seconds, of the issued ones among the events ``first`` … ``end`` - 1."""
        sent_ns = np.frombuffer(self.sent_ns, dtype=np.int64)[first:end]
        issued = sent_ns > 0
        return np.asarray((sent_ns[issued] - self.intended_ns[first:end][issued]) / 1e9)

    def table(self, *, unsent: str) -> pa.Table:
        """One row an event: id, intended_ns, sent_ns, acked_ns, partition, offset, error; null is unknown.

        ``error`` says why an event was not acknowledged; ``unsent`` is that reason for those never handed over.
        """
        sent_ns, acked_ns, offset = (
            np.frombuffer(column, dtype=np.int64) for column in (self.sent_ns, self.acked_ns, self.offset)
        )
        reasons: list[str | None] = [None] * len(self)
        for row in np.flatnonzero(acked_ns == 0).tolist():
            otherwise = "no delivery report before the sender ended" if sent_ns[row] else unsent
            reasons[row] = self.errors.get(row, otherwise)
        return pa.table(
            {
                "id": np.asarray(self._ids, dtype=np.int64),
                "intended_ns": self.intended_ns,
                "sent_ns": pa.array(sent_ns, mask=sent_ns == 0),
                "acked_ns": pa.array(acked_ns, mask=acked_ns == 0),
                "partition": self.partition,
                "offset": pa.array(offset, mask=offset < 0),
                "error": pa.array(reasons, type=pa.string()),
            }
        )

    def write(self, path: Path, *, unsent: str) -> SenderFigures:
        """Write the table as Parquet; returns its figures."""
        table = self.table(unsent=unsent)
        partial = path.with_name(path.name + ".partial")
        pq.write_table(table, partial, compression="zstd")
        partial.replace(path)
        return figures_of(table)
