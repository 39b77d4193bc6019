"""The port between a source of requests and the pipeline: at least once, whatever the source."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from functions.dataflow.request import Delivery

Receive = Callable[[Sequence[Delivery]], None]
"""Takes deliveries in; called in the event loop."""


class Connector(Protocol):
    """A source. A request that was not acknowledged is brought again, to this manager or its successor."""

    async def start(self, receive: Receive, full: Callable[[], bool]) -> asyncio.Future[None]:
        """Begin to bring requests; while ``full`` says so (asked from any thread) no more are brought. What is returned
        ends when the source does, with its error.
        """
        ...

    def positions(self) -> Mapping[str, int]:
        """Next record of each part of the source, for a successor; empty where records have no numbers."""
        ...

    async def pause(self) -> None:
        """Bring no more."""
        ...

    async def stop(self) -> None:
        """Acknowledge what has left the pipeline, and close. After ``pause``."""
        ...
