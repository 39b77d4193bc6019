"""What was taken from a queue and is not acknowledged yet, and how to acknowledge with few words what is done with.

A delivery tag counts a connection's messages; "multiple" acknowledges every one up to it. That may be said as far as
nothing older is still in hand, and no further: what is in hand is not done with.
"""

from typing import Generic, NamedTuple, TypeVar

from penstock.amqp import Delivery

Item = TypeVar("Item")


class Acknowledgement(NamedTuple):
    """Of ``delivery`` alone, or ``multiple``: of all that came before it on its connection, too."""

    delivery: Delivery
    multiple: bool


class Hand(Generic[Item]):
    """Items of one connection's messages, which are taken in the order in which they come."""

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        self._done: list[Delivery] = []

    def __len__(self) -> int:
        return len(self._items)

    def take(self, delivery: Delivery, item: Item) -> None:
        """It came."""
        self._items[delivery.tag] = item

    def done(self, delivery: Delivery, item: Item) -> bool:
        """It is done with, to be acknowledged next time. False for what is not in hand (any more): another connection's
        message may have its tag by now.
        """
        if self._items.get(delivery.tag) is not item:
            return False
        del self._items[delivery.tag]
        self._done.append(delivery)
        return True

    def acknowledgements(self) -> list[Acknowledgement]:
        """What to tell the broker of all that was done since the last time."""
        if not self._done:
            return []
        done, self._done = self._done, []
        oldest = next(iter(self._items), None)
        before = done if oldest is None else [delivery for delivery in done if delivery.tag < oldest]
        said = [Acknowledgement(max(before, key=_tag), multiple=True)] if before else []
        if oldest is not None:
            said += [Acknowledgement(delivery, multiple=False) for delivery in done if delivery.tag > oldest]
        return said

    def clear(self) -> None:
        """The connection is gone, and with it all that was in hand or not acknowledged yet."""
        self._items.clear()
        self._done.clear()


def _tag(delivery: Delivery) -> int:
    return delivery.tag
