"""The forwarder as a process on a real broker: shares, full queues, and what happens when somebody dies."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from infra.local.services import LocalServices
from penstock.records import Result, result_decoder
from penstock.settings import Endpoints
from penstock.systems import QueueSystem
from tests.controller.fleets.queue.queue_scene import RabbitScene, rabbit_scene, repeated, wait

pytestmark = pytest.mark.live

A, B = "bank-1", "bank-2"


@pytest.fixture
def hold(queue_services: Endpoints, tmp_path: Path) -> Iterator[RabbitScene]:
    with rabbit_scene(queue_services, tmp_path, QueueSystem(service_rate_per_s=1, when_full="hold")) as scene:
        scene.declare(scene.main)
        yield scene


@pytest.fixture
def drop(queue_services: Endpoints, tmp_path: Path) -> Iterator[RabbitScene]:
    with rabbit_scene(queue_services, tmp_path, QueueSystem(service_rate_per_s=1, when_full="drop")) as scene:
        scene.declare(scene.main)
        admin = AdminClient({"bootstrap.servers": queue_services.kafka})
        topic = scene.spec.results_topic
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)
        yield scene
        admin.delete_topics([topic])[topic].result(30)


def results(scene: RabbitScene, wanted: int) -> list[Result]:
    consumer = Consumer({"bootstrap.servers": scene.endpoints.kafka, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(scene.spec.results_topic, 0, 0)])
    found: list[Result] = []
    deadline = time.monotonic() + 30
    while len(found) < wanted and time.monotonic() < deadline:
        found += [result_decoder.decode(message.value() or b"") for message in consumer.consume(500, 0.2)]
    consumer.close()
    return found


def test_ten_thousand_events_are_split_by_the_shares_within_two_in_a_hundred(hold: RabbitScene) -> None:
    shares = {A: 0.5, B: 0.3, "bank-3": 0.2}
    hold.declare(*(hold.queue(queue) for queue in shares))
    hold.publish(range(10_000))
    hold.route(shares)
    forwarder = hold.forwarder()
    wait(lambda: sum(hold.depths(*map(hold.queue, shares))) == 10_000, hold.report)
    wait(lambda: hold.report().settled == 10_000, hold.report)
    for depth, share in zip(hold.depths(*map(hold.queue, shares)), shares.values(), strict=True):
        assert depth / 10_000 == pytest.approx(share, abs=0.02)
    assert hold.end(forwarder) == 0
    report = hold.report()
    assert (report.unacked, report.settled) == (0, 10_000)
    assert sum(flow.offered for flow in report.queues.values()) == 10_000
    assert hold.depths(hold.main) == (0,)


def test_what_no_queue_has_room_for_is_held_oldest_first_until_one_has(hold: RabbitScene) -> None:
    hold.declare(hold.queue(A), bound=5)
    hold.publish(range(40))
    hold.route({A: 1.0})
    hold.forwarder("--prefetch", "10")
    # All 15 are in hand before the broker has said of the first that it is in: what it says is waited for too.
    wait(lambda: A in hold.report().queues and hold.report().queues[A].entered == 5, hold.report)
    wait(lambda: hold.report().queues[A].refused == hold.report().unacked == 10, hold.report)
    assert hold.depths(hold.queue(A), hold.main) == (5, 25), "the main queue holds what nobody takes"
    flow = hold.report().queues[A]
    assert (flow.entered, flow.offered, flow.refused, flow.rejected) == (5, 15, 10, 0)
    order: list[int] = []

    def taken() -> bool:
        order.extend(hold.take(hold.queue(A)))
        return len(order) >= 40

    wait(taken, lambda: order)
    assert sorted(order) == list(range(40))
    assert max(abs(place - event_id) for place, event_id in enumerate(order)) <= 10, "no more than what is in hand"


def test_an_event_goes_to_another_queue_when_its_own_is_full(hold: RabbitScene) -> None:
    hold.declare(hold.queue(A), bound=1)
    hold.declare(hold.queue(B))
    hold.publish(range(100))
    hold.route({A: 0.5, B: 0.5})
    hold.forwarder()
    wait(lambda: hold.depths(hold.queue(A), hold.queue(B)) == (1, 99), hold.report)
    wait(lambda: hold.report().settled == 100, hold.report)
    a, b = hold.report().queues[A], hold.report().queues[B]
    assert a.offered + b.offered == 100
    assert a.refused == a.offered - 1 and b.refused == 0, "refused counts first choices"


def test_events_for_a_full_queue_are_lost_and_say_so_where_they_are_dropped(drop: RabbitScene) -> None:
    drop.declare(drop.queue(A), bound=10)
    drop.declare(drop.queue(B))
    drop.publish(range(200))
    drop.route({A: 0.5, B: 0.5})
    forwarder = drop.forwarder()
    wait(lambda: drop.report().settled == 200, drop.report)
    flow = drop.report().queues[A]
    in_a, in_b = drop.take(drop.queue(A)), drop.take(drop.queue(B))
    assert len(in_a) == 10 == flow.entered
    assert flow.rejected == flow.refused == 200 - len(in_a) - len(in_b) > 50
    found = results(drop, flow.rejected)
    assert sorted([result.id or 0 for result in found] + in_a + in_b) == list(range(200))
    assert {(result.outcome, result.queue, result.terminal) for result in found} == {("rejected", A, True)}
    assert drop.end(forwarder) == 0
    assert drop.depths(drop.main) == (0,)


def test_a_killed_forwarder_loses_nothing(hold: RabbitScene) -> None:
    hold.declare(hold.queue(A), hold.queue(B))
    hold.route({A: 0.5, B: 0.5})
    for first in (0, 2000):
        already = hold.report().settled
        hold.publish(range(first, first + 2000))
        forwarder = hold.forwarder()
        wait(lambda: hold.report().settled > already)  # noqa: B023 - waited for at once
        forwarder.kill()
        forwarder.wait()
    hold.forwarder()
    ids: list[int] = []

    def taken() -> bool:
        ids.extend(hold.take(hold.queue(A)) + hold.take(hold.queue(B)))
        return set(ids) == set(range(4000))

    wait(taken, hold.report)
    assert repeated(ids) <= 200, "only what was in hand can come twice"


def test_a_new_routing_is_settled_when_nothing_is_on_its_way_by_the_old_one(hold: RabbitScene) -> None:
    hold.declare(hold.queue(A), hold.queue(B))
    hold.route({A: 1.0}, version=1)
    hold.forwarder()
    hold.publish(range(50))
    wait(lambda: hold.depths(hold.queue(A)) == (50,))
    hold.route({B: 1.0}, version=2)
    wait(lambda: hold.report().settled_version == 2, hold.report)
    hold.publish(range(50, 100))
    wait(lambda: hold.depths(hold.queue(B)) == (50,))
    assert hold.depths(hold.queue(A)) == (50,)


def test_a_queue_that_is_not_there_loses_nothing(hold: RabbitScene) -> None:
    hold.declare(hold.queue(A))
    hold.route({A: 0.5, "missing": 0.5})
    hold.publish(range(100))
    hold.forwarder()
    wait(lambda: hold.depths(hold.queue(A)) == (100,), hold.report)
    assert hold.log("forwarder").count("is not there") == 1


def test_nothing_is_lost_when_the_broker_restarts(hold: RabbitScene, local_services: LocalServices) -> None:
    hold.declare(hold.queue(A))
    hold.route({A: 1.0})
    hold.publish(range(3000))
    hold.forwarder()
    wait(lambda: hold.report().settled > 0)
    local_services.stop_service("rabbitmq")
    local_services.start_service("rabbitmq")
    ids: set[int] = set()

    def all_taken() -> bool:
        ids.update(hold.take(hold.queue(A)))
        return ids == set(range(3000))

    wait(all_taken, hold.report)
    wait(lambda: hold.depths(hold.main) == (0,) and hold.report().unacked == 0, hold.report)
