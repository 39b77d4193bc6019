"""Publishes results and tracks the offsets that may be committed (at least once).

An offset is committable when the results of all events before it are delivered.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from penstock.adapters.result_topic import ResultTopic
from penstock.records import Result

MOST_OUTSTANDING = 10_000


class _Item:
    """One event and whether its result is delivered."""

    __slots__ = ("_tracker", "delivered", "next_offset", "source")

    def __init__(self, tracker: "CommitTracker", source: TopicPartition, next_offset: int) -> None:
        self._tracker = tracker
        self.source = source
        self.next_offset = next_offset
        self.delivered = False

    def out(self) -> None:
        """The broker has its result."""
        self.delivered = True
        self._tracker.delivered(self.source)


class CommitTracker:
    """Publishes to ``topic`` through a ``ResultTopic``, which ``linger_ms`` is for."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, linger_ms: float = 0) -> None:
        self._results = ResultTopic(bootstrap, topic, client_id, linger_ms)
        self._queues: dict[TopicPartition, deque[_Item]] = {}
        self._done: dict[TopicPartition, int] = {}
        self.outstanding = 0
        """Results handed over and not yet delivered."""

    @property
    def unsettled(self) -> bool:
        """Whether a result is outstanding, or delivered and not committed."""
        return self.outstanding > 0 or bool(self._done)

    def publish(self, source: TopicPartition, offset: int, result: Result) -> None:
        """Publish the result of the event at ``offset`` of ``source``. Waits only if the client's queue is full."""
        item = _Item(self, source, offset + 1)
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = deque()
        queue.append(item)
        self.outstanding += 1
        self._results.publish(result, item.out)

    def collect(self, until_ns: int) -> bool:
        """Serve delivery reports until all are in or the monotonic clock passes ``until_ns``; whether all are in."""
        while self.outstanding:
            remaining_ns = until_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                self._results.poll(0)
                break
            self._results.poll(remaining_ns / 1e9)
        return self.outstanding == 0

    def throttle(self, keep_waiting: Callable[[], bool]) -> None:
        """Wait while too many results are outstanding (the broker is away) and ``keep_waiting`` is true."""
        while self.outstanding >= MOST_OUTSTANDING and keep_waiting():
            self._results.poll(0.1)

    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets that became committable since the last call."""
        fresh = {source: OffsetAndMetadata(offset, "", -1) for source, offset in self._done.items()}
        self._done.clear()
        return fresh

    def restore(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """A commit of ``offsets`` failed: they are committable again, unless later ones are."""
        for source, offset in offsets.items():
            if source in self._queues:
                self._done[source] = max(self._done.get(source, 0), int(offset.offset))

    def keep(self, sources: Collection[TopicPartition]) -> None:
        """Forget all partitions but these: they belong to other members, whose commits these are now."""
        self._queues = {source: queue for source, queue in self._queues.items() if source in sources}
        self._done = {source: offset for source, offset in self._done.items() if source in sources}

    def delivered(self, source: TopicPartition) -> None:
        """The result of an event of ``source`` is delivered."""
        self.outstanding -= 1
        queue = self._queues.get(source)
        while queue and queue[0].delivered:
            self._done[source] = queue.popleft().next_offset
