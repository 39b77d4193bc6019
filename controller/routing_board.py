"""Where the actuator of a live bank and its forwarder leave word for each other: two keys in Redis, as JSON.

``penstock:<run>:routing`` is a ``Routing``, ``penstock:<run>:forwarder`` a ``ForwarderReport``. Neither side waits.
"""

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from controller.routing import ForwarderReport, Routing


def routing_key(run: str) -> str:
    """Redis key of the routing."""
    return f"penstock:{run}:routing"


def forwarder_key(run: str) -> str:
    """Redis key of the forwarder's report."""
    return f"penstock:{run}:forwarder"


class RoutingBoard:
    """Both keys of one run. ``url`` as redis://:secret@host:port/0. An absent Redis raises ``penstock.apps.AWAY``."""

    def __init__(self, url: str, run: str, timeout_s: float = 1.0) -> None:
        self._redis = redis.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        )
        self._routing, self._forwarder = routing_key(run), forwarder_key(run)

    def route(self, routing: Routing) -> None:
        """The actuator: these shares from now on."""
        self._redis.set(self._routing, msgspec.json.encode(routing))

    def routing(self) -> Routing | None:
        """What is wanted, None if nobody has said."""
        text = self._redis.get(self._routing)
        return None if text is None else msgspec.json.decode(text, type=Routing)

    def exchange(self, report: ForwarderReport) -> Routing | None:
        """The forwarder: both in one round trip."""
        both = self._redis.pipeline(transaction=False)
        both.set(self._forwarder, msgspec.json.encode(report))
        both.get(self._routing)
        text = both.execute()[1]
        return None if text is None else msgspec.json.decode(text, type=Routing)

    def report(self, report: ForwarderReport) -> None:
        """The forwarder: what it is like now."""
        self._redis.set(self._forwarder, msgspec.json.encode(report))

    def forwarder(self) -> ForwarderReport | None:
        """The controller: the last report, None if there is none."""
        text = self._redis.get(self._forwarder)
        return None if text is None else msgspec.json.decode(text, type=ForwarderReport)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
