"""Results on their way to Kafka. What the client library gives up is handed to it again, so that nothing is lost."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from penstock.records import Result, encode

log = logging.getLogger(__name__)

POLL_S: Final = 0.01
LINGER_MS: Final = 5
"""How long a Result may wait for others to share a request with."""
FLUSH_S: Final = 5.0


class ResultOutbox:
    """Publishes to ``topic`` with acks of all replicas, for as long as the broker is away. Delivery reports are taken
    in by ``run``, in the event loop.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "acks": "all",
                "linger.ms": LINGER_MS,
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": 2_000_000,
                "reconnect.backoff.max.ms": 500,
                "socket.keepalive.enable": True,
                "log_level": 2,
            }
        )

    def publish(self, result: Result, out: Callable[[], None]) -> None:
        """``out`` is called once the broker has it."""
        key = None if result.id is None else b"%d" % result.id
        self._produce(encode(result), key, out)

    async def run(self) -> None:
        """Take in delivery reports until cancelled."""
        while True:
            self._producer.poll(0)
            await asyncio.sleep(POLL_S)

    async def flush(self) -> int:
        """Wait a moment for what is outstanding; how many are left."""
        deadline_s = asyncio.get_running_loop().time() + FLUSH_S
        while (left := len(self._producer)) and asyncio.get_running_loop().time() < deadline_s:
            self._producer.poll(0)
            await asyncio.sleep(POLL_S)
        return left

    def _produce(self, value: bytes, key: bytes | None, out: Callable[[], None]) -> None:
        self._producer.produce(self._topic, value, key, on_delivery=partial(self._reported, value, key, out))

    def _reported(
        self, value: bytes, key: bytes | None, out: Callable[[], None], error: KafkaError | None, message: Message
    ) -> None:
        del message
        if error is None:
            out()
            return
        log.warning("result not delivered (%s): sending it again", error)
        self._produce(value, key, out)
