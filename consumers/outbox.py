"""Results on their way out, and the offsets that may be committed once they are out (at least once, design rule 3).

An offset is committed only when the results of all events before it have been delivered.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError, Message
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from penstock.result_topic import result_producer

log = logging.getLogger(__name__)

MOST_OUTSTANDING = 10_000


class _Item:
    """One event whose result is out or not yet."""

    __slots__ = ("_outbox", "delivered", "key", "next_offset", "source", "value")

    def __init__(
        self, outbox: "Outbox", source: TopicPartition, next_offset: int, key: bytes | None, value: bytes
    ) -> None:
        self._outbox = outbox
        self.source = source
        self.next_offset = next_offset
        self.key = key
        self.value = value
        self.delivered = False

    def report(self, error: KafkaError | None, message: Message) -> None:
        """The client library's delivery report."""
        del message
        self._outbox.reported(self, error)


class Outbox:
    """Publishes to ``topic`` with acks of all replicas. The client library retries for as long as the broker is away;
    what it gives up all the same is handed to it again, so that nothing is lost. ``linger_ms``: how long a result may
    wait for others to share a request with.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str, linger_ms: float = 0) -> None:
        self._producer = result_producer(bootstrap, client_id, linger_ms)
        self._topic = topic
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

    def publish(self, source: TopicPartition, offset: int, key: bytes | None, value: bytes) -> None:
        """Send the result of the event at ``offset`` of ``source``. Waits only if the queue is full; the delivery
        report is taken in by ``collect``.
        """
        item = _Item(self, source, offset + 1, key, value)
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = deque()
        queue.append(item)
        self._outstanding += 1
        self._produce(item)

    def collect(self, until_ns: int) -> bool:
        """Take in delivery reports until all results are out or the monotonic clock passes ``until_ns``. True if all
        are. A poll of the client library returns as soon as it has served some report.
        """
        while self._outstanding:
            remaining_ns = until_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                self._producer.poll(0)
                break
            self._producer.poll(remaining_ns / 1e9)
        return self._outstanding == 0

    def make_room(self, keep_waiting: Callable[[], bool]) -> None:
        """Wait while too many results are outstanding (the broker is away) and ``keep_waiting`` says so."""
        while self._outstanding >= MOST_OUTSTANDING and keep_waiting():
            self._producer.poll(0.1)

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

    def reported(self, item: _Item, error: KafkaError | None) -> None:
        """A result was delivered, or the client library gave it up: then it is sent again."""
        if error is not None:
            log.warning("result not delivered (%s): sending it again", error)
            self._produce(item)
            return
        item.delivered = True
        self._outstanding -= 1
        queue = self._queues.get(item.source)
        while queue and queue[0].delivered:
            self._done[item.source] = queue.popleft().next_offset

    def _produce(self, item: _Item) -> None:
        while True:
            try:
                self._producer.produce(self._topic, item.value, item.key, on_delivery=item.report)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return
