"""Requests from a Kafka topic (AMESoS' Connector). Offsets are committed when all requests before them have left.

The manager reads all partitions outside a group: a successor continues at once, where a group would wait for the end of
a dead member's session. It commits under the run's group, so that lag can be observed.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from functions.dataflow.connectors.connector import Receive, ThreadedConnector
from functions.dataflow.request import Delivery
from penstock.adapters.kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Stall,
    TopicPartition,
    make_consumer,
    partitions_of,
    reason,
)

log = logging.getLogger(__name__)

WAIT_S: Final = 0.05
"""How long a read waits for a first record; a commit waits no longer than that."""
BATCH: Final = 500
COMMIT_INTERVAL_S: Final = 0.02
BACKOFF_S: Final = 0.5
REQUEST_TIMEOUT_S: Final = 5.0
QUIET_S: Final = 5.0
"""Nothing to read for so long: the topic is empty, or the client has lost its broker, which one request tells."""
LOOK_TIMEOUT_S: Final = 1.0


class KafkaConnector(ThreadedConnector):
    """Connector port on one topic. ``seen``: next offset by partition, as a predecessor left it."""

    def __init__(
        self, *, bootstrap: str, topic: str, group: str, partitions: int, client_id: str, seen: Mapping[str, int]
    ) -> None:
        super().__init__()
        self._topic, self._bootstrap, self._group, self._client_id = topic, bootstrap, group, client_id
        self._consumer = self._connect()
        self._stall = Stall(bootstrap)
        self._heard_s = time.monotonic()
        self._seen = {int(partition): offset for partition, offset in seen.items()}
        self._next = dict(self._seen)
        self._read_up_to: dict[int, int] = {}
        """Next offset by partition, of what this process has read itself."""
        self._open: dict[int, tuple[deque[int], set[int]]] = {each: (deque(), set()) for each in range(partitions)}
        """By partition: offsets that may not be committed yet, in order, and those whose requests have left."""
        self._lock = threading.Lock()
        self._committable: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        """Offsets whose commit was requested last."""
        self._reading = True

    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Read the topic."""
        loop = asyncio.get_running_loop()

        def hand_over(messages: Sequence[Message]) -> None:
            loop.call_soon_threadsafe(lambda: receive([self._delivery(message) for message in messages]))

        return self._begin(lambda: self._run(hand_over, full))

    def positions(self) -> Mapping[str, int]:
        """Next offset by partition."""
        return {str(partition): offset for partition, offset in self._next.items()}

    async def pause(self) -> None:
        """Read no more; commits continue."""
        self._reading = False

    # --- in the event loop -------------------------------------------------------------------------------------------

    def _delivery(self, message: Message) -> Delivery:
        partition, offset = message.partition() or 0, message.offset() or 0
        kind, milliseconds = message.timestamp()
        self._open[partition][0].append(offset)
        self._next[partition] = max(offset + 1, self._next.get(partition, 0))
        return Delivery(
            message.value() or b"",
            lambda _: self._left(partition, offset),
            fresh=offset >= self._seen.get(partition, 0),
            broker_ns=milliseconds * 1_000_000 if kind == TIMESTAMP_LOG_APPEND_TIME else None,
        )

    def _left(self, partition: int, offset: int) -> None:
        """Its offset may be committed, once those before it may."""
        waiting, left = self._open[partition]
        left.add(offset)
        first = None
        while waiting and waiting[0] in left:
            first = waiting.popleft()
            left.remove(first)
        if first is not None:
            with self._lock:
                self._committable[partition] = first + 1

    # --- in the connector's thread -----------------------------------------------------------------------------------

    def _run(self, hand_over: Callable[[Sequence[Message]], None], full: Callable[[], bool]) -> None:
        try:
            self._assign()
            committed_s = 0.0
            while not self._stopping.is_set():
                if time.monotonic() - committed_s >= COMMIT_INTERVAL_S:
                    committed_s = time.monotonic()
                    self._commit(at_once=False)
                if not self._reading or full():
                    self._consumer.poll(0)  # callbacks only: what is fetched ahead is not asked for
                    time.sleep(WAIT_S)
                    continue
                self._read(hand_over)
            self._commit(at_once=True)
        finally:
            self._consumer.close()

    def _connect(self) -> Consumer:
        return make_consumer(
            self._bootstrap,
            self._group,
            log,
            client_id=self._client_id,
            socket_timeout_ms=round(REQUEST_TIMEOUT_S * 1000),
            on_commit=self._committed,
        )

    def _renew(self) -> None:
        """A new client for one that has lost its broker; offsets whose commit may be lost are committed again."""
        log.warning("the client has lost the broker: a new one reads on")
        lost, self._consumer = self._consumer, self._connect()
        lost.close()
        self._restore(self._asked)

    def _look(self) -> None:
        """Read on with a new client if this one has lost its broker."""
        if time.monotonic() - self._heard_s < QUIET_S:
            return
        try:
            partitions_of(self._consumer, self._topic, LOOK_TIMEOUT_S)
        except KafkaException:
            if self._stall.is_lost():
                self._renew()
                self._assign()
        else:
            self._stall.over()
        self._heard_s = time.monotonic()

    def _read(self, hand_over: Callable[[Sequence[Message]], None]) -> None:
        first = self._consumer.poll(WAIT_S)
        if first is None:
            self._look()
            return
        self._heard_s = time.monotonic()
        self._stall.over()
        messages = []
        for message in (first, *self._consumer.consume(BATCH, timeout=0)):
            error = message.error()
            if error is None:
                messages.append(message)
                self._read_up_to[message.partition() or 0] = (message.offset() or 0) + 1
            else:
                log.warning("reading %s: %s", self._topic, error.str())
        if messages:
            hand_over(messages)

    def _assign(self) -> None:
        """Start at the committed offsets, once the broker has answered, or behind what this process has read."""
        wanted = [TopicPartition(self._topic, partition) for partition in self._open]
        while not self._stopping.is_set():
            try:
                found = self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                log.warning("broker is away: %s", reason(error))
                if self._stall.is_lost():
                    self._renew()
                self._stopping.wait(BACKOFF_S)
                continue
            self._stall.over()
            for each in found:
                if each.offset < 0:
                    each.offset = OFFSET_BEGINNING
                each.offset = max(each.offset, self._read_up_to.get(each.partition, OFFSET_BEGINNING))
            self._consumer.assign(found)
            return

    def _commit(self, *, at_once: bool) -> None:
        with self._lock:
            offsets, self._committable = self._committable, {}
        if not offsets:
            return
        self._asked |= offsets
        ready = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=ready, asynchronous=not at_once)  # type: ignore[call-overload]
        except KafkaException as error:
            log.warning("commit: %s", reason(error))
            self._restore(offsets)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            log.warning("commit: %s", error.str())
            self._restore({each.partition: each.offset for each in partitions if each.offset >= 0})

    def _restore(self, offsets: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                self._committable[partition] = max(offset, self._committable.get(partition, 0))
