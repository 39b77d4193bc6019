"""Algorithm 2 live: ``python -m controller.forwarder --run DIRECTORY`` takes events from a bank's main queue and
publishes each to a sub-queue.

Which one is drawn by the routing's shares, each event on its own: a Poisson stream split by independent draws gives
Poisson streams, for which the papers' M/M/s/K formulas hold, while a fixed turn would smooth what each queue sees. A
queue at its bound rejects the publish. Then, by the system's ``when_full``, the event is lost (its Result says
rejected) or it goes to another queue, and where none has room it is held, the oldest to be tried first, until one has.

An event is acknowledged once the broker has confirmed it in its sub-queue, or once its Result is out, together with
others that are (``controller.in_hand``): whenever this process is killed, nothing is lost, and what comes twice the
ledger tells apart. Shares and report go through ``controller.routing_board``.
"""

import argparse
import logging
import signal
import sys
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

from controller.in_hand import Hand
from controller.routing import ForwarderReport, QueueFlow, Routing
from controller.routing_board import RoutingBoard
from penstock.amqp import Delivery, Link, Outcome, connection_name, main_queue, sub_queue
from penstock.apps import AWAY
from penstock.errors import PenstockError
from penstock.records import Event, Result, event_decoder, rejected
from penstock.result_topic import ResultTopic
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import QueueSystem

log = logging.getLogger(__name__)

PREFETCH = 100
"""Events in hand at most. A round trip to the broker takes about a millisecond: enough for tens of thousands a second.
"""
RETRY_S = 0.005
"""How often a queue is tried again while all are full."""
REPORT_S = 0.04
"""Between two reports, and two looks at the routing: what the monitor reads is that old at most."""
SETTLE_S = 3.0
"""What is on its way when it is told to stop is waited for that long."""
LINGER_MS = 5.0
NOWHERE = "main"
"""Queue of a Result whose event no queue was fed for."""
DRAWS = 1024


def prefetch_for(system: QueueSystem, most: int = PREFETCH) -> int:
    """Events in hand at most. They count as waiting in the main queue: of a bounded one, no more than half."""
    return most if system.main_capacity is None else max(1, min(most, system.main_capacity // 2))


class Draws:
    """Independent draws of queues by their shares, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._picks: list[float] = []
        self._queues: tuple[str, ...] = ()
        self._shares: tuple[float, ...] = ()
        self._cumulative: list[float] = []

    @property
    def queues(self) -> tuple[str, ...]:
        """Those that have a share."""
        return self._queues

    def share(self, routing: Routing) -> None:
        """These shares from now on."""
        fed = {queue: share for queue, share in routing.shares.items() if share > 0}
        self._queues, self._shares = tuple(fed), tuple(fed.values())
        self._cumulative = list(accumulate(self._shares))

    def queue(self, without: Collection[str] = ()) -> str | None:
        """One of the queues, but not one of those; None if there is no other."""
        if not self._picks:
            self._picks = self._generator.random(DRAWS).tolist()
        queues, cumulative = self._queues, self._cumulative
        if without:
            left = [place for place, queue in enumerate(queues) if queue not in without]
            queues = tuple(queues[place] for place in left)
            cumulative = list(accumulate(self._shares[place] for place in left))
        if not queues:
            return None
        place = bisect_right(cumulative, self._picks.pop() * cumulative[-1])
        return queues[min(place, len(queues) - 1)]


class _Flow:
    """A ``QueueFlow`` that is being counted."""

    __slots__ = ("amqp_name", "entered", "offered", "queue", "refused", "rejected")

    def __init__(self, queue: str, amqp_name: str, before: QueueFlow) -> None:
        self.queue, self.amqp_name = queue, amqp_name
        self.entered, self.offered = before.entered, before.offered
        self.refused, self.rejected = before.refused, before.rejected

    def frozen(self) -> QueueFlow:
        return QueueFlow(self.entered, self.offered, self.refused, self.rejected)


class _Event:
    """An event in hand. ``tried``: queues that had no room for it since it was last held; ``counted``: whether it is
    in the counts of its first choice.
    """

    __slots__ = ("counted", "delivery", "tried")

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self.tried: tuple[str, ...] = ()
        self.counted = False

    def count(self, flow: _Flow, *, refused: bool) -> None:
        """An event counts once, for its first choice."""
        if not self.counted:
            self.counted = True
            flow.offered += 1
            flow.refused += refused


class _Way:
    """How many events are on their way by one version of the routing."""

    __slots__ = ("events", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.events = 0


class Forwarder:
    """The forwarder of one run. ``prefetch``: events in hand; ``window``: of these, published and not yet confirmed.

    ``run`` returns after ``stop``; the rest is called by the link, in the same thread.
    """

    def __init__(
        self, spec: RunSpec, endpoints: Endpoints, *, prefetch: int | None = None, window: int | None = None
    ) -> None:
        if not isinstance(spec.system, QueueSystem):
            raise PenstockError(f"{spec.run}: nothing is to be forwarded in a {type(spec.system).__name__}")
        prefetch = prefetch_for(spec.system) if prefetch is None else prefetch
        window = prefetch if window is None else window
        if min(prefetch, window) < 1:
            raise PenstockError(f"prefetch {prefetch}, window {window}: each has to be at least 1")
        self.spec = spec
        self._drops = spec.system.when_full == "drop"
        self._window = self._limit = window
        self._draws = Draws(spec.seed)
        self._routing: Routing | None = None
        self._flows: dict[str, _Flow] = {}
        self._nowhere = 0
        self._hand: Hand[_Event] = Hand()
        self._waiting: deque[_Event] = deque()
        self._way = _Way(0)
        self._former_ways: list[_Way] = []
        self._outstanding = 0
        self._blocked = False
        self._retry_s = 0.0
        self._told_unroutable = False
        self._stopping = threading.Event()
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

    def stop(self, *_: object) -> None:
        """Take no more, wait a moment for what is on its way. Takes what a signal handler is given."""
        self._stopping.set()

    def run(self) -> None:
        """Forward until told to stop."""
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
        self._say_last()

    # --- what is in hand ---------------------------------------------------------------------------------------------

    def _up(self) -> None:
        self._tag = self._link.consume(main_queue(self.spec.run), self._take)

    def _down(self, _: str) -> None:
        """What is in hand will be delivered again."""
        self._hand.clear()
        self._waiting.clear()
        self._blocked, self._limit = False, self._window

    def _take(self, delivery: Delivery) -> None:
        event = _Event(delivery)
        self._hand.take(delivery, event)
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
        self._blocked, self._limit = False, self._window

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

    def _published(self, event: _Event, flow: _Flow, way: _Way, outcome: Outcome) -> None:
        self._outstanding -= 1
        way.events -= 1
        if outcome == "confirmed":
            event.count(flow, refused=False)
            flow.entered += 1
            self._done(event)
            self._blocked = False
            if self._limit < self._window:
                self._limit = min(self._window, 2 * self._limit)
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
            if not self._done(event):
                return
            if flow is None:
                self._nowhere += 1
            else:
                flow.rejected += 1

        assert self._results is not None
        queue = NOWHERE if flow is None else flow.queue
        self._results.publish(rejection(self.spec, event.delivery.body, queue, time.time_ns()), out)

    @property
    def _rejecting(self) -> bool:
        """Whether Results of rejected events are still on their way."""
        return self._results is not None and self._results.outstanding > 0

    def _done(self, event: _Event) -> bool:
        """It is to be acknowledged. False if that came too late: it will be delivered again."""
        return self._hand.done(event.delivery, event)

    def _acknowledge(self) -> None:
        """All that was done in this turn of the loop."""
        for delivery, multiple in self._hand.acknowledgements():
            self._link.ack(delivery, multiple=multiple)

    def _flow(self, queue: str) -> _Flow:
        flow = self._flows.get(queue)
        if flow is None:
            flow = self._flows[queue] = _Flow(queue, sub_queue(self.spec.run, queue), QueueFlow())
        return flow

    # --- word from and to the actuator -------------------------------------------------------------------------------

    def _remember(self) -> bool:
        """Go on with a predecessor's counts. False if it is told to stop while Redis is away."""
        while not self._stopping.is_set():
            try:
                before = self._board.forwarder()
            except AWAY as error:
                log.warning("Redis is away (%s); waiting for it", error)
                self._stopping.wait(0.5)
                continue
            if before is not None:
                self._nowhere = before.nowhere
                self._flows = {
                    queue: _Flow(queue, sub_queue(self.spec.run, queue), flow) for queue, flow in before.queues.items()
                }
            return True
        return False

    def _talk(self) -> None:
        """In a thread of its own, so that a slow Redis holds nobody up."""
        away = False
        while True:
            last_words = self._stopping.wait(REPORT_S)
            try:
                wanted = self._board.exchange(self._report)
                if wanted is not None and wanted != self._routing:
                    self._wanted = wanted
                away = False
            except AWAY as error:
                if not away:
                    log.warning("Redis is away (%s); forwarding goes on by the last routing", error)
                away = True
            if last_words:
                return

    def _state(self) -> ForwarderReport:
        self._former_ways = [way for way in self._former_ways if way.events > 0]
        return ForwarderReport(
            at_ns=time.time_ns(),
            version=self._way.version,
            settled_version=min(way.version for way in (self._way, *self._former_ways)),
            in_hand=len(self._hand),
            nowhere=self._nowhere,
            queues={queue: flow.frozen() for queue, flow in self._flows.items()},
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
        self._hand.clear()

    def _say_last(self) -> None:
        try:
            self._board.report(self._state())
        except AWAY as error:
            log.warning("Redis is away (%s); the last counts are lost", error)
        self._board.close()


def rejection(spec: RunSpec, body: bytes, queue: str, at_ns: int) -> Result:
    """The Result of what found its queue full, whatever it is; by no worker."""
    event: Event | None = None
    reason = ""
    try:
        event = event_decoder.decode(body)
    except msgspec.DecodeError as error:
        reason = f"not an event: {error}"
    return rejected(event, run=spec.run, pipeline=spec.pipeline, queue=queue, at_ns=at_ns, reason=reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM, 2 with one line on standard error where the user can mend something."""
    parser = argparse.ArgumentParser(
        prog="python -m controller.forwarder", description="The forwarder of one run's bank of queues."
    )
    parser.add_argument("--run", type=Path, required=True, help="run directory with its run.json")
    parser.add_argument(
        "--prefetch", type=int, help=f"events in hand at most (default {PREFETCH}, or half of the bound)"
    )
    parser.add_argument("--window", type=int, help="published and not confirmed at most (default: the prefetch)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # the link tells of what matters, once
    try:
        forwarder = Forwarder(
            RunDirectory.open(options.run.absolute()).spec(),
            Endpoints(),
            prefetch=options.prefetch,
            window=options.window,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, forwarder.stop)
        forwarder.run()
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
