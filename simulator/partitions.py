"""The events of a topic by partition, and the progress of a consumer group's replicas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.schedule import Schedule
from simulator.engine import COMPLETED, EventTable, Flags, Floats, Ints
from simulator.lindley import (
    EVENT,
    NEVER,
    PARTITION,
    REPLICA,
    arrivals_by_slot,
    columns,
    commit,
    count_finished,
    merge,
    offsets_at,
    serve,
)

STAGE = "payment"
FRESH = np.array((0.0, 0.0, -1.0, 0.0, -NEVER, 0, 0, 0, 0), REPLICA)
"""A replica that has started nothing yet."""


class PartitionedEvents:
    """Records of events (``lindley.EVENT``), the rows of one partition together and in order of offset.

    Replicas have indices from 0 in order of creation. ``batch``, ``commit_every``, ``commit_interval_s``: see
    ``lindley.serve``.
    """

    def __init__(
        self, partitions: int, *, batch: int = 0, commit_every: int = 1, commit_interval_s: float = 0.0
    ) -> None:
        self._batch, self._commit_every, self._commit_interval_s = batch, commit_every, float(commit_interval_s)
        self.partitions = np.zeros(partitions, PARTITION)
        self.events = np.empty(0, EVENT)
        self.replicas = np.full(64, FRESH)
        self.redelivered: list[EventTable] = []
        """Results of events that were delivered again."""
        self._added = self._replicas = self._finished = self._late = 0
        self._busy_s = 0.0
        self._counted = np.zeros(partitions, np.int64)
        self._held: dict[int, tuple[int, ...]] = {}
        self.assign({})

    # --- events ------------------------------------------------------------------------------------------------------

    def add(self, schedule: Schedule, service_s: Floats, *, at_s: float = 0.0) -> EventTable:
        """Append the events of ``schedule`` (ids continue). Events that are finished and committed by ``at_s`` are
        removed and returned: a long schedule may come in parts.
        """
        records, count = self.partitions, len(self.partitions)
        finished = self._started() & (self.events["committed_s"] <= at_s)
        done = self.table(at_s, np.flatnonzero(finished))
        rows = np.flatnonzero(~finished)
        old = self.events[rows]
        of_row = old["partition"]
        started = np.bincount(of_row[rows < records["position"][of_row]], minlength=count)
        gone = np.bincount(done.queue, minlength=count)
        marked = np.maximum(0, records["marked"] - records["begin"] - gone)

        counts = np.bincount(of_row, minlength=count) + np.bincount(schedule.partition, minlength=count)
        records["end"] = np.cumsum(counts)
        records["begin"] = records["end"] - counts
        records["position"], records["marked"] = records["begin"] + started, records["begin"] + marked
        records["offset"] += gone
        self.events = np.zeros(len(rows) + len(schedule), EVENT)
        arrival_s = schedule.intended_offset_ns / NANOS_PER_SECOND
        new = self._added, arrival_s, service_s, schedule.partition
        moved = merge(old, *new, records["begin"].copy(), self.events)
        self._added += len(schedule)
        if len(rows):  # 0 for a removed one
            last = self.replicas["last_row"]
            at = np.minimum(np.searchsorted(rows, last), len(rows) - 1)
            self.replicas["last_row"] = np.where(rows[at] == last, moved[at], 0)
        return done

    def left(self, at_s: float) -> int:
        """Events that are not finished at that time in any delivery."""
        waiting = self.events["id"][~(self._started() & (self.events["finished_s"] <= at_s))]
        earlier = [table.id[table.finished_s <= at_s] for table in self.redelivered]
        return len(np.setdiff1d(waiting, np.concatenate(earlier)) if earlier else waiting)

    def offsets(self, at_s: float, commits_at_s: Floats) -> tuple[Ints, Ints]:
        """(end offset at ``at_s``, committed offset at ``commits_at_s[p]``) of each partition p."""
        ends, commits = offsets_at(at_s, commits_at_s, self.partitions, self.events)
        return ends, commits

    def arrivals_by_slot(self, at_s: float, slots: int, seconds: float) -> Ints:
        """See ``lindley.arrivals_by_slot``."""
        counts: Ints = arrivals_by_slot(at_s, slots, seconds, self.partitions, self.events)
        return counts

    def count_finished(self, at_s: float, limit_s: float) -> tuple[int, int, float]:
        """Events that had finished by ``at_s``, those of them that took longer than ``limit_s``, and the time spent on
        all of them, cumulative.

        Call it before each ``add``, which removes finished events.
        """
        finished, late, busy_s = count_finished(at_s, limit_s, self._counted, self.partitions, self.events)
        self._finished += finished
        self._late += late
        self._busy_s += busy_s
        return self._finished, self._late, self._busy_s

    def late_counter(self, limit_s: float, from_s: float = 0.0) -> Callable[[float], int]:
        """A function of the time that counts events that have finished by then and took longer than ``limit_s``, of
        those that arrive from ``from_s`` on; apart from ``count_finished``. For a schedule that is added at once.
        """
        before = self.events["partition"][self.events["arrival_s"] < from_s]
        counted, late = np.bincount(before, minlength=len(self.partitions)).astype(np.int64), 0

        def late_by(at_s: float) -> int:
            nonlocal late
            late += count_finished(at_s, limit_s, counted, self.partitions, self.events)[1]
            return late

        return late_by

    # --- replicas ----------------------------------------------------------------------------------------------------

    def new_replica(self) -> int:
        """Add a replica; its index."""
        self._replicas += 1
        if self._replicas > len(self.replicas):
            fewer, self.replicas = self.replicas, np.full(2 * len(self.replicas), FRESH)
            self.replicas[: len(fewer)] = fewer
        return self._replicas - 1

    def free_s(self, replica: int) -> float:
        """End of the last event that a replica has started."""
        return float(self.replicas["free_s"][replica])

    def first_done_s(self, replica: int) -> float | None:
        """End of a replica's first event; None before it has started one."""
        first_s = float(self.replicas["first_s"][replica])
        return None if first_s < 0 else first_s

    def assign(self, partitions: Mapping[int, Sequence[int]]) -> None:
        """Replicas serve these partitions from now on; others stand still. A replica commits partitions that it loses
        at the end of its current event.
        """
        for replica, held in self._held.items():
            if set(held).difference(partitions.get(replica, ())):
                self._commit(replica)
        self._held = {replica: tuple(held) for replica, held in partitions.items()}
        lanes = [(replica, sorted(held)) for replica, held in sorted(partitions.items()) if held]
        self._lanes = (
            np.array([replica for replica, _ in lanes], np.int64),
            np.cumsum([0, *(len(held) for _, held in lanes)], dtype=np.int64),
            np.array([p for _, held in lanes for p in held], np.int64),
        )

    def serve(self, until_s: float) -> None:
        """Start everything that can be started before ``until_s``."""
        rules = self._batch, self._commit_every, self._commit_interval_s
        serve(until_s, *self._lanes, *rules, self.partitions, self.events, self.replicas)

    def stop(self, replica: int) -> float:
        """Let a replica finish its current event and commit, and start nothing before ``resume``. The time when it has
        finished.
        """
        self.resume(replica, NEVER)
        self._commit(replica)
        return self.free_s(replica)

    def _commit(self, replica: int) -> None:
        if self._held.get(replica):
            record = self.replicas[replica]
            commit(self.free_s(replica), np.array(self._held[replica], np.int64), self.partitions, self.events)
            record["commit_s"], record["in_chunk"] = record["free_s"], 0

    def resume(self, replica: int, at_s: float) -> None:
        """It may start events again."""
        self.replicas["resume_s"][replica] = at_s

    def freeze(self, replica: int, at_s: float, until_s: float) -> None:
        """Stop a replica until then; its current event is done when it resumes, as its deadline has passed by then."""
        record = self.replicas[replica]
        if record["free_s"] > at_s:
            record["free_s"] = max(record["free_s"], until_s)
            row = self.events[record["last_row"]]
            row["finished_s"] = record["free_s"]
        if record["resume_s"] < NEVER:
            record["resume_s"] = max(record["resume_s"], until_s)

    def take_back(self, replica: int, partitions: Sequence[int], at_s: float, *, lost: bool) -> None:
        """Deliver the uncommitted events of a replica's partitions again. Results of finished events exist; the current
        event still gets its own unless the replica is ``lost``.
        """
        self.replicas["in_chunk"][replica] = 0
        again: list[Ints] = [np.empty(0, np.int64)]
        for p in partitions:
            record = self.partitions[p]
            committed_s = self.events["committed_s"][record["begin"] : record["position"]]
            first = record["begin"] + np.searchsorted(committed_s, at_s, side="right")
            again.append(np.arange(first, record["position"]))
            record["position"] = record["marked"] = first
        rows = np.concatenate(again)
        out = rows[self.events["finished_s"][rows] <= at_s] if lost else rows
        if len(out):
            self.redelivered.append(self.table(NEVER, out))
        self.events["attempt"][rows] += 1

    # --- results -----------------------------------------------------------------------------------------------------

    def results(self, at_s: float, workers: tuple[str, ...], queues: tuple[str, ...]) -> EventTable:
        """All results that were out at ``at_s``: the last delivery of each event by id, then earlier deliveries."""
        last = self.table(at_s)
        if not self.redelivered:
            return replace(last, workers=workers, queues=queues)
        tables = [last, *self.redelivered]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in (field.name for field in fields(last))
            if isinstance(getattr(last, name), np.ndarray)
        }
        out = columns["finished_s"] <= at_s
        columns = {name: column[out] for name, column in columns.items()}
        return EventTable(**columns, workers=workers, queues=queues, stages=(STAGE,))

    def response_s(self, from_s: float = 0.0) -> Floats:
        """Response time of every event that arrives from ``from_s`` on, in no order, when all are finished; of several
        deliveries, each.
        """
        arrived = self.events[self.events["arrival_s"] >= from_s]
        last_s = arrived["finished_s"] - arrived["arrival_s"]
        again = ((table.finished_s - table.intended_s)[table.intended_s >= from_s] for table in self.redelivered)
        return np.concatenate([last_s, *again])

    def table(self, at_s: float, rows: Ints | None = None) -> EventTable:
        """Results that exist at ``at_s``, by event id: all, or those of these rows."""
        if rows is None:
            rows = np.flatnonzero(self._started() & (self.events["finished_s"] <= at_s))
        rows = self._by_id(rows)
        number, arrival_s, received_s, started_s, finished_s, replica, partition, attempt = columns(self.events, rows)
        return EventTable(
            id=number,
            intended_s=arrival_s,
            sent_s=arrival_s,
            received_s=received_s,
            started_s=started_s,
            finished_s=finished_s,
            worker=replica,
            queue=partition,
            outcome=np.full(len(rows), COMPLETED, np.int8),
            stage=np.zeros(len(rows), np.int32),
            attempt=attempt,
            workers=(),
            queues=(),
            stages=(STAGE,),
        )

    def _by_id(self, rows: Ints) -> Ints:
        """Rows in the order of their events' ids, which are distinct and nearly without gaps."""
        ids = self.events["id"][rows]
        if not len(ids):
            return rows
        row_of = np.full(int(ids.max() - ids.min()) + 1, -1)
        row_of[ids - ids.min()] = rows
        return row_of[row_of >= 0]

    def _started(self) -> Flags:
        """Which rows have been started."""
        started = np.zeros(len(self.events), np.bool_)
        for first, position in zip(self.partitions["begin"], self.partitions["position"], strict=True):
            started[first:position] = True
        return started
