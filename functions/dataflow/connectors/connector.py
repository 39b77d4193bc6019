"""The port between a source of requests and the pipeline: at least once, whatever the source."""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from functions.dataflow.request import Delivery

log = logging.getLogger(__name__)

STOP_S: Final = 15.0

Receive = Callable[[Sequence[Delivery]], None]
"""Takes deliveries in; called in the event loop."""


class Connector(ABC):
    """A source. A request that was not acknowledged is brought again, to this manager or its successor. ``url``: where
    it listens, if it does.
    """

    url = ""

    @abstractmethod
    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Begin to bring requests; while ``full`` says so (asked from any thread) no more are brought. What is returned
        ends when the source does, with its error.
        """

    def positions(self) -> Mapping[str, int]:
        """Next record of each part of the source, for a successor; empty where records have no numbers."""
        return {}

    @abstractmethod
    async def pause(self) -> None:
        """Bring no more."""

    @abstractmethod
    async def stop(self) -> None:
        """Acknowledge what has left the pipeline, and close. After ``pause``."""


class ThreadedConnector(Connector):
    """A source whose client library blocks, and so works in a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def _begin(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Do the work in the thread, until ``_stopping``; what is returned ends with its error."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            try:
                work()
            except Exception as error:
                log.exception("the connector ended")
                loop.call_soon_threadsafe(partial(ended.set_exception, error))

        self._thread = threading.Thread(target=run, name="connector", daemon=True)
        self._thread.start()
        return ended

    async def stop(self) -> None:
        """Acknowledge a last time and close."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_S)
