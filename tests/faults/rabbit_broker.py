"""RabbitMQ: bounded queues, consumers, confirms and acknowledgements of one broker, and Penstock's clients of it."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.adapters.amqp import (
    PUBLISHED_NS,
    RECONNECT_S,
    AmqpDelivery,
    ManagementError,
    OnDelivery,
    OnOutcome,
    PublishOutcome,
)
from penstock.errors import PenstockError
from tests.faults.kernel import SECOND, Kernel, Process, Thread, kernel
from tests.faults.network import Network, Trouble

LEAST_NS = 50_000
"""A call to the system takes time, also one that does not wait."""


class Message:
    """One message; ``number`` is its place in its queue."""

    __slots__ = ("body", "headers", "number", "redelivered")

    def __init__(self, number: int, body: bytes, headers: Mapping[str, Any]) -> None:
        self.number, self.body, self.headers = number, body, headers
        self.redelivered = False


class Consumer:
    """One consumer of a queue."""

    def __init__(self, connection: "Connection", tag: str, prefetch: int) -> None:
        self.connection, self.tag, self.prefetch = connection, tag, prefetch
        self.unacked = 0


class Queue:
    """``bound``: of the messages that wait; a full queue refuses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Message] = deque()
        self.unacked = 0
        self.bound: int | None = None
        self.consumers: deque[Consumer] = deque()
        self.numbers = itertools.count()

    def take_back(self, message: Message) -> None:
        """To its place among those that wait."""
        message.redelivered = True
        place = 0
        while place < len(self.ready) and self.ready[place].number < message.number:
            place += 1
        self.ready.insert(place, message)

    def deliver(self) -> None:
        """To consumers in turns."""
        while self.ready:
            free = next((each for each in self.consumers if not each.prefetch or each.unacked < each.prefetch), None)
            if free is None:
                return
            self.consumers.remove(free)
            self.consumers.append(free)
            message = self.ready.popleft()
            free.unacked += 1
            self.unacked += 1
            free.connection.deliver(self, free, message)


class Connection:
    """The broker's side of a link."""

    def __init__(self, broker: "RabbitBroker", link: "Link", process: Process) -> None:
        self.broker, self.link, self.process = broker, link, process
        self.alive = True
        self.unacked: dict[int, tuple[Queue, Consumer, Message]] = {}
        self._tags = itertools.count(1)
        self._in_ns = self._out_ns = 0

    # --- both ways are in order --------------------------------------------------------------------------------------

    def to_broker(self, what: str, action: Callable[[], None]) -> None:
        k, network = self.broker.kernel, self.broker.network
        k.step(f"rabbitmq {what}")
        mode, until_ns = network.mode(self.process.kind, "rabbitmq") if network.faults else ("", 0)
        at_ns = max(self._in_ns, k.now_ns + network.delay_ns())
        if mode in ("silent", "late"):
            at_ns = max(at_ns, until_ns)
        self._in_ns = at_ns
        if mode == "wrong":
            self.lose(at_ns - k.now_ns)
            return
        k.soon(lambda: action() if self.alive else None, at_ns - k.now_ns)
        if mode == "reset":
            self.lose(at_ns - k.now_ns + 1)

    def to_client(self, action: Callable[[], None]) -> None:
        k, network = self.broker.kernel, self.broker.network
        mode, until_ns = network.mode(self.process.kind, "rabbitmq") if network.faults else ("", 0)
        at_ns = max(self._out_ns, k.now_ns + network.delay_ns())
        if mode == "deaf":
            at_ns = max(at_ns, until_ns)
        self._out_ns = at_ns
        k.soon(lambda: self.link.receive(self, action), at_ns - k.now_ns)

    def lose(self, delay_ns: int = 0, reason: str = "connection reset") -> None:
        """The connection breaks then, for both sides."""
        self.broker.kernel.soon(lambda: self._lost(reason), delay_ns)

    def _lost(self, reason: str) -> None:
        if self.alive:
            self.close()
            self.link.receive(self, lambda: self.link.lost(reason))

    def close(self) -> None:
        """What is unacknowledged waits again."""
        self.alive = False
        queues = []
        for queue, _, message in self.unacked.values():
            queue.unacked -= 1
            queue.take_back(message)
            queues.append(queue)
        self.unacked.clear()
        for queue in self.broker.queues.values():
            queue.consumers = deque(each for each in queue.consumers if each.connection is not self)
        for queue in queues:
            queue.deliver()

    # --- what a client asks ------------------------------------------------------------------------------------------

    def publish(
        self, queue: str, body: bytes, headers: Mapping[str, Any], answer: Callable[[PublishOutcome], None]
    ) -> None:
        outcome = self.broker.publish(queue, body, headers)
        self.to_client(lambda: answer(outcome))

    def consume(self, queue: str, tag: str, prefetch: int) -> None:
        found = self.broker.queues.get(queue)
        if found is None:
            self.lose(reason=f"no queue {queue}")
            return
        found.consumers.append(Consumer(self, tag, prefetch))
        found.deliver()

    def cancel(self, tag: str) -> None:
        for queue in self.broker.queues.values():
            queue.consumers = deque(each for each in queue.consumers if (each.connection, each.tag) != (self, tag))

    def deliver(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        tag = next(self._tags)
        self.unacked[tag] = queue, consumer, message
        self.to_client(lambda: self.link.came(queue.name, consumer.tag, tag, message))

    def ack(self, tag: int, multiple: bool) -> None:
        for each in [each for each in self.unacked if each == tag or (multiple and each <= tag)]:
            queue, consumer, message = self.unacked.pop(each)
            queue.unacked -= 1
            consumer.unacked -= 1
            self.broker.acknowledged(queue.name, message)
            queue.deliver()

    def reject(self, tag: int) -> None:
        if tag in self.unacked:
            queue, consumer, message = self.unacked.pop(tag)
            queue.unacked -= 1
            consumer.unacked -= 1
            queue.take_back(message)
            queue.deliver()


class RabbitBroker:
    """``acknowledged`` is called with queue and message."""

    def __init__(self, kernel: Kernel, network: Network) -> None:
        self.kernel, self.network = kernel, network
        self.queues: dict[str, Queue] = {}
        self.policies: dict[str, int] = {}
        self.connections: list[Connection] = []
        self.acknowledged: Callable[[str, Message], None] = lambda queue, message: None

    def publish(self, queue: str, body: bytes, headers: Mapping[str, Any]) -> PublishOutcome:
        found = self.queues.get(queue)
        if found is None:
            return "unroutable"
        if found.bound is not None and len(found.ready) >= found.bound:
            return "full"
        found.ready.append(Message(next(found.numbers), body, headers))
        found.deliver()
        return "confirmed"

    def declare(self, queue: str) -> None:
        if queue not in self.queues:
            self.queues[queue] = Queue(queue)
            self.queues[queue].bound = self.policies.get(queue)

    def bound(self, queue: str, most: int | None) -> None:
        if most is None:
            self.policies.pop(queue, None)
        else:
            self.policies[queue] = most
        if queue in self.queues:
            self.queues[queue].bound = most

    def delete(self, queue: str, only_empty: bool) -> bool:
        found = self.queues.get(queue)
        if found is not None:
            if only_empty and (found.ready or found.consumers):
                return False
            del self.queues[queue]
            for consumer in found.consumers:
                consumer.connection.lose(reason="its queue was deleted")
            for message in found.ready:
                self.kernel.note(f"message {message.number} of {queue} is deleted")
        self.policies.pop(queue, None)
        return True

    def restart(self) -> None:
        """Every connection is lost; messages are on the disk."""
        for connection in self.connections:
            connection.lose(reason="broker forced connection closure")
        self.connections.clear()


# --- clients -------------------------------------------------------------------------------------------------------


class Link:
    """``penstock.adapters.amqp.Link``."""

    broker: RabbitBroker

    def __init__(
        self,
        url: str,
        name: str,
        *,
        prefetch: int = 1,
        on_up: Callable[[], None] = lambda: None,
        on_down: Callable[[str], None] = lambda _: None,
    ) -> None:
        del url
        k = kernel()
        assert k.current is not None
        self._process = k.current.process
        self._name, self._prefetch = name, prefetch
        self._on_up, self._on_down = on_up, on_down
        self._connection: Connection | None = None
        self._session = 0
        self._closing = False
        self.trouble = ""
        self._inbox: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._serving: Thread | None = None
        self._unconfirmed: dict[int, OnOutcome] = {}
        self._published = 0
        self._consumers: dict[str, tuple[OnDelivery, int]] = {}
        self._names = itertools.count(1)
        self._process.on_death.append(self._died)
        self._connect()

    @property
    def up(self) -> bool:
        return self._connection is not None

    @property
    def unconfirmed(self) -> int:
        return len(self._unconfirmed)

    # --- driving it --------------------------------------------------------------------------------------------------

    def serve(self, timeout_s: float) -> None:
        k = kernel()
        if not self._inbox:
            due_ns = k.now_ns + round(timeout_s * SECOND)
            if self._timers:
                due_ns = min(due_ns, self._timers[0][0])
            self._serving = k.current
            k.park(max(LEAST_NS, due_ns - k.now_ns))
            self._serving = None
        while self._timers and self._timers[0][0] <= k.now_ns:
            heapq.heappop(self._timers)[2]()
        for _ in range(len(self._inbox)):
            self._inbox.popleft()()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._inbox.append(callback)
        if self._serving is not None:
            kernel().wake(self._serving)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (kernel().now_ns + round(delay_s * SECOND), next(self._order), callback))

    def open(self, timeout_s: float = 10.0) -> None:
        until_ns = kernel().now_ns + round(timeout_s * SECOND)
        while not self.up:
            if kernel().now_ns > until_ns:
                raise PenstockError(f"RabbitMQ does not answer: {self.trouble}")
            self.serve(0.1)

    def close(self) -> None:
        self._closing = True
        connection = self._connection
        if connection is None:
            return
        done: list[bool] = []

        def closed() -> None:
            connection.close()
            self.broker.kernel.soon(lambda: self.call_soon(lambda: done.append(True)), self.broker.network.delay_ns())

        connection.to_broker("close", closed)
        until_ns = kernel().now_ns + 3 * SECOND
        while not done and self._connection is connection and kernel().now_ns < until_ns:
            self.serve(0.1)
        connection.lose()
        self._connection = None

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
        connection = self._connection
        if connection is None:
            return False
        self._published += 1
        tag = self._published
        self._unconfirmed[tag] = on_outcome
        whole = {**(headers or {}), PUBLISHED_NS: published_ns}

        def answer(outcome: PublishOutcome) -> None:
            if (tell := self._unconfirmed.pop(tag, None)) is not None:
                tell(outcome)

        connection.to_broker(f"publish {queue}", lambda: connection.publish(queue, body, whole, answer))
        return True

    def consume(self, queue: str, on_delivery: OnDelivery) -> str:
        connection = self._connection
        assert connection is not None
        tag = f"{self._name}.{next(self._names)}"
        self._consumers[tag] = on_delivery, self._session
        connection.to_broker(f"consume {queue}", lambda: connection.consume(queue, tag, self._prefetch))
        return tag

    def cancel(self, tag: str) -> None:
        self._consumers.pop(tag, None)
        if (connection := self._connection) is not None:
            connection.to_broker("cancel", lambda: connection.cancel(tag))

    def ack(self, delivery: AmqpDelivery, *, multiple: bool = False) -> bool:
        connection = self._connection
        if connection is None or delivery.session != self._session:
            return False
        connection.to_broker(f"ack {delivery.tag}", lambda: connection.ack(delivery.tag, multiple))
        return True

    # --- inside ------------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._closing or self._process.dead:
            return

        made: list[Connection] = []

        def opened(connection: Any, trouble: str) -> None:
            if self._process.dead or trouble:
                for each in made:
                    each.close()
            self.call_soon(lambda: self._opened(connection, trouble))

        def handle(reply: Any) -> None:
            if self._process.dead:
                return
            connection = Connection(self.broker, self, self._process)
            made.append(connection)
            self.broker.connections.append(connection)
            reply(connection)

        self.broker.network.request(self._process, "rabbitmq", handle, opened)

    def _opened(self, connection: Connection | None, trouble: str) -> None:
        if connection is None or trouble or not connection.alive or self._closing:
            if connection is not None:
                connection.close()
            self.trouble = trouble or "closed"
            if not self._closing:
                self.call_later(RECONNECT_S, self._connect)
            return
        self._connection, self.trouble = connection, ""
        self._session += 1
        self._published = 0
        self._on_up()

    def receive(self, connection: Connection, action: Callable[[], None]) -> None:
        """Something has come, to be done in the serving thread."""
        if self._process.dead:
            return

        def act() -> None:
            if self._connection is connection:
                action()

        self.call_soon(act)

    def came(self, queue: str, consumer: str, tag: int, message: Message) -> None:
        """A message; of a consumer that was cancelled meanwhile it goes back."""
        connection = self._connection
        assert connection is not None
        found = self._consumers.get(consumer)
        if found is None:
            connection.to_broker("reject", lambda: connection.reject(tag))
            return
        found[0](AmqpDelivery(queue, tag, message.body, message.headers, message.redelivered, self._session))

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self._connection = None
        self.trouble = reason
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        self._consumers.clear()
        if not self._closing:
            self.call_later(RECONNECT_S, self._connect)
            self._on_down(reason)
        for on_outcome in unconfirmed.values():
            on_outcome("lost")

    def _died(self) -> None:
        """The system closes what the process had open, and what it was about to open."""
        mine = [each for each in self.broker.connections if each.process is self._process and each.alive]
        for connection in mine:
            self.broker.kernel.soon(lambda each=connection: each.close() if each.alive else None, SECOND // 500)  # type: ignore[misc]


class Management:
    """``penstock.adapters.amqp.Management``."""

    broker: RabbitBroker

    def __init__(self, url: str, timeout_s: float = 5.0) -> None:
        del url
        self._timeout_s = timeout_s

    def declare_queue(self, queue: str) -> None:
        self._ask(f"declare {queue}", lambda: self.broker.declare(queue))

    def bound_queue(self, queue: str, max_length: int | None) -> None:
        self._ask(f"bound {queue} {max_length}", lambda: self.broker.bound(queue, max_length))

    def delete_queue(self, queue: str, *, only_empty: bool = False) -> bool:
        return bool(self._ask(f"delete {queue}", lambda: self.broker.delete(queue, only_empty)))

    def close(self) -> None:
        return

    def _ask(self, what: str, effect: Callable[[], Any]) -> Any:
        try:
            return self.broker.network.ask("rabbitmq", what, effect, self._timeout_s)
        except Trouble as trouble:
            raise ManagementError(f"RabbitMQ's management API is away: {trouble}") from None


class Depths:
    """``penstock.adapters.amqp.Depths``."""

    broker: RabbitBroker

    def __init__(self, url: str, name: str) -> None:
        del url, name

    def read(self, queues: Iterable[str]) -> dict[str, int]:
        wanted = list(queues)
        there = self.broker.queues

        def ready() -> dict[str, int]:
            return {queue: len(there[queue].ready) for queue in wanted if queue in there}

        try:
            found: dict[str, int] = self.broker.network.ask("rabbitmq", f"depths {len(wanted)}", ready, 1.0)
            return found
        except Trouble as trouble:
            raise PenstockError(f"RabbitMQ is away: {trouble}") from None

    def close(self) -> None:
        return
