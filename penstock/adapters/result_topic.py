"""Results on their way to Kafka: published until the broker has them, however long that takes."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from penstock.adapters.kafka import Stall, client_settings
from penstock.records import Result, encode

log = logging.getLogger(__name__)

OnOut = Callable[[], None]


MOST_WAITING: Final = 100_000


class ResultTopic:
    """Publishes to ``topic`` at least once: waits for all replicas of the broker and never gives up by itself. What the
    client library gives up all the same is handed to it again. ``linger_ms``: how long a result may wait for others to
    share a request with. ``most_waiting``: results that are held while the broker is away; for the next one ``publish``
    waits.

    ``on_out`` of a result is called in the thread that polls, once the broker has it.
    """

    def __init__(
        self, bootstrap: str, topic: str, client_id: str, linger_ms: float = 0.0, *, most_waiting: int = MOST_WAITING
    ) -> None:
        self._topic = topic
        self._settings = {
            **client_settings(bootstrap),
            "client.id": client_id,
            "acks": "all",
            "linger.ms": linger_ms,
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": most_waiting,
            "socket.keepalive.enable": True,
        }
        self._producer = Producer(self._settings)
        self._stall = Stall(bootstrap)

    @property
    def outstanding(self) -> int:
        """Results that the broker does not have yet."""
        return len(self._producer)

    def publish(self, result: Result, on_out: OnOut = lambda: None) -> None:
        """Hand a result over, under its event's id as key. Waits only while the client's queue is full."""
        self._produce(None if result.id is None else b"%d" % result.id, encode(result), on_out)

    def poll(self, timeout_s: float) -> None:
        """Take in delivery reports, waiting for one for up to ``timeout_s``."""
        self._producer.poll(timeout_s)
        if not self.outstanding:
            self._stall.over()
        elif self._stall.is_lost():
            log.warning("the client has lost the broker: %d results are sent by a new one", self.outstanding)
            lost, self._producer = self._producer, Producer(self._settings)
            for _ in range(2):  # another thread may just have handed it a result
                lost.purge()
                lost.flush(1.0)  # reports all as not delivered, so that they are sent again

    def flush(self, timeout_s: float) -> int:
        """Wait for up to ``timeout_s`` until all are out; how many are left."""
        until = time.monotonic() + timeout_s
        while self.outstanding and (left_s := until - time.monotonic()) > 0:
            self.poll(min(left_s, 0.1))
        return self.outstanding

    def _produce(self, key: bytes | None, value: bytes, on_out: OnOut) -> None:
        report = partial(self._reported, key, value, on_out)
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=report)
            except BufferError:
                self.poll(0.1)
            else:
                return

    def _reported(
        self, key: bytes | None, value: bytes, on_out: OnOut, error: KafkaError | None, message: Message
    ) -> None:
        del message
        if error is not None:
            log.warning("result not delivered (%s): sending it again", error)
            self._produce(key, value, on_out)
            return
        self._stall.over()
        on_out()
