"""How many messages wait in queues of RabbitMQ, at this instant.

The management API's figures are up to a second old, which is a period of some scalers; declaring a queue passively
tells what its process has right now.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from penstock.amqp import connection_parameters, innermost_reason

HEARTBEAT_S: Final = 5
"""A broker that stands still is away after two of these."""
CONNECT_S: Final = 1.0


class Reading(msgspec.Struct, frozen=True):
    """Messages that wait by queue, those that exist. ``away``: why none could be read, empty if they were."""

    ready: Mapping[str, int]
    away: str = ""


class Depths:
    """Reads queues at ``url`` over a connection of its own, which comes back by itself. For one thread.

    PenstockError for a URL that is none.
    """

    def __init__(self, url: str, name: str) -> None:
        self._parameters = connection_parameters(url, name, CONNECT_S)
        self._parameters.heartbeat = HEARTBEAT_S
        self._connection: Any = None
        self._channel: Any = None

    def read(self, queues: Iterable[str]) -> Reading:
        """The broker's silence is a reason, not an exception. A connection that it has closed since is made anew."""
        wanted = list(queues)
        for attempt in range(2):
            fresh = self._connection is None
            try:
                return Reading(self._read(wanted))
            except (AMQPError, OSError) as error:
                self.close()
                if fresh or attempt:
                    return Reading({}, f"RabbitMQ is away: {innermost_reason(error)}")
        raise AssertionError("the second attempt returns")

    def close(self) -> None:
        """Close the connection; the next reading makes another."""
        connection, self._connection, self._channel = self._connection, None, None
        try:
            if connection is not None and connection.is_open:
                connection.close()
        except (AMQPError, OSError):
            return

    def _read(self, queues: list[str]) -> dict[str, int]:
        if self._connection is None:
            self._connection = pika.BlockingConnection(self._parameters)
        ready = {}
        for queue in queues:
            if self._channel is None or not self._channel.is_open:
                self._channel = self._connection.channel()
            try:
                ready[queue] = int(self._channel.queue_declare(queue, passive=True).method.message_count)
            except ChannelClosedByBroker as error:
                if error.reply_code != 404:
                    raise
        return ready
