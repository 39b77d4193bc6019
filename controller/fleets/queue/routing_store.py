"""Where the actuator of a live bank and its forwarder leave word for each other: two keys in Redis, as JSON.

``penstock:<run>:routing`` is a ``Routing``, ``penstock:<run>:forwarder`` a ``ForwarderReport``. Neither side waits.
"""

import msgspec

from controller.fleets.queue.routing import ForwarderReport, Routing
from penstock.adapters.app_boards import Board


class RoutingBoard(Board):
    """Both keys of one run. An absent Redis raises ``REDIS_AWAY``."""

    def __init__(self, url: str, run: str) -> None:
        super().__init__(url)
        self._routing, self._forwarder = f"penstock:{run}:routing", f"penstock:{run}:forwarder"

    def route(self, routing: Routing) -> None:
        """The actuator: these shares from now on."""
        self._redis.set(self._routing, msgspec.json.encode(routing))

    def exchange(self, report: ForwarderReport) -> Routing | None:
        """The forwarder: both in one round trip."""
        both = self._redis.pipeline(transaction=False)
        both.set(self._forwarder, msgspec.json.encode(report))
        both.get(self._routing)
        text = both.execute()[1]
        return None if text is None else msgspec.json.decode(text, type=Routing)

    def forwarder(self) -> ForwarderReport | None:
        """The controller: the last report, None if there is none."""
        text = self._redis.get(self._forwarder)
        return None if text is None else msgspec.json.decode(text, type=ForwarderReport)
