"""The events of a topic by partition, and how far the replicas of a consumer group have come with them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.clock import NANOS_PER_SECOND
from penstock.schedule import Schedule
from simulator.engine import COMPLETED, EventTable
from simulator.lindley import NEVER, commit, offsets_at, serve

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STAGE = "payment"
GROWTH = 64
"""Replicas that room is made for at a time."""


class PartitionedEvents:
    """Columns of events, the rows of one partition together and in order of offset.

    A replica is known by its index, from 0 in order of creation. ``free_s[r]`` is when replica r has finished the event
    that it started last; ``resume_s[r]`` before when it may not start another. Rows before ``position[p]`` have been
    started. ``batch``, ``commit_every``, ``commit_interval_s``: see ``lindley.serve``.
    """

    def __init__(
        self, partitions: int, *, batch: int = 0, commit_every: int = 1, commit_interval_s: float = 0.0
    ) -> None:
        self._batch, self._commit_every, self._commit_interval_s = batch, commit_every, float(commit_interval_s)
        self._commits_apart = commit_every > 1 or commit_interval_s > 0
        self.begin, self.position, self.end = (np.zeros(partitions, np.int64) for _ in range(3))
        self._marked = np.zeros(partitions, np.int64)
        self.offset = np.zeros(partitions, np.int64)
        self.event_id = np.empty(0, np.int64)
        self.arrival_s, self.service_s, self.started_s, self.finished_s = (np.empty(0) for _ in range(4))
        self.received_s, self.committed_s = self.started_s, self.finished_s
        self.worker, self.attempt = np.empty(0, np.int64), np.empty(0, np.int32)
        self._partition = np.empty(0, np.int16)
        self.redelivered: list[EventTable] = []
        """Results of events that were delivered again."""
        self._added = 0
        self._replicas = 0
        self.free_s, self.resume_s = np.zeros(GROWTH), np.zeros(GROWTH)
        self._first_s, self._chunk_from_s = np.full(GROWTH, -1.0), np.zeros(GROWTH)
        self._last_row, self._turn, self._in_turn, self._in_chunk = (np.zeros(GROWTH, np.int64) for _ in range(4))
        self._commit_s = np.full(GROWTH, -NEVER)
        self._held: dict[int, tuple[int, ...]] = {}
        self.assign({})

    # --- events ------------------------------------------------------------------------------------------------------

    def add(self, schedule: Schedule, service_s: Floats, *, at_s: float = 0.0) -> EventTable:
        """Put the events of ``schedule`` behind those that are there (ids go on). Events that are finished and
        committed by ``at_s`` are taken out and returned: a long schedule may come in parts.
        """
        partitions, new = len(self.begin), len(schedule)
        kept = self._rows(before_position=False) | (self.committed_s > at_s)
        done = self.table(at_s, np.flatnonzero(~kept))
        rows = np.flatnonzero(kept)
        of_row = self._partition[rows]
        started = np.bincount(of_row[rows < self.position[of_row]], minlength=partitions)
        gone = np.bincount(done.queue, minlength=partitions)
        marked = np.maximum(0, self._marked - self.begin - gone)

        partition = np.concatenate((of_row, schedule.partition))
        order = np.argsort(partition, kind="stable")  # int16: a radix sort
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        moved = place[: len(rows)]

        def joined(old: npt.NDArray[Any], added: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate((old[rows], added))[order]

        def carried(old: npt.NDArray[Any], filling: float) -> npt.NDArray[Any]:
            """What is known of the events that were there, and nothing yet of the others."""
            column = np.full(len(order), filling, dtype=old.dtype)
            column[moved] = old[rows]
            return column

        self._last_row = _relocated(self._last_row, rows, moved)
        self.event_id = joined(self.event_id, np.arange(self._added, self._added + new))
        self.arrival_s = joined(self.arrival_s, schedule.intended_offset_ns / NANOS_PER_SECOND)
        self.service_s = joined(self.service_s, service_s)
        received_s, committed_s = self.received_s, self.committed_s
        self.started_s, self.finished_s = carried(self.started_s, np.nan), carried(self.finished_s, np.nan)
        self.received_s = carried(received_s, np.nan) if self._commits_apart else self.started_s
        self.committed_s = carried(committed_s, np.nan) if self._commits_apart else self.finished_s
        self.worker, self.attempt = carried(self.worker, -1), carried(self.attempt, 1)
        self._partition = partition[order]
        counts = np.bincount(self._partition, minlength=partitions)
        self.end = np.cumsum(counts)
        self.begin = self.end - counts
        self.position, self._marked = self.begin + started, self.begin + marked
        self.offset = self.offset + gone
        self._added += new
        return done

    def left(self, at_s: float) -> int:
        """Events that are not finished at that time, in no delivery."""
        waiting = self.event_id[~(self._rows() & (self.finished_s <= at_s))]
        earlier = [table.id[table.finished_s <= at_s] for table in self.redelivered]
        return len(np.setdiff1d(waiting, np.concatenate(earlier)) if earlier else waiting)

    def offsets(self, at_s: float, commits_at_s: Floats) -> tuple[Ints, Ints]:
        """(end offset at ``at_s``, committed offset at ``commits_at_s[p]``) of each partition p."""
        return offsets_at(
            at_s, commits_at_s, self.begin, self.position, self.end, self.offset, self.arrival_s, self.committed_s
        )

    # --- replicas ----------------------------------------------------------------------------------------------------

    def new_replica(self) -> int:
        """Room for one more; its index."""
        index = self._replicas
        self._replicas += 1
        if self._replicas > len(self.free_s):
            self.free_s, self.resume_s = _longer(self.free_s), _longer(self.resume_s)
            self._first_s, self._chunk_from_s = _longer(self._first_s, -1.0), _longer(self._chunk_from_s)
            self._last_row, self._turn = _longer(self._last_row), _longer(self._turn)
            self._in_turn, self._in_chunk = _longer(self._in_turn), _longer(self._in_chunk)
            self._commit_s = _longer(self._commit_s, -NEVER)
        return index

    def first_done_s(self, replica: int) -> float | None:
        """When a replica has finished its first event; None before it has started one."""
        first_s = float(self._first_s[replica])
        return None if first_s < 0 else first_s

    def assign(self, partitions: Mapping[int, Sequence[int]]) -> None:
        """From now on these replicas serve these partitions; the others stand still. What a replica no longer holds it
        has committed by the end of the event in hand.
        """
        for replica, held in self._held.items():
            if set(held).difference(partitions.get(replica, ())):
                self._commit(replica)
        self._held = {replica: tuple(held) for replica, held in partitions.items()}
        lanes = [(replica, held) for replica, held in sorted(partitions.items()) if held]
        self._lane_replica = np.array([replica for replica, _ in lanes], np.int64)
        self._lane_first = np.cumsum([0, *(len(held) for _, held in lanes)], dtype=np.int64)
        self._lane_partition = np.array([p for _, held in lanes for p in sorted(held)], np.int64)

    def serve(self, until_s: float) -> None:
        """Start everything that can be started before ``until_s``."""
        serve(
            until_s,
            self._lane_replica,
            self._lane_first,
            self._lane_partition,
            self._batch,
            self._commit_every,
            self._commit_interval_s,
            self.position,
            self._marked,
            self.end,
            self.event_id,
            self.arrival_s,
            self.service_s,
            self.free_s,
            self.resume_s,
            self._first_s,
            self._last_row,
            self._turn,
            self._in_turn,
            self._chunk_from_s,
            self._in_chunk,
            self._commit_s,
            self.worker,
            self.received_s,
            self.started_s,
            self.finished_s,
            self.committed_s,
        )

    def stop(self, replica: int) -> float:
        """A replica finishes the event in hand and commits what it has taken; when it is done. It starts nothing until
        ``resume``.
        """
        self.resume_s[replica] = NEVER
        self._commit(replica)
        return float(self.free_s[replica])

    def _commit(self, replica: int) -> None:
        if self._commits_apart and self._held.get(replica):
            held = np.array(self._held[replica], np.int64)
            commit(float(self.free_s[replica]), held, self.position, self._marked, self.committed_s)
            self._commit_s[replica], self._in_chunk[replica] = self.free_s[replica], 0

    def resume(self, replica: int, at_s: float) -> None:
        """It may start events again."""
        self.resume_s[replica] = at_s

    def freeze(self, replica: int, at_s: float, until_s: float) -> None:
        """A replica stands still; the event in hand is done when it goes on, as its deadline has passed by then."""
        if self.free_s[replica] > at_s:
            done_s = max(float(self.free_s[replica]), until_s)
            self.finished_s[self._last_row[replica]] = self.free_s[replica] = done_s
        if self.resume_s[replica] < NEVER:
            self.resume_s[replica] = max(float(self.resume_s[replica]), until_s)

    def take_back(self, replica: int, partitions: Sequence[int], at_s: float, *, lost: bool) -> None:
        """What a replica has not committed of these partitions by now will be delivered again. The results of what it
        had finished are out; the event in hand still gets its own unless the replica is ``lost``.
        """
        self._in_chunk[replica] = 0
        again: list[Ints] = []
        for p in partitions:
            started = slice(self.begin[p], self.position[p])
            done = int(np.searchsorted(self.committed_s[started], at_s, side="right"))
            again.append(np.arange(self.begin[p] + done, self.position[p]))
            self.position[p] = self._marked[p] = self.begin[p] + done
        rows = np.concatenate(again) if again else np.empty(0, np.int64)
        out = rows[self.finished_s[rows] <= at_s] if lost else rows
        if len(out):
            self.redelivered.append(self.table(NEVER, out))
        self.attempt[rows] += 1

    # --- results -----------------------------------------------------------------------------------------------------

    def results(self, at_s: float, workers: tuple[str, ...], queues: tuple[str, ...]) -> EventTable:
        """All results that were out at ``at_s``: the last delivery of each event by id, then earlier deliveries."""
        last = self.table(at_s)
        if not self.redelivered:
            return replace(last, workers=workers, queues=queues)
        tables = [last, *self.redelivered]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(table, name) for table in tables])
            for name in (
                "id", "intended_s", "sent_s", "received_s", "started_s", "finished_s", "worker", "queue", "outcome",
                "stage", "attempt",
            )
        }  # fmt: skip
        out = columns["finished_s"] <= at_s
        columns = {name: column[out] for name, column in columns.items()}
        return EventTable(**columns, workers=workers, queues=queues, stages=(STAGE,))

    def table(self, at_s: float, rows: Ints | None = None) -> EventTable:
        """Results that were out at ``at_s``, by event id: all, or those of these rows."""
        if rows is None:
            rows = np.flatnonzero(self._rows() & (self.finished_s <= at_s))
        rows = self._by_id(rows)
        arrival_s, started_s = self.arrival_s[rows], self.started_s[rows]
        return EventTable(
            id=self.event_id[rows],
            intended_s=arrival_s,
            sent_s=arrival_s,
            received_s=self.received_s[rows] if self._commits_apart else started_s,
            started_s=started_s,
            finished_s=self.finished_s[rows],
            worker=self.worker[rows].astype(np.int32),
            queue=self._partition[rows].astype(np.int32),
            outcome=np.full(len(rows), COMPLETED, np.int8),
            stage=np.zeros(len(rows), np.int32),
            attempt=self.attempt[rows],
            workers=(),
            queues=(),
            stages=(STAGE,),
        )

    def _by_id(self, rows: Ints) -> Ints:
        """Rows in the order of their events' ids, which are distinct and nearly without gaps."""
        ids = self.event_id[rows]
        if not len(ids):
            return rows
        row_of = np.full(int(ids.max() - ids.min()) + 1, -1)
        row_of[ids - ids.min()] = rows
        return row_of[row_of >= 0]

    def _rows(self, *, before_position: bool = True) -> npt.NDArray[np.bool_]:
        """Which rows have been started, or have not."""
        started = np.zeros(len(self.event_id), np.bool_)
        for first, position in zip(self.begin, self.position, strict=True):
            started[first:position] = True
        return started if before_position else ~started


def _relocated(rows: Ints, old: Ints, new: Ints) -> Ints:
    """Where these rows are after those at ``old`` went to ``new``; 0 for one that is no longer there."""
    if not len(old):
        return np.zeros_like(rows)
    at = np.minimum(np.searchsorted(old, rows), len(old) - 1)
    return np.where(old[at] == rows, new[at], 0)


def _longer(values: npt.NDArray[Any], filling: float = 0.0) -> npt.NDArray[Any]:
    more = np.full((GROWTH, *values.shape[1:]), filling, dtype=values.dtype)
    return np.concatenate((values, more))
