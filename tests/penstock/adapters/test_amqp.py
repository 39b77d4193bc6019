"""RabbitMQ's link and management API: on a real broker, what is confirmed, refused, taken and given back."""

import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from infra.local.services import LocalServices
from penstock.adapters.amqp import (
    PUBLISHED_NS,
    AmqpDelivery,
    Link,
    ManagementError,
    PublishOutcome,
    connection_name,
    main_queue,
    sub_queue,
    topic_queue,
)
from penstock.errors import PenstockError
from penstock.settings import Endpoints
from tests.support.broker_view import BrokerView, QueueCounts
from tests.support.eventually import eventually

PATIENCE_S = 120.0


# --- names and errors -------------------------------------------------------------------------------------------------


def test_all_names_of_a_run_begin_with_it() -> None:
    assert (main_queue("r"), sub_queue("r", "bank-1"), topic_queue("r", "A")) == ("r.main", "r.bank-1", "r.topic.A")
    assert connection_name("r", "bank-1") == "r:bank-1"


def test_a_broker_that_is_away_is_told_in_one_line() -> None:
    link = Link("amqp://user:secret@127.0.0.1:1/%2F", "test")
    with pytest.raises(
        PenstockError, match=r"RabbitMQ does not answer at 127\.0\.0\.1:1 .*refused.*`penstock up`"
    ) as told:
        link.open(timeout_s=0.5)
    assert "secret" not in str(told.value)
    assert not link.publish("q", b"", lambda _: None, published_ns=0)
    link.close()


def test_a_management_api_that_is_away_is_told_without_its_password() -> None:
    management = BrokerView("http://user:secret@127.0.0.1:1")
    assert not management.answers()
    with pytest.raises(ManagementError, match=r"management API at http://127\.0\.0\.1:1 is away") as told:
        management.queues("r")
    assert "secret" not in str(told.value)


# --- a real broker ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run() -> str:
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
def management(queue_services: Endpoints, run: str) -> Iterator[BrokerView]:
    made = BrokerView(queue_services.require("rabbitmq_management"), timeout_s=60)
    yield made
    made.delete_run(run)
    made.close()


@pytest.fixture
def make_link(queue_services: Endpoints, run: str) -> Iterator[Callable[..., Link]]:
    links: list[Link] = []

    def make(**arguments: object) -> Link:
        link = Link(queue_services.require("rabbitmq"), connection_name(run, "test"), **arguments)  # type: ignore[arg-type]
        links.append(link)
        link.open(PATIENCE_S)
        return link

    yield make
    for link in links:
        link.close()


def serve(link: Link, condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s
        link.serve(0.1)


def settled(condition: Callable[[], bool]) -> None:
    """Statistics of the broker are a second old."""
    eventually(condition, within_s=PATIENCE_S)


@pytest.mark.live
def test_a_bounded_queue_refuses_what_exceeds_its_bound_until_the_bound_is_changed(
    management: BrokerView, make_link: Callable[..., Link], run: str
) -> None:
    link, queue = make_link(), sub_queue(run, "bank-1")
    management.bound_queue(queue, 3)
    management.declare_queue(queue)

    def publish(messages: int) -> list[PublishOutcome]:
        outcomes: dict[int, PublishOutcome] = {}
        for number in range(messages):
            assert link.publish(queue, b"x", partial(outcomes.__setitem__, number), published_ns=1)
        serve(link, lambda: len(outcomes) == messages)
        return [outcomes[number] for number in range(messages)]

    assert publish(5) == ["confirmed", "confirmed", "confirmed", "full", "full"]
    management.bound_queue(queue, 4)
    settled(lambda: publish(1) == ["confirmed"])
    assert publish(1) == ["full"]
    assert management.bounds(run) == {queue: 4}
    management.bound_queue(queue, None)
    settled(lambda: publish(1) == ["confirmed"])
    assert management.bounds(run) == {}


@pytest.mark.live
def test_what_is_published_in_one_turn_goes_out_in_one_piece(
    management: BrokerView, make_link: Callable[..., Link], run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, queue = make_link(), main_queue(run)
    management.declare_queue(queue)
    socket = link._connection._transport
    written, outcomes, write = list[int](), list[PublishOutcome](), socket.write

    def counted(data: bytes) -> None:
        written.append(len(data))
        write(data)

    monkeypatch.setattr(socket, "write", counted)
    for _ in range(50):
        assert link.publish(queue, b"x" * 350, outcomes.append, published_ns=1)
    assert written == [], "nothing goes out between two turns"
    serve(link, lambda: len(outcomes) == 50)
    assert outcomes == ["confirmed"] * 50
    assert len(written) == 1
    assert written[0] > 50 * 350


@pytest.mark.live
def test_what_is_published_to_no_queue_is_unroutable(make_link: Callable[..., Link], run: str) -> None:
    link = make_link()
    outcomes: list[PublishOutcome] = []
    link.publish(main_queue(run), b"x", outcomes.append, published_ns=1)
    serve(link, lambda: bool(outcomes))
    assert outcomes == ["unroutable"]


@pytest.mark.live
def test_each_consumer_has_one_message_in_hand_and_the_rest_waits(
    management: BrokerView, make_link: Callable[..., Link], run: str
) -> None:
    link, queue = make_link(prefetch=1), main_queue(run)
    management.declare_queue(queue)
    came: list[AmqpDelivery] = []
    outcomes: list[PublishOutcome] = []
    for _ in range(2):
        link.consume(queue, came.append)
    for number in range(4):
        link.publish(queue, b"%d" % number, outcomes.append, published_ns=7, headers={"step": number})
    serve(link, lambda: len(came) == 2 and len(outcomes) == 4)
    settled(lambda: management.queues(run)[queue] == QueueCounts(queue, 2, 2, 2, published=4, delivered=2))
    assert {delivery.body for delivery in came} == {b"0", b"1"}
    assert came[0].headers == {"step": 0, PUBLISHED_NS: 7}
    assert (came[0].published_ns, came[0].redelivered) == (7, False)
    assert link.ack(came[0])
    serve(link, lambda: len(came) == 3)


@pytest.mark.live
def test_only_an_empty_queue_that_nobody_uses_is_deleted_if_so_asked(
    management: BrokerView, make_link: Callable[..., Link], run: str
) -> None:
    link, queue = make_link(), sub_queue(run, "bank-1")
    outcomes: list[PublishOutcome] = []
    management.bound_queue(queue, 10)
    management.declare_queue(queue)
    link.publish(queue, b"x", outcomes.append, published_ns=1)
    serve(link, lambda: bool(outcomes))
    assert not management.delete_queue(queue, only_empty=True)
    came: list[AmqpDelivery] = []
    tag = link.consume(queue, came.append)
    serve(link, lambda: bool(came))
    link.ack(came[0])
    link.serve(0.1)
    assert not management.delete_queue(queue, only_empty=True)
    link.cancel(tag)
    link.serve(0.1)
    settled(lambda: management.delete_queue(queue, only_empty=True))
    assert len(management.objects(run).policies) == 0


@pytest.mark.live
def test_everything_that_a_run_leaves_is_counted_and_cleared_away(
    management: BrokerView, queue_services: Endpoints, run: str
) -> None:
    link = Link(queue_services.require("rabbitmq"), connection_name(run, "bank-1"))
    link.open(PATIENCE_S)
    management.declare_queue(main_queue(run))
    management.bound_queue(sub_queue(run, "bank-1"), 3)
    settled(lambda: len(management.objects(run)) == 3)
    there = management.objects(run)
    assert (there.queues, there.policies) == ((main_queue(run),), (sub_queue(run, "bank-1"),))
    assert there.connections == (connection_name(run, "bank-1"),)
    assert len(management.objects(run + "x")) == 0
    link.close()
    management.delete_run(run)
    settled(lambda: len(management.objects(run)) == 0)


@pytest.mark.live
def test_a_link_comes_back_after_a_restart_with_what_was_confirmed_and_tells_what_was_not(
    management: BrokerView, make_link: Callable[..., Link], local_services: LocalServices, run: str
) -> None:
    queue = main_queue(run)
    ups: list[float] = []
    downs: list[str] = []
    link = make_link(on_up=lambda: ups.append(time.monotonic()), on_down=downs.append)
    management.declare_queue(queue)
    outcomes: list[PublishOutcome] = []
    came: list[AmqpDelivery] = []
    for number in range(3):
        link.publish(queue, b"%d" % number, outcomes.append, published_ns=1)
    serve(link, lambda: len(outcomes) == 3)
    link.consume(queue, came.append)
    serve(link, lambda: bool(came))
    local_services.stop_service("rabbitmq")
    link.publish(queue, b"late", outcomes.append, published_ns=1)  # the link has not noticed yet
    serve(link, lambda: bool(downs))
    assert outcomes == ["confirmed"] * 3 + ["lost"]
    assert not link.up
    local_services.start_service("rabbitmq")
    serve(link, lambda: link.up)
    assert (len(ups), len(downs)) == (2, 1)
    assert not link.ack(came[0])
    again: list[AmqpDelivery] = []

    def take(delivery: AmqpDelivery) -> None:
        again.append(delivery)
        link.ack(delivery)

    link.consume(queue, take)
    serve(link, lambda: len(again) == 3)
    assert {delivery.body for delivery in again} == {b"0", b"1", b"2"}
