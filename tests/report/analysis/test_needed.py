"""Replicas that the arrivals needed: by hand for each kind of fleet."""

import numpy as np
import pytest

from penstock.runspec import RunSpec, ScalerSpec, WorkerSpec
from penstock.schedule import Schedule
from penstock.systems import (
    FunctionSpec,
    FunctionSystem,
    JobSpec,
    NetworkSystem,
    QueueSystem,
    StreamSystem,
    System,
    TopicSpec,
)
from report.analysis.needed import needed_replicas


def spec_of(system: System, *, slo_s: float = 0.5, seconds: float = 3.0, service_time_s: float = 0.01) -> RunSpec:
    return RunSpec(
        run="r",
        experiment="e",
        world="sim",
        scaler=ScalerSpec(name="s"),
        duration_s=seconds,
        slo_s=slo_s,
        worker=WorkerSpec(service_time_s=service_time_s),
        system=system,
    )


def even(rates_per_s: list[int], partitions: list[int] | None = None) -> Schedule:
    """Events at even distances within each second."""
    offsets = [second + i / rate for second, rate in enumerate(rates_per_s) for i in range(rate)]
    offset_ns = np.round(np.array(offsets) * 1e9).astype(np.int64)
    of_partition = np.zeros(len(offset_ns), np.int16) if partitions is None else np.array(partitions, np.int16)
    return Schedule(offset_ns, of_partition, float(len(rates_per_s)), {})


def bursts(rates_per_s: list[int]) -> Schedule:
    """All events of a second at its beginning."""
    offset_ns = np.repeat(np.arange(len(rates_per_s)), rates_per_s).astype(np.int64) * 10**9
    return Schedule(offset_ns, np.zeros(len(offset_ns), np.int16), float(len(rates_per_s)), {})


def test_an_even_load_needs_as_many_as_it_keeps_busy() -> None:
    assert needed_replicas(spec_of(StreamSystem()), even([90, 100, 210])).tolist() == [1, 1, 3]


def test_a_burst_needs_as_many_as_finish_it_in_time() -> None:
    assert needed_replicas(spec_of(StreamSystem()), bursts([50, 100, 200])).tolist() == [1, 2, 4]


def test_a_long_slo_evens_the_load_out() -> None:
    assert needed_replicas(spec_of(StreamSystem(), slo_s=3.0), even([300, 0, 0])).tolist() == [3, 2, 1]


def test_every_function_and_topic_needs_its_own() -> None:
    functions = FunctionSystem(
        functions=(FunctionSpec(name="a", service_time_s=0.015), FunctionSpec(name="b", service_time_s=0.001)),
        deadline_s=0.5,
    )
    assert needed_replicas(spec_of(functions), even([100, 100, 100])).tolist() == [3, 3, 3]
    network = NetworkSystem(
        topics=(TopicSpec(topic="a", service_rate_per_s=50.0), TopicSpec(topic="b", service_rate_per_s=100.0)),
        jobs=(
            JobSpec(job="x", route=("a", "b"), arrival_rate_per_s=60.0),
            JobSpec(job="y", route=("b",), arrival_rate_per_s=60.0),
        ),
    )
    schedule = even([120, 120, 120], [i % 2 for i in range(360)])
    assert needed_replicas(spec_of(network), schedule).tolist() == [4, 4, 4]


def test_a_queue_needs_containers() -> None:
    assert needed_replicas(spec_of(QueueSystem(service_rate_per_s=10.0)), even([35, 40, 41])).tolist() == [4, 4, 5]


@pytest.mark.parametrize("seconds", [2.5, 3.0])
def test_unknown_service_times_give_no_figure(seconds: float) -> None:
    assert needed_replicas(spec_of(StreamSystem(), service_time_s=0.0, seconds=seconds), even([9, 9, 9])).tolist() == []
