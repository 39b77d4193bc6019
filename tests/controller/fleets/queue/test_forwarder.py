"""What is acknowledged: all that is done with, nothing that is not, and in one word where that is possible."""

from hypothesis import given
from hypothesis import strategies as st

from controller.fleets.queue.forwarder import UnackedDeliveries
from penstock.adapters.amqp import AmqpDelivery


def delivery(tag: int, life: int = 1) -> AmqpDelivery:
    return AmqpDelivery("run.main", tag, b"", {}, False, life)


def of_broker(unacknowledged: set[int], hand: UnackedDeliveries[object]) -> int:
    """What the broker makes of it; how many words it took."""
    said = hand.acknowledgements()
    for tag, multiple in ((delivery.tag, multiple) for delivery, multiple in said):
        assert tag in unacknowledged, "an unknown tag ends the connection"
        unacknowledged -= {other for other in unacknowledged if other <= tag} if multiple else {tag}
    return len(said)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60))
def test_after_each_word_the_broker_keeps_what_is_in_hand_and_nothing_else(steps: list[tuple[int, bool]]) -> None:
    hand: UnackedDeliveries[object] = UnackedDeliveries()
    items: dict[int, object] = {}
    unacknowledged: set[int] = set()
    for tag, (place, speak) in enumerate(steps, 1):
        items[tag] = object()
        hand.take(delivery(tag), items[tag])
        unacknowledged.add(tag)
        chosen = sorted(items)[place % len(items)]
        if place % 3:
            assert hand.done(delivery(chosen), items.pop(chosen))
        if speak:
            of_broker(unacknowledged, hand)
            assert unacknowledged == set(items)
        assert len(hand) == len(items)
    of_broker(unacknowledged, hand)
    assert unacknowledged == set(items)


def holding(tags: range) -> tuple[UnackedDeliveries[object], dict[int, object]]:
    hand: UnackedDeliveries[object] = UnackedDeliveries()
    items = {tag: object() for tag in tags}
    for tag, item in items.items():
        hand.take(delivery(tag), item)
    return hand, items


def test_a_run_that_is_done_is_acknowledged_in_one_word() -> None:
    hand, items = holding(range(1, 101))
    for tag in (*range(2, 60), 1):
        assert hand.done(delivery(tag), items[tag])
    ((delivered, multiple),) = hand.acknowledgements()
    assert (delivered.tag, multiple) == (59, True)
    assert hand.acknowledgements() == []


def test_what_came_after_something_that_is_held_is_acknowledged_one_by_one() -> None:
    hand, items = holding(range(1, 6))
    for tag in (1, 4, 5):
        assert hand.done(delivery(tag), items[tag])
    assert [(one.tag, multiple) for one, multiple in hand.acknowledgements()] == [(1, True), (4, False), (5, False)]


def test_what_a_lost_connection_had_is_neither_in_hand_nor_acknowledged() -> None:
    hand: UnackedDeliveries[object] = UnackedDeliveries()
    before, after = object(), object()
    hand.take(delivery(1), before)
    hand.take(delivery(2), object())
    hand.done(delivery(1), before)
    hand.clear()
    assert (len(hand), hand.acknowledgements()) == (0, [])
    hand.take(delivery(1, life=2), after)
    assert not hand.done(delivery(1), before), "that tag is another message now"
    assert len(hand) == 1
