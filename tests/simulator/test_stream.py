"""The simulated consumer group: nothing is lost, one seed is one run, rebalances and faults cost what they should."""

import re
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import Decision, ReplicaEvent, StreamObservation
from penstock.errors import PenstockError
from penstock.runspec import Fault, FaultKind, WorkerSpec
from penstock.schedule import Schedule
from simulator.clock import nanos
from simulator.engine import EventTable
from simulator.stream import StreamEngine, make_engine
from tests.simulator.playing import BINPACK, IDEAL, bytes_of, ideal, play, spec_of

AT_ONCE = ideal(rebalance_s=0.0, stop_s=0.0, leaving_rebalances=False)
FLEET = "payments"


def uniform(rate_per_s: float, seconds: float, partitions: int = 5) -> Schedule:
    events = int(rate_per_s * seconds)
    offsets = np.rint((np.arange(events) + 0.5) / rate_per_s * 1e9).astype(np.int64)
    return Schedule(offsets, (np.arange(events) % partitions).astype(np.int16), duration_s=seconds)


def scale(engine: StreamEngine, replicas: int, groups: tuple[tuple[int, ...], ...] | None = None) -> None:
    action = "up" if replicas > engine.actuator.counts().current else "down"
    engine.actuator.apply(Decision(action=action, targets={FLEET: replicas}, assignment=groups))  # type: ignore[arg-type]


def reassign(engine: StreamEngine, groups: tuple[tuple[int, ...], ...]) -> None:
    engine.actuator.apply(Decision(action="reassign", targets={FLEET: len(groups)}, assignment=groups))


def observe(engine: StreamEngine) -> StreamObservation:
    return engine.monitor.observe()


def silences_s(engine: StreamEngine, longer_than_s: float) -> list[tuple[float, float]]:
    """(from, to) of the times in which nobody was serving anything."""
    table = engine.results()
    order = np.argsort(table.started_s)
    started_s, finished_s = table.started_s[order], np.maximum.accumulate(table.finished_s[order])
    gaps = np.flatnonzero(started_s[1:] - finished_s[:-1] > longer_than_s)
    return [(float(finished_s[gap]), float(started_s[gap + 1])) for gap in gaps]


def waits_s(table: EventTable) -> dict[int, float]:
    """Intended to started, by event."""
    return dict(zip(table.id.tolist(), (table.started_s - table.intended_s).tolist(), strict=True))


# --- conservation and determinism ------------------------------------------------------------------------------------

FAULTS = st.lists(
    st.one_of(
        st.builds(Fault, st.sampled_from(["kill-worker", "kill-all-workers"]), at_s=st.floats(0, 8)),
        st.builds(Fault, st.just("freeze-workers"), at_s=st.floats(0, 8), seconds=st.floats(0.1, 5)),
        st.builds(
            Fault,
            st.sampled_from(["blind-monitor", "stop-broker", "restart-redis", "cut-workers", "cut-controller"]),
            at_s=st.floats(0, 8),
            seconds=st.floats(0.1, 5),
        ),
    ),
    max_size=3,
)


@given(
    faults=FAULTS,
    seed=st.integers(1, 1000),
    scaler=st.sampled_from(["binpack-tail", "linear", "overprovision"]),
    directed=st.booleans(),
    cooperative=st.booleans(),
    start_up_s=st.sampled_from([0.0, 1.2]),
    commit_every=st.sampled_from([1, 4]),
    commit_interval_s=st.sampled_from([0.0, 0.02, 0.5]),
    rate_per_s=st.sampled_from([90.0, 400.0]),
)
def test_every_event_is_finished_once_and_again_only_after_a_fault(
    faults: list[Fault],
    seed: int,
    scaler: str,
    directed: bool,
    cooperative: bool,
    start_up_s: float,
    commit_every: int,
    commit_interval_s: float,
    rate_per_s: float,
) -> None:
    spec = spec_of(
        seconds=8,
        scaler=scaler,
        parameters={"hold_s": 2.0} if scaler != "overprovision" else {},
        worker=WorkerSpec(
            directed_rebalance=directed,
            commit_every=commit_every,
            commit_interval_s=commit_interval_s,
            service_law="exponential",
        ),
        system=ideal(start_up_s=start_up_s, cooperative=cooperative),
        seed=seed,
        tick_phase_s=0.1,
    )
    schedule = uniform(rate_per_s, 8)
    played = play(spec, schedule, faults=faults, drain_s=25)
    table = played.engine.results()
    assert played.engine.left() == 0
    assert sorted(set(table.id.tolist())) == list(range(len(schedule)))
    again = len(table) - len(schedule)
    disturbed = any(fault.kind not in ("blind-monitor", "cut-controller") for fault in faults)
    assert again == 0 or disturbed
    assert (table.attempt > 1).sum() >= again
    assert (table.started_s >= table.intended_s).all() and (table.finished_s >= table.started_s).all()
    alone_at_a_time(table)
    in_order_of_offset(table)
    assert observe(played.engine).backlog in (0, None)
    lives(played.journal.events)


def alone_at_a_time(table: EventTable) -> None:
    """No replica serves two events at once."""
    for worker in np.unique(table.worker):
        mine = table.worker == worker
        order = np.lexsort((table.finished_s[mine], table.started_s[mine]))
        started_s, finished_s = table.started_s[mine][order], table.finished_s[mine][order]
        assert (started_s[1:] >= finished_s[:-1]).all()


def in_order_of_offset(table: EventTable) -> None:
    """The deliveries that counted came in the order of the offsets of their partition."""
    last = np.zeros(int(table.id.max()) + 1, np.int64)
    last[table.id[::-1]] = np.arange(len(table))[::-1]  # the first row of an id is its last delivery
    for partition in np.unique(table.queue):
        rows = last[np.unique(table.id[table.queue == partition])]
        assert (np.diff(table.started_s[rows]) >= 0).all()


def lives(events: list[ReplicaEvent]) -> None:
    """Each replica's steps come in order, and it is there again only after it was gone."""
    order = ["requested", "started", "joined", "first-event", "draining", "gone"]
    for name in {event.replica for event in events}:
        steps = [event for event in events if event.replica == name]
        assert [event.at_ns for event in steps] == sorted(event.at_ns for event in steps)
        life: list[int] = []
        for event in steps:
            if event.phase == "requested":
                assert not life or life[-1] == order.index("gone")
                life = []
            life.append(order.index(event.phase))
            assert life == sorted(set(life))


@pytest.mark.parametrize("law", ["deterministic", "exponential"])
def test_one_seed_is_one_run_byte_by_byte(law: Any) -> None:
    faults = [Fault("kill-worker", 7), Fault("freeze-workers", 12, 4)]

    def run(seed: int) -> bytes:
        worker = WorkerSpec(directed_rebalance=False, service_law=law)
        system = ideal(batch=4, staleness_s=0.1, staleness_sd_s=0.05)
        spec = spec_of(seconds=30, scaler="binpack-tail", parameters=BINPACK, worker=worker, system=system, seed=seed)
        return bytes_of(play(spec, uniform(300, 30), faults=faults))

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_event_costs_the_same_whoever_serves_it() -> None:
    worker = WorkerSpec(service_law="exponential")
    tables = [
        play(spec_of(seconds=20, worker=worker, initial_replicas=replicas), uniform(100, 20)).engine.results()
        for replicas in (1, 4)
    ]
    one, four = (table.finished_s - table.started_s for table in tables)
    assert np.allclose(one, four, rtol=0, atol=1e-12)
    assert one.std() > 0.001


def test_a_long_schedule_in_parts_gives_the_same_run_as_in_one_piece() -> None:
    whole = uniform(300, 30)
    spec = spec_of(seconds=30, initial_replicas=2, max_replicas=3)

    def part(from_s: float, to_s: float) -> Schedule:
        inside = (whole.intended_offset_ns >= nanos(from_s)) & (whole.intended_offset_ns < nanos(to_s))
        return Schedule(whole.intended_offset_ns[inside], whole.partition[inside], duration_s=30)

    def run(engine: StreamEngine) -> list[StreamObservation]:
        seen = []
        for second in range(60):
            engine.advance(second + 0.1)
            seen.append(observe(engine))
            if second == 9:
                scale(engine, 3)
        return seen

    kept: list[EventTable] = []
    in_parts = StreamEngine(
        spec, part(0, 10), more=iter([(10.0, part(10, 20)), (20.0, part(20, 30))]), sink=kept.append
    )
    at_once = make_engine(spec, whole)
    assert run(in_parts) == run(at_once)
    kept.append(in_parts.results())
    expected = at_once.results()
    assert np.array_equal(np.sort(np.concatenate([table.id for table in kept])), expected.id)
    finished = dict(zip(expected.id.tolist(), expected.finished_s.tolist(), strict=True))
    for table in kept:
        assert [finished[event] for event in table.id.tolist()] == table.finished_s.tolist()


# --- what the monitor says -------------------------------------------------------------------------------------------


def test_the_reading_counts_what_has_arrived_and_what_is_done_by_then() -> None:
    burst = Schedule(np.full(40, 1_000_000_000), np.zeros(40, np.int16), duration_s=5)
    engine = make_engine(spec_of(seconds=5, partitions=1), burst)
    expected = {0.9: (0, 0), 1.0: (40, 0), 1.0049: (40, 0), 1.1: (40, 20), 1.2001: (40, 40)}
    for time_s, (end, committed) in expected.items():
        engine.advance(time_s)
        (partition,) = observe(engine).partitions
        assert (partition.end_offset, partition.committed_offset) == (end, committed), time_s


def test_commits_come_with_the_last_event_of_a_chunk() -> None:
    burst = Schedule(np.full(10, 1_000_000_000), np.zeros(10, np.int16), duration_s=5)
    engine = make_engine(
        spec_of(seconds=5, partitions=1, worker=WorkerSpec(commit_every=4, commit_interval_s=0.0)), burst
    )
    seen = []
    for time_s in (1.019, 1.021, 1.039, 1.041, 1.049, 1.051):
        engine.advance(time_s)
        seen.append(observe(engine).completed)
    assert seen == [0, 4, 4, 8, 8, 10]


def test_commits_are_an_interval_apart_while_events_keep_coming_and_at_once_when_none_does() -> None:
    burst = Schedule(np.full(10, 1_000_000_000), np.zeros(10, np.int16), duration_s=5)
    engine = make_engine(spec_of(seconds=5, partitions=1, worker=WorkerSpec(commit_interval_s=0.02)), burst)
    seen = []
    for time_s in (1.006, 1.024, 1.026, 1.044, 1.046, 1.051):
        engine.advance(time_s)
        seen.append(observe(engine).completed)
    # Long after the last commit, the first event is committed when it is done; then every 20 ms; the last at once.
    assert seen == [1, 1, 5, 5, 9, 10]


@pytest.mark.parametrize(
    ("batch", "order"),
    [(0, [0, 1] * 5), (1, [0, 1] * 5), (3, [0] * 3 + [1] * 3 + [0] * 2 + [1] * 2), (10, [0] * 5 + [1] * 5)],
)
def test_a_replica_takes_its_partitions_in_turns_of_a_batch(batch: int, order: list[int]) -> None:
    burst = Schedule(np.full(10, 1_000_000_000), np.tile(np.arange(2, dtype=np.int16), 5), duration_s=5)
    engine = make_engine(spec_of(seconds=5, partitions=2, system=ideal(batch=batch)), burst)
    engine.advance(5.0)
    table = engine.results()
    assert table.queue[np.argsort(table.started_s)].tolist() == order


def test_a_stale_reading_shows_the_commits_of_before_and_never_less_than_no_lag() -> None:
    schedule = uniform(100, 20)
    fresh, stale, noisy = (
        make_engine(spec_of(seconds=20, system=system), schedule)
        for system in (ideal(), ideal(staleness_s=0.5), ideal(staleness_sd_s=0.2))
    )
    lags = []
    for second in range(2, 20):
        for engine in (fresh, stale, noisy):
            engine.advance(second + 0.1025)
        now, then, blurred = (observe(engine) for engine in (fresh, stale, noisy))
        assert now.arrived == then.arrived == blurred.arrived
        assert then.backlog == now.backlog + 50  # type: ignore[operator]
        assert blurred.backlog >= now.backlog  # type: ignore[operator]
        lags.append(blurred.backlog)
    assert len(set(lags)) > 5


def test_a_blinded_monitor_knows_nothing_until_it_sees_again() -> None:
    played = play(
        spec_of(seconds=30, scaler="binpack-tail", parameters=BINPACK),
        uniform(100, 30),
        faults=[Fault("blind-monitor", 10.5, 5)],
    )
    blind = [tick.time_s for tick in played.journal.ticks if tick.observation.backlog is None]
    assert blind == [11.1, 12.1, 13.1, 14.1, 15.1]
    held = [tick for tick in played.journal.ticks if tick.time_s in blind]
    assert {tick.decisions["binpack-tail"].action for tick in held} == {"hold"}
    assert all("blinded" in tick.note for tick in held)


# --- rebalances ------------------------------------------------------------------------------------------------------


def test_an_eager_rebalance_stops_everybody_and_a_cooperative_one_only_what_moves() -> None:
    def stopped(cooperative: bool) -> set[int]:
        spec = spec_of(
            seconds=10,
            initial_replicas=3,
            max_replicas=3,
            system=ideal(cooperative=cooperative, rebalance_s=0.5),
        )
        engine = make_engine(spec, uniform(300, 10))
        engine.advance(5.0)
        assert observe(engine).assigned == {f"{FLEET}-1": (0, 1), f"{FLEET}-2": (2, 3), f"{FLEET}-3": (4,)}
        reassign(engine, ((0,), (1, 2, 3), (4,)))
        engine.advance(60)
        assert observe(engine).assigned == {f"{FLEET}-1": (0,), f"{FLEET}-2": (1, 2, 3), f"{FLEET}-3": (4,)}
        table = engine.results()
        during = (table.started_s > 5.0) & (table.started_s < 5.5)
        return set(range(5)) - set(table.queue[during].tolist())

    assert stopped(cooperative=False) == {0, 1, 2, 3, 4}
    assert stopped(cooperative=True) == {1}


@pytest.mark.parametrize("pause_s", [0.0, 0.5, 2.0])
def test_a_rebalance_lasts_as_long_as_it_was_told_to(pause_s: float) -> None:
    worker = WorkerSpec(service_time_s=0.001, rebalance_pause_s=pause_s)
    engine = make_engine(spec_of(seconds=10, initial_replicas=2, worker=worker), uniform(1000, 10))
    engine.advance(5.0)
    reassign(engine, ((0,), (1, 2, 3, 4)))
    engine.advance(60)
    ((began_s, ended_s),) = silences_s(engine, longer_than_s=0.02)
    assert began_s == pytest.approx(5.0, abs=0.002)
    assert ended_s - began_s == pytest.approx(IDEAL.rebalance_s + pause_s, abs=0.002)
    assert observe(engine).last_rebalance_s == pytest.approx(5.0 + IDEAL.rebalance_s + pause_s, abs=0.002)


@pytest.mark.parametrize("heartbeat_s", [3.0, 0.5])
def test_without_direction_members_learn_of_a_plan_with_their_next_heartbeat(heartbeat_s: float) -> None:
    """The leaver's partitions stand still until the last of them has; on average nearly a whole heartbeat for many."""
    stalls = []
    for seed in range(40):
        worker = WorkerSpec(service_time_s=0.001, directed_rebalance=False, heartbeat_s=heartbeat_s)
        spec = spec_of(
            seconds=10,
            initial_replicas=4,
            max_replicas=4,
            worker=worker,
            system=msgspec.structs.replace(AT_ONCE, batch=0),
            seed=seed,
        )
        engine = make_engine(spec, uniform(500, 10))
        engine.advance(5.0)
        before = observe(engine).assigned
        scale(engine, 3, ((0, 1, 4), (2,), (3,)))
        engine.advance(60)
        (left,) = set(before) - set(observe(engine).assigned)
        table = engine.results()
        blocked = [
            float(table.started_s[(table.queue == partition) & (table.started_s > 5.001)].min())
            for partition in before[left]
        ]
        stalls.append(max(blocked) - 5.0)
    assert max(stalls) <= heartbeat_s + 0.01
    # The leader is told at once, two others at their next heartbeats: the later of two uniform times.
    assert np.mean(stalls) == pytest.approx(2 / 3 * heartbeat_s, rel=0.2)


def test_newcomers_get_nothing_until_all_have_joined_then_everything_moves_at_once() -> None:
    spec = spec_of(seconds=20, system=ideal(start_up_s=2.0))
    engine = make_engine(spec, uniform(100, 20))
    engine.advance(5.0)
    scale(engine, 3)
    assert engine.actuator.counts().current == 3
    engine.advance(6.9)
    assert observe(engine).assigned == {f"{FLEET}-1": (0, 1, 2, 3, 4)}
    assert observe(engine).plan == ((0, 1), (2, 3), (4,))
    engine.advance(7.2)
    assert observe(engine).assigned == {f"{FLEET}-1": (0, 1), f"{FLEET}-2": (2, 3), f"{FLEET}-3": (4,)}
    phases = [(event.phase, event.at_ns) for event in engine.actuator.events() if event.replica == f"{FLEET}-3"]
    assert phases[:3] == [("requested", nanos(5)), ("started", nanos(5)), ("joined", nanos(7))]


def test_a_plan_with_fewer_groups_than_replicas_does_not_wait_for_those_that_start() -> None:
    spec = spec_of(seconds=20, system=ideal(start_up_s=2.0), initial_replicas=2)
    engine = make_engine(spec, uniform(100, 20))
    engine.advance(5.0)
    scale(engine, 3, ((0,), (1, 2, 3, 4)))
    engine.advance(5.2)
    assert sorted(observe(engine).assigned.values()) == [(0,), (1, 2, 3, 4)]
    engine.advance(7.2)
    held = observe(engine).assigned
    assert sorted(held.values()) == [(), (0,), (1, 2, 3, 4)] and held[f"{FLEET}-3"] == ()
    scale(engine, 3, ((0,), (1, 2), (3, 4)))
    engine.advance(7.4)
    assert sorted(observe(engine).assigned.values()) == [(0,), (1, 2), (3, 4)]


def test_a_plan_whose_members_never_come_is_followed_by_those_who_are_there() -> None:
    spec = spec_of(seconds=60, system=ideal(start_up_s=30.0), join_timeout_s=5.0, initial_replicas=2)
    engine = make_engine(spec, uniform(100, 60))
    engine.advance(5.0)
    scale(engine, 3)
    engine.advance(9.9)
    assert observe(engine).plan_epoch == 1
    engine.advance(10.5)
    assert observe(engine).plan_epoch == 2
    held = observe(engine).assigned
    assert set(held) == {f"{FLEET}-1", f"{FLEET}-2"}
    assert sorted(p for mine in held.values() for p in mine) == [0, 1, 2, 3, 4]


def test_the_replica_that_the_plan_wants_gone_is_the_one_that_goes_after_letting_go() -> None:
    engine = make_engine(spec_of(seconds=20, initial_replicas=3), uniform(100, 20))
    engine.advance(5.0)
    engine.actuator.events()
    scale(engine, 2, ((2, 3, 4), (0, 1)))
    engine.advance(20)
    gone = [event for event in engine.actuator.events() if event.phase in ("draining", "gone")]
    assert [(event.replica, event.phase) for event in gone] == [(f"{FLEET}-3", "draining"), (f"{FLEET}-3", "gone")]
    let_go_s = 5.0 + IDEAL.rebalance_s + IDEAL.stop_s
    assert gone[1].at_ns / 1e9 == pytest.approx(let_go_s, abs=0.006)
    assert observe(engine).assigned == {f"{FLEET}-1": (0, 1), f"{FLEET}-2": (2, 3, 4)}


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("steps", [(0,), (1, 0)])
def test_a_group_of_none_serves_nothing_more_and_is_gone_after_the_events_in_hand(
    steps: tuple[int, ...], cooperative: bool
) -> None:
    """Also where a replica has not released its partitions yet when the last one is told to go."""
    engine = make_engine(
        spec_of(seconds=20, initial_replicas=2, system=ideal(cooperative=cooperative)), uniform(100, 20)
    )
    engine.advance(5.0)
    for replicas in steps:
        scale(engine, replicas)
    engine.advance(10.0)
    gone_s = [event.at_ns / 1e9 for event in engine.actuator.events() if event.phase == "gone"]
    let_go_s = 5.0 + (IDEAL.rebalance_s if len(steps) > 1 else 0.0) + IDEAL.stop_s
    assert len(gone_s) == 2 and max(gone_s) == pytest.approx(let_go_s, abs=0.011)
    assert engine.results().started_s.max() < 5.006
    assert (observe(engine).assigned, observe(engine).backlog) == ({}, 500)
    scale(engine, 1)
    engine.advance(60)
    assert engine.left() == 0 and len(engine.results()) == 2000


def test_a_frozen_replica_of_a_group_of_none_ends_when_it_continues() -> None:
    engine = make_engine(spec_of(seconds=20, initial_replicas=1), uniform(100, 20))
    engine.advance(5.0)
    engine.inject(Fault("freeze-workers", 5.0, 2.0))
    scale(engine, 0)
    engine.advance(10.0)
    (gone,) = [event for event in engine.actuator.events() if event.phase == "gone"]
    assert gone.at_ns / 1e9 == pytest.approx(7.0 + IDEAL.stop_s)


def test_an_assignment_that_is_none_is_answered_with_range() -> None:
    engine = make_engine(spec_of(seconds=20), uniform(100, 20))
    engine.advance(5.0)
    scale(engine, 2, ((0, 1), (1, 2, 3)))
    engine.advance(10)
    assert observe(engine).assigned == {f"{FLEET}-1": (0, 1, 2), f"{FLEET}-2": (3, 4)}


# --- faults ----------------------------------------------------------------------------------------------------------


def test_after_a_kill_partitions_stand_still_for_the_session_and_the_event_in_hand_comes_again() -> None:
    spec = spec_of(
        seconds=20, initial_replicas=2, system=AT_ONCE, worker=WorkerSpec(session_timeout_s=3.0, commit_interval_s=0.0)
    )
    engine = make_engine(spec, uniform(200, 20))
    engine.advance(5.004)
    killed_held = observe(engine).assigned[f"{FLEET}-1"]
    engine.inject(Fault("kill-worker", 5.004))
    engine.advance(60)
    table = engine.results()
    theirs = np.isin(table.queue, killed_held)
    assert not ((table.started_s > 5.004) & (table.started_s < 8.004) & theirs).any()
    again = table.id[table.attempt > 1]
    assert len(again) == 1 and len(table) == 4000
    life = [(event.phase, event.reason) for event in engine.actuator.events() if event.replica == f"{FLEET}-1"]
    assert life[-5:-1] == [("gone", "killed"), ("requested", "respawned"), ("started", ""), ("joined", "")]


def test_all_replicas_are_respawned_and_no_event_is_lost() -> None:
    engine = make_engine(spec_of(seconds=20, initial_replicas=2, system=AT_ONCE), uniform(200, 20))
    engine.advance(5.0)
    assert engine.inject(Fault("kill-all-workers", 5.0))
    engine.advance(60)
    assert engine.left() == 0
    lives = [(event.replica, event.phase) for event in engine.actuator.events() if event.reason]
    assert sorted(lives) == [(f"{FLEET}-{n}", phase) for n in (1, 2) for phase in ("gone", "requested")]


def test_a_kill_redelivers_what_was_published_but_not_committed() -> None:
    worker = WorkerSpec(commit_every=50, commit_interval_s=0.0)
    engine = make_engine(spec_of(seconds=10, partitions=1, worker=worker, system=AT_ONCE), burst_of(100))
    engine.advance(1.302)  # 60 are done, the first 50 of them committed; the 61st is in hand
    engine.inject(Fault("kill-worker", 1.302))
    assert engine.left() == 40, "those whose results are out are finished, though they will be delivered again"
    engine.advance(60)
    table = engine.results()
    assert engine.left() == 0
    assert sorted(table.id[table.attempt == 1].tolist()) == [*range(60), *range(61, 100)]
    assert sorted(table.id[table.attempt == 2].tolist()) == [*range(50, 61)]


def burst_of(events: int) -> Schedule:
    return Schedule(np.full(events, 1_000_000_000), np.zeros(events, np.int16), duration_s=10)


@pytest.mark.parametrize("replicas", [1, 3])
def test_an_event_that_comes_into_a_freeze_waits_as_the_formula_says(replicas: int) -> None:
    """Intended u seconds into a freeze of 10 s, it waits 10 − u (1 − λ / (n μ)), at most one service time more, where
    events are served in order of arrival.
    """
    rate_per_s, mu, frozen_s = 120.0, 200.0, 10.0
    by_arrival, worker = msgspec.structs.replace(AT_ONCE, batch=0), WorkerSpec(service_time_s=1 / mu)
    spec = spec_of(seconds=40, partitions=6, initial_replicas=replicas, worker=worker, system=by_arrival)
    engine = make_engine(spec, uniform(rate_per_s, 40, partitions=6))
    engine.advance(10.0)
    engine.inject(Fault("freeze-workers", 10.0, frozen_s))
    engine.advance(100)
    table = engine.results()
    inside = (table.intended_s >= 10.0) & (table.intended_s < 20.0) & (table.attempt == 1)
    u_s = table.intended_s[inside] - 10.0
    waited_s = table.started_s[inside] - table.intended_s[inside]
    assert len(u_s) > 1000
    assert waited_s == pytest.approx(frozen_s - u_s * (1 - rate_per_s / (replicas * mu)), abs=0.03)


def test_a_freeze_within_the_session_costs_no_rebalance_and_a_longer_one_throws_everybody_out() -> None:
    def rebalances(frozen_s: float) -> tuple[int, int]:
        engine = make_engine(spec_of(seconds=20, initial_replicas=2), uniform(100, 20))
        engine.advance(5.0)
        engine.inject(Fault("freeze-workers", 5.0, frozen_s))
        engine.advance(60)
        return engine.group.rebalances, len(engine.results()) - 2000

    assert rebalances(2.0) == (1, 0)
    count, redelivered = rebalances(10.0)
    assert count > 1 and redelivered <= 2


@pytest.mark.parametrize("kind", ["restart-redis", "stop-broker"])
def test_a_member_that_was_frozen_before_a_longer_outage_serves_after_it(kind: FaultKind) -> None:
    faults = [Fault("freeze-workers", 2.0, 1.6), Fault(kind, 2.5, 2.0)]
    played = play(spec_of(seconds=8, initial_replicas=2), uniform(50, 8), faults=faults, drain_s=20)
    assert played.engine.left() == 0


def test_a_controller_that_is_cut_off_reads_nothing_and_the_workers_go_on() -> None:
    engine = make_engine(spec_of(seconds=20, initial_replicas=2), uniform(100, 20))
    engine.advance(5.0)
    before = observe(engine)
    engine.inject(Fault("cut-controller", 5.0, 2.0))
    engine.advance(6.9)
    seen = observe(engine)
    engine.advance(7.1)
    after = observe(engine)
    assert (before.backlog, seen.backlog) == (0, None)
    assert "is cut" in " ".join(seen.unknown.values())
    assert after.completed is not None and before.completed is not None and after.completed > before.completed + 150
    assert engine.group.rebalances == 1


def test_workers_that_are_cut_off_finish_nothing_until_the_network_is_back() -> None:
    engine = make_engine(spec_of(seconds=20, initial_replicas=2), uniform(100, 20))
    engine.advance(5.0)
    engine.inject(Fault("cut-workers", 5.0, 2.0))
    engine.advance(6.9)
    backlog = observe(engine).backlog
    engine.advance(60)
    assert backlog is not None and backlog > 150, "the monitor still reads the broker"
    assert engine.left() == 0


def test_a_fault_that_is_not_simulated_is_refused_with_those_that_are() -> None:
    engine = make_engine(spec_of(seconds=20), uniform(100, 20))
    with pytest.raises(PenstockError, match=re.escape("stop-gateway@3+2")) as refusal:
        engine.inject(Fault("stop-gateway", 3, 2))
    assert "kill-worker" in str(refusal.value)


def test_work_without_a_floor_cannot_be_simulated() -> None:
    with pytest.raises(PenstockError, match="service_time_s"):
        make_engine(spec_of(seconds=5, worker=WorkerSpec(service_time_s=0)), uniform(10, 5))


# --- arrivals by slot and late events -------------------------------------------------------------------------------


def test_arrivals_by_slot_and_late_events_are_counted_only_when_asked_for() -> None:
    observed = observe(make_engine(spec_of(seconds=5), uniform(50, 5)))
    assert (observed.finished, observed.late, observed.busy_s) == (None, None, None)
    assert all(each.arrivals_by_slot is None for each in observed.partitions)


@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_slots_have_the_arrivals_of_the_last_second_of_the_run_oldest_first(speed: float) -> None:
    at_s = np.array([0.02, 0.41, 0.43, 0.96, 1.19]) / speed
    schedule = Schedule(np.rint(at_s * 1e9).astype(np.int64), np.zeros(5, np.int16), duration_s=2.0)
    engine = make_engine(spec_of(seconds=2, partitions=2, reads_arrivals=True, speed=speed), schedule)
    engine.advance(1.2 / speed)
    first, second = observe(engine).partitions
    slots = [0] * 20
    slots[4], slots[15], slots[19] = 2, 1, 1
    assert first.arrivals_by_slot == tuple(slots)
    assert second.arrivals_by_slot == (0,) * 20


@pytest.mark.parametrize("parts", [1, 3])
def test_late_and_finished_events_are_those_of_the_results(parts: int) -> None:
    whole = uniform(300, 9)
    of_part = np.minimum(whole.intended_offset_ns // (9 * 10**9 // parts), parts - 1)
    schedules = [
        Schedule(whole.intended_offset_ns[of_part == part], whole.partition[of_part == part], duration_s=9.0)
        for part in range(parts)
    ]
    more = [(9.0 / parts * part, schedule) for part, schedule in enumerate(schedules) if part]
    dropped: list[EventTable] = []
    spec = spec_of(seconds=9, reads_arrivals=True, faults=())
    engine = StreamEngine(spec, schedules[0], more=more, sink=dropped.append)
    for second in range(1, 14):
        engine.advance(second)
        if second == 4:
            engine.inject(Fault("kill-worker", at_s=4.0))
        observed = observe(engine)
        tables = [*dropped, engine.results()]
        ids, finished_s, latency_s = (
            np.concatenate(columns)
            for columns in (
                [table.id for table in tables],
                [table.finished_s for table in tables],
                [table.finished_s - table.intended_s for table in tables],
            )
        )
        assert observed.finished == len(np.unique(ids[finished_s <= second]))
        assert observed.busy_s == pytest.approx(0.005 * observed.finished, rel=0.1)
        if second <= 4:  # later, some were finished twice
            assert observed.late == int((latency_s[finished_s <= second] > spec.slo_s + 1e-9).sum())
    assert observed.late is not None and observed.late > 100


def test_start_ups_and_rebalances_are_observed_as_the_system_has_them() -> None:
    system = ideal(start_up_s=1.2)
    engine = make_engine(spec_of(seconds=20, reads_arrivals=True, initial_replicas=1, system=system), uniform(100, 20))
    engine.advance(2.0)
    assert (observe(engine).start_ups_s, observe(engine).rebalances_s) == ((), ())  # the first one was there before
    for at_s, replicas in ((2.0, 2), (6.0, 3), (10.0, 2)):
        engine.advance(at_s)
        scale(engine, replicas)
    engine.advance(15.0)
    observed = observe(engine)
    assert observed.start_ups_s == pytest.approx([system.start_up_s] * 2)
    assert len(observed.rebalances_s) >= 3
    assert np.median(observed.rebalances_s) == pytest.approx(system.rebalance_s, abs=0.012)
