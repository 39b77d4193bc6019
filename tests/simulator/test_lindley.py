"""The compiled recursion against an event loop in plain Python."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.schedule import Schedule
from simulator.partitions import PartitionedEvents
from tests.support.shared_queue import shared_queue


@dataclass
class Served:
    """What the loop below says of one event."""

    replica: int
    started_s: float
    finished_s: float
    committed_s: float = np.inf


def event_loop(
    arrivals_s: list[float],
    partition: list[int],
    service_s: list[float],
    owner: dict[int, int],
    *,
    batch: int = 0,
    commit_every: int = 1,
    commit_interval_s: float = 0.0,
) -> dict[int, Served]:
    """Every replica goes its own way, event by event, looking at lists only."""
    done: dict[int, Served] = {}
    for replica in set(owner.values()):
        held = sorted(p for p, by in owner.items() if by == replica)
        waiting = {p: [i for i in range(len(arrivals_s)) if partition[i] == p] for p in held}
        now_s, place, in_turn = 0.0, 0, 0
        open_commits: list[int] = []
        together, together_from_s, committed_s = 0, 0.0, -np.inf
        while any(waiting.values()):
            there = [p for p in held if waiting[p] and arrivals_s[waiting[p][0]] <= now_s]
            if batch and there:
                order = [(place + step) % len(held) for step in range(len(held) + 1)]
                if in_turn >= batch:
                    order = order[1:]
                chosen = next(spot for spot in order if held[spot] in there)
                if chosen != place or in_turn >= batch:
                    place, in_turn = chosen, 0
            else:
                first = min((waiting[p][0], spot) for spot, p in enumerate(held) if waiting[p])
                place, in_turn = first[1], 0
            event = waiting[held[place]].pop(0)
            in_turn += 1
            start_s = max(now_s, arrivals_s[event])
            if together and (together == commit_every or arrivals_s[event] > together_from_s):
                together = 0
                if arrivals_s[event] > now_s or now_s - committed_s >= commit_interval_s:
                    for earlier in open_commits:
                        done[earlier].committed_s = now_s
                    open_commits, committed_s = [], now_s
            if not together:
                together_from_s = start_s
            together += 1
            open_commits.append(event)
            now_s = start_s + service_s[event]
            done[event] = Served(replica, start_s, now_s)
        for earlier in open_commits:
            done[earlier].committed_s = now_s
    return done


INSTANTS = st.integers(0, 400).map(lambda tick: tick / 64)
"""Multiples of 1/64 s: arrivals meet starts and ends exactly now and then."""


@given(
    events=st.lists(st.tuples(INSTANTS, st.integers(0, 4), st.integers(1, 64)), min_size=1, max_size=60),
    owners=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    steps=st.lists(INSTANTS, max_size=6),
    batch=st.sampled_from([0, 1, 3]),
    commit_every=st.sampled_from([1, 2, 5]),
    commit_interval_s=st.sampled_from([0.0, 0.25, 2.0]),
)
def test_replicas_serve_as_an_event_loop_does(
    events: list[tuple[float, int, int]],
    owners: list[int],
    steps: list[float],
    batch: int,
    commit_every: int,
    commit_interval_s: float,
) -> None:
    events = sorted(events, key=lambda event: event[0])
    arrivals_s, partition = [each[0] for each in events], [each[1] for each in events]
    service_s = [each[2] / 64 for each in events]
    owner = dict(enumerate(owners))
    partitions = PartitionedEvents(5, batch=batch, commit_every=commit_every, commit_interval_s=commit_interval_s)
    for _ in range(3):
        partitions.new_replica()
    partitions.add(schedule_of(arrivals_s, partition), np.array(service_s))
    partitions.assign({replica: [p for p, by in owner.items() if by == replica] for replica in set(owners)})
    for until_s in [*sorted(steps), 1000.0]:
        partitions.serve(until_s)
    expected = event_loop(
        arrivals_s,
        partition,
        service_s,
        owner,
        batch=batch,
        commit_every=commit_every,
        commit_interval_s=commit_interval_s,
    )
    events_of = partitions.events
    order = np.argsort(events_of["id"])
    assert partitions.left(1000.0) == 0
    assert events_of["replica"][order].tolist() == [expected[i].replica for i in range(len(events))]
    assert events_of["started_s"][order].tolist() == [expected[i].started_s for i in range(len(events))]
    assert events_of["finished_s"][order].tolist() == [expected[i].finished_s for i in range(len(events))]
    assert events_of["committed_s"][order].tolist() == [expected[i].committed_s for i in range(len(events))]


@given(
    gaps=st.lists(st.floats(0, 2), min_size=1, max_size=40),
    services=st.lists(st.floats(0.01, 3), min_size=40, max_size=40),
    servers=st.integers(1, 4),
)
def test_a_shared_queue_gives_the_next_event_to_whoever_is_free_first(
    gaps: list[float], services: list[float], servers: int
) -> None:
    arrival_s = np.cumsum(gaps)
    service_s = np.array(services[: len(gaps)])
    start_s, end_s = shared_queue(arrival_s, service_s, servers)
    busy_until: list[float] = [0.0] * servers
    for event, arrived_s in enumerate(arrival_s):
        busy_until.sort()
        begun_s = max(arrived_s, busy_until[0])
        busy_until[0] = begun_s + service_s[event]
        assert (start_s[event], end_s[event]) == (begun_s, busy_until[0])


@given(
    events=st.lists(st.tuples(INSTANTS, st.integers(0, 2), st.integers(1, 64)), min_size=2, max_size=50),
    cut=st.integers(1, 49),
)
def test_a_schedule_in_parts_is_served_as_in_one_piece(events: list[tuple[float, int, int]], cut: int) -> None:
    events = sorted(events, key=lambda event: event[0])
    cut = min(cut, len(events) - 1)
    arrivals_s, partition = [each[0] for each in events], [each[1] for each in events]
    service_s = np.array([each[2] / 64 for each in events])

    def fresh() -> PartitionedEvents:
        partitions = PartitionedEvents(3)
        partitions.new_replica()
        partitions.new_replica()
        return partitions

    def finished(partitions: PartitionedEvents) -> dict[int, tuple[float, int]]:
        table = partitions.table(1000.0)
        return dict(
            zip(table.id.tolist(), zip(table.finished_s.tolist(), table.queue.tolist(), strict=True), strict=True)
        )

    whole, parts = fresh(), fresh()
    whole.add(schedule_of(arrivals_s, partition), service_s)
    parts.add(schedule_of(arrivals_s[:cut], partition[:cut]), service_s[:cut])
    for each in (whole, parts):
        each.assign({0: (0, 2), 1: (1,)})
    parts.serve(arrivals_s[cut])
    early = parts.add(schedule_of(arrivals_s[cut:], partition[cut:]), service_s[cut:], at_s=arrivals_s[cut])
    for each in (whole, parts):
        each.serve(1000.0)
    times = dict(zip(early.id.tolist(), zip(early.finished_s.tolist(), early.queue.tolist(), strict=True), strict=True))
    assert not set(times).intersection(finished(parts))
    assert {**times, **finished(parts)} == finished(whole)
    late = np.full(3, 1000.0)
    for mine, one_piece in zip(parts.offsets(1000.0, late), whole.offsets(1000.0, late), strict=True):
        assert mine.tolist() == one_piece.tolist()


def schedule_of(arrivals_s: list[float], partition: list[int]) -> Schedule:
    """A schedule of these events."""
    offsets = np.rint(np.array(arrivals_s) * 1e9).astype(np.int64)
    return Schedule(offsets, np.array(partition, dtype=np.int16), duration_s=1000.0)
