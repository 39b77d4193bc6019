"""Events of a queue fleet, one by one in virtual time, compiled with numba.

Index 0 of every per-queue array is the main queue, the others are sub-queues. An event waits in at most one queue, so
that all queues are linked lists over one array of successors. Times are seconds since the start of the run. Where an
event ends and another arrives at the same instant, the end comes first.

Between two calls ``simulator.queue_world`` changes shares, containers and flags; nothing here depends on
scaling.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.compiled import njit
from simulator.engine import COMPLETED, REJECTED, Floats, Indices, Ints

Records = npt.NDArray[np.void]

NONE = -1
MAIN = 0
UNBOUNDED = np.iinfo(np.int64).max
PENDING = -1
"""Outcome of an event that still waits, is in service or has not arrived."""

NEXT_ARRIVAL, BUSY, MAIN_REJECTED, FED = range(4)
"""Positions in ``KernelState.counts``: row of the schedule that arrives next, containers in service (the size of the
heap), events lost at the main queue, entries of ``KernelState.fed`` in use.
"""

BROKER_BACK_S, THAWED_S, STORE_BACK_S, FORWARDER_BACK_S = range(4)
"""Positions in ``KernelState.until_s``: until when nothing enters or leaves a queue, until when containers stand still,
until when no event can be booked as finished, and until when nothing is handed to a sub-queue.
"""


class KernelState(NamedTuple):
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


def new_state(arrival_s: Floats, service_s: Floats, pick: Floats, main_capacity: int) -> KernelState:
    """A state with an empty main queue and room for one sub-queue and one container; ``grown`` makes more room."""
    events = _records(EVENT, len(arrival_s))
    events["arrival_s"], events["service_s"], events["pick"] = arrival_s, service_s, pick
    state = KernelState(
        counts=np.zeros(4, dtype=np.int64),
        until_s=np.zeros(4),
        events=events,
        queues=_records(QUEUE, 2),
        containers=_records(CONTAINER, 1),
        heap=_records(ENDING, 1),
        fed=np.zeros(2, dtype=np.int32),
    )
    state.queues["capacity"][MAIN] = main_capacity
    return state


def grown(state: KernelState, *, queues: int = 0, containers: int = 0) -> KernelState:
    """The same state with room for so many queues (the main one included) and containers; never less than before."""
    return state._replace(
        queues=_longer(state.queues, queues),
        fed=np.concatenate([state.fed, np.zeros(max(0, queues - len(state.fed)), dtype=np.int32)]),
        containers=_longer(state.containers, containers),
        heap=_longer(state.heap, containers),
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
def _begin(state: KernelState, container: int, end_s: float) -> None:
    """Put a container that began to serve into the heap."""
    at = state.counts[BUSY]
    state.counts[BUSY] = at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if (state.heap[parent].end_s, state.heap[parent].ending) < (end_s, container):
            break
        state.heap[at] = state.heap[parent]
        at = parent
    state.heap[at].end_s = end_s
    state.heap[at].ending = container


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _end(state: KernelState) -> int:
    """Take the container that ends first out of the heap."""
    first = state.heap[0].ending
    last = state.counts[BUSY] - 1
    state.counts[BUSY] = last
    end_s, container = state.heap[last].end_s, state.heap[last].ending
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        other = state.heap[child + 1]
        if child + 1 < last and (other.end_s, other.ending) < (state.heap[child].end_s, state.heap[child].ending):
            child += 1
        if (end_s, container) < (state.heap[child].end_s, state.heap[child].ending):
            break
        state.heap[at] = state.heap[child]
        at = child
    state.heap[at].end_s = end_s
    state.heap[at].ending = container
    return int(first)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _append(state: KernelState, queue: int, event: int) -> None:
    state.events[event].successor = NONE
    if state.queues[queue].tail == NONE:
        state.queues[queue].head = event
    else:
        state.events[state.queues[queue].tail].successor = event
    state.queues[queue].tail = event
    state.queues[queue].waiting += 1


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _remove_first(state: KernelState, queue: int) -> int:
    event = state.queues[queue].head
    state.queues[queue].head = state.events[event].successor
    if state.queues[queue].head == NONE:
        state.queues[queue].tail = NONE
    state.queues[queue].waiting -= 1
    return int(event)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _serve(state: KernelState, container: int, event: int, now_s: float) -> None:
    """A container takes up an event: at once, or when it is no longer frozen."""
    start_s = max(now_s, state.until_s[THAWED_S])
    state.events[event].received_s = now_s
    state.events[event].started_s = start_s
    state.events[event].worker = container
    state.containers[container].event_of = event
    state.queues[state.containers[container].queue_of].in_service += 1
    if np.isnan(state.containers[container].first_start_s):
        state.containers[container].first_start_s = start_s
    _begin(state, container, max(start_s + state.events[event].service_s, state.until_s[STORE_BACK_S]))


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _enter(state: KernelState, queue: int, event: int, now_s: float) -> None:
    """A sub-queue that has room takes an event."""
    state.queues[queue].arrived += 1
    state.events[event].queue = queue
    if np.isnan(state.queues[queue].first_event_s):
        state.queues[queue].first_event_s = now_s
    container = state.queues[queue].idle
    if container == NONE:
        _append(state, queue, event)
    else:
        state.queues[queue].idle = state.containers[container].next_idle
        _serve(state, container, event, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _has_room(state: KernelState, queue: int, pull: bool) -> bool:
    if pull:
        return bool(state.queues[queue].idle != NONE)
    return bool(state.queues[queue].waiting + state.queues[queue].in_service < state.queues[queue].capacity)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _choose(state: KernelState, pick: float, only_with_room: bool, pull: bool) -> int:
    """The queue whose part of the shares ``pick`` lies in; NONE if there is no queue to choose from."""
    total = 0.0
    for place in range(state.counts[FED]):
        queue = state.fed[place]
        if not only_with_room or _has_room(state, queue, pull):
            total += state.queues[queue].share
    left = pick * total
    chosen = NONE
    for place in range(state.counts[FED]):
        queue = state.fed[place]
        if not only_with_room or _has_room(state, queue, pull):
            chosen = queue
            left -= state.queues[queue].share
            if left < 0:
                break
    return chosen


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _reject(state: KernelState, queue: int, event: int, now_s: float) -> None:
    """An event is lost at a full queue; ``NONE``: at the main queue."""
    if queue == NONE:
        state.counts[MAIN_REJECTED] += 1
    else:
        state.queues[queue].arrived += 1
        state.queues[queue].rejected += 1
        state.events[event].queue = queue
    state.events[event].outcome = REJECTED
    state.events[event].received_s = now_s
    state.events[event].started_s = now_s
    state.events[event].finished_s = now_s


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def flush(state: KernelState, hold: bool, pull: bool, now_s: float) -> None:
    """The main queue hands out what it holds, in order, as long as some queue has room. A forwarder that drops hands
    out all that came while it was away; what finds its queue full is lost.
    """
    if now_s < state.until_s[FORWARDER_BACK_S]:
        return
    waits = hold or pull
    while state.queues[MAIN].waiting > 0:
        queue = _choose(state, state.events[state.queues[MAIN].head].pick, waits, pull)
        if waits and queue == NONE:
            return
        event = _remove_first(state, MAIN)
        if queue != NONE and _has_room(state, queue, pull):
            _enter(state, queue, event, now_s)
        else:
            _reject(state, queue, event, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _arrive(state: KernelState, event: int, hold: bool, pull: bool, now_s: float) -> None:
    """An event arrives at the main queue, and stays there while the forwarder is away."""
    state.events[event].sent_s = now_s
    away = now_s < state.until_s[FORWARDER_BACK_S]
    # What is held already goes first: as long as there is any, no queue has room.
    queue = (
        NONE
        if away or (hold and state.queues[MAIN].waiting > 0)
        else _choose(state, state.events[event].pick, hold or pull, pull)
    )
    if queue != NONE and _has_room(state, queue, pull):
        _enter(state, queue, event, now_s)
    elif queue == NONE and (hold or away) and state.queues[MAIN].waiting < state.queues[MAIN].capacity:
        _append(state, MAIN, event)
    else:
        _reject(state, queue, event, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def free(state: KernelState, container: int, hold: bool, pull: bool, now_s: float) -> None:
    """A container that has joined or becomes free takes what waits, or is noted as idle."""
    queue = state.containers[container].queue_of
    if state.queues[queue].waiting > 0 and now_s >= state.until_s[BROKER_BACK_S]:
        _serve(state, container, _remove_first(state, queue), now_s)
    else:
        state.containers[container].next_idle = state.queues[queue].idle
        state.queues[queue].idle = container
    if now_s >= state.until_s[BROKER_BACK_S]:
        flush(state, hold, pull, now_s)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _complete(state: KernelState, hold: bool, pull: bool, now_s: float) -> None:
    container = _end(state)
    event = state.containers[container].event_of
    queue = state.containers[container].queue_of
    state.containers[container].event_of = NONE
    state.events[event].outcome = COMPLETED
    state.events[event].finished_s = now_s
    state.queues[queue].in_service -= 1
    state.queues[queue].completed += 1
    state.queues[queue].busy_s += now_s - state.events[event].started_s
    if state.containers[container].retiring:
        state.containers[container].gone_s = now_s
        if now_s >= state.until_s[BROKER_BACK_S]:
            flush(state, hold, pull, now_s)
    else:
        free(state, container, hold, pull, now_s)
    if state.queues[queue].draining and state.queues[queue].waiting + state.queues[queue].in_service == 0:
        state.queues[queue].drained_s = now_s


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def run(state: KernelState, until_s: float, inclusive: bool, hold: bool, pull: bool) -> None:
    """All ends of service up to ``until_s``, and all arrivals before it (``inclusive``: at it, too). ``hold`` and
    ``pull`` as in QueueSystem's when_full and forwarding.
    """
    events = len(state.events)
    while True:
        end_s = state.heap[0].end_s if state.counts[BUSY] > 0 else np.inf
        event = state.counts[NEXT_ARRIVAL]
        # Only a broker that is away keeps a sender waiting.
        arrival_s = max(state.events[event].arrival_s, state.until_s[BROKER_BACK_S]) if event < events else np.inf
        if end_s <= arrival_s:
            if end_s > until_s or end_s == np.inf:
                return
            _complete(state, hold, pull, end_s)
        else:
            if arrival_s > until_s or (arrival_s == until_s and not inclusive):
                return
            state.counts[NEXT_ARRIVAL] = event + 1
            _arrive(state, event, hold, pull, arrival_s)
