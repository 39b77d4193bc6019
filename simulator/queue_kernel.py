"""Events of a bank of queues, one by one in virtual time, compiled with numba.

Index 0 of every per-queue array is the main queue, the others are sub-queues. An event waits in at most one queue, so
that all queues are linked lists over one array of successors. Times are seconds since the start of the run. Where an
event ends and another arrives at the same instant, the end comes first.

The Python side (``simulator.queue_bank``) changes shares, containers and flags between two calls; nothing here knows of
scaling.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from simulator.engine import COMPLETED, REJECTED, Floats, Indices, Ints

Records = npt.NDArray[np.void]

NONE = -1
MAIN = 0
UNBOUNDED = np.iinfo(np.int64).max
PENDING = -1
"""Outcome of an event that still waits, is in service or has not arrived."""

NEXT_ARRIVAL, BUSY, MAIN_REJECTED, FED = range(4)
"""Positions in ``Bank.counts``: row of the schedule that arrives next, containers in service (the size of the heap),
events lost at the main queue, entries of ``Bank.fed`` in use."""

BROKER_BACK_S, THAWED_S = range(2)
"""Positions in ``Bank.until_s``: until when nothing enters or leaves a queue, and until when containers stand still."""


class Bank(NamedTuple):
    """All state: arrays of records (``EVENT``, ``QUEUE``, ``CONTAINER``, ``ENDING``), and in ``fed`` the numbers of
    queues that get a share. ``counts`` and ``until_s``: see the positions above.
    """

    counts: Ints
    until_s: Floats
    events: Records
    queues: Records
    containers: Records
    heap: Records
    fed: Indices


EVENT = np.dtype(
    [
        ("arrival_s", np.float64),
        ("service_s", np.float64),
        ("pick", np.float64),  # in [0, 1): where the routing sends it
        ("sent_s", np.float64),
        ("received_s", np.float64),
        ("started_s", np.float64),
        ("finished_s", np.float64),
        ("successor", np.int32),
        ("worker", np.int32),
        ("queue", np.int32),
        ("attempt", np.int16),
        ("outcome", np.int8),
    ],
    align=True,
)
QUEUE = np.dtype(
    [
        ("share", np.float64),
        ("capacity", np.int64),
        ("arrived", np.int64),
        ("completed", np.int64),
        ("rejected", np.int64),
        ("waiting", np.int64),
        ("in_service", np.int64),
        ("busy_s", np.float64),
        ("first_event_s", np.float64),
        ("drained_s", np.float64),
        ("head", np.int32),
        ("tail", np.int32),
        ("idle", np.int32),  # the idle container that is taken next
        ("draining", np.bool_),
    ],
    align=True,
)
CONTAINER = np.dtype(
    [
        ("first_start_s", np.float64),
        ("gone_s", np.float64),
        ("queue_of", np.int32),
        ("event_of", np.int32),
        ("next_idle", np.int32),
        ("retiring", np.bool_),
    ],
    align=True,
)
ENDING = np.dtype([("end_s", np.float64), ("ending", np.int32)], align=True)
"""A container in service and when its event ends: an entry of the heap, ordered by time, then by number."""

NOTHING_YET = {
    "head": NONE, "tail": NONE, "idle": NONE, "queue_of": NONE, "event_of": NONE, "next_idle": NONE,
    "first_event_s": np.nan, "drained_s": np.nan, "first_start_s": np.nan, "gone_s": np.nan,
    "sent_s": np.nan, "received_s": np.nan, "started_s": np.nan, "finished_s": np.nan,
    "successor": NONE, "worker": NONE, "attempt": 1, "outcome": PENDING,
}  # fmt: skip
"""First values of fields, where they are not 0. What has not happened yet is at NaN seconds."""


def new_bank(arrival_s: Floats, service_s: Floats, pick: Floats, main_capacity: int) -> Bank:
    """A bank with an empty main queue and room for one sub-queue and one container; ``grown`` makes more room."""
    events = _records(EVENT, len(arrival_s))
    events["arrival_s"], events["service_s"], events["pick"] = arrival_s, service_s, pick
    bank = Bank(
        counts=np.zeros(4, dtype=np.int64),
        until_s=np.zeros(2),
        events=events,
        queues=_records(QUEUE, 2),
        containers=_records(CONTAINER, 1),
        heap=_records(ENDING, 1),
        fed=np.zeros(2, dtype=np.int32),
    )
    bank.queues["capacity"][MAIN] = main_capacity
    return bank


def grown(bank: Bank, *, queues: int = 0, containers: int = 0) -> Bank:
    """The same bank with room for so many queues (the main one included) and containers; never less than before."""
    return bank._replace(
        queues=_longer(bank.queues, queues),
        fed=np.concatenate([bank.fed, np.zeros(max(0, queues - len(bank.fed)), dtype=np.int32)]),
        containers=_longer(bank.containers, containers),
        heap=_longer(bank.heap, containers),
    )


def _records(kind: "np.dtype[np.void]", count: int) -> Records:
    records = np.zeros(count, dtype=kind)
    for name in kind.names or ():
        records[name] = NOTHING_YET.get(name, 0)
    return records


def _longer(records: Records, count: int) -> Records:
    return np.concatenate([records, _records(records.dtype, max(0, count - len(records)))])


# --- compiled --------------------------------------------------------------------------------------------------------


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _begin(bank: Bank, container: int, end_s: float) -> None:
    """Put a container that began to serve into the heap."""
    at = bank.counts[BUSY]
    bank.counts[BUSY] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if bank.heap[parent].end_s < end_s or (
            bank.heap[parent].end_s == end_s and bank.heap[parent].ending < container
        ):
            break
        bank.heap[at].end_s = bank.heap[parent].end_s
        bank.heap[at].ending = bank.heap[parent].ending
        at = parent
    bank.heap[at].end_s = end_s
    bank.heap[at].ending = container


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _end(bank: Bank) -> int:
    """Take the container that ends first out of the heap."""
    first = bank.heap[0].ending
    last = bank.counts[BUSY] - 1
    bank.counts[BUSY] = last
    end_s, container = bank.heap[last].end_s, bank.heap[last].ending
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        other = child + 1
        if other < last and (
            bank.heap[other].end_s < bank.heap[child].end_s
            or (bank.heap[other].end_s == bank.heap[child].end_s and bank.heap[other].ending < bank.heap[child].ending)
        ):
            child = other
        if end_s < bank.heap[child].end_s or (end_s == bank.heap[child].end_s and container < bank.heap[child].ending):
            break
        bank.heap[at].end_s = bank.heap[child].end_s
        bank.heap[at].ending = bank.heap[child].ending
        at = child
    bank.heap[at].end_s = end_s
    bank.heap[at].ending = container
    return int(first)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _append(bank: Bank, queue: int, event: int) -> None:
    bank.events[event].successor = NONE
    if bank.queues[queue].tail == NONE:
        bank.queues[queue].head = event
    else:
        bank.events[bank.queues[queue].tail].successor = event
    bank.queues[queue].tail = event
    bank.queues[queue].waiting += 1


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _remove_first(bank: Bank, queue: int) -> int:
    event = bank.queues[queue].head
    bank.queues[queue].head = bank.events[event].successor
    if bank.queues[queue].head == NONE:
        bank.queues[queue].tail = NONE
    bank.queues[queue].waiting -= 1
    return int(event)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _serve(bank: Bank, container: int, event: int, now_s: float) -> None:
    """A container takes up an event: at once, or when it is no longer frozen."""
    start_s = max(now_s, bank.until_s[THAWED_S])
    bank.events[event].received_s = now_s
    bank.events[event].started_s = start_s
    bank.events[event].worker = container
    bank.containers[container].event_of = event
    bank.queues[bank.containers[container].queue_of].in_service += 1
    if np.isnan(bank.containers[container].first_start_s):
        bank.containers[container].first_start_s = start_s
    _begin(bank, container, start_s + bank.events[event].service_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _enter(bank: Bank, queue: int, event: int, now_s: float) -> None:
    """A sub-queue that has room takes an event."""
    bank.queues[queue].arrived += 1
    bank.events[event].queue = queue
    if np.isnan(bank.queues[queue].first_event_s):
        bank.queues[queue].first_event_s = now_s
    container = bank.queues[queue].idle
    if container == NONE:
        _append(bank, queue, event)
    else:
        bank.queues[queue].idle = bank.containers[container].next_idle
        _serve(bank, container, event, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _has_room(bank: Bank, queue: int, pull: bool) -> bool:
    if pull:
        return bool(bank.queues[queue].idle != NONE)
    return bool(bank.queues[queue].waiting + bank.queues[queue].in_service < bank.queues[queue].capacity)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _choose(bank: Bank, pick: float, only_with_room: bool, pull: bool) -> int:
    """The queue whose part of the shares ``pick`` lies in; NONE if there is no queue to choose from."""
    total = 0.0
    for place in range(bank.counts[FED]):
        queue = bank.fed[place]
        if not only_with_room or _has_room(bank, queue, pull):
            total += bank.queues[queue].share
    left = pick * total
    chosen = NONE
    for place in range(bank.counts[FED]):
        queue = bank.fed[place]
        if not only_with_room or _has_room(bank, queue, pull):
            chosen = queue
            left -= bank.queues[queue].share
            if left < 0:
                break
    return chosen


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _flush(bank: Bank, pull: bool, now_s: float) -> None:
    """The main queue hands out what it holds, in order, as long as some queue has room."""
    while bank.queues[MAIN].waiting > 0:
        queue = _choose(bank, bank.events[bank.queues[MAIN].head].pick, True, pull)
        if queue == NONE:
            return
        _enter(bank, queue, _remove_first(bank, MAIN), now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _reject(bank: Bank, event: int, now_s: float) -> None:
    bank.events[event].outcome = REJECTED
    bank.events[event].received_s = now_s
    bank.events[event].started_s = now_s
    bank.events[event].finished_s = now_s


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _arrive(bank: Bank, event: int, hold: bool, pull: bool, now_s: float) -> None:
    bank.events[event].sent_s = now_s
    # What is held already goes first: as long as there is any, no queue has room.
    queue = (
        NONE if hold and bank.queues[MAIN].waiting > 0 else _choose(bank, bank.events[event].pick, hold or pull, pull)
    )
    if queue != NONE and _has_room(bank, queue, pull):
        _enter(bank, queue, event, now_s)
    elif queue == NONE and hold and bank.queues[MAIN].waiting < bank.queues[MAIN].capacity:
        _append(bank, MAIN, event)
    else:
        if queue == NONE:
            bank.counts[MAIN_REJECTED] += 1
        else:
            bank.queues[queue].arrived += 1
            bank.queues[queue].rejected += 1
            bank.events[event].queue = queue
        _reject(bank, event, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _free(bank: Bank, container: int, pull: bool, now_s: float) -> None:
    """A container that has nothing to do takes what waits, or is noted as idle."""
    queue = bank.containers[container].queue_of
    if bank.queues[queue].waiting > 0 and now_s >= bank.until_s[BROKER_BACK_S]:
        _serve(bank, container, _remove_first(bank, queue), now_s)
    else:
        bank.containers[container].next_idle = bank.queues[queue].idle
        bank.queues[queue].idle = container
    if now_s >= bank.until_s[BROKER_BACK_S]:
        _flush(bank, pull, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _complete(bank: Bank, pull: bool, now_s: float) -> None:
    container = _end(bank)
    event = bank.containers[container].event_of
    queue = bank.containers[container].queue_of
    bank.containers[container].event_of = NONE
    bank.events[event].outcome = COMPLETED
    bank.events[event].finished_s = now_s
    bank.queues[queue].in_service -= 1
    bank.queues[queue].completed += 1
    bank.queues[queue].busy_s += now_s - bank.events[event].started_s
    if bank.containers[container].retiring:
        bank.containers[container].gone_s = now_s
        if now_s >= bank.until_s[BROKER_BACK_S]:
            _flush(bank, pull, now_s)
    else:
        _free(bank, container, pull, now_s)
    if bank.queues[queue].draining and bank.queues[queue].waiting + bank.queues[queue].in_service == 0:
        bank.queues[queue].drained_s = now_s


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _run(bank: Bank, until_s: float, inclusive: bool, hold: bool, pull: bool) -> None:
    events = len(bank.events)
    while True:
        end_s = bank.heap[0].end_s if bank.counts[BUSY] > 0 else np.inf
        event = bank.counts[NEXT_ARRIVAL]
        arrival_s = max(bank.events[event].arrival_s, bank.until_s[BROKER_BACK_S]) if event < events else np.inf
        if end_s <= arrival_s:
            if end_s > until_s or end_s == np.inf:
                return
            _complete(bank, pull, end_s)
        else:
            if arrival_s > until_s or (arrival_s == until_s and not inclusive):
                return
            bank.counts[NEXT_ARRIVAL] = event + 1
            _arrive(bank, event, hold, pull, arrival_s)


run: Callable[[Bank, float, bool, bool, bool], None] = _run
"""``run(bank, until_s, inclusive, hold, pull)``: all ends of service up to ``until_s``, and all arrivals before it
(``inclusive``: at it, too). ``hold`` and ``pull`` as in QueueSystem's when_full and forwarding."""

free: Callable[[Bank, int, bool, float], None] = _free
"""``free(bank, container, pull, now_s)``: a container has come, or goes on."""

flush: Callable[[Bank, bool, float], None] = _flush
"""``flush(bank, pull, now_s)``: somewhere, room has come up."""
