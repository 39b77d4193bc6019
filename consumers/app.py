"""A function app: one process with s containers on one RabbitMQ queue. Each takes one payment at a time.

At least once towards the broker (a message is acknowledged once its Result is out), exactly once in the ledger. How
many containers there are is the controller's to say (``penstock.apps``); one that is wanted no more finishes its event
first. In a pub/sub network an app is the consumers of one topic, and passes each event on to the next topic of its
job's route; the last one books it. Run as ``python -m consumers.app --run DIR --replica NAME --queue QUEUE``.
"""

import heapq
import itertools
import logging
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

import msgspec

from consumers.examination import Examination, Examiner
from consumers.ledger import UNAVAILABLE, Ledger
from consumers.meters import ServiceMeters
from consumers.pacing import Pacer, Slot
from consumers.process import parser, run_process
from consumers.route import Routes, Stop
from consumers.service_times import ServiceTimes, service_times
from penstock.amqp import PUBLISHED_NS, STEP, Delivery, Link, Outcome, connection_name, prefix, topic_queue
from penstock.apps import AWAY, AppBoard, AppReport, JobFlow
from penstock.result_topic import ResultTopic
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem

log = logging.getLogger(__name__)

WANTED_EVERY_S = 0.2
REPORT_EVERY_S = 0.2
BACK_TO_BACK_NS = 20_000_000
"""Result and acknowledgement come after the service. A container that gets its next event within this time after the
last deadline had it waiting: its service starts at that deadline, so that μ is what the law says.
"""
EARLY_S = 0.001
"""The wait for messages is exact to a millisecond only: it ends this much before a deadline, the rest is slept."""
LONGEST_WAIT_S = 0.2
RETRY_S = 0.2
REPORTS_POLL_S = 0.1
FLUSH_S = 2.0


class Hand(msgspec.Struct, kw_only=True, eq=False):
    """One event in a container's hand, times on the monotonic clock in ns. ``stop``: where it is on its route.
    ``outstanding``: what has to be out before it is acknowledged, 0 until it is finished. ``void``: its connection is
    gone, and it is left to come again.
    """

    container: "Container"
    delivery: Delivery
    item: Examination
    received_ns: int
    stop: Stop
    attempt: int = 1
    ready_ns: int = 0
    slot: Slot = Slot(0, 0)
    outstanding: int = 0
    void: bool = False


class Container(msgspec.Struct, kw_only=True, eq=False):
    """One consumer with prefetch 1. ``tag`` is empty while it has none; ``leaving``: no further event."""

    name: str
    pacer: Pacer
    tag: str = ""
    hand: Hand | None = None
    leaving: bool = False


class App:
    """The app ``replica`` of the run ``spec`` on ``queue``; ``topic`` in a pub/sub network. ``run`` returns after
    ``stop``.
    """

    def __init__(
        self, spec: RunSpec, replica: str, queue: str, endpoints: Endpoints, times: ServiceTimes, topic: str = ""
    ) -> None:
        self.spec = spec
        self.replica = replica
        self.meters = ServiceMeters(spec.fleet, replica)
        self._queue = queue
        self._place = topic or queue.removeprefix(prefix(spec.run))
        self._stage = topic or spec.pipeline
        self._routes = Routes(spec.system) if isinstance(spec.system, NetworkSystem) else None
        self._times = times
        self._examiner = Examiner(signing_key=endpoints.signing_key_bytes(), run=spec.run, worker=replica)
        self._ledger = Ledger(endpoints.require("redis"), spec.ledger_key)
        self._board = AppBoard(endpoints.require("redis"), spec.run)
        self._results = ResultTopic(endpoints.require("kafka"), spec.results_topic, replica)
        self._link = Link(
            endpoints.require("rabbitmq"),
            connection_name(spec.run, replica),
            prefetch=1,
            on_up=self._came_up,
            on_down=self._went_down,
        )
        self._containers: list[Container] = []
        self._numbers = itertools.count(1)
        self._wanted = 0
        self._to_book: list[Hand] = []
        self._book_again_ns = 0
        self._serving: list[tuple[int, int, Hand]] = []
        self._order = itertools.count()
        self._stopping = threading.Event()
        self._gone = threading.Event()
        self._started_ns = time.time_ns()
        self._first_ns = 0
        self._completed = 0
        self._busy_s = 0.0
        self._busy_s2 = 0.0
        self._jobs: dict[str, JobFlow] = {}

    def stop(self) -> None:
        """Take nothing more, finish and acknowledge what is in hand. May be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until told to stop."""
        threads = [
            threading.Thread(target=target, name=target.__name__, daemon=True)
            for target in (self._talk, self._take_reports)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._done():
                self._turn()
                if not all(thread.is_alive() for thread in threads):
                    raise RuntimeError("a thread has died, see above: without it nobody would hear of this app")
        finally:
            self._leave(threads)

    # --- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Take what comes until the next deadline, book it, finish what is due."""
        self._resize(0 if self._stopping.is_set() else self._wanted)
        self._link.serve(self._until_next_s())
        if self._to_book:
            self._book()
        soon_ns = time.monotonic_ns() + round(EARLY_S * 1e9)
        while self._serving and self._serving[0][0] <= soon_ns:
            hand = heapq.heappop(self._serving)[2]
            if not hand.void:
                self._finish(hand)

    def _until_next_s(self) -> float:
        until_ns = self._serving[0][0] if self._serving else None
        if self._to_book:
            until_ns = self._book_again_ns if until_ns is None else min(until_ns, self._book_again_ns)
        if until_ns is None:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, (until_ns - time.monotonic_ns()) / 1e9 - EARLY_S))

    def _done(self) -> bool:
        """Told to stop, and nothing in hand, or nothing that could be finished: it will be delivered again."""
        if not self._stopping.is_set():
            return False
        hands = [container.hand for container in self._containers if container.hand is not None]
        return not hands or all(hand in self._to_book for hand in hands)

    # --- containers --------------------------------------------------------------------------------------------------

    def _resize(self, wanted: int) -> None:
        """The youngest go first. One that is leaving is kept instead of making another."""
        staying = [container for container in self._containers if not container.leaving]
        for container in reversed(staying[wanted:]):
            container.leaving = True
            if container.tag:
                self._link.cancel(container.tag)
                container.tag = ""
        leaving = [container for container in self._containers if container.leaving]
        missing = max(0, wanted - len(staying))
        for container in leaving[:missing]:
            container.leaving = False
            self._consume(container)
        for container in leaving[missing:]:
            if container.hand is None:
                self._containers.remove(container)
        for _ in range(missing - len(leaving)):
            self._add_container()

    def _add_container(self) -> None:
        name = f"{self.replica}.{next(self._numbers)}"
        pacer = Pacer(0, "deterministic", seed=self.spec.seed, replica=name, back_to_back_ns=BACK_TO_BACK_NS)
        container = Container(name=name, pacer=pacer)
        self._containers.append(container)
        self._consume(container)

    def _consume(self, container: Container) -> None:
        """Let it have an event, unless it still has one of a former consumer."""
        if self._link.up and not container.tag and not container.leaving and container.hand is None:
            container.tag = self._link.consume(self._queue, partial(self._came, container))

    def _came_up(self) -> None:
        for container in self._containers:
            self._consume(container)

    def _went_down(self, _: str) -> None:
        """What goes on to another topic will be delivered again. What ends here is finished all the same: a broker that
        comes back drops the oldest messages of a queue down to its bound before it knows that it shall not, and what
        was in hand comes on top of a full queue. If it is delivered again, the ledger knows it.
        """
        for container in self._containers:
            container.tag = ""
            if container.hand is not None and container.hand.stop.following:
                container.hand.void = True
                container.hand = None
        self._to_book = [hand for hand in self._to_book if not hand.void]

    # --- one event ---------------------------------------------------------------------------------------------------

    def _came(self, container: Container, delivery: Delivery) -> None:
        received_ns = time.monotonic_ns()
        self._first_ns = self._first_ns or time.time_ns()
        item = self._examiner.examine(delivery.body)
        stop = Stop(self._place, 1, "")
        if self._routes is not None:
            stop, item = self._on_its_route(self._routes, delivery, item)
        hand = Hand(container=container, delivery=delivery, item=item, received_ns=received_ns, stop=stop)
        container.hand = hand
        self._to_book.append(hand)

    def _on_its_route(self, routes: Routes, delivery: Delivery, item: Examination) -> tuple[Stop, Examination]:
        """Where the event is on its way; one that is nowhere has failed."""
        step = delivery.headers.get(STEP, 0)
        stop = routes.stop(item.job, step) if isinstance(step, int) else None
        if step == 0 and stop is not None and not delivery.redelivered:
            self._jobs[item.job] = _arrived(self._jobs.get(item.job, JobFlow()), delivery.published_ns)
        if stop is not None and stop.topic == self._place:
            return stop, item
        here = f"step {step!r} of job {item.job!r} is not at topic {self._place}"
        return Stop(self._place, 1, ""), msgspec.structs.replace(item, booking=None, reason=item.reason or here)

    def _book(self) -> None:
        """Book what came and ends here, in one round trip, and give each its slot. While Redis is away it is tried
        again and again.
        """
        now_ns = time.monotonic_ns()
        if now_ns < self._book_again_ns:
            return
        ending = [hand for hand in self._to_book if hand.item.booking is not None and not hand.stop.following]
        try:
            attempts = self._ledger.book([hand.item.booking for hand in ending if hand.item.booking is not None])
        except UNAVAILABLE as error:
            log.warning("ledger is away (%s); trying again in %.2g s", error, RETRY_S)
            self._book_again_ns = time.monotonic_ns() + round(RETRY_S * 1e9)
            return
        for hand, attempt in zip(ending, attempts, strict=True):
            hand.attempt = attempt
        ready_ns = time.monotonic_ns()
        wall_ns = time.time_ns() - ready_ns
        for hand in self._to_book:
            if hand.stop.following and hand.delivery.redelivered:
                hand.attempt = 2
            published_ns = hand.delivery.published_ns or hand.item.sent_ns or 0
            floor_ns = self._times.floor_ns(hand.item.id, hand.stop.visit)
            hand.ready_ns = ready_ns
            hand.slot = hand.container.pacer.next(hand.received_ns, published_ns - wall_ns, floor_ns)
            heapq.heappush(self._serving, (hand.slot.deadline_ns, next(self._order), hand))
        self._to_book.clear()

    def _finish(self, hand: Hand) -> None:
        """Its service is over: publish its Result, and the event to the next topic of its route."""
        finished_ns = hand.container.pacer.wait(hand.slot, hand.ready_ns)
        wall_ns = time.time_ns() - time.monotonic_ns()
        onward = bool(hand.stop.following) and not hand.item.reason
        result = hand.item.result(
            self.spec,
            stage=self._stage,
            queue=self._place,
            worker=hand.container.name,
            received_ns=hand.received_ns + wall_ns,
            started_ns=hand.slot.start_ns + wall_ns,
            finished_ns=finished_ns + wall_ns,
            attempt=hand.attempt,
            visit=hand.stop.visit,
            terminal=not onward,
        )
        service_s = (finished_ns - hand.slot.start_ns) / 1e9
        self._completed += 1
        self._busy_s += service_s
        self._busy_s2 += service_s * service_s
        self.meters.served([result])
        if not onward and self._routes is not None and result.intended_ns is not None and not hand.item.reason:
            response_s = (result.finished_ns - result.intended_ns) / 1e9
            self._jobs[hand.item.job] = _left(self._jobs.get(hand.item.job, JobFlow()), response_s)
        hand.outstanding = 1 + onward
        self._results.publish(result, partial(self._link.call_soon, partial(self._out, hand)))
        if onward:
            self._pass_on(hand)

    def _pass_on(self, hand: Hand) -> None:
        """To the next topic, again and again if that cannot take it: its app or its queue may not be there yet."""
        if hand.void:
            return

        def told(outcome: Outcome) -> None:
            if outcome == "confirmed":
                self._out(hand)
            elif outcome != "lost":
                log.warning("%s does not take events (%s); trying again", hand.stop.following, outcome)
                self._link.call_later(RETRY_S, partial(self._pass_on, hand))

        step = int(hand.delivery.headers.get(STEP, 0)) + 1
        headers = {**hand.delivery.headers, STEP: step}
        headers.pop(PUBLISHED_NS, None)
        queue = topic_queue(self.spec.run, hand.stop.following)
        self._link.publish(queue, hand.delivery.body, told, published_ns=time.time_ns(), headers=headers)

    def _out(self, hand: Hand) -> None:
        """Its Result, or itself, is where it has to be."""
        hand.outstanding -= 1
        if hand.outstanding == 0 and not hand.void:
            self._link.ack(hand.delivery)
            hand.container.hand = None
            self._consume(hand.container)

    # --- other threads -----------------------------------------------------------------------------------------------

    def _talk(self) -> None:
        """Ask how many containers are wanted and tell what there is. While Redis is away both stay as they were."""
        told_s, away = 0.0, False
        while True:
            last = self._gone.wait(WANTED_EVERY_S)
            try:
                wanted = self._board.wanted(self.replica)
                if wanted is not None and wanted != self._wanted:
                    self._wanted = max(0, wanted)
                    self._link.call_soon(_nothing)
                if last or time.monotonic() - told_s >= REPORT_EVERY_S - WANTED_EVERY_S / 2:
                    told_s = time.monotonic()
                    self._board.report(self._report())
                away = False
            except AWAY as error:
                if not away:
                    log.warning("Redis is away (%s): %d containers stay", error, self._wanted)
                away = True
            if last:
                return

    def _report(self) -> AppReport:
        # Completed is read first: an event that is finished meanwhile is then in neither number, and never in both.
        completed = self._completed
        hands = [(container.tag, container.hand) for container in list(self._containers)]
        return AppReport(
            replica=self.replica,
            containers=sum(bool(tag) or hand is not None for tag, hand in hands),
            busy=sum(hand is not None and not hand.outstanding for _, hand in hands),
            completed=completed,
            busy_s=self._busy_s,
            busy_s2=self._busy_s2,
            at_ns=time.time_ns(),
            started_ns=self._started_ns,
            first_ns=self._first_ns,
            jobs=dict(self._jobs),
        )

    def _take_reports(self) -> None:
        """Kafka's delivery reports; what they say is done in the thread that serves the link."""
        while not self._gone.is_set():
            self._results.poll(REPORTS_POLL_S)

    def _leave(self, threads: Sequence[threading.Thread]) -> None:
        self._containers.clear()
        self._gone.set()
        for thread in threads:
            thread.join()
        self._results.flush(FLUSH_S)
        self._link.close()
        self._ledger.close()
        self._board.close()


def _arrived(flow: JobFlow, at_ns: int) -> JobFlow:
    since_s = (at_ns - flow.last_arrival_ns) / 1e9 if flow.arrived else 0.0
    return msgspec.structs.replace(
        flow,
        arrived=flow.arrived + 1,
        last_arrival_ns=at_ns,
        between_s=flow.between_s + since_s,
        between_s2=flow.between_s2 + since_s * since_s,
    )


def _left(flow: JobFlow, response_s: float) -> JobFlow:
    return msgspec.structs.replace(flow, finished=flow.finished + 1, response_s=flow.response_s + response_s)


def _nothing() -> None:
    """Ends a wait."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The process. Exit code 0 after SIGTERM or SIGINT, 2 with one line for what the user can mend."""
    options = parser("consumers.app", "A function app: containers on one RabbitMQ queue.")
    options.add_argument("--queue", required=True, help="AMQP queue from which its containers take events")
    options.add_argument("--topic", default="", help="topic of a pub/sub network whose tasks they do")
    given = options.parse_args(arguments)

    def make(directory: RunDirectory, endpoints: Endpoints) -> App:
        spec = directory.spec()
        schedule = Schedule.read(directory.schedule_file) if given.topic else None
        times = service_times(spec, given.topic, schedule)
        return App(spec, given.replica, given.queue, endpoints, times, given.topic)

    return run_process(given, make)


if __name__ == "__main__":
    sys.exit(main())
