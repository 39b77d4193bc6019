"""Arrival rates as arithmetic, and the monitor on a real broker."""

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from controller.fleets.stream.assignment import AssignmentPlanner, PendingPlan
from controller.fleets.stream.monitor import ArrivalRates, KafkaMonitor
from controller.fleets.stream.offset_reader import OffsetReader
from infra.local.services import LocalServices
from penstock.clock import WallClock
from penstock.contracts import FleetObservation, Monitor, ReplicaCounts
from penstock.plan import MemberReport, Plan
from penstock.settings import Endpoints
from tests.conformance.ports import MonitorConformance

# --- rates -----------------------------------------------------------------------------------------------------------


def test_a_rate_needs_two_readings_a_whole_interval_apart() -> None:
    rates = ArrivalRates(1.0)
    assert rates.add(0.1, {0: 500}) == {}
    assert rates.add(0.6, {0: 600}) == {}
    assert rates.add(1.1, {0: 712}) == {0: pytest.approx(212.0)}


def test_readings_in_between_do_not_shorten_the_interval_to_one_that_holds_no_burst() -> None:
    rates = ArrivalRates(1.0)
    seen = [rates.add(0.1 + tick / 2, {0: 200 * (1 + tick // 2)}).get(0) for tick in range(7)]
    assert seen == [None, None, *[pytest.approx(200.0)] * 5]


def test_a_late_tick_divides_by_the_time_that_really_passed() -> None:
    rates = ArrivalRates(1.0)
    rates.add(0.1, {0: 0})
    assert rates.add(1.3, {0: 240}) == {0: pytest.approx(200.0)}
    assert rates.add(2.1, {0: 400}) == {0: pytest.approx(200.0)}  # .8 s after the last one: since the one before


def test_after_an_outage_it_is_the_average_since_the_last_reading() -> None:
    rates = ArrivalRates(1.0)
    rates.add(0.1, {0: 0, 1: 0})
    assert rates.add(1.1, {0: 100}) == {0: pytest.approx(100.0)}
    assert rates.add(5.1, {0: 500, 1: 50}) == {0: pytest.approx(100.0), 1: pytest.approx(10.0)}


def test_a_topic_that_was_made_anew_has_no_negative_rate() -> None:
    rates = ArrivalRates(1.0)
    rates.add(0.0, {0: 1000})
    assert rates.add(1.0, {0: 3}) == {0: 0.0}


# --- on a broker -----------------------------------------------------------------------------------------------------


PLANS = AssignmentPlanner(
    join_timeout_s=60.0,
    current=Plan(epoch=4, groups=((0, 1, 2),), members=("w-1",)),
    pending=PendingPlan(groups=((0, 1), (2,)), members=("w-1", "w-2"), awaited=("w-2",), since_s=0.0),
    members={"w-1": MemberReport("joined", 1, (0, 1, 2))},
)


class Broker:
    """A topic of three partitions and a group that commits without consuming."""

    def __init__(self, services: Endpoints, topic: str) -> None:
        self.kafka, self.topic, self.group = services.kafka, topic, f"group-{secrets.token_hex(4)}"
        self.producer = Producer({"bootstrap.servers": self.kafka}, logger=logging.getLogger("broker"))

    def send(self, partition: int, count: int) -> None:
        for _ in range(count):
            self.producer.produce(self.topic, b"event", partition=partition)
        assert self.producer.flush(10) == 0

    def commit(self, **offsets: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.kafka, "group.id": self.group})
        wanted = [TopicPartition(self.topic, int(name[1:]), offset) for name, offset in offsets.items()]
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()

    def monitor(self, blind: Callable[[], bool] = lambda: False, timeout_s: float = 1.0) -> KafkaMonitor:
        clock = WallClock()
        reader = OffsetReader(
            bootstrap=self.kafka, topic=self.topic, group=self.group, partitions=3, clock=clock, timeout_s=timeout_s
        )
        return KafkaMonitor(
            fleet="payments",
            reader=reader,
            partitions=3,
            clock=clock,
            origin_s=clock.now() - 100,
            counts=lambda: ReplicaCounts(joined=2),
            plans=lambda: PLANS,
            rate_interval_s=0.3,
            blind=blind,
        )


@pytest.fixture
def broker(services: Endpoints, topic: Callable[[int], str]) -> Broker:
    return Broker(services, topic(3))


def when_known(monitor: Monitor[FleetObservation], field: str = "arrived") -> None:
    """The first requests of a client may still find the broker's coordinator at its own preparations."""
    deadline = time.monotonic() + 20
    while getattr(monitor.observe(), field) is None:
        assert time.monotonic() < deadline, monitor.observe()
        time.sleep(0.1)


@pytest.mark.smoke
def test_lag_and_rates_are_those_of_the_topic(broker: Broker) -> None:
    broker.send(0, 10)
    broker.send(1, 20)
    broker.commit(p0=10, p1=5, p2=0)
    monitor = broker.monitor(timeout_s=10.0)
    when_known(monitor, "completed")
    before = monitor.observe()
    time.sleep(0.35)
    broker.send(1, 30)
    observation = monitor.observe()
    assert [each.lag for each in observation.partitions] == [0, 45, 0]
    assert (observation.arrived, observation.completed, observation.backlog) == (60, 15, 45)
    passed_s = observation.time_s - before.time_s
    rates = [each.arrival_rate_per_s for each in observation.partitions]
    assert rates[0] == rates[2] == 0.0
    assert rates[1] is not None and 0 < rates[1] <= 30 / passed_s * 1.001
    assert observation.unknown == {}
    assert (observation.plan, observation.plan_epoch) == (((0, 1), (2,)), 4)
    assert observation.assigned == {"w-1": (0, 1, 2)}
    assert observation.replicas.current == 2
    assert 100 <= observation.time_s < 200


@pytest.mark.smoke
def test_a_missing_commit_is_unknown_and_not_zero(broker: Broker) -> None:
    broker.send(1, 7)
    broker.commit(p0=0)
    monitor = broker.monitor(timeout_s=10.0)
    when_known(monitor)
    observation = monitor.observe()
    assert [each.committed_offset for each in observation.partitions] == [0, None, None]
    assert [each.lag for each in observation.partitions] == [0, None, None]
    assert (observation.arrived, observation.completed, observation.backlog) == (7, None, None)
    assert observation.unknown["partitions.1.committed_offset"] == "no commit yet"
    assert observation.unknown["backlog"] == "unknown for partitions 1, 2"


@pytest.mark.smoke
def test_arrivals_by_slot_are_those_of_the_topic(broker: Broker) -> None:
    clock = WallClock()
    monitor = KafkaMonitor.connected(
        bootstrap=broker.kafka,
        topic=broker.topic,
        group=broker.group,
        partitions=3,
        clock=clock,
        period_s=1.0,
        reads_arrivals=True,
        fleet="payments",
        origin_s=clock.now(),
        counts=lambda: ReplicaCounts(joined=2),
        plans=lambda: PLANS,
    )
    unknown = monitor.observe()
    assert [each.arrivals_by_slot for each in unknown.partitions] == [None, None, None]
    assert "partitions.2.arrivals_by_slot" in unknown.unknown
    deadline = time.monotonic() + 60  # a busy machine leaves gaps, in which arrivals are unknown
    seen: list[tuple[int, ...]] = []
    while not any(sum(each) == 10 for each in seen) and time.monotonic() < deadline:
        broker.send(1, 10)
        for _ in range(5):
            time.sleep(0.25)
            slots = [each.arrivals_by_slot for each in monitor.observe().partitions]
            assert not slots[0] or sum(slots[0]) == 0
            seen += [slots[1]] if slots[1] else []
    monitor.close()
    assert any(sum(each) == 10 and len(each) == 20 for each in seen), seen


@pytest.mark.live
def test_a_topic_that_does_not_exist_is_unknown_with_the_brokers_reason(services: Endpoints) -> None:
    monitor = Broker(services, "no-such-topic").monitor()
    observation = monitor.observe()
    assert observation.arrived is None
    assert all(reason for reason in observation.unknown.values())


@pytest.mark.live
class TestKafkaMonitor(MonitorConformance):
    """The local world's heir, with the broker really stopped."""

    @pytest.fixture(autouse=True)
    def _broker(self, local_services: LocalServices, broker: Broker) -> None:
        self.services, self.broker = local_services, broker

    def make_monitor(self) -> Monitor[FleetObservation]:
        self.broker.send(0, 5)
        self.broker.commit(p0=3, p1=0, p2=0)
        return self.broker.monitor()

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.services.stop_service("kafka")
        try:
            yield
        finally:
            self.services.start_service("kafka")


@pytest.mark.live
class TestBlindedMonitor(MonitorConformance):
    """The same with the fault ``blind-monitor``: a file that hides everything."""

    @pytest.fixture(autouse=True)
    def _broker(self, broker: Broker, tmp_path: Path) -> None:
        self.broker, self.file = broker, tmp_path / "blind"

    def make_monitor(self) -> Monitor[FleetObservation]:
        self.broker.send(0, 5)
        self.broker.commit(p0=3, p1=0, p2=0)
        return self.broker.monitor(self.file.exists)

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.file.touch()
        yield
        self.file.unlink()
