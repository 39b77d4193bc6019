"""RabbitMQ as senders, workers, forwarder and monitor use it: names, one link, bounded queues, the management API.

Everything that is published is persistent and confirmed, everything that is taken is acknowledged: what a broker has
confirmed survives its restart, what a process had in hand is delivered again.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import httpx
import msgspec
import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError

from penstock.errors import PenstockError

log = logging.getLogger(__name__)
logging.getLogger("pika").setLevel(logging.CRITICAL)
"""It tells each layer of each try to reach a broker that is away; a link tells it once, and ``Link.open`` why."""

# --- names of a run ---------------------------------------------------------------------------------------------------


RUN: Final = re.compile(r"(\d{8}T\d{6}Z-[a-z0-9-]+)\.")
"""How the name of something of a run begins, whichever run that is: runs are named by their directories."""


def prefix(run: str) -> str:
    """How the names of all queues, exchanges and policies of a run begin."""
    return f"{run}."


def main_queue(run: str) -> str:
    """Where the sender's events come in."""
    return f"{run}.main"


def sub_queue(run: str, replica: str) -> str:
    """Queue of a replica (a function with its containers) of a bank."""
    return f"{run}.{replica}"


def topic_queue(run: str, topic: str) -> str:
    """Queue of a topic of a pub/sub network."""
    return f"{run}.topic.{topic}"


def connection_name(run: str, part: str) -> str:
    """How a link calls itself at the broker, by which the connections of a run can be counted."""
    return f"{run}:{part}"


def ready_limit(capacity: int, servers: int) -> int:
    """``max-length`` of a queue for ``capacity`` events in the system, K, and that many containers with prefetch 1.

    RabbitMQ bounds the messages that wait, not those in service: K − s. A bound of 0 would reject every event, even if
    a container is idle, so 1 is the least: K = s cannot be had and behaves as K = s + 1.
    """
    return max(1, capacity - servers)


# --- message headers --------------------------------------------------------------------------------------------------

PUBLISHED_NS: Final = "penstock-published-ns"
"""Header of every message: wall clock in ns at which it was published to the queue that it is in."""
STEP: Final = "penstock-step"
"""Header in a pub/sub network: index of the step in the route of the event's job; missing: 0."""

Outcome = Literal["confirmed", "full", "unroutable", "lost"]
"""What became of something published: the broker has it; its queue is at its bound; there is no such queue; the link
went down before the broker said, so that it may or may not have it.
"""
OnOutcome = Callable[[Outcome], None]


class Delivery(NamedTuple):
    """One message from ``queue``, to be acknowledged on the link it came by; ``life``: on which of its connections."""

    queue: str
    tag: int
    body: bytes
    headers: Mapping[str, Any]
    redelivered: bool
    life: int

    @property
    def published_ns(self) -> int:
        """When it was published to this queue, ns since the epoch; 0 if that is not known."""
        stamp = self.headers.get(PUBLISHED_NS, 0)
        return int(stamp) if isinstance(stamp, int) else 0  # pika has an integer type of its own


OnDelivery = Callable[[Delivery], None]

# --- the link ---------------------------------------------------------------------------------------------------------

RECONNECT_S: Final = 0.25
CLOSE_S: Final = 3.0


class _Connection(SelectConnection):  # type: ignore[misc]  # pika tells no types
    """Hands what is written in one turn of the loop to its socket in one piece. pika sends each frame by itself, three
    for a message: a third of the processor time of a process that only forwards.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._written: list[bytes] = []
        super().__init__(*arguments, **options)

    def _adapter_emit_data(self, data: bytes) -> None:
        self._written.append(data)

    def send_written(self) -> None:
        """To be called before each wait. Without a socket there is nobody to whom it could go any more."""
        if self._written and self._transport is not None:
            self._transport.write(b"".join(self._written))
        self._written.clear()


class Link:
    """A connection with one channel that comes back by itself. Everything happens in the thread that calls ``serve``.

    ``on_up`` is called whenever the channel is there (again): consumers are to be started there, they do not come back
    by themselves. ``on_down(reason)`` when it was lost: nothing in hand can be acknowledged any more, it will be
    delivered again; the outcome of what was not confirmed is "lost". ``prefetch``: of each consumer, 0 for no limit.
    A refused request (a queue that is not there, say) closes the channel, as AMQP has it: then the link goes down and
    up like for any other loss.
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
        self._prefetch = prefetch
        self._on_up = on_up
        self._on_down = on_down
        self._loop = IOLoop()
        self._loop.activate_poller()
        self._connection: Any = None
        self._channel: Any = None
        self._life = 0
        self._up = False
        self._closing = False
        self._trouble = ""
        self._published = 0
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
        """Messages whose outcome is not known yet."""
        return len(self._unconfirmed)

    @property
    def trouble(self) -> str:
        """Why it is down, empty if it is up or nothing has been tried yet."""
        return self._trouble

    # --- driving it --------------------------------------------------------------------------------------------------

    def serve(self, timeout_s: float) -> None:
        """Wait for up to ``timeout_s`` (to the millisecond above) until there is something to send, to receive or to
        call, and do that. To be called again and again; with 0 it only does what can be done at once.
        """
        if self._connection is not None:
            self._connection.send_written()
        wake_up = self._loop.call_later(max(0.0, timeout_s), _nothing)
        self._loop.poll()
        self._loop.process_timeouts()
        self._loop.remove_timeout(wake_up)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """From any thread: have ``callback`` called in the thread that serves, ending its wait."""
        self._loop.add_callback_threadsafe(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Have ``callback`` called in this thread, after a while."""
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
        """Close the connection, what was acknowledged sent out first. The link cannot be used afterwards."""
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
        """Publish to a queue; ``on_outcome`` is called once. False if the link is down: nothing was published, nothing
        will be called. ``headers`` in addition to ``PUBLISHED_NS``.
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
        """Start a consumer; returns its tag. The link has to be up."""
        life = self._life

        def came(_: Any, method: Any, properties: Any, body: bytes) -> None:
            headers = properties.headers or {}
            on_delivery(Delivery(queue, method.delivery_tag, body, headers, bool(method.redelivered), life))

        tag = str(self._channel.basic_consume(queue, came))
        self._consumers.add(tag)
        return tag

    def cancel(self, tag: str) -> None:
        """End a consumer. What it has delivered is still to be acknowledged; what is on its way goes back to the
        queue.
        """
        self._consumers.discard(tag)
        if self.up:
            # With an answer, upon which pika forgets the tag. It gives back what comes for the tag until then.
            self._channel.basic_cancel(tag, callback=_nothing)

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        """The message is done with; ``multiple``: so is all that this link was delivered before it. False if its
        connection is no more: it will be delivered again.
        """
        if not self.up or delivery.life != self._life:
            return False
        self._channel.basic_ack(delivery.tag, multiple)
        return True

    def give_back(self, delivery: Delivery) -> bool:
        """Put the message back where it was, for another consumer. False as for ``ack``."""
        if not self.up or delivery.life != self._life:
            return False
        self._channel.basic_nack(delivery.tag, requeue=True)
        return True

    # --- inside ------------------------------------------------------------------------------------------------------

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
        channel.add_on_return_callback(
            lambda _channel, _method, properties, _body: self._unroutable.add(int(properties.message_id))
        )
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.confirm_delivery(self._confirmed, callback=self._ready)

    def _ready(self, _: Any) -> None:
        self._life += 1
        self._published = 0
        self._up, self._trouble = True, ""
        self._on_up()

    def _channel_closed(self, _: Any, reason: Exception) -> None:
        """By the broker, or with its connection, which then tells the reason."""
        if self._connection.is_open:
            self._fail(str(reason))

    def _consumer_ended(self, frame: Any) -> None:
        """By the broker. Without the link going down its owner would wait for messages that never come."""
        if frame.method.consumer_tag in self._consumers:
            self._fail("the broker ended a consumer: its queue was deleted")

    def _fail(self, reason: str) -> None:
        """Begin anew."""
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
        answer: Outcome = "confirmed" if frame.method.NAME == "Basic.Ack" else "full"
        if not frame.method.multiple:
            self._tell(tag, answer)
            return
        for earlier in tuple(takewhile(lambda published: published <= tag, self._unconfirmed)):
            self._tell(earlier, answer)

    def _tell(self, tag: int, answer: Outcome) -> None:
        on_outcome = self._unconfirmed.pop(tag, None)
        if tag in self._unroutable:
            self._unroutable.discard(tag)
            answer = "unroutable"
        if on_outcome is not None:
            on_outcome(answer)


def connection_parameters(url: str, name: str, timeout_s: float = 10.0) -> Any:
    """pika's parameters for one attempt. PenstockError for a URL that is none."""
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
    """The innermost reason, in one line."""
    while inner := _inner(error):
        error = inner
    return " ".join(str(error).split()) or type(error).__name__


def _inner(error: Any) -> Any:
    """The exception that a pika exception carries: in a list, by itself, or as an argument."""
    nested = (*getattr(error, "args", ()), *getattr(error, "exceptions", ()), getattr(error, "exception", None))
    return next((cause for cause in reversed(nested) if isinstance(cause, BaseException)), None)


# --- the management API -----------------------------------------------------------------------------------------------


class QueueCounts(msgspec.Struct, frozen=True):
    """A queue as the broker's statistics have it, up to a second old. ``published``: taken in since it was declared
    (rejected ones are not among them), ``delivered`` and ``acknowledged`` likewise; 0 before the first.
    """

    queue: str
    ready: int
    unacknowledged: int
    consumers: int
    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    redelivered: int = 0


class RunObjects(msgspec.Struct, frozen=True):
    """What a broker still has of one run, by name; connections by the names their links gave."""

    queues: tuple[str, ...]
    exchanges: tuple[str, ...]
    policies: tuple[str, ...]
    connections: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.queues) + len(self.exchanges) + len(self.policies) + len(self.connections)


class ManagementError(PenstockError):
    """The management API is away, or refused something; the message says which."""


class Management:
    """RabbitMQ's management API at ``url`` (http://user:secret@host:port), virtual host ``/``. Threads may share it.

    Every method but ``answers`` raises ManagementError.
    """

    def __init__(self, url: str, timeout_s: float = 5.0) -> None:
        parsed = httpx.URL(url)
        self._url = f"{parsed.scheme}://{parsed.host}:{parsed.port}"
        self._client = httpx.Client(
            base_url=self._url,
            auth=(parsed.username, parsed.password),
            timeout=timeout_s,
            trust_env=False,
        )

    def answers(self) -> bool:
        """Whether it and the broker behind it are up."""
        try:
            return self._client.get("/api/whoami").is_success
        except httpx.HTTPError:
            return False

    # --- queues ------------------------------------------------------------------------------------------------------

    def declare_queue(self, queue: str) -> None:
        """A durable classic queue, unbounded unless a policy names it; one that is there already stays as it is."""
        self._ask("PUT", f"/api/queues/%2F/{_quoted(queue)}", {"durable": True, "auto_delete": False})

    def bound_queue(self, queue: str, max_length: int | None) -> None:
        """Let at most ``max_length`` messages wait in the queue and refuse what comes then; None: any number.

        A policy of the queue's own, made or changed; it may be there before the queue. The broker applies it within
        some milliseconds; what waits already stays.
        """
        path = f"/api/policies/%2F/{_quoted(queue)}"
        if max_length is None:
            self._ask("DELETE", path, missing_is_fine=True)
            return
        definition = {"max-length": max_length, "overflow": "reject-publish"}
        pattern = f"^{re.escape(queue)}$"
        self._ask("PUT", path, {"pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 1})

    def bounds(self, run: str) -> dict[str, int]:
        """max-length by queue, of those of the run that have one."""
        policies = self._ask("GET", "/api/policies/%2F")
        return {
            policy["name"]: int(policy["definition"]["max-length"])
            for policy in policies
            if policy["name"].startswith(prefix(run)) and "max-length" in policy["definition"]
        }

    def delete_queue(self, queue: str, *, only_empty: bool = False) -> bool:
        """Delete a queue and its bound. With ``only_empty`` only if nobody consumes from it and nothing waits in it,
        else nothing is done; whether it is gone now. What somebody has in hand does not count as waiting: end the
        consumers first, what they do not acknowledge waits then.
        """
        path = f"/api/queues/%2F/{_quoted(queue)}" + ("?if-empty=true&if-unused=true" if only_empty else "")
        answer = self._ask("DELETE", path, missing_is_fine=True, refusal_is_fine=only_empty)
        if answer is False:
            return False
        self.bound_queue(queue, None)
        return True

    def queues(self, run: str) -> dict[str, QueueCounts]:
        """Every queue of the run, by name."""
        columns = "name,messages_ready,messages_unacknowledged,consumers,message_stats"
        found = self._ask("GET", f"/api/queues/%2F?disable_stats=false&columns={columns}")
        return {queue["name"]: _counts(queue) for queue in found if queue["name"].startswith(prefix(run))}

    # --- what a run leaves -------------------------------------------------------------------------------------------

    def objects(self, run: str) -> RunObjects:
        """What there is of a run."""

        def named(path: str, field: str, begins: str) -> tuple[str, ...]:
            found = self._ask("GET", f"{path}?columns={field}")
            names = (str(one.get(field) or "") for one in found)
            return tuple(sorted(name for name in names if name.startswith(begins)))

        return RunObjects(
            queues=named("/api/queues/%2F", "name", prefix(run)),
            exchanges=named("/api/exchanges/%2F", "name", prefix(run)),
            policies=named("/api/policies/%2F", "name", prefix(run)),
            connections=named("/api/connections", "user_provided_name", connection_name(run, "")),
        )

    def runs(self) -> tuple[str, ...]:
        """Names of the runs of which there is a queue, an exchange or a policy."""
        there = [
            one["name"]
            for kind in ("queues", "exchanges", "policies")
            for one in self._ask("GET", f"/api/{kind}/%2F?columns=name")
        ]
        return tuple(sorted({found[1] for name in there if (found := RUN.match(name))}))

    def delete_run(self, run: str) -> None:
        """Delete every queue, exchange and policy of a run. Its connections are its processes' to close."""
        there = self.objects(run)
        for queue in dict.fromkeys((*there.queues, *there.policies)):
            self.delete_queue(queue)
        for exchange in there.exchanges:
            self._ask("DELETE", f"/api/exchanges/%2F/{_quoted(exchange)}", missing_is_fine=True)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing_is_fine: bool = False,
        refusal_is_fine: bool = False,
    ) -> Any:
        """The decoded answer, None for an empty one; False for what is fine to be refused."""
        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise ManagementError(f"RabbitMQ's management API at {self._url} is away: {error}") from None
        if response.status_code == httpx.codes.NOT_FOUND and missing_is_fine:
            return None
        if response.status_code == httpx.codes.BAD_REQUEST and refusal_is_fine:
            return False
        if not response.is_success:
            raise ManagementError(
                f"RabbitMQ: {method} {path}: {response.status_code}: {' '.join(response.text.split())[:300]}"
            )
        return response.json() if response.content else None


def _counts(queue: Mapping[str, Any]) -> QueueCounts:
    counters = queue.get("message_stats") or {}
    return QueueCounts(
        queue=queue["name"],
        ready=int(queue.get("messages_ready") or 0),
        unacknowledged=int(queue.get("messages_unacknowledged") or 0),
        consumers=int(queue.get("consumers") or 0),
        published=int(counters.get("publish") or 0),
        delivered=int(counters.get("deliver_get") or 0),
        acknowledged=int(counters.get("ack") or 0),
        redelivered=int(counters.get("redeliver") or 0),
    )


def _quoted(name: str) -> str:
    return quote(name, safe="")
