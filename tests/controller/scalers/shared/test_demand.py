"""What is in the system and what waits, on every kind of fleet, and the input rate of a network."""

from typing import Any

import pytest

from controller.scalers.kpa import Kpa
from controller.scalers.shared.base import CannotDecide
from controller.scalers.shared.demand import Source, in_system, input_rate, waiting
from controller.scalers.shared.single_fleet import Window
from penstock.contracts import (
    FleetObservation,
    FunctionStatus,
    QueueObservation,
    ReplicaCounts,
    StreamObservation,
    TopicStatus,
)
from tests.controller.scalers.one_fleet import make

FLEET: dict[str, Any] = {"time_s": 0.0, "fleet": "bank", "replicas": ReplicaCounts(joined=4)}


@pytest.mark.parametrize(
    ("fleet", "present", "wait"),
    [
        # 3 wait and 20 are processed; only a bank of queues counts those in both numbers.
        (QueueObservation(**FLEET, backlog=23, in_flight=20), 23, 3),
        (FunctionStatus(**FLEET, backlog=3, in_flight=20), 23, 3),
        (TopicStatus(**FLEET, backlog=3, in_flight=20), 23, 3),
        (StreamObservation(**FLEET, backlog=23), 23, 23),
        (QueueObservation(**FLEET, backlog=2, in_flight=5), 2, 0),  # read one after the other
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_event_in_service_is_counted_once(fleet: FleetObservation, present: int, wait: int) -> None:
    assert (in_system(fleet), waiting(fleet)) == (present, wait)


@pytest.mark.parametrize(
    "fleet",
    [
        QueueObservation(**FLEET, unknown={"backlog": "broker away", "in_flight": "broker away"}),
        FunctionStatus(**FLEET, backlog=3, unknown={"in_flight": "broker away"}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_unknown_is_not_counted(fleet: FleetObservation) -> None:
    for count in (in_system, waiting):
        with pytest.raises(CannotDecide, match="broker away"):
            count(fleet)


def test_knative_sees_the_concurrency_of_a_bank_of_queues() -> None:
    scaler = make(Kpa, target_concurrency=1)
    decision, _ = scaler.decide(QueueObservation(**FLEET, backlog=20, in_flight=20), scaler.start(1))
    assert decision.targets == {"bank": 29}  # ⌈20 / 0.7⌉


def test_in_overload_a_jobs_rate_is_the_monitors_and_not_that_of_the_jobs_taken() -> None:
    # Four jobs come each second, one is taken: the app has counted 60 in a minute.
    taken = {"1": Window(((0.0, 0.0), (60.0, 60.0)))}
    assert input_rate(taken, [Source("1", 60, 4.0, 2)], 60.0, {}) == 8.0
    assert input_rate(taken, [Source("1", 60, None, 2)], 60.0, {}) == 2.0
    with pytest.raises(CannotDecide, match="too few readings"):  # Flink's window has to be full all the same
        input_rate(taken, [Source("1", 60, 4.0, 2)], 120.0, {}, whole=True)
