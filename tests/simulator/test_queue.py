"""The engine of banks of queues: exactness against a plain calculation, conservation, life of queues, ports, faults."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from math import sqrt
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import Actuator, Decision, FleetObservation, Monitor, ReplicaEvent, hold
from penstock.errors import PenstockError
from penstock.measured import RESTART_S
from penstock.runspec import Fault
from penstock.systems import QueueSystem
from simulator.engine import COMPLETED, REJECTED
from simulator.queue import MAIN_NAME, QueueEngine
from simulator.queue_world import draw
from tests.conformance.ports import ActuatorConformance, MonitorConformance
from tests.simulator.queue_playing import FLEET, bank, poisson, resized, schedule_at, servers, spec_of

ONE_QUEUE = QueueSystem(service_rate_per_s=10, scaled="containers", capacity=8, when_full="drop")
TWO_QUEUES = QueueSystem(
    service_rate_per_s=10, capacity=6, max_containers=3, ramp_s=0.5, provision_s=2.0, pool_initial=1, when_full="drop"
)
times = st.integers(0, 4000).map(lambda ms: ms / 1000)
arrivals = st.lists(st.integers(0, 3000).map(lambda ms: ms / 1000), max_size=60).map(sorted)


def finished(engine: QueueEngine) -> dict[int, float]:
    """When each completed event ended."""
    table = engine.results()
    done = table.outcome == COMPLETED
    return dict(zip(table.id[done].tolist(), table.finished_s[done].tolist(), strict=True))


def plain_fifo(
    arrivals_s: Sequence[float], services_s: Sequence[float], servers: int, capacity: int | None
) -> dict[int, float]:
    """The same by the recursion of the textbook: an event starts when it is there and a server is free."""
    free_s = [0.0] * servers
    in_system: list[float] = []
    ends = {}
    for event, (arrival_s, service_s) in enumerate(zip(arrivals_s, services_s, strict=True)):
        while in_system and in_system[0] <= arrival_s:
            heapq.heappop(in_system)
        if capacity is not None and len(in_system) >= capacity:
            continue
        ends[event] = max(arrival_s, heapq.heappop(free_s)) + service_s
        heapq.heappush(free_s, ends[event])
        heapq.heappush(in_system, ends[event])
    return ends


# --- events ----------------------------------------------------------------------------------------------------------


@given(arrivals, st.integers(1, 5), st.none() | st.integers(1, 7), st.integers(0, 5))
def test_each_event_ends_when_the_plain_calculation_says(
    times_s: list[float], containers: int, capacity: int | None, seed: int
) -> None:
    system = msgspec.structs.replace(ONE_QUEUE, capacity=capacity)
    schedule = schedule_at(times_s, 5)
    engine = bank(system, schedule, seed=seed, initial_replicas=containers)
    engine.advance(1e4)
    services_s = draw(system, len(schedule), seed)[0].tolist()
    assert finished(engine) == pytest.approx(plain_fifo(times_s, services_s, containers, capacity), rel=1e-12)
    assert engine.left() == 0


@pytest.mark.parametrize("when_full", ["hold", "drop"])
@pytest.mark.parametrize("forwarding", ["push", "pull"])
@given(
    times_s=arrivals,
    changes=st.lists(st.tuples(times, st.integers(0, 4), st.none() | st.floats(0, 1)), max_size=6),
    main_capacity=st.none() | st.integers(0, 5),
    removed=st.sampled_from(["pool", "destroy"]),
)
def test_nothing_is_lost_whatever_is_scaled(
    forwarding: Literal["push", "pull"],
    when_full: Literal["hold", "drop"],
    times_s: list[float],
    changes: list[tuple[float, int, float | None]],
    main_capacity: int | None,
    removed: Literal["pool", "destroy"],
) -> None:
    """At all times arrived = completed + rejected + in the system, and the monitor says so; in the end nothing is left
    where there is somebody to serve it.
    """
    system = msgspec.structs.replace(
        TWO_QUEUES, when_full=when_full, forwarding=forwarding, main_capacity=main_capacity, when_removed=removed
    )
    engine = bank(system, schedule_at(times_s, 5), initial_replicas=2, max_replicas=4)
    for time_s, replicas, share in sorted(changes, key=lambda change: change[0]):
        engine.advance(time_s)
        routing = None if share is None else {f"{FLEET}-1": share, f"{FLEET}-2": 1 - share}
        engine.actuator.apply(resized(replicas, routing=routing))
        seen = engine.monitor.observe()
        assert seen.arrived is not None and seen.completed is not None and seen.rejected is not None
        table = engine.results()
        assert seen.arrived == sum(at_s <= time_s for at_s in times_s)
        assert np.count_nonzero(table.outcome == COMPLETED) == seen.completed
        assert np.count_nonzero(table.outcome == REJECTED) == seen.rejected
        assert engine.left() == len(times_s) - seen.completed - seen.rejected
        assert seen.backlog == seen.arrived - seen.completed - seen.rejected
        waiting = sum((queue.depth or 0) + (queue.in_flight or 0) for queue in seen.queues)
        assert seen.backlog >= waiting >= (seen.in_flight or 0)
        if when_full == "drop":
            assert seen.backlog == waiting
        assert seen.routing == {} or sum(seen.routing.values()) == pytest.approx(1)
    engine.actuator.apply(resized(1))
    engine.advance(1e4)
    assert engine.left() == 0
    table = engine.results()
    assert table.id.tolist() == list(range(len(times_s)))
    done = table.outcome == COMPLETED
    assert (table.intended_s <= table.received_s).all() and (table.received_s <= table.started_s).all()
    assert (table.started_s[done] < table.finished_s[done]).all()
    assert (table.worker[done] >= 0).all() and (table.worker[~done] == -1).all()
    for worker in set(table.worker[done].tolist()):
        mine = np.sort(table.started_s[done & (table.worker == worker)])
        assert (mine[1:] >= np.sort(table.finished_s[done & (table.worker == worker)])[:-1] - 1e-12).all()


@given(arrivals, st.lists(times, max_size=8))
def test_how_often_it_is_advanced_changes_nothing(times_s: list[float], stops: list[float]) -> None:
    def play(stops: Sequence[float]) -> QueueEngine:
        engine = bank(TWO_QUEUES, schedule_at(times_s, 5), initial_replicas=2)
        for stop in sorted({*stops, 2.0}):
            engine.advance(stop)
            if stop == 2.0:
                engine.actuator.apply(resized(1))
        engine.advance(1e3)
        return engine

    assert finished(play(stops)) == finished(play([]))


def test_one_seed_gives_the_same_bytes_and_another_does_not() -> None:
    def told(seed: int) -> bytes:
        engine = bank(TWO_QUEUES, poisson(30, 20, 1), seed=seed, initial_replicas=1, max_replicas=4)
        seen = []
        for second in range(20):
            engine.advance(second)
            engine.actuator.apply(resized(1 + second // 5))
            seen.append(msgspec.json.encode(engine.monitor.observe()))
            seen.append(msgspec.json.encode(engine.actuator.events()))
        table = engine.results()
        columns = (table.id, table.received_s, table.started_s, table.finished_s, table.worker, table.queue)
        return b"".join([*seen, *(column.tobytes() for column in columns)])

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_a_scaler_changes_neither_service_times_nor_draws() -> None:
    """Common random numbers: an event that is served by another queue takes as long."""
    schedule = poisson(30, 20, 1)
    services = []
    for replicas in (1, 3):
        engine = bank(msgspec.structs.replace(TWO_QUEUES, capacity=None), schedule, initial_replicas=replicas)
        engine.advance(1e3)
        table = engine.results()
        services.append(table.finished_s - table.started_s)
    assert services[0] == pytest.approx(services[1], rel=1e-9)


# --- routing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [(0.5, 0.3, 0.2), (1.0, 0.0, 0.0), (2.0, 1.0, 1.0)])
def test_routing_shares_are_met(shares: tuple[float, ...]) -> None:
    """Within four standard deviations of independent draws, and exactly for a share of nothing."""
    system = msgspec.structs.replace(TWO_QUEUES, capacity=None)
    engine = bank(system, poisson(1000, 20, 3), initial_replicas=3)
    names = [queue.queue for queue in engine.monitor.observe().queues]
    engine.actuator.apply(Decision(action="reassign", routing=dict(zip(names, shares, strict=True))))
    engine.advance(20)
    seen = engine.monitor.observe()
    assert seen.arrived
    for queue, share in zip(seen.queues, np.array(shares) / sum(shares), strict=True):
        assert queue.arrived is not None
        assert abs(queue.arrived - share * seen.arrived) <= 4 * sqrt(seen.arrived * share * (1 - share))
        assert seen.routing[queue.queue] == pytest.approx(share)


def test_without_routing_shares_are_equal_and_a_queue_that_is_not_named_gets_nothing() -> None:
    engine = bank(msgspec.structs.replace(TWO_QUEUES, pool_initial=2), schedule_at([], 9), initial_replicas=2)
    assert engine.monitor.observe().routing == {"bank-1": 0.5, "bank-2": 0.5}
    accepted = engine.actuator.apply(resized(3, routing={"bank-1": 0.25, "bank-3": 0.75, "elsewhere": 1.0}))
    assert accepted.clamped == {"elsewhere": "no such queue"}
    assert engine.monitor.observe().routing == {"bank-1": 0.25, "bank-2": 0.0, "bank-3": 0.75}
    engine.actuator.apply(resized(3, routing=dict.fromkeys(("bank-1", "bank-2", "bank-3"), 0.0)))
    assert engine.monitor.observe().routing == pytest.approx(dict.fromkeys(("bank-1", "bank-2", "bank-3"), 1 / 3))


@pytest.mark.parametrize("routing", [{"bank-1": -0.1}, {"bank-1": float("nan")}])
def test_shares_that_are_none_are_refused(routing: dict[str, float]) -> None:
    engine = bank(TWO_QUEUES, schedule_at([], 9))
    with pytest.raises(ValueError, match="bank-1"):
        engine.actuator.apply(Decision(action="reassign", routing=routing))
    with pytest.raises(ValueError, match="elsewhere"):
        engine.actuator.apply(Decision(action="up", targets={"elsewhere": 2}))


def test_a_full_bank_holds_up_to_the_bound_of_the_main_queue_and_then_loses() -> None:
    system = QueueSystem(
        service_rate_per_s=1, service_law="deterministic", capacity=2, max_containers=1, main_capacity=3
    )
    engine = bank(system, schedule_at([0.0] * 8), initial_replicas=2)
    engine.advance(0.5)
    seen = engine.monitor.observe()
    assert (seen.rejected, seen.backlog, seen.in_flight) == (1, 7, 2)
    assert [queue.depth for queue in seen.queues] == [1, 1]
    engine.advance(100)
    table = engine.results()
    assert [table.queues[at] for at in table.queue[table.outcome == REJECTED]] == [MAIN_NAME]
    # Two containers, seven events of one second: ends at 1, 1, 2, 2, 3, 3 and 4.
    assert sorted(finished(engine).values()) == [1, 1, 2, 2, 3, 3, 4]


def test_an_event_is_lost_at_the_queue_that_it_was_sent_to() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, capacity=1, max_containers=1)
    engine = bank(system, schedule_at([0.0] * 5), initial_replicas=2)
    engine.actuator.apply(Decision(action="reassign", routing={"bank-1": 1.0, "bank-2": 0.0}))
    engine.advance(0)
    first, second = engine.monitor.observe().queues
    assert (first.arrived, first.rejected, second.arrived, second.rejected) == (5, 4, 0, 0)


def test_functions_that_pull_share_one_queue() -> None:
    """Two functions of one container each are one queue with two servers, whatever the routing."""
    times_s = np.sort(np.random.default_rng(1).random(200) * 8)
    system = QueueSystem(service_rate_per_s=10, forwarding="pull", max_containers=1, capacity=1)
    engine = bank(system, schedule_at(times_s, 10), initial_replicas=2)  # type: ignore[arg-type]
    engine.advance(1e3)
    arrival_s = engine.results().intended_s
    expected = plain_fifo(arrival_s.tolist(), draw(system, 200, 1)[0].tolist(), 2, None)
    assert finished(engine) == pytest.approx(expected, rel=1e-12)


# --- life of queues --------------------------------------------------------------------------------------------------


def life_of(events: Sequence[ReplicaEvent], replica: str) -> list[tuple[str, float]]:
    return [(event.phase, event.at_ns / 1e9) for event in events if event.replica == replica]


def test_a_removed_queue_is_fed_no_more_loses_nothing_and_returns_to_the_pool() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, service_law="deterministic", service_rate_per_s=1, capacity=None)
    engine = bank(system, schedule_at([0.0] * 40, 50), initial_replicas=2)
    engine.advance(0.5)
    first, second = engine.monitor.observe().queues
    engine.actuator.apply(Decision(action="down", targets={FLEET: 1}, routing={"bank-2": 1.0}))
    seen = engine.monitor.observe()
    assert [(queue.queue, queue.draining) for queue in seen.queues] == [("bank-1", True), ("bank-2", False)]
    assert seen.routing == {"bank-2": 1.0} and seen.replicas.current == 1 and seen.replicas.draining == 1
    engine.advance(100)
    seen = engine.monitor.observe()
    assert [queue.queue for queue in seen.queues] == ["bank-2"]
    assert seen.pool == ("bank-3", "bank-1")
    table = engine.results()
    assert (table.outcome == COMPLETED).all()
    of_first = table.queue == table.queues.index("bank-1")
    assert np.count_nonzero(of_first) == first.arrived and (first.arrived or 0) + (second.arrived or 0) == 40
    events = engine.actuator.events()
    emptied_s = table.finished_s[of_first].max()
    *in_service, (phase, pooled_s) = life_of(events, "bank-1")
    assert in_service == [("requested", 0), ("started", 0), ("joined", 0), ("first-event", 0), ("draining", 0.5)]
    assert phase == "pooled" and pooled_s == pytest.approx(emptied_s)
    containers = {event.replica for event in events if event.fleet == "bank-1"}
    assert containers == {"bank-1.1", "bank-1.2", "bank-1.3"}
    for container in containers:
        phase, gone_s = life_of(events, container)[-1]
        assert phase == "gone" and gone_s == pytest.approx(emptied_s)


def test_a_queue_that_comes_back_from_the_pool_begins_with_its_first_container() -> None:
    engine = bank(TWO_QUEUES, schedule_at([], 50), initial_replicas=1)
    engine.advance(5)
    assert servers(engine) == {"bank-1": 3}
    engine.actuator.apply(resized(0))
    engine.actuator.apply(resized(2))
    assert servers(engine) == {"bank-2": 1, "bank-1": 1}
    engine.advance(5.5)
    assert servers(engine) == {"bank-2": 2, "bank-1": 2}


def test_the_pool_is_first_in_first_out_and_what_it_lacks_is_created() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, pool_initial=2)
    engine = bank(system, schedule_at([], 50), initial_replicas=1, max_replicas=9)
    assert engine.monitor.observe().pool == ("bank-2", "bank-3")
    engine.advance(1)
    engine.actuator.apply(resized(4, pool=0))
    seen = engine.monitor.observe()
    assert [queue.queue for queue in seen.queues] == ["bank-1", "bank-2", "bank-3"]
    assert (seen.replicas.joined, seen.replicas.requested, seen.pool) == (3, 1, ())
    engine.advance(2.99)
    assert "bank-4" not in servers(engine)
    engine.advance(3)
    assert servers(engine)["bank-4"] == 1
    assert life_of(engine.actuator.events(), "bank-4")[:3] == [("requested", 1), ("started", 3), ("joined", 3)]


def test_the_pool_is_filled_by_one_queue_a_run_of_the_loop() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, pool_initial=0, provision_s=2.5, forward_interval_s=1.0)
    engine = bank(system, schedule_at([], 50), initial_replicas=1)
    engine.advance(0.25)
    engine.actuator.apply(Decision(action="reassign", pool=3))
    sizes = []
    for time_s in (1.0, 3.4, 3.5, 4.5, 5.4, 5.5, 20):
        engine.advance(time_s)
        sizes.append(len(engine.monitor.observe().pool))
    # Begun at 1, 2 and 3, each ready 2.5 s later; then there are enough.
    assert sizes == [0, 0, 1, 2, 2, 3, 3]
    assert [phase for phase, _ in life_of(engine.actuator.events(), "bank-2")] == ["requested", "pooled"]


def test_a_queue_that_is_no_longer_wanted_before_it_is_there_never_comes() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, pool_initial=0)
    engine = bank(system, schedule_at([], 50), initial_replicas=1)
    engine.actuator.apply(resized(2))
    engine.advance(1)
    engine.actuator.apply(resized(1))
    engine.advance(10)
    assert list(servers(engine)) == ["bank-1"]
    assert life_of(engine.actuator.events(), "bank-2") == [("requested", 0), ("gone", 1)]


def test_removed_queues_can_be_destroyed_instead() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, when_removed="destroy", pool_initial=0)
    engine = bank(system, schedule_at([], 50), initial_replicas=2)
    engine.actuator.apply(resized(1))
    assert dict(engine.actuator.replicas()) == {"bank-1": "joined"}
    assert engine.monitor.observe().pool == ()
    assert life_of(engine.actuator.events(), "bank-2")[-1] == ("gone", 0)


def test_service_rates_are_of_a_container_and_of_a_queue_with_its_containers() -> None:
    system = msgspec.structs.replace(TWO_QUEUES, service_law="deterministic", capacity=None)
    engine = bank(system, poisson(40, 20, 1), initial_replicas=2)
    assert engine.monitor.observe().service_rate_per_s is None
    engine.advance(15)
    seen = engine.monitor.observe()
    assert [queue.service_rate_per_s for queue in seen.queues] == pytest.approx([10, 10])
    assert seen.service_rate_per_s == pytest.approx(30)


# --- containers as replicas ------------------------------------------------------------------------------------------


def test_consumers_of_one_queue_join_after_their_start_up_and_end_what_they_serve() -> None:
    system = msgspec.structs.replace(
        ONE_QUEUE, service_law="deterministic", service_rate_per_s=0.5, first_container_s=3, capacity=None
    )
    engine = bank(system, schedule_at([0.0] * 4, 20), initial_replicas=2)
    engine.advance(1)
    engine.actuator.apply(resized(3))
    engine.advance(3.5)
    assert engine.monitor.observe().replicas.requested == 1
    engine.actuator.apply(resized(1))
    assert dict(engine.actuator.replicas()) == {"bank-1": "joined", "bank-2": "draining"}
    engine.advance(3.9)
    assert engine.monitor.observe().queues[0].servers == 2
    engine.advance(30)
    events = engine.actuator.events()
    # The second one began its second event at 2 and ends it at 4; the third was never needed.
    assert life_of(events, "bank-2")[-2:] == [("draining", 3.5), ("gone", 4)]
    assert life_of(events, "bank-3") == [("requested", 1), ("gone", 3.5)]
    assert {event.fleet for event in events} == {FLEET}
    assert sorted(finished(engine).values()) == [2, 2, 4, 4]


def test_one_queue_has_no_pool_and_its_service_rate_is_a_consumers() -> None:
    engine = bank(ONE_QUEUE, poisson(20, 10, 1), initial_replicas=3)
    engine.advance(10)
    seen = engine.monitor.observe()
    assert seen.pool == () and [queue.queue for queue in seen.queues] == [FLEET]
    assert seen.service_rate_per_s == seen.queues[0].service_rate_per_s
    assert seen.replicas.joined == 3


# --- faults ----------------------------------------------------------------------------------------------------------


def served(**fields: Any) -> QueueEngine:
    """One queue of one container with two events of 2 s at second 0."""
    system = QueueSystem(service_rate_per_s=0.5, service_law="deterministic", max_containers=1, **fields)
    engine = bank(system, schedule_at([0.0, 0.0, 6.0], 20), initial_replicas=1)
    engine.advance(1)
    return engine


@pytest.mark.parametrize("forwarding", ["push", "pull"])
def test_a_killed_container_comes_back_and_its_event_is_served_again_first(forwarding: str) -> None:
    engine = served(first_container_s=0.5, forwarding=forwarding)
    engine.inject(Fault("kill-worker", 1))
    assert servers(engine) == {"bank-1": 0}
    engine.advance(50)
    table = engine.results()
    # Up at .5, killed at 1, back at 1.5: the first event anew from 1.5 to 3.5.
    assert table.attempt.tolist() == [2, 1, 1]
    assert table.finished_s.tolist() == [3.5, 5.5, 8]
    assert [phase for phase, _ in life_of(engine.actuator.events(), "bank-1.1")] == [
        "requested", "started", "joined", "first-event", "gone",
        "requested", "started", "joined", "first-event",
    ]  # fmt: skip


FAULTS = ["kill-worker", "freeze-workers", "stop-broker", "restart-redis", "kill-forwarder", "cut-workers"]
kinds = st.sampled_from([*FAULTS, "scale"])


@pytest.mark.parametrize("scaled", ["queues", "containers"])
@pytest.mark.parametrize("forwarding", ["push", "pull"])
@given(
    times_s=arrivals,
    happenings=st.lists(st.tuples(times, kinds, st.integers(0, 3)), max_size=10),
    start_up_s=st.sampled_from([0.0, 0.3]),
)
def test_whatever_fails_nothing_is_lost_or_served_twice(
    scaled: Literal["queues", "containers"],
    forwarding: Literal["push", "pull"],
    times_s: list[float],
    happenings: list[tuple[float, str, int]],
    start_up_s: float,
) -> None:
    system = msgspec.structs.replace(
        TWO_QUEUES,
        scaled=scaled,
        forwarding=forwarding,
        first_container_s=start_up_s,
        when_full="hold",
        provision_s=0.7,
    )
    engine = bank(system, schedule_at(times_s, 5), initial_replicas=1, max_replicas=4)
    kills = 0
    for time_s, kind, number in sorted(happenings):
        engine.advance(time_s)
        if kind == "scale":
            engine.actuator.apply(resized(number))
        else:
            kills += kind == "kill-worker"
            engine.inject(Fault(kind, time_s, number / 2))  # type: ignore[arg-type]
    engine.actuator.apply(resized(1))
    engine.advance(1e4)
    assert engine.left() == 0
    table = engine.results()
    assert table.id.tolist() == list(range(len(times_s)))
    assert (table.outcome == COMPLETED).all()
    assert (table.attempt - 1).sum() <= kills
    assert (table.sent_s >= table.intended_s).all() and (table.started_s >= table.received_s).all()
    for worker in set(table.worker.tolist()):
        order = np.argsort(table.started_s[table.worker == worker], kind="stable")
        starts, ends = (times_[table.worker == worker][order] for times_ in (table.started_s, table.finished_s))
        assert (starts[1:] >= ends[:-1] - 1e-12).all()
    assert dict(engine.actuator.replicas())
    seen = engine.monitor.observe()
    assert (seen.backlog, seen.in_flight, seen.completed) == (0, 0, len(times_s))
    assert all(queue.depth == 0 for queue in seen.queues)


def test_an_idle_container_can_be_killed_and_with_none_nothing_happens() -> None:
    engine = bank(ONE_QUEUE, schedule_at([], 20), initial_replicas=1)
    engine.inject(Fault("kill-worker", 0))
    assert dict(engine.actuator.replicas()) == {"bank-1": "joined"}
    empty = bank(ONE_QUEUE, schedule_at([], 20), initial_replicas=0)
    empty.inject(Fault("kill-worker", 0))
    assert not empty.actuator.events()


def test_frozen_containers_end_that_much_later() -> None:
    engine = served()
    engine.inject(Fault("freeze-workers", 1, 1.5))
    engine.advance(2)
    engine.inject(Fault("freeze-workers", 2, 1.0))
    engine.advance(50)
    table = engine.results()
    # Frozen from 1 to 3 in all; the third event comes after the second, which ends at 6.
    assert table.finished_s.tolist() == [4, 6, 8]
    assert table.started_s.tolist() == [0, 4, 6]


def test_while_the_broker_is_away_nothing_enters_or_leaves_a_queue_and_nothing_is_seen() -> None:
    engine = served()
    engine.inject(Fault("stop-broker", 1, 7))
    engine.advance(7)
    seen = engine.monitor.observe()
    assert seen.arrived is None and "arrived" in seen.unknown
    engine.advance(50)
    table = engine.results()
    assert table.finished_s.tolist() == [2, 10, 12]
    assert table.sent_s.tolist() == [0, 0, 8]


@pytest.mark.parametrize("fault", [Fault("kill-forwarder", 10.0), Fault("cut-workers", 10.0, RESTART_S)])
@pytest.mark.parametrize("when_full", ["hold", "drop"])
@pytest.mark.parametrize("main_capacity", [None, 5])
def test_while_the_forwarder_is_away_events_arrive_in_the_main_queue_and_no_more_than_it_holds(
    fault: Fault, when_full: Literal["hold", "drop"], main_capacity: int | None
) -> None:
    """Ten events of 50 ms a second before, in and after an outage of 3 s."""
    system = QueueSystem(
        service_rate_per_s=20, service_law="deterministic", max_containers=1, capacity=4, when_full=when_full,
        main_capacity=main_capacity,
    )  # fmt: skip
    engine = bank(system, schedule_at([(event + 0.5) / 10 for event in range(200)], 20), initial_replicas=1)
    engine.advance(10.0)
    engine.inject(fault)
    engine.advance(12.9)
    seen = engine.monitor.observe()
    waiting = 29 if main_capacity is None else 5
    assert (seen.arrived, seen.backlog, seen.rejected) == (129, waiting, 29 - waiting)
    engine.advance(50)
    table = engine.results()
    assert table.id.tolist() == list(range(200))
    assert table.sent_s.tolist() == table.intended_s.tolist()
    kept = table.id[(table.intended_s > 10) & (table.intended_s < 13) & (table.outcome == COMPLETED)]
    assert (table.started_s[kept] >= 13).all()
    # Of those that waited, a forwarder that drops puts into the empty queue of four what that takes.
    room = 4 if when_full == "drop" else 30 if main_capacity is None else 5
    assert kept.tolist() == list(range(100, 100 + room))
    lost = table.id[(table.outcome == REJECTED) & (table.queue != 0)]
    at_the_queue = max(0, (30 if main_capacity is None else 5) - room)
    assert lost.tolist() == list(range(100 + room, 100 + room + at_the_queue))
    assert (table.finished_s[lost] == 13).all()
    after = table.intended_s > 15
    assert (table.outcome[after] == COMPLETED).all()


@pytest.mark.parametrize("when_full", ["hold", "drop"])
def test_functions_that_pull_and_are_cut_off_find_in_the_main_queue_what_came_meanwhile(
    when_full: Literal["hold", "drop"],
) -> None:
    engine = served(forwarding="pull", when_full=when_full)
    before = engine.left()
    engine.inject(Fault("cut-workers", 1, 7))
    engine.advance(7)
    seen = engine.monitor.observe()
    assert (seen.arrived, seen.in_flight) == (3, 1)
    engine.advance(50)
    table = engine.results()
    assert table.sent_s.tolist() == [0, 0, 6]
    assert table.outcome[2] == COMPLETED and table.started_s[2] >= 8
    assert engine.left() == 0 and before == (3 if when_full == "hold" else 2)


def test_an_unknown_fault_is_told_with_the_known_ones() -> None:
    with pytest.raises(PenstockError, match="kill-worker"):
        bank(ONE_QUEUE, schedule_at([], 9)).inject(Fault("kill-dataflow", 0))


# --- ports -----------------------------------------------------------------------------------------------------------


class Playing:
    """Waiting is advancing."""

    def __init__(self, engine: QueueEngine) -> None:
        self.engine = engine
        self.now_s = 0.0

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        self.engine.advance(self.now_s)


class TestQueueMonitor(MonitorConformance):
    def make_monitor(self) -> Monitor[FleetObservation]:
        self.playing = Playing(bank(TWO_QUEUES, poisson(5, 100, 1), initial_replicas=2))
        self.playing.go_on(5)
        return self.playing.engine.monitor

    def outage(self) -> AbstractContextManager[None]:
        @contextmanager
        def blind() -> Iterator[None]:
            self.playing.engine.inject(Fault("blind-monitor", self.playing.now_s, 5))
            yield
            self.playing.go_on(5)

        return blind()

    def wait(
        self, monitor: Monitor[FleetObservation], condition: Callable[[FleetObservation], bool]
    ) -> FleetObservation:
        seen = monitor.observe()
        assert condition(seen)
        return seen


class _QueueActuator(ActuatorConformance):
    system: QueueSystem

    def make_actuator(self) -> AbstractContextManager[Actuator]:
        spec = spec_of(self.system, initial_replicas=0, max_replicas=3)
        spec = msgspec.structs.replace(spec, fleet=self.fleet)
        self.playing = Playing(QueueEngine(spec, poisson(5, 100, 1)))
        return nullcontext(self.playing.engine.actuator)

    def wait(self, actuator: Actuator, events: list[ReplicaEvent], condition: Callable[[], bool]) -> None:
        deadline_s = self.playing.now_s + self.timeout_s
        while not condition():
            events.extend(actuator.events())
            assert self.playing.now_s < deadline_s
            self.playing.go_on(0.1)
        events.extend(actuator.events())
        events[:] = [event for event in events if event.fleet == self.fleet and event.phase != "first-event"]


class TestActuatorOfQueues(_QueueActuator):
    system = msgspec.structs.replace(TWO_QUEUES, pool_initial=0, when_removed="destroy")


class TestActuatorOfContainers(_QueueActuator):
    system = msgspec.structs.replace(ONE_QUEUE, first_container_s=0.5)


def test_events_of_replicas_are_in_order_of_time() -> None:
    engine = bank(TWO_QUEUES, poisson(40, 30, 1), initial_replicas=1, max_replicas=5)
    events: list[ReplicaEvent] = []
    for second in range(30):
        engine.advance(second)
        engine.actuator.apply(resized(1 + second % 4))
        events.extend(engine.actuator.events())
    assert len(events) > 50
    assert all(before.at_ns <= after.at_ns for before, after in pairwise(events))
    assert engine.actuator.apply(hold(FLEET, "for a reason")).targets == {FLEET: 2}
