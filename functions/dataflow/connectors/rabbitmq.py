"""Requests from a RabbitMQ queue: acknowledged when they have left, delivered again after a broken connection."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final

from functions.dataflow.connectors.connector import STOP_S, Receive, ThreadedConnector
from functions.dataflow.request import Delivery
from penstock.adapters.amqp import AmqpDelivery, Link

log = logging.getLogger(__name__)

PREFETCH: Final = 2000
"""Requests in the pipeline at most; what is beyond them waits in the broker."""
SERVE_S: Final = 0.2


class RabbitConnector(ThreadedConnector):
    """Connector port on one queue, which has to be there. ``url``: amqp://…; the link comes back by itself."""

    def __init__(self, *, url: str, queue: str, name: str) -> None:
        super().__init__()
        self._broker, self._queue, self._name = url, queue, name
        self._link: Link | None = None
        self._consumer: str | None = None

    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Consume. ``full`` is not asked: the prefetch bounds what is inside."""
        del full
        loop = asyncio.get_running_loop()
        ready = threading.Event()

        def came(message: AmqpDelivery) -> None:
            delivery = Delivery(message.body, lambda _: self._acknowledge(message), fresh=not message.redelivered)
            loop.call_soon_threadsafe(receive, [delivery])

        def consume() -> None:
            if self._link is not None and not self._stopping.is_set():
                self._consumer = self._link.consume(self._queue, came)

        def work() -> None:
            try:
                self._link = link = Link(self._broker, self._name, prefetch=PREFETCH, on_up=consume)
            finally:
                ready.set()
            while not self._stopping.is_set():
                link.serve(SERVE_S)
            link.close()

        ended = self._begin(work)
        await asyncio.to_thread(ready.wait, STOP_S)
        return ended

    async def pause(self) -> None:
        """End the consumer; what it has brought can still be acknowledged."""
        if self._link is not None:
            self._link.call_soon(self._cancel)

    async def stop(self) -> None:
        """Close the connection, after what was acknowledged has been sent."""
        self._stopping.set()
        if self._link is not None:
            self._link.call_soon(lambda: None)
        await super().stop()

    def _acknowledge(self, message: AmqpDelivery) -> None:
        """In the event loop. Of a connection that is no more: the message comes again, and its outcome is known."""
        link = self._link

        def acknowledge() -> None:
            if link is not None and not link.ack(message):
                log.info("a message was done after its connection was lost; it will come again")

        if link is not None and not self._stopping.is_set():
            link.call_soon(acknowledge)

    def _cancel(self) -> None:
        if self._link is not None and self._consumer is not None:
            self._link.cancel(self._consumer)
            self._consumer = None
