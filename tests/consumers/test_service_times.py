"""A live worker's service times are those that the simulator draws for the same run."""

import numpy as np
import pytest

from consumers.service_times import QueueServiceTimes, TopicServiceTimes, service_times
from penstock.errors import PenstockError
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import JobSpec, NetworkSystem, QueueSystem, ServiceDistribution, StreamSystem, System, TopicSpec
from simulator.network import NetworkEngine
from simulator.queue_world import draw

NETWORK = NetworkSystem(
    topics=(
        TopicSpec(topic="A", service_rate_per_s=5.0, service_scv=0.5),
        TopicSpec(topic="D", service_rate_per_s=9.0),
    ),
    jobs=(
        JobSpec(job="long", route=("A", "D", "D"), arrival_rate_per_s=1.0),
        JobSpec(job="short", route=("D",), arrival_rate_per_s=1.0),
    ),
)


def spec(system: System) -> RunSpec:
    return RunSpec(
        run="r", experiment="test", world="local", scaler=ScalerSpec(name="none"), duration_s=1.0, seed=3, system=system
    )


def schedule(kinds: list[int]) -> Schedule:
    times = np.arange(len(kinds), dtype=np.int64) * 1_000_000
    return Schedule(times, np.asarray(kinds, dtype=np.int16), duration_s=1.0)


@pytest.mark.parametrize("law", ["exponential", "deterministic", "gamma", "pareto"])
def test_an_event_of_a_bank_takes_as_long_as_it_does_in_the_simulator(law: ServiceDistribution) -> None:
    system = QueueSystem(service_rate_per_s=20.0, service_law=law, service_scv=2.0)
    drawn_ns = np.rint(draw(system, 40_000, seed=3)[0] * 1e9)
    times = QueueServiceTimes(system, seed=3)
    some = [39_999, 0, 17, 16_383, 16_384, 32_767, 32_768]
    assert [times.floor_ns(event) for event in some] == [drawn_ns[event] for event in some]


def test_a_visit_to_a_topic_takes_as_long_as_it_does_in_the_simulator() -> None:
    kinds = [0, 1, 1, 0, 0]
    engine = NetworkEngine(spec(NETWORK), schedule(kinds))
    simulated = iter(engine.service_ns)  # every visit, job after job
    topics = {name: TopicServiceTimes(NETWORK, name, schedule(kinds), seed=3) for name in ("A", "D")}
    for job, kind in enumerate(kinds):
        seen = {"A": 0, "D": 0}
        for topic in NETWORK.jobs[kind].route:
            seen[topic] += 1
            assert topics[topic].floor_ns(job, seen[topic]) == next(simulated)


def test_what_is_not_of_the_schedule_takes_the_mean() -> None:
    assert QueueServiceTimes(QueueSystem(service_rate_per_s=20.0), seed=3).floor_ns(None) == 50_000_000
    times = TopicServiceTimes(NETWORK, "A", schedule([0, 1]), seed=3)
    assert {times.floor_ns(None), times.floor_ns(2), times.floor_ns(0, 2), times.floor_ns(1)} == {200_000_000}


def test_a_run_without_such_a_place_is_refused() -> None:
    with pytest.raises(PenstockError, match="no topic 'B' in this run; there are A, D"):
        service_times(spec(NETWORK), "B", schedule([0]))
    with pytest.raises(PenstockError, match="need the run's schedule"):
        service_times(spec(NETWORK), "A", None)
    with pytest.raises(PenstockError, match="not StreamSystem"):
        service_times(spec(StreamSystem()), "", None)
