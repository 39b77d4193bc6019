"""Requests from a RabbitMQ queue: acknowledged when they have left, delivered again after a broken connection."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from functions.dataflow.connectors.connector import Receive
from penstock.amqp import Delivery as Message
from penstock.amqp import Link
from penstock.records import Result

log = logging.getLogger(__name__)

PREFETCH: Final = 2000
"""Requests in the pipeline at most; what is beyond them waits in the broker."""
SERVE_S: Final = 0.2
STOP_S: Final = 10.0


class _Message:
    """A message in the pipeline. RabbitMQ gives no time of its own."""

    __slots__ = ("_acknowledge", "broker_ns", "fresh", "value")

    def __init__(self, message: Message, acknowledge: Callable[[], None]) -> None:
        self._acknowledge = acknowledge
        self.value = message.body
        self.broker_ns: int | None = None
        self.fresh = not message.redelivered

    def done(self, result: Result) -> None:
        """To be acknowledged."""
        del result
        self._acknowledge()


class RabbitConnector:
    """Connector port on one queue, which has to be there. ``url``: amqp://…; the link comes back by itself."""

    def __init__(self, *, url: str, queue: str, name: str) -> None:
        self._url, self._queue, self._name = url, queue, name
        self._link: Link | None = None
        self._consumer: str | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Consume in a thread of its own. ``full`` is not asked: the prefetch bounds what is inside."""
        del full
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: Exception) -> None:
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_exception(error))

        def came(message: Message) -> None:
            mine = _Message(message, partial(self._acknowledge, message))
            loop.call_soon_threadsafe(receive, [mine])

        def consume() -> None:
            if self._link is not None and not self._stopping.is_set():
                self._consumer = self._link.consume(self._queue, came)

        ready = threading.Event()

        def run() -> None:
            try:
                self._link = link = Link(self._url, self._name, prefetch=PREFETCH, on_up=consume)
                ready.set()
                while not self._stopping.is_set():
                    link.serve(SERVE_S)
                link.close()
            except Exception as error:
                log.exception("the connector ended")
                ready.set()
                end(error)

        self._thread = threading.Thread(target=run, name="connector", daemon=True)
        self._thread.start()
        await asyncio.to_thread(ready.wait, STOP_S)
        return ended

    def positions(self) -> Mapping[str, int]:
        """None: messages have no numbers."""
        return {}

    async def pause(self) -> None:
        """End the consumer; what it has brought can still be acknowledged."""
        if self._link is not None:
            self._link.call_soon(self._cancel)

    async def stop(self) -> None:
        """Close the connection, after what was acknowledged has been sent."""
        self._stopping.set()
        if self._link is not None:
            self._link.call_soon(lambda: None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_S)

    def _acknowledge(self, message: Message) -> None:
        """In the event loop. Of a connection that is no more: the message comes again, and its outcome is known."""
        link = self._link
        if link is not None and not self._stopping.is_set():
            link.call_soon(lambda: _ack(link, message))

    def _cancel(self) -> None:
        if self._link is not None and self._consumer is not None:
            self._link.cancel(self._consumer)
            self._consumer = None


def _ack(link: Link, message: Message) -> None:
    if not link.ack(message):
        log.info("a message was done after its connection was lost; it will come again")
