"""Lindley's recursion, compiled: W(n+1) = max(0, W(n) + S(n) − A(n+1)), written with absolute times as
start = max(arrival, end of the event before), end = start + service.

D. V. Lindley, "The theory of queues with a single server", Proc. Cambridge Phil. Soc. 48 (1952).
"""

import numpy as np
import numpy.typing as npt

from penstock.compiled import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Records = npt.NDArray[np.void]

NEVER = np.inf
LAST_ID = np.iinfo(np.int64).max
TOLERANCE_S = 1e-9
"""Tolerance of intervals: 1.025 - 1.005 is less than 0.02."""

EVENT = np.dtype(
    [
        ("id", np.int64),
        ("arrival_s", np.float64),
        ("service_s", np.float64),
        ("received_s", np.float64),
        ("started_s", np.float64),
        ("finished_s", np.float64),
        ("committed_s", np.float64),
        ("replica", np.int32),
        ("attempt", np.int32),
        ("partition", np.int16),
    ],
    align=True,
)
PARTITION = np.dtype([(name, np.int64) for name in ("begin", "position", "marked", "end", "offset")])
"""Rows of a partition's events: the first, the first not started, the first not committed, the end; and the offset of
the first.
"""
REPLICA = np.dtype(
    [(name, np.float64) for name in ("free_s", "resume_s", "first_s", "chunk_from_s", "commit_s")]
    + [(name, np.int64) for name in ("last_row", "turn", "in_turn", "in_chunk")]
)
"""``free_s``: end of the last event that it started. ``resume_s``: earliest start of the next one. ``first_s``: end of
its first one, -1 before. ``commit_s``: its last commit. ``chunk_from_s``, ``in_chunk``: start and size of what it took
at once; ``turn``, ``in_turn``: which of its partitions has its turn, and for how many events by now.
"""


@njit(cache=True)
def merge(
    old: Records,
    first_id: int,
    arrival_s: Floats,
    service_s: Floats,
    partition: npt.NDArray[np.int16],
    following: Ints,
    events: Records,
) -> Ints:
    """Write old events, then new ones, to their places in ``events``, which is zero. ``following`` (changed): the next
    row of each partition. Returns the rows of the old ones.
    """
    moved = np.empty(len(old), np.int64)
    for place in range(len(old)):
        p = old[place].partition
        moved[place] = following[p]
        events[following[p]] = old[place]
        following[p] += 1
    for place in range(len(partition)):
        p = partition[place]
        event = events[following[p]]
        following[p] += 1
        event.id, event.arrival_s, event.service_s = first_id + place, arrival_s[place], service_s[place]
        event.partition, event.attempt = p, 1
    return moved


@njit(cache=True)
def columns(events: Records, rows: Ints) -> tuple[Ints, Floats, Floats, Floats, Floats, Indices, Indices, Indices]:
    """Id, arrival, reception, start, end, replica, partition and attempt of the events in these rows."""
    number = np.empty(len(rows), np.int64)
    times_s = np.empty((4, len(rows)))
    codes = np.empty((3, len(rows)), np.int32)
    for place in range(len(rows)):
        event = events[rows[place]]
        number[place] = event.id
        times_s[0, place], times_s[1, place] = event.arrival_s, event.received_s
        times_s[2, place], times_s[3, place] = event.started_s, event.finished_s
        codes[0, place], codes[1, place], codes[2, place] = event.replica, event.partition, event.attempt
    return number, times_s[0], times_s[1], times_s[2], times_s[3], codes[0], codes[1], codes[2]


@njit(cache=True)
def serve(
    until_s: float,
    lane_replica: Ints,
    lane_first: Ints,
    lane_partition: Ints,
    batch: int,
    commit_every: int,
    commit_interval_s: float,
    partitions: Records,
    events: Records,
    replicas: Records,
) -> None:
    """Let every replica start the events that it can start before ``until_s``.

    Lane l is replica ``lane_replica[l]`` with the partitions ``lane_partition[lane_first[l] : lane_first[l + 1]]``.
    The records are ``PARTITION``, ``EVENT`` (by partition in order of offset) and ``REPLICA``. The next head of a
    replica's partitions: with ``batch`` 0 the one with the lowest id (order of arrival); else the one whose turn it is,
    for up to ``batch`` events that have arrived, like a consumer with its fetched records.

    A replica takes up to ``commit_every`` waiting events at once. After them it commits, unless more events wait and
    its last commit was less than ``commit_interval_s`` ago.
    """
    least_s = commit_interval_s - TOLERANCE_S
    for lane in range(len(lane_replica)):
        number = lane_replica[lane]
        replica = replicas[number]
        held = lane_partition[lane_first[lane] : lane_first[lane + 1]]
        count = len(held)
        free, chunk, row = replica.free_s, replica.in_chunk, -1  # in registers: this loop is where the time goes
        while True:
            now_s = max(free, replica.resume_s)
            over = replica.in_turn >= batch or replica.turn >= count
            place = (replica.turn + 1) % count if over else replica.turn
            row, partition, chosen, lowest, arrived = -1, -1, 0, LAST_ID, False
            for _ in range(count):
                p = held[place]
                head = partitions[p].position
                if head < partitions[p].end:
                    arrived = batch > 0 and events[head].arrival_s <= now_s
                    if arrived or events[head].id < lowest:
                        row, partition, chosen, lowest = head, p, place, events[head].id
                        if arrived:
                            break
                place = place + 1 if place + 1 < count else 0
            if row < 0:
                break
            if over or not arrived or chosen != replica.turn:
                replica.turn, replica.in_turn = chosen, 0
            event = events[row]
            start_s = max(event.arrival_s, now_s)
            if start_s >= until_s:
                break
            if chunk > 0 and (chunk == commit_every or event.arrival_s > replica.chunk_from_s):
                chunk = 0
                if event.arrival_s > free or free - replica.commit_s >= least_s:
                    replica.commit_s = free
                    commit(free, held, partitions, events)
            if chunk == 0:
                replica.chunk_from_s = start_s
            chunk += 1
            free = start_s + event.service_s
            event.received_s, event.started_s, event.finished_s = replica.chunk_from_s, start_s, free
            event.committed_s, event.replica = NEVER, number
            partitions[partition].position = row + 1
            replica.last_row = row
            replica.in_turn += 1
            if replica.first_s < 0:
                replica.first_s = free
        replica.free_s, replica.in_chunk = free, chunk
        if chunk > 0 and free <= until_s:
            done = chunk == commit_every or row < 0 or events[row].arrival_s > replica.chunk_from_s
            idle = row < 0 or events[row].arrival_s > free
            if done and (idle or free - replica.commit_s >= least_s):
                replica.commit_s = free
                commit(free, held, partitions, events)


@njit(cache=True)
def commit(at_s: float, held: Ints, partitions: Records, events: Records) -> None:
    """Commit everything of these partitions that has been started."""
    for p in held:
        for row in range(partitions[p].marked, partitions[p].position):
            events[row].committed_s = at_s
        partitions[p].marked = partitions[p].position


@njit(cache=True)
def offsets_at(at_s: float, commits_at_s: Floats, partitions: Records, events: Records) -> tuple[Ints, Ints]:
    """(end offset at ``at_s``, committed offset at ``commits_at_s[p]``) of each partition p."""
    ends, commits = np.empty(len(partitions), np.int64), np.empty(len(partitions), np.int64)
    for p in range(len(partitions)):
        each = partitions[p]
        arrived = np.searchsorted(events["arrival_s"][each.begin : each.end], at_s, side="right")
        done = np.searchsorted(events["committed_s"][each.begin : each.position], commits_at_s[p], side="right")
        ends[p], commits[p] = each.offset + arrived, each.offset + done
    return ends, commits


@njit(cache=True)
def arrivals_by_slot(at_s: float, slots: int, seconds: float, partitions: Records, events: Records) -> Ints:
    """Arrivals of each partition in the last ``seconds`` before ``at_s``, by slot of equal length, oldest first."""
    counts = np.zeros((len(partitions), slots), np.int64)
    for p in range(len(partitions)):
        each = partitions[p]
        arrivals_s = events["arrival_s"][each.begin : each.end]
        before = np.searchsorted(arrivals_s, at_s - seconds, side="right")
        for slot in range(slots):
            until_s = at_s - seconds * (slots - 1 - slot) / slots
            row = np.searchsorted(arrivals_s, until_s, side="right")
            counts[p, slot] = row - before
            before = row
    return counts


@njit(cache=True)
def count_finished(
    at_s: float, limit_s: float, counted: Ints, partitions: Records, events: Records
) -> tuple[int, int, float]:
    """Events that finished by ``at_s`` since the last call, how many of them took longer than ``limit_s``, and the time
    from start to end of all of them together.

    ``counted`` has the offset up to which each partition was counted, and is moved on: an event that is delivered again
    counts once.
    """
    finished = late = 0
    busy_s = 0.0
    for p in range(len(partitions)):
        each = partitions[p]
        row = max(each.begin, each.begin + counted[p] - each.offset)
        while row < each.position and events[row].finished_s <= at_s:
            finished += 1
            busy_s += events[row].finished_s - events[row].started_s
            if events[row].finished_s - events[row].arrival_s > limit_s + TOLERANCE_S:
                late += 1
            row += 1
        counted[p] = max(counted[p], each.offset + row - each.begin)
    return finished, late, busy_s
