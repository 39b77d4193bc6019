"""The engine for pipelines: branches, merges, deadlines, laxity, scaling, faults, conservation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import Accepted, Actuator, Decision, FunctionStatus, Monitor, ReplicaEvent, hold
from penstock.errors import PenstockError
from penstock.function_messages import RETRY_S
from penstock.graph import Graph, topological
from penstock.runspec import Fault, RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSpec, FunctionSystem, NetworkSystem, ServiceDistribution
from simulator.engine import EventTable
from simulator.function import FunctionEngine, make_engine
from tests.conformance.ports import ActuatorConformance, AdvancingActuator, MonitorConformance

DIAMOND = (
    FunctionSpec(name="split", service_time_s=0.1),
    FunctionSpec(name="short", service_time_s=0.1, after=("split",)),
    FunctionSpec(name="long", service_time_s=0.3, after=("split",)),
    FunctionSpec(name="merge", service_time_s=0.1, after=("short", "long")),
)


def chain(*service_times_s: float, law: Any = "deterministic", scv: float = 1.0) -> tuple[FunctionSpec, ...]:
    return tuple(
        FunctionSpec(
            name=f"f{i}", service_time_s=s, service_law=law, service_scv=scv, after=(f"f{i - 1}",) if i else ()
        )
        for i, s in enumerate(service_times_s)
    )


def schedule_at(*times_s: float) -> Schedule:
    offsets = np.asarray([round(t * 1e9) for t in times_s], dtype=np.int64)
    return Schedule(offsets, np.zeros(len(offsets), dtype=np.int16), max(times_s, default=0.0) + 1.0)


def engine_of(
    functions: tuple[FunctionSpec, ...],
    schedule: Schedule,
    *,
    replicas: int = 1,
    most: int = 100,
    seed: int = 1,
    fleet: str = "pipe",
    **system: Any,
) -> FunctionEngine:
    spec = RunSpec(
        run="r",
        experiment="e",
        world="sim",
        scaler=ScalerSpec(name="x"),
        seed=seed,
        pipeline="document",
        fleet=fleet,
        duration_s=schedule.duration_s,
        initial_replicas=replicas,
        max_replicas=most,
        system=FunctionSystem(functions=functions, **{"deadline_s": 1.0, **system}),
    )
    return make_engine(spec, schedule)


def scale(engine: FunctionEngine, **targets: int) -> Accepted:
    return engine.actuator.apply(Decision(action="up", targets=targets))


def function(engine: FunctionEngine, name: str) -> FunctionStatus:
    return next(status for status in engine.monitor.observe().functions if status.fleet == name)


def times(engine: FunctionEngine, column: str, stage: str) -> list[float]:
    """A column of the rows of one function, by request."""
    table = engine.results()
    rows = np.flatnonzero(table.stage == table.stages.index(stage))
    return [float(v) for v in getattr(table, column)[rows[np.argsort(table.id[rows])]]]


# --- the graph -------------------------------------------------------------------------------------------------------


def test_functions_run_after_those_they_wait_for_whatever_their_order() -> None:
    assert [f.name for f in topological(tuple(reversed(DIAMOND)))] == ["split", "long", "short", "merge"]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((FunctionSpec(name="a", service_time_s=1, after=("a",)),), "wait for each other"),
        ((FunctionSpec(name="a", service_time_s=1), FunctionSpec(name="a", service_time_s=1)), "there 2 times"),
        ((FunctionSpec(name="a", service_time_s=1, after=("b",)),), "waits for 'b'"),
    ],
)
def test_a_graph_that_cannot_be_run_is_told(functions: tuple[FunctionSpec, ...], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        engine_of(functions, schedule_at(0.0))


def test_what_remains_is_the_longest_way_to_a_sink() -> None:
    graph = Graph(DIAMOND)
    assert graph.total_s == pytest.approx(0.5)
    assert graph.remaining_s == pytest.approx([0.4, 0.1, 0.1, 0.0])


def test_an_engine_of_another_kind_is_refused() -> None:
    spec = RunSpec(
        run="r", experiment="e", world="sim", scaler=ScalerSpec(name="x"), duration_s=1,
        system=NetworkSystem(topics=(), jobs=()),
    )  # fmt: skip
    with pytest.raises(PenstockError, match="a pipeline was expected"):
        make_engine(spec, schedule_at(0.0))


# --- the way of a request --------------------------------------------------------------------------------------------


def test_a_chain_serves_one_request_per_replica_in_order_of_arrival() -> None:
    engine = engine_of(chain(0.2, 0.1), schedule_at(0.0, 0.0, 0.05))
    engine.advance(10)
    assert times(engine, "started_s", "f0") == pytest.approx([0.0, 0.2, 0.4])
    assert times(engine, "received_s", "f1") == times(engine, "finished_s", "f0")
    assert times(engine, "finished_s", "f1") == pytest.approx([0.3, 0.5, 0.7])
    assert engine.left() == 0


def test_a_branch_sends_to_every_successor_and_a_merge_waits_for_the_last_branch() -> None:
    engine = engine_of(DIAMOND, schedule_at(0.0, 2.0))
    engine.advance(10)
    assert times(engine, "received_s", "short") == times(engine, "received_s", "long") == pytest.approx([0.1, 2.1])
    assert times(engine, "finished_s", "short") == pytest.approx([0.2, 2.2])
    assert times(engine, "received_s", "merge") == times(engine, "finished_s", "long") == pytest.approx([0.4, 2.4])
    table = engine.results()
    assert [table.stages[s] for s in table.stage[table.terminal]] == ["merge", "merge"]
    assert table.finished_s[table.terminal] == pytest.approx([0.5, 2.5])


def test_a_merge_joins_branches_of_the_same_request() -> None:
    """Two replicas on one branch let the second request overtake; its own other branch is what it waits for."""
    engine = engine_of(DIAMOND, schedule_at(0.0, 0.0))
    scale(engine, short=2)
    engine.advance(10)
    assert times(engine, "received_s", "merge") == pytest.approx([0.4, 0.7])


def test_a_request_with_several_sinks_is_finished_when_the_last_of_them_is_done() -> None:
    engine = engine_of(DIAMOND[:3], schedule_at(0.0))
    engine.advance(0.35)
    assert engine.left() == 1
    engine.advance(0.4)
    table = engine.results()
    assert engine.left() == 0
    assert [table.stages[s] for s in table.stage[table.terminal]] == ["long"]


def test_a_miss_counts_from_the_intended_time_and_a_late_request_is_finished() -> None:
    engine = engine_of(chain(0.4), schedule_at(0.0, 0.0, 0.0, 0.0), deadline_s=0.8)
    engine.advance(10)
    seen = engine.monitor.observe()
    # 0.4 and 0.8 s are in time, the deadline's own instant included; 1.2 and 1.6 s are not.
    assert (seen.finished, seen.missed, seen.completed, seen.backlog) == (4, 2, 4, 0)
    table = engine.results()
    assert table.deadline_s is not None
    assert (table.finished_s > table.deadline_s + 1e-9).tolist() == [False, False, True, True]


def test_service_times_follow_their_law_and_do_not_depend_on_other_functions() -> None:
    many = schedule_at(*np.arange(4000) * 10.0)
    both = engine_of(chain(0.2, 0.5, law="gamma", scv=0.25), many)
    alone = engine_of(chain(0.2, law="gamma", scv=0.25), many)
    both.advance(1e6)
    alone.advance(1e6)
    services = np.subtract(times(both, "finished_s", "f0"), times(both, "started_s", "f0"))
    assert np.array_equal(services, np.subtract(times(alone, "finished_s", "f0"), times(alone, "started_s", "f0")))
    assert services.mean() == pytest.approx(0.2, rel=0.03)
    assert services.var() / services.mean() ** 2 == pytest.approx(0.25, rel=0.1)


# --- laxity ----------------------------------------------------------------------------------------------------------


def test_without_queueing_laxity_is_deadline_minus_estimate_at_every_function() -> None:
    """Largest laxity of the document pipeline: 0.5 s - 0.05 s (spec 3.5), constant along the pipeline."""
    engine = engine_of(chain(*(0.0125,) * 4), schedule_at(0.0), deadline_s=0.5)
    engine.advance(1)
    for status in engine.monitor.observe().functions:
        assert status.laxity_s == pytest.approx((0.45,))


def test_laxity_falls_by_the_time_in_the_queue_and_waiting_requests_give_samples_too() -> None:
    engine = engine_of(chain(0.2, 0.1), schedule_at(0.0, 0.0, 0.1))
    engine.advance(0.15)
    # Taken up at once; 0.15 s and 0.05 s in the queue by now. Estimate 0.3 s, deadline 1 s.
    assert function(engine, "f0").laxity_s == pytest.approx((0.7, 0.55, 0.65))
    engine.advance(0.25)
    assert function(engine, "f0").laxity_s == pytest.approx((0.7, 0.5, 0.55))


def test_samples_are_of_the_last_epoch_however_often_somebody_looks() -> None:
    engine = engine_of(chain(0.2), schedule_at(0.5, 1.0, 2.0))
    engine.advance(2.75)
    assert function(engine, "f0").laxity_s == function(engine, "f0").laxity_s == pytest.approx((0.8,) * 3)
    # An epoch of 2.5 s ends with the instant of observation and does not have its own beginning.
    engine.advance(3.0)
    assert len(function(engine, "f0").laxity_s) == 2
    engine.advance(3.5)
    assert len(function(engine, "f0").laxity_s) == 1
    assert function(engine_at_speed(2.0, 2.25), "f0").laxity_s == pytest.approx((0.8,) * 2)


def engine_at_speed(speed: float, until_s: float) -> FunctionEngine:
    """The same arrivals in a run whose epoch is that much shorter."""
    spec = RunSpec(
        run="r", experiment="e", world="sim", scaler=ScalerSpec(name="x"), speed=speed, duration_s=3,
        system=FunctionSystem(functions=chain(0.2), deadline_s=1.0),
    )  # fmt: skip
    engine = make_engine(spec, schedule_at(0.5, 1.25, 2.0))
    engine.advance(until_s)
    return engine


def test_three_equal_functions_have_cumulative_estimates_of_all_two_thirds_and_one_third() -> None:
    engine = engine_of(chain(0.1, 0.1, 0.1), schedule_at(0.0))
    engine.advance(1)
    taken_up_at_s = (0.0, 0.1, 0.2)
    for status, at_s, estimate_s in zip(
        engine.monitor.observe().functions, taken_up_at_s, (0.3, 0.2, 0.1), strict=True
    ):
        assert status.laxity_s == pytest.approx((1.0 - at_s - estimate_s,))


def test_at_a_merge_time_and_progress_of_the_last_branch_count() -> None:
    engine = engine_of(DIAMOND, schedule_at(0.0))
    engine.advance(1)
    assert function(engine, "merge").laxity_s == pytest.approx((1.0 - 0.4 - 0.1,))


def test_a_function_without_requests_has_no_samples() -> None:
    engine = engine_of(chain(0.1, 0.1), schedule_at(5.0))
    engine.advance(1)
    assert [status.laxity_s for status in engine.monitor.observe().functions] == [(), ()]


def test_counters_are_cumulative_and_the_service_rate_keeps_its_last_value() -> None:
    engine = engine_of(chain(0.2), schedule_at(0.0, 0.0, 0.0))
    first = function(engine, "f0")
    assert (first.arrived, first.service_rate_per_s) == (0, None)
    assert "service_rate_per_s" in first.unknown
    engine.advance(0.45)
    status = function(engine, "f0")
    assert (status.arrived, status.completed, status.backlog, status.in_flight) == (3, 2, 0, 1)
    assert (status.busy_s, status.service_rate_per_s) == pytest.approx((0.4, 5.0))
    assert function(engine, "f0").service_rate_per_s == pytest.approx(5.0)


def test_a_call_keeps_the_replica_beyond_the_service_time_which_nobody_sees_as_service() -> None:
    engine = engine_of(chain(0.2), schedule_at(0.0, 0.0), call_s=0.05)
    engine.advance(10)
    assert times(engine, "finished_s", "f0") == pytest.approx([0.25, 0.5])
    status = function(engine, "f0")
    assert (status.busy_s, status.service_rate_per_s) == pytest.approx((0.4, 5.0))


# --- scaling ---------------------------------------------------------------------------------------------------------


def test_a_cold_start_delays_capacity_but_not_the_decision() -> None:
    engine = engine_of(chain(1.0), schedule_at(0.0, 0.0), cold_start_s=0.4)
    engine.advance(0.0)
    assert scale(engine, f0=2).targets == {"f0": 2}
    assert function(engine, "f0").replicas.requested == 1
    assert function(engine, "f0").replicas.current == 2
    engine.advance(5)
    assert times(engine, "started_s", "f0") == pytest.approx([0.0, 0.4])
    phases = [(e.replica, e.phase, e.at_ns) for e in engine.actuator.events() if e.replica == "f0-2"]
    assert phases == [
        ("f0-2", "requested", 0),
        ("f0-2", "started", 400_000_000),
        ("f0-2", "joined", 400_000_000),
        ("f0-2", "first-event", 400_000_000),
    ]


def test_the_connection_pool_follows_when_the_scale_action_is_complete() -> None:
    engine = engine_of(chain(1.0), schedule_at(*(0.0,) * 6), cold_start_s=0.5)
    scale(engine, f0=3)
    assert function(engine, "f0").concurrency == 1
    engine.advance(0.25)
    scale(engine, f0=4)
    engine.advance(0.5)
    assert function(engine, "f0").concurrency == 3
    engine.advance(0.75)
    assert function(engine, "f0").concurrency == 4
    assert function(engine, "f0").in_flight == 4


def test_scaling_down_ends_starting_then_idle_replicas_and_lets_busy_ones_finish() -> None:
    engine = engine_of(chain(1.0), schedule_at(0.0, 0.0), replicas=3, cold_start_s=5.0)
    engine.advance(0.5)
    scale(engine, f0=5)
    engine.actuator.events()
    scale(engine, f0=1)
    # Two were starting, one was idle, one of the two busy ones (the newest) is let go when it is done.
    assert function(engine, "f0").replicas.current == 1
    assert function(engine, "f0").replicas.draining == 1
    gone = [e.replica for e in engine.actuator.events() if e.phase == "gone"]
    assert gone == ["f0-5", "f0-4", "f0-3"]
    assert function(engine, "f0").concurrency == 3
    engine.advance(2)
    assert times(engine, "finished_s", "f0") == pytest.approx([1.0, 1.0])
    assert list(engine.actuator.replicas()) == ["f0-1"]
    assert function(engine, "f0").concurrency == 1


def test_caps_are_reported_and_what_all_share_is_given_in_turns() -> None:
    engine = engine_of(chain(0.1, 0.1), schedule_at(0.0), most=6, max_replicas_total=8)
    accepted = scale(engine, f0=9, f1=5)
    assert accepted.targets == {"f0": 4, "f1": 4}
    assert "9 → 4" in accepted.clamped["f0"] and "8" in accepted.clamped["f0"]
    assert "5 → 4" in accepted.clamped["f1"]
    # What one function gives back another one gets in the same decision.
    assert scale(engine, f0=2, f1=6).targets == {"f0": 2, "f1": 6}
    assert engine_of(chain(0.1), schedule_at(0.0), most=3).actuator.apply(
        Decision(action="up", targets={"f0": 7})
    ) == Accepted({"f0": 3}, {"f0": "7 → 3: cap 3"})


def test_a_target_for_an_unknown_function_is_refused_and_hold_changes_nothing() -> None:
    engine = engine_of(chain(0.1), schedule_at(0.0))
    with pytest.raises(PenstockError, match="'f9'"):
        scale(engine, f9=2)
    before = dict(engine.actuator.replicas())
    assert engine.actuator.apply(hold("f0", "for a reason")).targets == {"f0": 1}
    assert dict(engine.actuator.replicas()) == before


def test_a_fleet_of_none_keeps_its_requests_until_there_is_a_replica() -> None:
    engine = engine_of(chain(0.1), schedule_at(0.0), replicas=0, cold_start_s=0.5)
    engine.advance(2)
    assert function(engine, "f0").backlog == 1
    scale(engine, f0=1)
    engine.advance(5)
    assert times(engine, "finished_s", "f0") == pytest.approx([2.6])


def test_a_busy_gateway_answers_429_and_the_manager_tries_again() -> None:
    engine = engine_of(chain(0.4), schedule_at(0.0, 0.0), replicas=0, cold_start_s=0.25, when_busy="reject")
    engine.advance(0.01)
    scale(engine, f0=1)
    engine.advance(5)
    # A pool of one connection: refused at 0, 0.1 and 0.2 s; the replica joins at 0.26 s and is found by the next retry.
    assert engine.refused == [3]
    assert times(engine, "started_s", "f0") == pytest.approx([3 * RETRY_S, 3 * RETRY_S + 0.4])
    assert engine.left() == 0


# --- faults ----------------------------------------------------------------------------------------------------------


def test_the_request_of_a_killed_replica_is_served_again_and_a_new_replica_comes() -> None:
    engine = engine_of(chain(1.0), schedule_at(0.0), cold_start_s=0.5)
    engine.advance(0.6)
    engine.inject(Fault("kill-worker", 0.6))
    assert function(engine, "f0").in_flight == 0
    engine.advance(10)
    table = engine.results()
    assert (table.started_s.tolist(), table.finished_s.tolist(), table.attempt.tolist()) == ([1.1], [2.1], [2])
    assert table.workers[table.worker[0]] == "f0-2"
    assert [(e.replica, e.phase, e.reason) for e in engine.actuator.events() if e.reason] == [
        ("f0-1", "gone", "killed"),
        ("f0-2", "requested", "replaces one that was killed"),
    ]


def test_a_killed_replica_leaves_a_connection_too_many_which_is_answered_429() -> None:
    engine = engine_of(chain(1.0), schedule_at(0.0, 0.0, 0.0), replicas=2, cold_start_s=0.25, when_busy="reject")
    engine.advance(0.5)
    assert engine.refused == [0]
    engine.inject(Fault("kill-worker", 0.5))
    engine.advance(0.7)
    assert engine.refused == [3]
    engine.advance(10)
    assert engine.left() == 0


def test_frozen_workers_finish_later_by_as_long_as_they_stand_still() -> None:
    engine = engine_of(chain(1.0), schedule_at(0.0, 0.0), replicas=1)
    engine.advance(0.4)
    engine.inject(Fault("freeze-workers", 0.4, 2.0))
    engine.advance(1.0)
    engine.inject(Fault("freeze-workers", 1.0, 2.0))
    engine.advance(10)
    assert times(engine, "finished_s", "f0") == pytest.approx([3.6, 4.6])


def test_nothing_arrives_while_the_broker_is_away_and_all_of_it_afterwards() -> None:
    engine = engine_of(chain(0.1), schedule_at(0.5, 1.5, 1.6, 4.0))
    engine.advance(1)
    engine.inject(Fault("stop-broker", 1, 2.0))
    engine.advance(2.9)
    assert engine.monitor.observe().arrived == 1
    engine.advance(10)
    assert times(engine, "sent_s", "f0") == pytest.approx([0.5, 3.0, 3.0, 4.0])
    assert times(engine, "intended_s", "f0") == pytest.approx([0.5, 1.5, 1.6, 4.0])


def test_a_fault_that_the_engine_does_not_have_is_told() -> None:
    with pytest.raises(PenstockError, match="kill-worker"):
        engine_of(chain(0.1), schedule_at(0.0)).inject(Fault("restart-redis", 0))


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[FunctionSpec, ...]:
    """Any acyclic graph of up to five functions."""
    laws = st.sampled_from(get_args(ServiceDistribution))
    functions: list[FunctionSpec] = []
    for i in range(draw(st.integers(1, 5))):
        before = draw(st.sets(st.sampled_from([f.name for f in functions]))) if functions else set()
        functions.append(
            FunctionSpec(
                name=f"f{i}",
                service_time_s=draw(st.floats(0.01, 0.4)),
                service_law=draw(laws),
                service_scv=draw(st.floats(0.0, 2.0)),
                after=tuple(sorted(before)),
            )
        )
    return tuple(functions)


def actions() -> st.SearchStrategy[list[tuple[float, str, int]]]:
    """(seconds to go on, function, its target), with now and then a fault."""
    names = st.sampled_from(["f0", "f1", "f2", "kill-worker", "freeze-workers", "stop-broker"])
    return st.lists(st.tuples(st.floats(0.0, 0.8), names, st.integers(0, 4)), max_size=8)


def play(engine: FunctionEngine, script: Sequence[tuple[float, str, int]]) -> list[ReplicaEvent]:
    """Carry out the script, checking the balance at every step; afterwards let every function finish its work."""
    names = {status.fleet for status in engine.monitor.observe().functions}
    now_s = 0.0
    for seconds, what, target in script:
        now_s += seconds
        engine.advance(now_s)
        if what in names:
            scale(engine, **{what: target})
        elif what.startswith("f") and what != "freeze-workers":
            continue
        else:
            engine.inject(Fault(what, now_s, 0.3))  # type: ignore[arg-type]
        check_balance(engine)
    scale(engine, **dict.fromkeys(names, 2))
    engine.advance(1e5)
    check_balance(engine)
    return list(engine.actuator.events())


def check_balance(engine: FunctionEngine) -> None:
    seen = engine.monitor.observe()
    assert seen.arrived is not None and seen.finished is not None
    assert seen.arrived == seen.finished + (seen.backlog or 0)
    for status in seen.functions:
        assert status.arrived is not None and status.completed is not None
        assert status.backlog is not None and status.in_flight is not None
        assert status.arrived == status.completed + status.backlog + status.in_flight
        assert status.in_flight <= status.replicas.joined + status.replicas.draining
        assert status.completed <= seen.arrived


@given(
    graphs(),
    st.lists(st.floats(0, 3), min_size=1, max_size=25).map(sorted),
    actions(),
    st.sampled_from(["queue", "reject"]),
)
def test_every_request_passes_every_function_once_and_nothing_is_lost(
    functions: tuple[FunctionSpec, ...], arrivals: list[float], script: list[tuple[float, str, int]], when_busy: str
) -> None:
    engine = engine_of(functions, schedule_at(*arrivals), cold_start_s=0.2, when_busy=when_busy)
    events = play(engine, script)
    table = engine.results()
    assert engine.left() == 0 and engine.finished == len(arrivals)
    pairs = sorted(zip(table.id.tolist(), table.stage.tolist(), strict=True))
    assert pairs == [(i, f) for i in range(len(arrivals)) for f in range(len(functions))]
    assert table.terminal is not None
    assert sorted(table.id[table.terminal].tolist()) == list(range(len(arrivals)))
    assert (np.diff(table.finished_s) >= 0).all()
    assert (table.intended_s <= table.sent_s).all() and (table.sent_s <= table.received_s).all()
    assert (table.received_s <= table.started_s).all() and (table.started_s <= table.finished_s).all()
    check_one_request_per_replica(table.worker, table.started_s, table.finished_s)
    check_service_within_life(table.workers, table.worker, table.started_s, table.finished_s, events)


def check_one_request_per_replica(worker: Any, started_s: Any, finished_s: Any) -> None:
    for replica in set(worker.tolist()):
        rows = np.flatnonzero(worker == replica)
        rows = rows[np.lexsort((finished_s[rows], started_s[rows]))]
        assert (started_s[rows][1:] >= finished_s[rows][:-1] - 1e-9).all()


def check_service_within_life(
    names: tuple[str, ...], worker: Any, started_s: Any, finished_s: Any, events: Sequence[ReplicaEvent]
) -> None:
    joined = {e.replica: e.at_ns / 1e9 for e in events if e.phase == "joined"}
    gone = {e.replica: e.at_ns / 1e9 for e in events if e.phase == "gone"}
    for row, replica in enumerate(worker.tolist()):
        assert started_s[row] >= joined[names[replica]] - 1e-9
        assert finished_s[row] <= gone.get(names[replica], np.inf) + 1e-9


@given(graphs(), st.lists(st.floats(0, 3), min_size=1, max_size=15).map(sorted), actions(), st.integers(0, 5))
def test_one_seed_gives_the_same_results_however_often_time_is_stopped(
    functions: tuple[FunctionSpec, ...], arrivals: list[float], script: list[tuple[float, str, int]], seed: int
) -> None:
    tables = []
    for pieces in (1, 7):
        engine = engine_of(functions, schedule_at(*arrivals), cold_start_s=0.2, seed=seed)
        now_s = 0.0
        for seconds, what, target in script:
            for piece in range(1, pieces):
                engine.advance(now_s + seconds * piece / pieces)
            now_s += seconds
            engine.advance(now_s)
            if any(f.name == what for f in functions):
                scale(engine, **{what: target})
        engine.advance(60)
        tables.append(engine.results())
    check_same(*tables)


def test_the_same_run_gives_the_same_bytes() -> None:
    arrivals = schedule_at(*np.sort(np.random.default_rng(3).random(200) * 5))
    tables = []
    for _ in range(2):
        engine = engine_of(tuple(f for f in DIAMOND), arrivals, replicas=2, seed=7)
        engine.advance(2)
        scale(engine, split=5, long=4)
        engine.advance(100)
        tables.append(engine.results())
    check_same(*tables)


def check_same(one: EventTable, other: EventTable) -> None:
    assert one.workers == other.workers
    for column in ("id", "stage", "sent_s", "received_s", "started_s", "finished_s", "worker", "attempt", "terminal"):
        assert getattr(one, column).tobytes() == getattr(other, column).tobytes()


# --- conformance of the ports ----------------------------------------------------------------------------------------


class TestPipelineActuator(ActuatorConformance):
    @contextmanager
    def make_actuator(self) -> Iterator[Actuator]:
        functions = (FunctionSpec(name=self.fleet, service_time_s=0.1),)
        yield AdvancingActuator(engine_of(functions, schedule_at(1e6), replicas=0, most=3, cold_start_s=0.05))


class TestPipelineMonitor(MonitorConformance):
    engine: FunctionEngine

    def make_monitor(self) -> Monitor[Any]:
        self.engine = engine_of(DIAMOND, schedule_at(*(0.1 * i for i in range(100))))
        self.engine.advance(5.0)
        return self.engine.monitor

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.engine.inject(Fault("blind-monitor", 5.0, 1.0))
        self.engine.advance(5.5)
        yield
        self.engine.advance(6.0)

    def test_functions_are_unknown_in_an_outage_too(self) -> None:
        monitor = self.make_monitor()
        seen = [len(status.laxity_s) for status in monitor.observe().functions]
        assert min(seen) > 0
        with self.outage():
            blind = monitor.observe().functions
            assert [status.laxity_s for status in blind] == [()] * 4
            assert all(status.busy_s is None and "busy_s" in status.unknown for status in blind)
        assert min(len(status.laxity_s) for status in monitor.observe().functions) > 1
