"""RabbitMQ: names of a run, a self-healing link, bounded queues and their depths, the management API.

Messages are persistent, confirmed and acknowledged: confirmed messages survive a restart of the broker, and
unacknowledged ones are delivered again.
"""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import httpx
import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError, ChannelClosedByBroker

from penstock.adapters.tls import tls_context
from penstock.errors import PenstockError

log = logging.getLogger(__name__)
logging.getLogger("pika").setLevel(logging.CRITICAL)
"""pika logs every layer of every failed connection; a link logs a failure once, and ``Link.open`` raises it."""

# --- names of a run ---------------------------------------------------------------------------------------------------


RUN: Final = re.compile(r"(\d{8}T\d{6}Z-[a-z0-9-]+)\.")
"""Prefix of the names of any run's objects; a run is named by its directory."""


def prefix(run: str) -> str:
    """Prefix of a run's queues, exchanges and policies."""
    return f"{run}."


def main_queue(run: str) -> str:
    """Queue of the sender's events."""
    return f"{run}.main"


def sub_queue(run: str, replica: str) -> str:
    """Queue of a replica (a function with its containers) of a queue fleet."""
    return f"{run}.{replica}"


def topic_queue(run: str, topic: str) -> str:
    """Queue of a topic of a pub/sub network."""
    return f"{run}.topic.{topic}"


def connection_name(run: str, part: str) -> str:
    """Name of a link at the broker, by which a run's connections are found."""
    return f"{run}:{part}"


# --- message headers --------------------------------------------------------------------------------------------------

PUBLISHED_NS: Final = "penstock-published-ns"
"""Header of every message: wall clock in ns at which it was published to its present queue."""
STEP: Final = "penstock-step"
"""Header in a pub/sub network: index of the step in the route of the event's job; missing: 0."""

PublishOutcome = Literal["confirmed", "full", "unroutable", "lost"]
"""Outcome of a message: stored by the broker; refused by a full queue; no such queue; unknown, because the link went
down before a confirmation.
"""
OnOutcome = Callable[[PublishOutcome], None]


class AmqpDelivery(NamedTuple):
    """One message from ``queue``, to be acknowledged on its link; ``session``: number of the link's connection."""

    queue: str
    tag: int
    body: bytes
    headers: Mapping[str, Any]
    redelivered: bool
    session: int

    @property
    def published_ns(self) -> int:
        """Time at which it was published to this queue, ns since the epoch; 0 if unknown."""
        stamp = self.headers.get(PUBLISHED_NS, 0)
        return int(stamp) if isinstance(stamp, int) else 0  # pika has an integer type of its own


OnDelivery = Callable[[AmqpDelivery], None]

# --- the link ---------------------------------------------------------------------------------------------------------

RECONNECT_S: Final = 0.25
CLOSE_S: Final = 3.0


class _Connection(SelectConnection):  # type: ignore[misc]  # pika ships no types
    """Writes all frames of one turn of the loop at once. pika writes the three frames of a message one by one, which
    takes a third of the CPU time of a forwarder.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._written: list[bytes] = []
        super().__init__(*arguments, **options)

    def _adapter_emit_data(self, data: bytes) -> None:
        self._written.append(data)

    def send_written(self) -> None:
        """Send the written frames, before each wait; drop them without a socket."""
        if self._written and self._transport is not None:
            self._transport.write(b"".join(self._written))
        self._written.clear()


class Link:
    """A connection with one channel that reconnects by itself, in the thread that calls ``serve``.

    ``on_up`` is called at each connection and has to start the consumers. ``on_down(reason)`` is called at a loss:
    unacknowledged messages will be delivered again, and the outcome of unconfirmed ones is "lost". ``prefetch``: of
    each consumer, 0 for no limit. A refused request (for a missing queue) closes the channel: the link reconnects.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        prefetch: int = 1,
        on_up: Callable[[], None] = lambda: None,
        on_down: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._parameters = connection_parameters(url, name)
        self._prefetch, self._on_up, self._on_down = prefetch, on_up, on_down
        self._loop = IOLoop()
        self._loop.activate_poller()
        self._connection: Any = None
        self._channel: Any = None
        self._session = self._published = 0
        self._up = self._closing = False
        self._trouble = ""
        self._unconfirmed: dict[int, OnOutcome] = {}
        self._unroutable: set[int] = set()
        self._consumers: set[str] = set()
        self._connect()

    @property
    def up(self) -> bool:
        """Whether it can publish, consume and acknowledge now."""
        return self._up and bool(self._channel.is_open)

    @property
    def unconfirmed(self) -> int:
        """Messages without an outcome yet."""
        return len(self._unconfirmed)

    # --- driving it --------------------------------------------------------------------------------------------------

    def serve(self, timeout_s: float) -> None:
        """Send, receive and call back, waiting ``timeout_s`` at most for work (in whole milliseconds, rounded up)."""
        if self._connection is not None:
            self._connection.send_written()
        wake_up = self._loop.call_later(max(0.0, timeout_s), _nothing)
        self._loop.poll()
        self._loop.process_timeouts()
        self._loop.remove_timeout(wake_up)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the serving thread, ending its wait. From any thread."""
        self._loop.add_callback_threadsafe(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` in this thread after ``delay_s``."""
        self._loop.call_later(delay_s, callback)

    def open(self, timeout_s: float = 10.0) -> None:
        """Serve until it is up. Raises PenstockError if that takes longer."""
        until = time.monotonic() + timeout_s
        while not self.up:
            if time.monotonic() > until:
                raise PenstockError(
                    f"RabbitMQ does not answer at {self._parameters.host}:{self._parameters.port} "
                    f"({self._trouble or 'no answer'}): is it up? `penstock up` starts it"
                )
            self.serve(0.1)

    def close(self) -> None:
        """Send pending acknowledgements and close for good."""
        self._closing = True
        if self._connection is not None and self._connection.is_open:
            self._connection.close()
            until = time.monotonic() + CLOSE_S
            while not self._connection.is_closed and time.monotonic() < until:
                self.serve(0.1)
        self._loop.close()

    # --- messages ----------------------------------------------------------------------------------------------------

    def publish(
        self,
        queue: str,
        body: bytes,
        on_outcome: OnOutcome,
        *,
        published_ns: int,
        headers: Mapping[str, Any] | None = None,
    ) -> bool:
        """Publish to a queue; ``on_outcome`` is called once. False if the link is down: nothing is published or called.
        ``headers`` in addition to ``PUBLISHED_NS``.
        """
        if not self.up:
            return False
        self._published += 1
        tag = self._published
        self._unconfirmed[tag] = on_outcome
        properties = pika.BasicProperties(
            delivery_mode=2, message_id=str(tag), headers={**(headers or {}), PUBLISHED_NS: published_ns}
        )
        self._channel.basic_publish("", queue, body, properties, mandatory=True)
        return True

    def consume(self, queue: str, on_delivery: OnDelivery) -> str:
        """Start a consumer; return its tag. The link has to be up."""
        session = self._session

        def came(_: Any, method: Any, properties: Any, body: bytes) -> None:
            headers = properties.headers or {}
            on_delivery(AmqpDelivery(queue, method.delivery_tag, body, headers, bool(method.redelivered), session))

        tag = str(self._channel.basic_consume(queue, came))
        self._consumers.add(tag)
        return tag

    def cancel(self, tag: str) -> None:
        """End a consumer. Delivered messages can still be acknowledged; messages in transit return to the queue."""
        self._consumers.discard(tag)
        if self.up:
            # With a callback, so that pika keeps the tag until the answer and returns messages that come until then.
            self._channel.basic_cancel(tag, callback=_nothing)

    def ack(self, delivery: AmqpDelivery, *, multiple: bool = False) -> bool:
        """Acknowledge it; ``multiple``: and all before it. False if its connection is lost: it will come again."""
        if not self.up or delivery.session != self._session:
            return False
        self._channel.basic_ack(delivery.tag, multiple)
        return True

    def _connect(self) -> None:
        if self._closing:
            return
        self._connection = _Connection(
            self._parameters,
            on_open_callback=self._connected,
            on_open_error_callback=lambda _, error: self._lost(error),
            on_close_callback=lambda _, error: self._lost(error),
            custom_ioloop=self._loop,
        )

    def _connected(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(self._consumer_ended)
        channel.add_on_return_callback(lambda *returned: self._unroutable.add(int(returned[2].message_id)))
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.confirm_delivery(self._confirmed, callback=self._ready)

    def _ready(self, _: Any) -> None:
        self._session += 1
        self._published = 0
        self._up, self._trouble = True, ""
        self._on_up()

    def _channel_closed(self, _: Any, reason: Exception) -> None:
        """Closed by the broker, or with its connection, which then has the reason."""
        if self._connection.is_open:
            self._fail(str(reason))

    def _consumer_ended(self, frame: Any) -> None:
        """Ended by the broker: take the link down, or its owner would wait for messages for ever."""
        if frame.method.consumer_tag in self._consumers:
            self._fail("the broker ended a consumer: its queue was deleted")

    def _fail(self, reason: str) -> None:
        """Reconnect."""
        self._trouble = reason
        if self._connection.is_open:
            self._connection.close()

    def _lost(self, error: Any) -> None:
        was_up, self._up = self._up, False
        self._trouble = self._trouble or innermost_reason(error)
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        self._unroutable.clear()
        self._consumers.clear()
        if not self._closing:
            self._loop.call_later(RECONNECT_S, self._connect)
        if was_up and not self._closing:
            log.warning("RabbitMQ: link down: %s", self._trouble)
            self._on_down(self._trouble)
        for on_outcome in unconfirmed.values():
            on_outcome("lost")

    def _confirmed(self, frame: Any) -> None:
        """An ack or a nack, of one message or of all up to it."""
        tag = int(frame.method.delivery_tag)
        answer: PublishOutcome = "confirmed" if frame.method.NAME == "Basic.Ack" else "full"
        if not frame.method.multiple:
            self._tell(tag, answer)
            return
        for earlier in tuple(takewhile(lambda published: published <= tag, self._unconfirmed)):
            self._tell(earlier, answer)

    def _tell(self, tag: int, answer: PublishOutcome) -> None:
        on_outcome = self._unconfirmed.pop(tag, None)
        if tag in self._unroutable:
            self._unroutable.discard(tag)
            answer = "unroutable"
        if on_outcome is not None:
            on_outcome(answer)


def connection_parameters(url: str, name: str, timeout_s: float = 10.0) -> Any:
    """pika's parameters for one attempt. PenstockError for an invalid URL."""
    try:
        parameters = pika.URLParameters(url)
    except (ValueError, TypeError, AMQPError) as error:
        raise PenstockError(f"PENSTOCK_RABBITMQ is no AMQP URL ({error}): amqp://user:secret@host:port/%2F") from None
    parameters.client_properties = {"connection_name": name}
    parameters.connection_attempts = 1
    parameters.socket_timeout = parameters.stack_timeout = timeout_s
    return parameters


def _nothing(*_: Any) -> None:
    """Ends a wait."""


def innermost_reason(error: Any) -> str:
    """The innermost reason, in one line. pika's exceptions carry others in a list, by themselves, or as arguments."""
    nested = (*getattr(error, "args", ()), *getattr(error, "exceptions", ()), getattr(error, "exception", None))
    causes = [cause for cause in nested if isinstance(cause, BaseException)]
    return innermost_reason(causes[-1]) if causes else " ".join(str(error).split()) or type(error).__name__


# --- what waits -------------------------------------------------------------------------------------------------------

HEARTBEAT_S: Final = 5
"""A broker that stands still is away after two of these."""
CONNECT_S: Final = 1.0


class Depths:
    """Reads how many messages wait in queues, over a connection of its own, which comes back by itself. For one thread.

    The management API's figures are up to a second old, which is a period of some scalers; declaring a queue passively
    reports the present state of its process.

    PenstockError for a URL that is none.
    """

    def __init__(self, url: str, name: str) -> None:
        self._parameters = connection_parameters(url, name, CONNECT_S)
        self._parameters.heartbeat = HEARTBEAT_S
        self._connection: Any = None
        self._channel: Any = None

    def read(self, queues: Iterable[str]) -> dict[str, int]:
        """Messages that wait, by queue that exists. PenstockError while the broker is away. Reconnects by itself."""
        wanted = list(queues)
        while True:
            fresh = self._connection is None
            try:
                return self._read(wanted)
            except (AMQPError, OSError) as error:
                self.close()
                if fresh:
                    raise PenstockError(f"RabbitMQ is away: {innermost_reason(error)}") from None

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


# --- the management API -----------------------------------------------------------------------------------------------


BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404


class ManagementError(PenstockError):
    """The management API is away or refused a request."""


class Management:
    """RabbitMQ's management API at ``url`` (http://user:secret@host:port), virtual host ``/``. Threads may share it.

    Every method but ``answers`` raises ManagementError.
    """

    def __init__(self, url: str, timeout_s: float = 5.0) -> None:
        parsed = httpx.URL(url)
        self._url = f"{parsed.scheme}://{parsed.host}:{parsed.port}"
        login = parsed.username, parsed.password
        self._client = httpx.Client(
            base_url=self._url, auth=login, timeout=timeout_s, trust_env=False, verify=tls_context()
        )

    def answers(self) -> bool:
        """Whether it and the broker behind it are up."""
        try:
            return self._client.get("/api/whoami").is_success
        except httpx.HTTPError:
            return False

    def declare_queue(self, queue: str) -> None:
        """Declare a durable classic queue, unbounded without a policy; an existing one stays as it is."""
        self._ask("PUT", _path("queues", queue), {"durable": True, "auto_delete": False})

    def bound_queue(self, queue: str, max_length: int | None) -> None:
        """Bound the waiting messages of a queue and refuse further ones; None: no bound.

        Creates or changes the queue's own policy, which may exist before the queue. The broker applies it within some
        milliseconds; waiting messages stay.
        """
        path = _path("policies", queue)
        if max_length is None:
            self._ask("DELETE", path, fine=[NOT_FOUND])
            return
        definition = {"max-length": max_length, "overflow": "reject-publish"}
        pattern = f"^{re.escape(queue)}$"
        self._ask("PUT", path, {"pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 1})

    def delete_queue(self, queue: str, *, only_empty: bool = False) -> bool:
        """Delete a queue and its bound; return whether it is gone. ``only_empty``: only without consumers and waiting
        messages. Unacknowledged messages do not count as waiting: end the consumers first.
        """
        path = _path("queues", queue) + ("?if-empty=true&if-unused=true" if only_empty else "")
        fine = [NOT_FOUND, BAD_REQUEST] if only_empty else [NOT_FOUND]
        if self._ask("DELETE", path, fine=fine).status_code == BAD_REQUEST:
            return False
        self.bound_queue(queue, None)
        return True

    def names(self, kind: Literal["queues", "policies"], run: str = "") -> list[str]:
        """All queues or policies of a run, of every run without one."""
        found = (one["name"] for one in self._ask("GET", f"/api/{kind}/%2F?columns=name").json())
        return [name for name in found if name.startswith(prefix(run) if run else "")]

    def runs(self) -> tuple[str, ...]:
        """Names of the runs with a queue or a policy."""
        matches = map(RUN.match, (*self.names("queues"), *self.names("policies")))
        return tuple(sorted({match[1] for match in matches if match}))

    def delete_run(self, run: str) -> None:
        """Delete every queue and policy of a run. Its processes close their connections."""
        for queue in {*self.names("queues", run), *self.names("policies", run)}:
            self.delete_queue(queue)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, fine: Collection[int] = ()
    ) -> httpx.Response:
        """The answer: a success, or one of the statuses that are ``fine``."""
        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ManagementError(f"RabbitMQ's management API at {self._url} is away: {error}") from None
        if not response.is_success and response.status_code not in fine:
            said = " ".join(response.text.split())[:300]
            raise ManagementError(f"RabbitMQ: {method} {path}: {response.status_code}: {said}")
        return response


def _path(kind: str, name: str) -> str:
    """Of an object in the virtual host ``/``."""
    return f"/api/{kind}/%2F/{quote(name, safe='')}"
