"""Results on their way to Kafka, from the event loop: nothing here waits for the broker."""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.records import Result
from penstock.result_topic import ResultTopic

POLL_S: Final = 0.01
LINGER_MS: Final = 5
"""How long a Result may wait for others to share a request with."""
FLUSH_S: Final = 5.0
MOST_WAITING: Final = 2_000_000
"""More than all requests that may be inside can have: publishing would wait, and the event loop with it."""


class ResultOutbox:
    """A ``ResultTopic`` whose delivery reports are taken in by ``run``, in the event loop."""

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        self._results = ResultTopic(bootstrap, topic, client_id, LINGER_MS, most_waiting=MOST_WAITING)

    def publish(self, result: Result, out: Callable[[], None]) -> None:
        """``out`` is called once the broker has it."""
        self._results.publish(result, out)

    async def run(self) -> None:
        """Take in delivery reports until cancelled."""
        while True:
            self._results.poll(0)
            await asyncio.sleep(POLL_S)

    async def flush(self) -> int:
        """Wait a moment for what is outstanding; how many are left."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + FLUSH_S
        while self._results.outstanding and loop.time() < deadline_s:
            self._results.poll(0)
            await asyncio.sleep(POLL_S)
        return self._results.outstanding
