"""Lindley's recursion, compiled: W(n+1) = max(0, W(n) + S(n) − A(n+1)), written with absolute times as
start = max(arrival, end of the event before), end = start + service.

D. V. Lindley, "The theory of queues with a single server", Proc. Cambridge Phil. Soc. 48 (1952).
"""

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NEVER = np.inf
LAST_ID = np.iinfo(np.int64).max
TOLERANCE_S = 1e-9
"""An interval that is this much too short is long enough: 1.025 - 1.005 is less than 0.02."""


@njit(cache=True)
def lindley(arrival_s: Floats, service_s: Floats) -> tuple[Floats, Floats]:
    """(start, end) of each event at one server, first come first served. Both arrays in order of arrival."""
    return shared_queue(arrival_s, service_s, 1)


@njit(cache=True)
def shared_queue(arrival_s: Floats, service_s: Floats, servers: int) -> tuple[Floats, Floats]:
    """(start, end) of each event where ``servers`` serve one queue, first come first served (Kiefer and Wolfowitz)."""
    events = len(arrival_s)
    start_s, end_s = np.empty(events), np.empty(events)
    free_s = np.zeros(servers)
    for event in range(events):
        server = 0
        for other in range(1, servers):
            if free_s[other] < free_s[server]:
                server = other
        start_s[event] = max(arrival_s[event], free_s[server])
        end_s[event] = free_s[server] = start_s[event] + service_s[event]
    return start_s, end_s


@njit(cache=True)
def serve(
    until_s: float,
    lane_replica: Ints,
    lane_first: Ints,
    lane_partition: Ints,
    batch: int,
    commit_every: int,
    commit_interval_s: float,
    position: Ints,
    marked: Ints,
    end: Ints,
    event_id: Ints,
    arrival_s: Floats,
    service_s: Floats,
    free_s: Floats,
    resume_s: Floats,
    first_s: Floats,
    last_row: Ints,
    turn: Ints,
    in_turn: Ints,
    chunk_from_s: Floats,
    in_chunk: Ints,
    commit_s: Floats,
    worker: Ints,
    received_s: Floats,
    started_s: Floats,
    finished_s: Floats,
    committed_s: Floats,
) -> None:
    """Let every replica start the events that it can start before ``until_s``.

    Lane l is replica ``lane_replica[l]`` with the partitions ``lane_partition[lane_first[l] : lane_first[l + 1]]``.
    Rows are events by partition in order of offset; those from ``position[p]`` to ``end[p]`` have not been started. A
    replica is free from ``free_s`` on and may not start anything before ``resume_s``. Which head of its partitions is
    next: the one with the lowest id (order of arrival) with ``batch`` 0; else the one whose turn it is, for up to
    ``batch`` events that have arrived, as a consumer works off what it fetched.

    A replica takes up to ``commit_every`` events that are there at once. When they are done it commits, unless there
    is more to do and it has committed less than ``commit_interval_s`` ago. Rows from ``marked[p]`` on are not
    committed. With 1 and 0 the columns ``received_s`` and ``committed_s`` are not written, being those of start and
    end.
    """
    commits_apart = commit_every > 1 or commit_interval_s > 0
    least_s = commit_interval_s - TOLERANCE_S
    for lane in range(len(lane_replica)):
        replica = lane_replica[lane]
        partitions = lane_partition[lane_first[lane] : lane_first[lane + 1]]
        count = len(partitions)
        free, chunk, row = free_s[replica], in_chunk[replica], -1  # in registers: this loop is where the time goes
        while True:
            now_s = max(free, resume_s[replica])
            over = in_turn[replica] >= batch or turn[replica] >= count
            place = (turn[replica] + 1) % count if over else turn[replica]
            row, partition, chosen, lowest, arrived = -1, -1, 0, LAST_ID, False
            for _ in range(count):
                p = partitions[place]
                head = position[p]
                if head < end[p]:
                    arrived = batch > 0 and arrival_s[head] <= now_s
                    if arrived or event_id[head] < lowest:
                        row, partition, chosen, lowest = head, p, place, event_id[head]
                        if arrived:
                            break
                place = place + 1 if place + 1 < count else 0
            if row < 0:
                break
            if over or not arrived or chosen != turn[replica]:
                turn[replica], in_turn[replica] = chosen, 0
            start_s = max(arrival_s[row], now_s)
            if start_s >= until_s:
                break
            end_s = start_s + service_s[row]
            if commits_apart:
                if chunk > 0 and (chunk == commit_every or arrival_s[row] > chunk_from_s[replica]):
                    chunk = 0
                    if arrival_s[row] > free or free - commit_s[replica] >= least_s:
                        commit_s[replica] = free
                        commit(free, partitions, position, marked, committed_s)
                if chunk == 0:
                    chunk_from_s[replica] = start_s
                chunk += 1
                received_s[row], committed_s[row] = chunk_from_s[replica], NEVER
            started_s[row], finished_s[row] = start_s, end_s
            worker[row] = replica
            position[partition] = row + 1
            free, last_row[replica] = end_s, row
            in_turn[replica] += 1
            if first_s[replica] < 0:
                first_s[replica] = end_s
        free_s[replica], in_chunk[replica] = free, chunk
        if chunk > 0 and free <= until_s:
            done = chunk == commit_every or row < 0 or arrival_s[row] > chunk_from_s[replica]
            idle = row < 0 or arrival_s[row] > free
            if done and (idle or free - commit_s[replica] >= least_s):
                commit_s[replica] = free
                commit(free, partitions, position, marked, committed_s)


@njit(cache=True)
def commit(at_s: float, partitions: Ints, position: Ints, marked: Ints, committed_s: Floats) -> None:
    """Commit everything of these partitions that has been started."""
    for p in partitions:
        for row in range(marked[p], position[p]):
            committed_s[row] = at_s
        marked[p] = position[p]


@njit(cache=True)
def offsets_at(
    at_s: float,
    commits_at_s: Floats,
    begin: Ints,
    position: Ints,
    end: Ints,
    offset: Ints,
    arrival_s: Floats,
    committed_s: Floats,
) -> tuple[Ints, Ints]:
    """(end offset at ``at_s``, committed offset at ``commits_at_s[p]``) of each partition p, whose first row
    ``begin[p]`` has the offset ``offset[p]``.
    """
    ends, commits = np.empty_like(begin), np.empty_like(begin)
    for p in range(len(begin)):
        arrived = np.searchsorted(arrival_s[begin[p] : end[p]], at_s, side="right")
        done = np.searchsorted(committed_s[begin[p] : position[p]], commits_at_s[p], side="right")
        ends[p], commits[p] = offset[p] + arrived, offset[p] + done
    return ends, commits
