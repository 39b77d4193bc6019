"""Results on their way out, and the offsets that may be committed once they are out (at least once, design rule 3).

An offset is committed only when the results of all events before it have been delivered.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from penstock.records import Result
from penstock.result_topic import ResultTopic

MOST_OUTSTANDING = 10_000


class _Item:
    """One event whose result is out or not yet."""

    __slots__ = ("_outbox", "delivered", "next_offset", "source")

    def __init__(self, outbox: "Outbox", source: TopicPartition, next_offset: int) -> None:
        self._outbox = outbox
        self.source = source
        self.next_offset = next_offset
        self.delivered = False

    def out(self) -> None:
        """The broker has its result."""
        self.delivered = True
        self._outbox.delivered(self.source)


class Outbox:
    """Publishes to ``topic``, see ``ResultTopic``. ``linger_ms``: how long a result may wait for others to share a
    request with.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str, linger_ms: float = 0) -> None:
        self._results = ResultTopic(bootstrap, topic, client_id, linger_ms)
        self._queues: dict[TopicPartition, deque[_Item]] = {}
        self._done: dict[TopicPartition, int] = {}
        self._outstanding = 0

    @property
    def outstanding(self) -> int:
        """Results handed over and not yet delivered."""
        return self._outstanding

    @property
    def unsettled(self) -> bool:
        """Whether something is outstanding, or out and not committed."""
        return self._outstanding > 0 or bool(self._done)

    def publish(self, source: TopicPartition, offset: int, result: Result) -> None:
        """Send the result of the event at ``offset`` of ``source``. Waits only if the queue is full; the delivery
        report is taken in by ``collect``.
        """
        item = _Item(self, source, offset + 1)
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = deque()
        queue.append(item)
        self._outstanding += 1
        self._results.publish(result, item.out)

    def collect(self, until_ns: int) -> bool:
        """Take in delivery reports until all results are out or the monotonic clock passes ``until_ns``. True if all
        are. A poll of the client library returns as soon as it has served some report.
        """
        while self._outstanding:
            remaining_ns = until_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                self._results.poll(0)
                break
            self._results.poll(remaining_ns / 1e9)
        return self._outstanding == 0

    def make_room(self, keep_waiting: Callable[[], bool]) -> None:
        """Wait while too many results are outstanding (the broker is away) and ``keep_waiting`` says so."""
        while self._outstanding >= MOST_OUTSTANDING and keep_waiting():
            self._results.poll(0.1)

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets that became committable since the last call."""
        fresh = {source: OffsetAndMetadata(offset, "", -1) for source, offset in self._done.items()}
        self._done.clear()
        return fresh

    def restore(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit of ``offsets`` failed: they are to be committed again, unless later ones are by now."""
        for source, offset in offsets.items():
            if source in self._queues:
                self._done[source] = max(self._done.get(source, 0), int(offset.offset))

    def keep(self, sources: Collection[TopicPartition]) -> None:
        """All partitions but these belong to somebody else now: none of their offsets may be committed from here."""
        self._queues = {source: queue for source, queue in self._queues.items() if source in sources}
        self._done = {source: offset for source, offset in self._done.items() if source in sources}

    def delivered(self, source: TopicPartition) -> None:
        """A result of an event of ``source`` is out."""
        self._outstanding -= 1
        queue = self._queues.get(source)
        while queue and queue[0].delivered:
            self._done[source] = queue.popleft().next_offset
