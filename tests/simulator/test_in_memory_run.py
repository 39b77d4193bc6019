"""A run in memory: what it shows over time agrees with what was done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from penstock.contracts import Decision, FleetObservation, FunctionObservation
from penstock.errors import PenstockError
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSpec, FunctionSystem
from simulator.function import make_engine
from simulator.in_memory_run import FinishedRun, run_to_end


@dataclass(frozen=True)
class Targets:
    """Replicas of the only function, by time."""

    by_time: Mapping[float, int] = field(default_factory=dict)


class Nothing(msgspec.Struct, frozen=True):
    pass


class Scripted:
    """Does what it was told, when it was told."""

    name: ClassVar[str] = "scripted"
    fleets: ClassVar[type[FleetObservation]] = FunctionObservation
    paper: ClassVar[str] = "none"
    Parameters: ClassVar[type[Any]] = Targets
    State: ClassVar[type[Any]] = Nothing

    def __init__(self, parameters: Targets) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        return 1.0

    def start(self, seed: int) -> Nothing:
        return Nothing()

    def decide(self, observation: FunctionObservation, state: Nothing) -> tuple[Decision, Nothing]:
        target = self.parameters.by_time.get(observation.time_s)
        if target is None:
            return Decision(action="none"), state
        return Decision(action="up", targets={"f": target}), state


def played(targets: Mapping[float, int], *arrivals_s: float) -> FinishedRun:
    spec = RunSpec(
        run="r", experiment="e", world="sim", scaler=ScalerSpec(name="scripted"), fleet="f", duration_s=10,
        tick_phase_s=0.0,
        system=FunctionSystem(
            functions=(FunctionSpec(name="f", service_time_s=1.0),), deadline_s=1.5, cold_start_s=1.0
        ),
    )  # fmt: skip
    offsets = np.asarray([round(t * 1e9) for t in arrivals_s], dtype=np.int64)
    schedule = Schedule(offsets, np.zeros(len(offsets), dtype=np.int16), 10.0)
    scaler: Any = Scripted(Targets(targets))
    return run_to_end(spec, make_engine(spec, schedule), scaler)


def test_series_follow_the_run() -> None:
    run = played({2.0: 2, 6.0: 1}, 0.0, 0.0, 0.0, 5.0)
    times_s = np.asarray([0.0, 0.5, 1.0, 2.0, 2.9, 3.0, 4.0, 6.0, 9.0])
    assert run.waiting(times_s).tolist() == [2, 2, 1, 0, 0, 0, 0, 0, 0]
    assert run.replicas(times_s).tolist() == [1, 1, 1, 2, 2, 2, 2, 1, 1]
    intended_s, response_s = run.responses()
    assert intended_s.tolist() == [0, 0, 0, 5]
    assert response_s == pytest.approx([1.0, 2.0, 3.0, 1.0])
    assert run.missed(times_s, 1.5).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert run.replica_minutes() == pytest.approx((10 + 4) / 60)
    assert [tick.time_s for tick in run.ticks if tick.accepted is not None] == [2.0, 6.0]


def test_what_arrives_late_in_the_run_is_finished_after_it() -> None:
    assert len(played({}, 0.0, 9.5, 9.6).results) == 3


def test_a_fleet_that_was_scaled_to_nothing_is_told() -> None:
    with pytest.raises(PenstockError, match="1 events were never finished"):
        played({1.0: 0}, 5.0)


def test_a_scaler_that_left_a_fleet_without_replicas_decides_on_until_all_events_are_finished() -> None:
    run = played({1.0: 0, 12.0: 1, 13.0: 0}, 0.0, 5.0)
    _, response_s = run.responses()
    assert response_s == pytest.approx([1.0, 9.0])  # a cold start and a service after second 12
    assert max(tick.time_s for tick in run.ticks) < 10
    assert run.replica_minutes() < 2 / 60
