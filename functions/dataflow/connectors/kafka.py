"""Requests from a Kafka topic (AMESoS' Connector). Offsets are committed when all requests before them have left.

The manager reads all partitions and is no member of a group: a successor goes on at once, where a group would wait for
a dead member's session to end. The commits are under the run's group all the same, so that lag can be read off.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from functions.dataflow.connectors.connector import Receive
from penstock.records import Result

log = logging.getLogger(__name__)

WAIT_S: Final = 0.05
"""How long a read waits for a first record; a commit waits no longer than that."""
BATCH: Final = 500
COMMIT_INTERVAL_S: Final = 0.02
BACKOFF_S: Final = 0.5
REQUEST_TIMEOUT_S: Final = 5.0
STOP_S: Final = 15.0


class _Record:
    """A record that was read and whose request has left, or not yet."""

    __slots__ = ("_left", "broker_ns", "fresh", "has_left", "offset", "partition", "value")

    def __init__(self, message: Message, fresh: bool, left: Callable[["_Record"], None]) -> None:
        self._left = left
        self.value: bytes = message.value() or b""
        kind, milliseconds = message.timestamp()
        self.broker_ns = milliseconds * 1_000_000 if kind == TIMESTAMP_LOG_APPEND_TIME else None
        self.fresh = fresh
        self.partition: int = message.partition() or 0
        self.offset: int = message.offset() or 0
        self.has_left = False

    def done(self, result: Result) -> None:
        """Its offset may be committed, once those before it may."""
        del result
        self.has_left = True
        self._left(self)


class KafkaConnector:
    """Connector port on one topic. ``seen``: next offset by partition, as a predecessor left it."""

    def __init__(
        self, *, bootstrap: str, topic: str, group: str, partitions: int, client_id: str, seen: Mapping[str, int]
    ) -> None:
        self._topic, self._partitions = topic, range(partitions)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": client_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": round(REQUEST_TIMEOUT_S * 1000),
                "on_commit": self._committed,
            },
            logger=log,
        )
        self._seen = {int(partition): offset for partition, offset in seen.items()}
        self._next: dict[int, int] = dict(self._seen)
        self._open: dict[int, deque[_Record]] = {partition: deque() for partition in self._partitions}
        self._lock = threading.Lock()
        self._committable: dict[int, int] = {}
        self._thread: threading.Thread | None = None
        self._reading, self._stopping = True, threading.Event()

    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Read in a thread of its own."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: Exception) -> None:
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_exception(error))

        def hand_over(messages: Sequence[Message]) -> None:
            loop.call_soon_threadsafe(lambda: receive([self._record(message) for message in messages]))

        self._thread = threading.Thread(target=self._run, args=(hand_over, full, end), name="connector", daemon=True)
        self._thread.start()
        return ended

    def positions(self) -> Mapping[str, int]:
        """Next offset by partition."""
        return {str(partition): offset for partition, offset in self._next.items()}

    async def pause(self) -> None:
        """Read no more; commits go on."""
        self._reading = False

    async def stop(self) -> None:
        """Commit a last time and close."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_S)

    # --- in the event loop -------------------------------------------------------------------------------------------

    def _record(self, message: Message) -> _Record:
        partition, offset = message.partition() or 0, message.offset() or 0
        record = _Record(message, offset >= self._seen.get(partition, 0), self._left)
        self._open[partition].append(record)
        self._next[partition] = max(offset + 1, self._next.get(partition, 0))
        return record

    def _left(self, record: _Record) -> None:
        queue = self._open[record.partition]
        first = None
        while queue and queue[0].has_left:
            first = queue.popleft().offset + 1
        if first is not None:
            with self._lock:
                self._committable[record.partition] = first

    # --- in the connector's thread -----------------------------------------------------------------------------------

    def _run(
        self,
        hand_over: Callable[[Sequence[Message]], None],
        full: Callable[[], bool],
        end: Callable[[Exception], None],
    ) -> None:
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
        except Exception as error:
            log.exception("the connector ended")
            end(error)
        finally:
            self._consumer.close()

    def _read(self, hand_over: Callable[[Sequence[Message]], None]) -> None:
        first = self._consumer.poll(WAIT_S)
        if first is None:
            return
        messages = []
        for message in (first, *self._consumer.consume(BATCH, timeout=0)):
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                log.warning("reading %s: %s", self._topic, error.str())
        if messages:
            hand_over(messages)

    def _assign(self) -> None:
        """From the committed offsets on, as soon as the broker tells them."""
        wanted = [TopicPartition(self._topic, partition) for partition in self._partitions]
        while not self._stopping.is_set():
            try:
                found = self._consumer.committed(wanted, timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                log.warning("broker is away: %s", error.args[0].str())
                self._stopping.wait(BACKOFF_S)
                continue
            for each in found:
                if each.offset < 0:
                    each.offset = OFFSET_BEGINNING
            self._consumer.assign(found)
            return

    def _commit(self, *, at_once: bool) -> None:
        with self._lock:
            offsets, self._committable = self._committable, {}
        if not offsets:
            return
        ready = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=ready, asynchronous=not at_once)  # type: ignore[call-overload]
        except KafkaException as error:
            log.warning("commit: %s", error.args[0].str())
            self._restore(offsets)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            log.warning("commit: %s", error.str())
            self._restore({each.partition: each.offset for each in partitions if each.offset >= 0})

    def _restore(self, offsets: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                self._committable[partition] = max(offset, self._committable.get(partition, 0))
