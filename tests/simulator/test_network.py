"""The engine for pub/sub networks and its schedules: routes with repeats, windows, scaling, conservation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts import Accepted, Actuator, Decision, Monitor, NetworkObservation
from penstock.distributions import draw_s, stream
from penstock.errors import PenstockError
from penstock.runspec import Fault, RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSystem, JobSpec, NetworkSystem, TopicSpec
from simulator.engine import EventTable
from simulator.network import NetworkEngine, job_schedule, make_engine
from tests.conformance.ports import ActuatorConformance, AdvancingActuator, MonitorConformance


def topics(*rates_per_s: float, scv: float = 0.0) -> tuple[TopicSpec, ...]:
    return tuple(
        TopicSpec(topic=name, service_rate_per_s=rate, service_scv=scv)
        for name, rate in zip("ABCDEFG", rates_per_s, strict=False)
    )


def job(name: str, route: str, rate_per_s: float = 1.0, scv: float = 1.0, **more: Any) -> JobSpec:
    return JobSpec(job=name, route=tuple(route), arrival_rate_per_s=rate_per_s, arrival_scv=scv, **more)


def schedule_at(*arrivals: tuple[float, int]) -> Schedule:
    """(time in s, job type) of each arrival."""
    offsets = np.asarray([round(time_s * 1e9) for time_s, _ in arrivals], dtype=np.int64)
    return Schedule(offsets, np.asarray([kind for _, kind in arrivals], dtype=np.int16), 100.0)


def engine_of(system: NetworkSystem, schedule: Schedule, *, consumers: int = 1, seed: int = 1) -> NetworkEngine:
    spec = RunSpec(
        run="r", experiment="e", world="sim", scaler=ScalerSpec(name="x"), seed=seed, fleet="network", duration_s=100,
        initial_replicas=consumers, max_replicas=3, system=system,
    )  # fmt: skip
    return make_engine(spec, schedule)


def scale(engine: NetworkEngine, **targets: int) -> Accepted:
    return engine.actuator.apply(Decision(action="up", targets=targets))


# --- schedules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scv", [0.0, 0.25, 1.0, 2.0])
def test_arrivals_have_the_rate_and_scv_of_their_job_type(scv: float) -> None:
    schedule = job_schedule([job("1", "A", 2.0, scv), job("2", "A", 0.5, 1.0)], duration_s=10_000, seed=3)
    times_s = schedule.intended_offset_ns[schedule.partition == 0] / 1e9
    assert len(times_s) == pytest.approx(20_000, rel=0.05)
    between = np.diff(times_s)
    assert between.var() / between.mean() ** 2 == pytest.approx(scv, rel=0.08, abs=1e-9)
    assert np.count_nonzero(schedule.partition == 1) == pytest.approx(5_000, rel=0.1)


def test_a_change_of_rate_makes_neither_a_gap_nor_a_burst() -> None:
    steady = job("1", "A", 4.0, 0.0)
    changing = job("1", "A", 1.0, 0.0, phases=((10.25, 4.0), (20.0, 0.0), (30.0, 2.0)))
    times_s = job_schedule([changing], duration_s=40, seed=1).intended_offset_ns / 1e9
    assert times_s[:12] == pytest.approx([*range(1, 11), 10.25 + 0.75 / 4, 10.25 + 1.75 / 4])
    # 10.25 + 39 events by second 20; nothing until 30; the interval that was begun is finished then.
    assert np.count_nonzero(times_s <= 20) == 49
    assert times_s[times_s > 20][:2] == pytest.approx([30.375, 30.875])
    assert np.diff(job_schedule([steady], duration_s=40, seed=1).intended_offset_ns / 1e9) == pytest.approx(0.25)


def test_a_job_type_keeps_its_arrivals_when_others_are_added_and_one_seed_gives_one_schedule() -> None:
    one, two = job("1", "A", 3.0, 0.5), job("2", "A", 1.0, 2.0)
    alone = job_schedule([one], duration_s=50, seed=9)
    both = job_schedule([one, two], duration_s=50, seed=9)
    assert np.array_equal(both.intended_offset_ns[both.partition == 0], alone.intended_offset_ns)
    again = job_schedule([one, two], duration_s=50, seed=9)
    assert again.intended_offset_ns.tobytes() == both.intended_offset_ns.tobytes()
    other = job_schedule([one, two], duration_s=50, seed=10)
    assert not np.array_equal(other.intended_offset_ns, both.intended_offset_ns)


def test_a_part_of_a_schedule_has_the_arrivals_of_that_part_of_the_whole() -> None:
    jobs = [job("1", "A", 3.0, 0.5, phases=((20.0, 6.0),)), job("2", "A", 1.0, 2.0)]
    whole = job_schedule(jobs, duration_s=50, seed=9)
    part = job_schedule(jobs, duration_s=30, seed=9, from_s=15)
    wanted = (whole.intended_offset_ns >= 15e9) & (whole.intended_offset_ns < 45e9)
    assert part.partition.tolist() == whole.partition[wanted].tolist()
    assert part.intended_offset_ns == pytest.approx(whole.intended_offset_ns[wanted] - 15e9, abs=1)


def test_a_schedule_survives_its_file(tmp_path: Any) -> None:
    schedule = job_schedule([job("1", "AB", 3.0, phases=((5.0, 1.0),))], duration_s=50, seed=9)
    schedule.write(tmp_path / "schedule.parquet")
    again = Schedule.read(tmp_path / "schedule.parquet")
    assert again.description == schedule.description
    assert np.array_equal(again.partition, schedule.partition)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job("1", "A", 0.0)], "no jobs arrive"),
        ([job("1", "A", -1.0)], "have to be at least 0"),
        ([job("1", "A", 1.0, phases=((5.0, 1.0), (4.0, 2.0)))], "in order of time"),
    ],
)
def test_arrivals_that_cannot_be_drawn_are_told(jobs: list[JobSpec], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        job_schedule(jobs, duration_s=50, seed=1)


# --- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "scv"), [("exponential", 1.0), ("gamma", 0.3), ("gamma", 3.0), ("pareto", 0.1)])
def test_a_law_has_its_mean_and_scv(law: Any, scv: float) -> None:
    values = draw_s(law, 0.4, scv, 400_000, stream(1, 0, 0))
    assert values.mean() == pytest.approx(0.4, rel=0.01)
    assert values.var() / values.mean() ** 2 == pytest.approx(scv, rel=0.1)
    assert values.min() >= 0


def test_an_scv_of_zero_is_deterministic_and_an_impossible_law_is_told() -> None:
    assert draw_s("gamma", 0.4, 0.0, 3, stream(1, 0, 0)).tolist() == [0.4] * 3
    assert draw_s("pareto", 0.4, 0.0, 3, stream(1, 0, 0)).tolist() == [0.4] * 3
    with pytest.raises(PenstockError, match="at least 0"):
        draw_s("gamma", 0.4, -1.0, 3, stream(1, 0, 0))


# --- the way of a job ------------------------------------------------------------------------------------------------


def test_a_route_with_repeats_visits_the_same_topic_again_behind_those_who_wait() -> None:
    system = NetworkSystem(topics=topics(1.0, 1.0), jobs=(job("1", "ABB"), job("2", "B")))
    engine = engine_of(system, schedule_at((0.0, 0), (1.5, 1), (1.6, 1)))
    engine.advance(50)
    table = engine.results()
    assert table.visit is not None and table.terminal is not None
    rows = table.id == 0
    assert [table.stages[s] for s in table.stage[rows]] == ["A", "B", "B"]
    assert table.visit[rows].tolist() == [1, 1, 2]
    assert table.terminal[rows].tolist() == [False, False, True]
    # Its second visit to B begins after the two jobs that came to B in the meantime.
    assert table.started_s[rows] == pytest.approx([0.0, 1.0, 4.0])
    assert table.finished_s[table.terminal] == pytest.approx([3.0, 4.0, 5.0])
    assert engine.left() == 0


def test_consumers_of_a_topic_take_tasks_in_order() -> None:
    system = NetworkSystem(topics=topics(1.0), jobs=(job("1", "A"),))
    engine = engine_of(system, schedule_at(*((0.1 * i, 0) for i in range(5))), consumers=2)
    engine.advance(50)
    assert engine.results().started_s == pytest.approx([0.0, 0.1, 1.0, 1.1, 2.0])


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (NetworkSystem(topics=topics(1.0), jobs=(job("1", "AX"),)), "goes to topic 'X'"),
        (NetworkSystem(topics=topics(1.0), jobs=(job("1", ""),)), "has no route"),
        (NetworkSystem(topics=topics(0.0), jobs=(job("1", "A"),)), "is not above 0"),
        (NetworkSystem(topics=topics(1.0), jobs=(job("1", "A"),), window_s=0), "window"),
        (NetworkSystem(topics=topics(1.0), jobs=()), "job type"),
        (FunctionSystem(functions=(), deadline_s=1), "a pub/sub network was expected"),
    ],
)
def test_a_network_that_cannot_be_run_is_told(system: Any, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        engine_of(system, schedule_at((0.0, 0)))


# --- the monitor -----------------------------------------------------------------------------------------------------


def test_the_monitor_estimates_over_its_sliding_window() -> None:
    system = NetworkSystem(topics=topics(2.0, 4.0), jobs=(job("1", "AB"), job("2", "B")), window_s=10)
    arrivals = [(float(t), 0) for t in range(10)] + [(10.0 + t, 0) for t in (0, 1, 3, 4, 6, 7, 9)]
    engine = engine_of(system, schedule_at(*arrivals))
    engine.advance(5.5)
    first = engine.monitor.observe().jobs[0]
    # Six arrivals in the 5.5 s that there have been.
    assert (first.arrived, first.arrival_rate_per_s) == pytest.approx((6, 6 / 5.5))
    assert first.arrival_scv == pytest.approx(0.0)
    engine.advance(19.5)
    seen = engine.monitor.observe()
    first, second = seen.jobs
    assert (first.arrived, first.arrival_rate_per_s) == pytest.approx((17, 0.7))
    between = np.diff([10, 11, 13, 14, 16, 17, 19])
    assert first.arrival_scv == pytest.approx(between.var(ddof=1) / between.mean() ** 2)
    assert (second.arrived, second.arrival_rate_per_s, second.arrival_scv) == (0, 0.0, None)
    assert seen.response_time_s == pytest.approx(0.75)
    assert seen.late == 16, "each took 0.75 s, the SLO is 0.5 s"
    a, b = seen.topics
    assert (a.service_rate_per_s, a.service_scv) == pytest.approx((2.0, 0.0))
    assert (b.service_rate_per_s, b.arrived, b.completed) == pytest.approx((4.0, 17, 16))
    engine.advance(60)
    idle = engine.monitor.observe()
    assert idle.response_time_s is None and "response_time_s" in idle.unknown
    assert idle.topics[0].service_rate_per_s is None and "service_rate_per_s" in idle.topics[0].unknown
    assert idle.jobs[0].arrival_rate_per_s == 0.0


def test_estimates_approach_the_moments_that_the_run_was_drawn_from() -> None:
    system = NetworkSystem(
        topics=topics(4.0, 3.0, scv=0.5), jobs=(job("1", "AB", 1.0, 0.33), job("2", "B", 0.5, 2.0)), window_s=20_000
    )
    engine = engine_of(system, job_schedule(system.jobs, duration_s=20_000, seed=4))
    engine.advance(20_000)
    seen = engine.monitor.observe()
    assert [j.arrival_rate_per_s for j in seen.jobs] == pytest.approx([1.0, 0.5], rel=0.05)
    assert [j.arrival_scv for j in seen.jobs] == pytest.approx([0.33, 2.0], rel=0.1)
    assert [t.service_rate_per_s for t in seen.topics] == pytest.approx([4.0, 3.0], rel=0.05)
    assert [t.service_scv for t in seen.topics] == pytest.approx([0.5, 0.5], rel=0.1)


def test_at_the_start_nothing_is_known() -> None:
    system = NetworkSystem(topics=topics(1.0), jobs=(job("1", "A"),))
    seen = engine_of(system, schedule_at((1.0, 0))).monitor.observe()
    assert (seen.arrived, seen.response_time_s, seen.jobs[0].arrival_rate_per_s) == (0, None, None)


# --- scaling and faults ----------------------------------------------------------------------------------------------


def test_a_new_consumer_serves_after_its_start_up_and_a_removed_one_finishes_its_task() -> None:
    system = NetworkSystem(topics=topics(1.0), jobs=(job("1", "A"),), start_up_s=0.5)
    engine = engine_of(system, schedule_at((0.0, 0), (0.0, 0), (0.0, 0)))
    engine.advance(0.25)
    assert scale(engine, A=2).targets == {"A": 2}
    assert engine.monitor.observe().topics[0].start_ups_s == ()  # the first one was there before
    engine.advance(1.25)
    scale(engine, A=1)
    assert engine.monitor.observe().topics[0].replicas.draining == 1
    assert engine.monitor.observe().topics[0].start_ups_s == (0.5,)
    engine.advance(20)
    table = engine.results()
    assert table.started_s == pytest.approx([0.0, 0.75, 1.0])
    assert [table.workers[w] for w in table.worker] == ["A-1", "A-2", "A-1"]
    assert list(engine.actuator.replicas()) == ["A-1"]


def test_while_the_broker_is_away_no_job_comes_in_or_goes_on() -> None:
    system = NetworkSystem(topics=topics(1.0, 1.0), jobs=(job("1", "AB"),))
    engine = engine_of(system, schedule_at((0.0, 0), (0.8, 0)))
    engine.advance(0.5)
    engine.inject(Fault("stop-broker", 0.5, 2.0))
    engine.advance(20)
    table = engine.results()
    assert table.received_s[np.lexsort((table.stage, table.id))] == pytest.approx([0.0, 2.5, 2.5, 3.5])


def test_the_task_of_a_killed_consumer_is_served_again() -> None:
    system = NetworkSystem(topics=topics(1.0), jobs=(job("1", "A"),), start_up_s=0.25)
    engine = engine_of(system, schedule_at((0.0, 0)))
    engine.advance(0.5)
    engine.inject(Fault("kill-worker", 0.5))
    engine.advance(20)
    table = engine.results()
    assert (table.started_s.tolist(), table.attempt.tolist()) == ([0.75], [2])


# --- properties ------------------------------------------------------------------------------------------------------


@st.composite
def networks(draw: st.DrawFn) -> NetworkSystem:
    count = draw(st.integers(1, 4))
    names = "ABCD"[:count]
    routes = draw(st.lists(st.text(names, min_size=1, max_size=4), min_size=1, max_size=3))
    return NetworkSystem(
        topics=tuple(
            TopicSpec(topic=n, service_rate_per_s=draw(st.floats(0.5, 10)), service_scv=draw(st.floats(0, 2)))
            for n in names
        ),
        # Of the first one, some arrive within seconds: no schedule is empty.
        jobs=tuple(job(str(i), route, draw(st.floats(0.2 if i else 1, 3))) for i, route in enumerate(routes)),
        start_up_s=draw(st.sampled_from([0.0, 0.3])),
        window_s=5.0,
    )


Script = Sequence[tuple[float, str, int]]
scripts = st.lists(
    st.tuples(st.floats(0, 2), st.sampled_from(["A", "B", "kill-worker"]), st.integers(0, 3)), max_size=8
)


def play(engine: NetworkEngine, script: Script, pieces: int) -> EventTable:
    """Carry the script out, time in so many pieces; then let all work be finished."""
    now_s = 0.0
    for seconds, what, target in script:
        for piece in range(1, pieces):
            engine.advance(now_s + seconds * piece / pieces)
        now_s += seconds
        engine.advance(now_s)
        if what == "kill-worker":
            engine.inject(Fault("kill-worker", now_s))
        elif what in engine.names:
            scale(engine, **{what: target})
        check_balance(engine.monitor.observe())
    scale(engine, **dict.fromkeys(engine.names, 2))
    engine.advance(1e6)
    return engine.results()


def check_balance(seen: NetworkObservation) -> None:
    assert seen.arrived is not None and seen.completed is not None
    assert seen.backlog == seen.arrived - seen.completed
    assert sum((t.backlog or 0) + (t.in_flight or 0) for t in seen.topics) == seen.backlog
    for topic in seen.topics:
        assert topic.arrived is not None and topic.completed is not None
        assert topic.backlog is not None and topic.in_flight is not None
        assert topic.arrived == topic.completed + topic.backlog + topic.in_flight


@given(networks(), scripts, st.integers(0, 9))
def test_every_job_goes_its_whole_route_in_order_and_one_seed_gives_the_same_bytes(
    system: NetworkSystem, script: Script, seed: int
) -> None:
    schedule = job_schedule(system.jobs, duration_s=12, seed=seed) if seed else schedule_at((0.5, 0))
    tables = [play(engine_of(system, schedule, seed=seed), script, pieces) for pieces in (1, 5)]
    table = tables[0]
    for event, kind in enumerate(schedule.partition.tolist()):
        rows = np.flatnonzero(table.id == event)
        rows = rows[np.argsort(table.received_s[rows], kind="stable")]
        assert [table.stages[s] for s in table.stage[rows]] == list(system.jobs[kind].route)
        assert (table.received_s[rows][1:] == table.finished_s[rows][:-1]).all()
        assert table.terminal is not None
        assert table.terminal[rows].tolist() == [False] * (len(rows) - 1) + [True]
    assert (table.received_s <= table.started_s).all() and (table.started_s <= table.finished_s).all()
    for column in ("id", "stage", "started_s", "finished_s", "worker", "attempt", "visit"):
        assert getattr(table, column).tobytes() == getattr(tables[1], column).tobytes()


# --- conformance of the ports ----------------------------------------------------------------------------------------


class TestNetworkActuator(ActuatorConformance):
    @contextmanager
    def make_actuator(self) -> Iterator[Actuator]:
        system = NetworkSystem(
            topics=(TopicSpec(topic=self.fleet, service_rate_per_s=1.0),),
            jobs=(JobSpec(job="1", route=(self.fleet,), arrival_rate_per_s=1.0),),
            start_up_s=0.05,
        )
        yield AdvancingActuator(engine_of(system, schedule_at((1e6, 0)), consumers=0))


class TestNetworkMonitor(MonitorConformance):
    engine: NetworkEngine

    def make_monitor(self) -> Monitor[Any]:
        system = NetworkSystem(topics=topics(1.0, 1.0), jobs=(job("1", "AB"),))
        self.engine = engine_of(system, schedule_at(*((0.5 * i, 0) for i in range(100))))
        self.engine.advance(5.0)
        return self.engine.monitor

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.engine.inject(Fault("blind-monitor", 5.0, 1.0))
        self.engine.advance(5.5)
        yield
        self.engine.advance(6.0)
