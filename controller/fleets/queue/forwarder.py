"""Algorithm 2 live: ``python -m controller.fleets.queue.forwarder --run DIRECTORY``.

Takes events from a bank's main queue and publishes each to a sub-queue.

Which one is drawn by the routing's shares, each event on its own: a Poisson stream split by independent draws gives
Poisson streams, for which the papers' M/M/s/K formulas hold, while a fixed turn would smooth what each queue sees. A
queue at its bound rejects the publish. Then, by the system's ``when_full``, the event is lost (its Result says
rejected) or it goes to another queue, and where none has room it is held, the oldest to be tried first, until one has.

An event is acknowledged once the broker has confirmed it in its sub-queue, or once its Result is out, together with
others that are (``UnackedDeliveries``). Nothing is lost when this process is killed; the ledger detects
duplicates. Shares and report go through ``controller.fleets.queue.routing_store``.
"""

import logging
import sys
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from copy import copy
from functools import partial
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from controller.fleets.queue.routing import ForwarderReport, QueueFlow, Routing
from controller.fleets.queue.routing_store import RoutingBoard
from penstock.adapters.amqp import AmqpDelivery, Link, PublishOutcome, connection_name, main_queue, sub_queue
from penstock.adapters.redis import REDIS_AWAY
from penstock.adapters.result_topic import ResultTopic
from penstock.errors import PenstockError
from penstock.log_once import LogOnce
from penstock.process_main import configure_log, on_termination, process_parser, run_main
from penstock.records import Event, Result, event_decoder, read_record, rejected
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import QueueSystem

log = logging.getLogger(__name__)

Item = TypeVar("Item")

PREFETCH = 100
"""Unacked events at most. A round trip to the broker takes about a millisecond: enough for tens of thousands a second.
"""
RETRY_S = 0.005
"""How often a queue is tried again while all are full."""
REPORT_S = 0.04
"""Between two reports, and two looks at the routing: what the monitor reads is that old at most."""
SETTLE_S = 3.0
"""On a stop signal, time allowed for events in flight."""
LINGER_MS = 5.0
NOWHERE = "main"
"""Queue of a Result whose event no queue was fed for."""
DRAWS = 1024


def prefetch_for(system: QueueSystem, most: int = PREFETCH) -> int:
    """Unacked events at most. They count as waiting in the main queue: of a bounded one, no more than half."""
    return most if system.main_capacity is None else max(1, min(most, system.main_capacity // 2))


class Draws:
    """Independent draws of queues by their shares, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._picks: list[float] = []
        self.queues: tuple[str, ...] = ()
        """Those that have a share."""
        self._shares: tuple[float, ...] = ()
        self._cumulative: list[float] = []

    def share(self, routing: Routing) -> None:
        """These shares from now on."""
        fed = {queue: share for queue, share in routing.shares.items() if share > 0}
        self.queues, self._shares = tuple(fed), tuple(fed.values())
        self._cumulative = list(accumulate(self._shares))

    def queue(self, without: Collection[str] = ()) -> str | None:
        """One of the queues, but not one of those; None if there is no other."""
        if not self._picks:
            self._picks = self._generator.random(DRAWS).tolist()
        queues, cumulative = self.queues, self._cumulative
        if without:
            left = [place for place, queue in enumerate(queues) if queue not in without]
            queues = tuple(queues[place] for place in left)
            cumulative = list(accumulate(self._shares[place] for place in left))
        if not queues:
            return None
        place = bisect_right(cumulative, self._picks.pop() * cumulative[-1])
        return queues[min(place, len(queues) - 1)]


class UnackedDeliveries(Generic[Item]):
    """Items of one connection's messages, which are taken in the order in which they come. A delivery tag counts these;
    "multiple" acknowledges every one up to it, which may be said as far as no older message is unacked.
    """

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        self._done: list[AmqpDelivery] = []

    def __len__(self) -> int:
        return len(self._items)

    def take(self, delivery: AmqpDelivery, item: Item) -> None:
        """It came."""
        self._items[delivery.tag] = item

    def done(self, delivery: AmqpDelivery, item: Item) -> bool:
        """To be acknowledged next. False if it is no longer unacked: another connection may use its tag by now."""
        if self._items.get(delivery.tag) is not item:
            return False
        del self._items[delivery.tag]
        self._done.append(delivery)
        return True

    def acknowledgements(self) -> list[tuple[AmqpDelivery, bool]]:
        """What to tell the broker of all that was done since the last time: messages, each alone or ``multiple``."""
        if not self._done:
            return []
        done, self._done = self._done, []
        oldest = next(iter(self._items), None)
        before = done if oldest is None else [delivery for delivery in done if delivery.tag < oldest]
        said = [(max(before, key=lambda delivery: delivery.tag), True)] if before else []
        if oldest is not None:
            said += [(delivery, False) for delivery in done if delivery.tag > oldest]
        return said

    def clear(self) -> None:
        """The connection is gone, and with it all unacked messages."""
        self._items.clear()
        self._done.clear()


class _Flow(NamedTuple):
    """A queue and the counts of it, which go on."""

    queue: str
    amqp_name: str
    counts: QueueFlow


class _Event(msgspec.Struct, eq=False):
    """An unacked event. ``tried``: queues that were full since it was last held; ``counted``: for its first choice."""

    delivery: AmqpDelivery
    tried: tuple[str, ...] = ()
    counted: bool = False

    def count(self, flow: _Flow, *, refused: bool) -> None:
        """An event counts once, for its first choice."""
        if not self.counted:
            self.counted = True
            flow.counts.offered += 1
            flow.counts.refused += refused


class _Way(msgspec.Struct):
    """How many events are on their way by one version of the routing."""

    version: int
    events: int = 0


class Forwarder:
    """The forwarder of one run. ``prefetch``: unacked events at most.

    ``run`` returns after ``stop``; the rest is called by the link, in the same thread.
    """

    def __init__(self, spec: RunSpec, endpoints: Endpoints, prefetch: int | None = None) -> None:
        if not isinstance(spec.system, QueueSystem):
            raise PenstockError(f"{spec.run}: nothing is to be forwarded in a {type(spec.system).__name__}")
        prefetch = prefetch_for(spec.system) if prefetch is None else prefetch
        if prefetch < 1:
            raise PenstockError(f"prefetch {prefetch}: it has to be at least 1")
        self.spec = spec
        self._drops = spec.system.when_full == "drop"
        self._prefetch = self._limit = prefetch
        self._draws = Draws(spec.seed)
        self._routing: Routing | None = None
        self._flows: dict[str, _Flow] = {}
        self._nowhere = 0
        self._unacked: UnackedDeliveries[_Event] = UnackedDeliveries()
        self._waiting: deque[_Event] = deque()
        self._way = _Way(0)
        self._former_ways: list[_Way] = []
        self._outstanding = 0
        self._blocked = False
        self._retry_s = 0.0
        self._told_unroutable = False
        self._stopping = threading.Event()
        self._redis_trouble = LogOnce(log, "Redis is away (%s); forwarding continues with the last routing")
        self._board = RoutingBoard(endpoints.require("redis"), spec.run)
        self._wanted: Routing | None = None
        self._report = ForwarderReport(time.time_ns())
        # Only what is dropped has a Result from here.
        self._results = (
            ResultTopic(endpoints.require("kafka"), spec.results_topic, f"{spec.run}-forwarder", LINGER_MS)
            if self._drops
            else None
        )
        self._link = Link(
            endpoints.require("rabbitmq"),
            connection_name(spec.run, "forwarder"),
            prefetch=prefetch,
            on_up=self._up,
            on_down=self._down,
        )

    def stop(self) -> None:
        """Take no more, wait a moment for what is on its way."""
        self._stopping.set()

    def run(self) -> None:
        """Forward until a stop signal."""
        if not self._remember():
            return
        self._report = self._state()
        messenger = threading.Thread(target=self._talk, name="messenger", daemon=True)
        messenger.start()
        due_s = 0.0
        while not self._stopping.is_set():
            self._link.serve(RETRY_S if self._blocked or self._rejecting else REPORT_S)
            if self._results is not None and self._results.outstanding:
                self._results.poll(0)
            if self._wanted is not None:
                self._follow(self._wanted)
            if self._waiting:
                self._pump()
            self._acknowledge()
            if (now_s := time.monotonic()) >= due_s:
                due_s = now_s + REPORT_S
                self._report = self._state()
        self._settle()
        messenger.join()
        self._report = self._state()
        self._exchange()
        self._board.close()

    # --- unacked events -----------------------------------------------------------------------------------------------

    def _up(self) -> None:
        self._tag = self._link.consume(main_queue(self.spec.run), self._take)

    def _down(self, _: str) -> None:
        """Unacked events will be delivered again."""
        self._unacked.clear()
        self._waiting.clear()
        self._blocked, self._limit = False, self._prefetch

    def _take(self, delivery: AmqpDelivery) -> None:
        event = _Event(delivery)
        self._unacked.take(delivery, event)
        if not self._waiting and self._outstanding < self._limit and self._draws.queues:
            self._publish(event)
            return
        if self._blocked and (queue := self._draws.queue()) is not None:
            # No queue had room when it came, its first choice among them.
            event.count(self._flow(queue), refused=True)
        self._waiting.append(event)
        self._pump()

    def _follow(self, routing: Routing) -> None:
        """These shares from now on, also for what is held."""
        self._wanted = None
        if routing == self._routing:
            return
        self._routing = routing
        self._draws.share(routing)
        self._former_ways.append(self._way)
        self._way = _Way(routing.version)
        self._blocked, self._limit = False, self._prefetch

    def _pump(self) -> None:
        """Publish what may be published. While all queues are full, one event at a time is tried."""
        if not self._waiting or self._routing is None or (self._blocked and time.monotonic() < self._retry_s):
            return
        while self._waiting and self._outstanding < self._limit:
            if not self._draws.queues:
                if not self._drops:
                    return
                self._reject(self._waiting.popleft(), None)
            else:
                self._publish(self._waiting.popleft())

    # --- one event ---------------------------------------------------------------------------------------------------

    def _publish(self, event: _Event) -> None:
        """To a queue that has not rejected it; held if there is none."""
        queue = self._draws.queue(event.tried)
        if queue is None:
            self._hold(event)
            return
        flow, way, delivery = self._flow(queue), self._way, event.delivery
        if self._link.publish(
            flow.amqp_name,
            delivery.body,
            partial(self._published, event, flow, way),
            published_ns=time.time_ns(),
            headers=delivery.headers,
        ):
            self._outstanding += 1
            way.events += 1

    def _published(self, event: _Event, flow: _Flow, way: _Way, outcome: PublishOutcome) -> None:
        self._outstanding -= 1
        way.events -= 1
        if outcome == "confirmed":
            event.count(flow, refused=False)
            flow.counts.entered += 1
            self._unacked.done(event.delivery, event)
            self._blocked = False
            if self._limit < self._prefetch:
                self._limit = min(self._prefetch, 2 * self._limit)
            if self._waiting:
                self._pump()
        elif outcome == "full":
            event.count(flow, refused=True)
            if self._drops:
                self._reject(event, flow)
                self._pump()
            else:
                event.tried += (flow.queue,)
                self._publish(event)
        elif outcome == "unroutable":
            if not self._told_unroutable:
                self._told_unroutable = True
                log.warning("queue %s is not there; its events go to others", flow.amqp_name)
            event.tried += (flow.queue,)
            self._publish(event)

    def _hold(self, event: _Event) -> None:
        """Back to its place among those that wait, which is by the order in which they came."""
        event.tried = ()
        place = 0
        while place < len(self._waiting) and self._waiting[place].delivery.tag < event.delivery.tag:
            place += 1
        self._waiting.insert(place, event)
        self._blocked, self._limit = True, 1
        self._retry_s = time.monotonic() + RETRY_S

    def _reject(self, event: _Event, flow: _Flow | None) -> None:
        """It is lost: done with when its Result is out."""

        def out() -> None:
            if not self._unacked.done(event.delivery, event):
                return  # too late: it will be delivered again
            if flow is None:
                self._nowhere += 1
            else:
                flow.counts.rejected += 1

        assert self._results is not None
        queue = NOWHERE if flow is None else flow.queue
        self._results.publish(rejection(self.spec, event.delivery.body, queue, time.time_ns()), out)

    @property
    def _rejecting(self) -> bool:
        """Whether Results of rejected events are still on their way."""
        return self._results is not None and self._results.outstanding > 0

    def _acknowledge(self) -> None:
        """All that was done in this turn of the loop."""
        for delivery, multiple in self._unacked.acknowledgements():
            self._link.ack(delivery, multiple=multiple)

    def _flow(self, queue: str) -> _Flow:
        flow = self._flows.get(queue)
        if flow is None:
            flow = self._flows[queue] = _Flow(queue, sub_queue(self.spec.run, queue), QueueFlow())
        return flow

    # --- word from and to the actuator -------------------------------------------------------------------------------

    def _remember(self) -> bool:
        """Continue a predecessor's counts. False on a stop signal while Redis is away."""
        while not self._stopping.is_set():
            with self._redis_trouble.skipping(*REDIS_AWAY):
                before = self._board.forwarder() or ForwarderReport(0)
                self._nowhere = before.nowhere
                for queue, counts in before.queues.items():
                    self._flows[queue] = _Flow(queue, sub_queue(self.spec.run, queue), counts)
                return True
            self._stopping.wait(0.5)
        return False

    def _talk(self) -> None:
        """Run in a thread, so that a slow Redis does not delay forwarding."""
        while not self._stopping.wait(REPORT_S):
            self._exchange()

    def _exchange(self) -> None:
        with self._redis_trouble.skipping(*REDIS_AWAY):
            wanted = self._board.exchange(self._report)
            if wanted is not None and wanted != self._routing:
                self._wanted = wanted

    def _state(self) -> ForwarderReport:
        self._former_ways = [way for way in self._former_ways if way.events > 0]
        return ForwarderReport(
            at_ns=time.time_ns(),
            version=self._way.version,
            settled_version=min(way.version for way in (self._way, *self._former_ways)),
            unacked=len(self._unacked),
            nowhere=self._nowhere,
            queues={queue: copy(flow.counts) for queue, flow in self._flows.items()},
        )

    def _settle(self) -> None:
        """What was published is confirmed and acknowledged, what was not goes back to the main queue."""
        if self._link.up:
            self._link.cancel(self._tag)
        self._waiting.clear()
        until_s = time.monotonic() + SETTLE_S
        while (self._outstanding or self._rejecting) and time.monotonic() < until_s and self._link.up:
            self._link.serve(RETRY_S)
            if self._results is not None:
                self._results.poll(0)
            self._acknowledge()
        self._acknowledge()
        self._link.close()
        self._unacked.clear()


def rejection(spec: RunSpec, body: bytes, queue: str, at_ns: int) -> Result:
    """The Result of what found its queue full, whatever it is; by no worker."""
    event: Event | None = None
    reason = ""
    try:
        event = read_record(event_decoder, body)
    except msgspec.DecodeError as error:
        reason = f"not an event: {error}"
    return rejected(event, run=spec.run, pipeline=spec.pipeline, queue=queue, at_ns=at_ns, reason=reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM, 2 with one line on standard error where the user can mend something."""
    parser = process_parser("controller.fleets.queue.forwarder", "The forwarder of one run's bank of queues.")
    parser.add_argument(
        "--prefetch", type=int, help=f"unacked events at most (default {PREFETCH}, or half of the bound)"
    )
    options = parser.parse_args(arguments)
    configure_log()

    def forward() -> None:
        spec = RunDirectory.open(options.run.absolute()).spec()
        forwarder = Forwarder(spec, Endpoints(), options.prefetch)
        on_termination(forwarder.stop)
        forwarder.run()

    return run_main(forward)


if __name__ == "__main__":
    sys.exit(main())
