"""A function app: one process with s containers on one RabbitMQ queue. Each takes one payment at a time.

At least once towards the broker (a message is acknowledged once its Result is delivered), exactly once in the ledger.
The controller sets the number of containers (``penstock.apps``); a surplus container finishes its event first. In a
pub/sub network an app is the consumers of one topic and passes each event on to the next topic of its job's route; the
last app books it. Run as ``python -m consumers.app --run DIR --replica NAME --queue QUEUE``.
"""

import heapq
import itertools
import logging
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from consumers.ledger import Ledger
from consumers.meters import ServiceMeters
from consumers.pacing import Pacer, Slot
from consumers.process import parser, run_process
from consumers.service_times import ServiceTimes, service_times
from consumers.validation import RecordValidator, ValidatedRecord
from penstock.adapters.amqp import (
    PUBLISHED_NS,
    STEP,
    AmqpDelivery,
    Link,
    PublishOutcome,
    connection_name,
    prefix,
    topic_queue,
)
from penstock.adapters.app_boards import AppBoard
from penstock.adapters.redis import REDIS_AWAY
from penstock.adapters.result_topic import ResultTopic
from penstock.apps import AppReport, JobFlow, exchange_s
from penstock.log_once import LogOnce
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem

log = logging.getLogger(__name__)

BACK_TO_BACK_NS = 20_000_000
"""Result and acknowledgement come after the service. An event that a container receives within this time after its last
deadline had been waiting: its service starts at that deadline, so that μ is that of the distribution.
"""
EARLY_S = 0.001
"""The wait for messages is exact to a millisecond: it ends this much before a deadline, the rest is slept."""
LONGEST_WAIT_S = 0.2
RETRY_S = 0.2
REPORTS_POLL_S = 0.1
FLUSH_S = 2.0


class Stop(NamedTuple):
    """A step of a job's route: its topic, the number of the job's visit there, and the next topic ("" at the end)."""

    topic: str
    visit: int
    following: str


def stops_of(system: NetworkSystem) -> dict[str, tuple[Stop, ...]]:
    """The routes of a pub/sub network: by job type, the stops by step."""
    return {
        job.job: tuple(
            Stop(topic, job.route[: step + 1].count(topic), following)
            for step, (topic, following) in enumerate(zip(job.route, (*job.route[1:], ""), strict=True))
        )
        for job in system.jobs
    }


def stop_at(stops: Sequence[Stop], step: object) -> Stop | None:
    """None for a step that the route does not have."""
    return stops[step] if isinstance(step, int) and 0 <= step < len(stops) else None


class InFlightEvent(msgspec.Struct, kw_only=True, eq=False):
    """The unacknowledged event of a container, times on the monotonic clock in ns. ``stop``: its step on its route.
    ``outstanding``: confirmations missing before it is acknowledged, 0 until it is finished. ``void``: its connection
    is lost and the broker will deliver it again.
    """

    container: "AppContainer"
    delivery: AmqpDelivery
    item: ValidatedRecord
    received_ns: int
    stop: Stop
    attempt: int = 1
    ready_ns: int = 0
    slot: Slot = Slot(0, 0)
    outstanding: int = 0
    void: bool = False


class AppContainer(msgspec.Struct, kw_only=True, eq=False):
    """One consumer with prefetch 1. ``tag``: its consumer tag, empty for none; ``leaving``: takes no further event."""

    name: str
    pacer: Pacer
    tag: str = ""
    event: InFlightEvent | None = None
    leaving: bool = False


class App:
    """The app ``replica`` of a run on ``queue``; ``topic`` in a pub/sub network. ``run`` returns after ``stop``."""

    def __init__(
        self, spec: RunSpec, replica: str, queue: str, endpoints: Endpoints, times: ServiceTimes, topic: str = ""
    ) -> None:
        self.spec = spec
        self.replica = replica
        self.meters = ServiceMeters(spec.fleet, replica)
        self._queue = queue
        self._place = topic or queue.removeprefix(prefix(spec.run))
        self._stage = topic or spec.pipeline
        self._routes = stops_of(spec.system) if isinstance(spec.system, NetworkSystem) else None
        self._times = times
        self._validator = RecordValidator(signing_key=endpoints.signing_key_bytes(), run=spec.run, worker=replica)
        self._ledger = Ledger(endpoints.require("redis"), spec.ledger_key)
        self._board = AppBoard(endpoints.require("redis"), spec.run)
        self._results = ResultTopic(endpoints.require("kafka"), spec.results_topic, replica)
        self._link = Link(
            endpoints.require("rabbitmq"),
            connection_name(spec.run, replica),
            prefetch=1,
            on_up=self._link_up,
            on_down=self._link_down,
        )
        self._containers: list[AppContainer] = []
        self._numbers = itertools.count(1)
        self._wanted = 0
        self._to_book: list[InFlightEvent] = []
        self._book_again_ns = 0
        self._serving: list[tuple[int, int, InFlightEvent]] = []
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
        """Take no more events; finish and acknowledge those in flight. May be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until ``stop``."""
        threads = [
            threading.Thread(target=target, name=target.__name__, daemon=True)
            for target in (self._exchange, self._poll_results)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._done():
                self._turn()
                if not all(thread.is_alive() for thread in threads):
                    raise RuntimeError("a thread has died, see above: without it the app cannot report")
        finally:
            self._leave(threads)

    # --- one turn ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Receive events until the next deadline, book them, finish those that are due."""
        self._resize(0 if self._stopping.is_set() else self._wanted)
        self._link.serve(self._until_next_s())
        if self._to_book:
            self._book()
        soon_ns = time.monotonic_ns() + round(EARLY_S * 1e9)
        while self._serving and self._serving[0][0] <= soon_ns:
            event = heapq.heappop(self._serving)[2]
            if not event.void:
                self._finish(event)

    def _until_next_s(self) -> float:
        due_ns = [self._serving[0][0]] if self._serving else []
        if self._to_book:
            due_ns.append(self._book_again_ns)
        if not due_ns:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, (min(due_ns) - time.monotonic_ns()) / 1e9 - EARLY_S))

    def _done(self) -> bool:
        """Stopped, and no event in flight can be finished: those that only wait for the ledger are delivered again."""
        events = [container.event for container in self._containers if container.event is not None]
        return self._stopping.is_set() and all(event in self._to_book for event in events)

    # --- containers --------------------------------------------------------------------------------------------------

    def _resize(self, wanted: int) -> None:
        """Remove the youngest first. Keep one that is leaving instead of making another."""
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
            if container.event is None:
                self._containers.remove(container)
        for _ in range(missing - len(leaving)):
            self._add_container()

    def _add_container(self) -> None:
        name = f"{self.replica}.{next(self._numbers)}"
        pacer = Pacer(0, "deterministic", seed=self.spec.seed, replica=name, back_to_back_ns=BACK_TO_BACK_NS)
        container = AppContainer(name=name, pacer=pacer)
        self._containers.append(container)
        self._consume(container)

    def _consume(self, container: AppContainer) -> None:
        """Start its consumer, unless it still has an event of a former consumer."""
        if self._link.up and not container.tag and not container.leaving and container.event is None:
            container.tag = self._link.consume(self._queue, partial(self._receive, container))

    def _link_up(self) -> None:
        for container in self._containers:
            self._consume(container)

    def _link_down(self, _: str) -> None:
        """Events with a next topic will be delivered again. Events that end here are finished all the same: a broker
        that restarts drops the oldest messages of a queue down to its bound before it applies ``reject-publish``, and
        unacknowledged ones return to a full queue. If one is delivered again, the ledger knows it.
        """
        for container in self._containers:
            container.tag = ""
            if container.event is not None and container.event.stop.following:
                container.event.void = True
                container.event = None
        self._to_book = [event for event in self._to_book if not event.void]

    # --- one event ---------------------------------------------------------------------------------------------------

    def _receive(self, container: AppContainer, delivery: AmqpDelivery) -> None:
        received_ns = time.monotonic_ns()
        self._first_ns = self._first_ns or time.time_ns()
        item = self._validator.validate(delivery.body)
        stop = Stop(self._place, 1, "")
        if self._routes is not None:
            stop, item = self._on_its_route(self._routes.get(item.job, ()), delivery, item)
        event = InFlightEvent(container=container, delivery=delivery, item=item, received_ns=received_ns, stop=stop)
        container.event = event
        self._to_book.append(event)

    def _on_its_route(
        self, stops: Sequence[Stop], delivery: AmqpDelivery, item: ValidatedRecord
    ) -> tuple[Stop, ValidatedRecord]:
        """The event's step on its route; an event without one has failed."""
        step = delivery.headers.get(STEP, 0)
        stop = stop_at(stops, step)
        if step == 0 and stop is not None and not delivery.redelivered:
            self._jobs[item.job] = _arrived(self._jobs.get(item.job, JobFlow()), delivery.published_ns)
        if stop is not None and stop.topic == self._place:
            return stop, item
        here = f"step {step!r} of job {item.job!r} is not at topic {self._place}"
        return Stop(self._place, 1, ""), msgspec.structs.replace(item, booking=None, reason=item.reason or here)

    def _book(self) -> None:
        """Book the received events that end here at once, and give each its slot. Retried while Redis is away."""
        now_ns = time.monotonic_ns()
        if now_ns < self._book_again_ns:
            return
        ending = [event for event in self._to_book if event.item.booking is not None and not event.stop.following]
        try:
            attempts = self._ledger.book([event.item.booking for event in ending if event.item.booking is not None])
        except REDIS_AWAY as error:
            log.warning("ledger is away (%s); trying again in %.2g s", error, RETRY_S)
            self._book_again_ns = time.monotonic_ns() + round(RETRY_S * 1e9)
            return
        for event, attempt in zip(ending, attempts, strict=True):
            event.attempt = attempt
        ready_ns = time.monotonic_ns()
        wall_ns = time.time_ns() - ready_ns
        for event in self._to_book:
            if event.stop.following and event.delivery.redelivered:
                event.attempt = 2
            published_ns = event.delivery.published_ns or event.item.sent_ns or 0
            floor_ns = self._times.floor_ns(event.item.id, event.stop.visit)
            event.ready_ns = ready_ns
            event.slot = event.container.pacer.next(event.received_ns, published_ns - wall_ns, floor_ns)
            heapq.heappush(self._serving, (event.slot.deadline_ns, next(self._order), event))
        self._to_book.clear()

    def _finish(self, event: InFlightEvent) -> None:
        """Its service is over: publish its Result, and the event to the next topic."""
        finished_ns = event.container.pacer.wait(event.slot, event.ready_ns)
        wall_ns = time.time_ns() - time.monotonic_ns()
        onward = bool(event.stop.following) and not event.item.reason
        result = event.item.result(
            self.spec,
            stage=self._stage,
            queue=self._place,
            worker=event.container.name,
            received_ns=event.received_ns + wall_ns,
            started_ns=event.slot.start_ns + wall_ns,
            finished_ns=finished_ns + wall_ns,
            attempt=event.attempt,
            visit=event.stop.visit,
            terminal=not onward,
        )
        service_s = (finished_ns - event.slot.start_ns) / 1e9
        self._completed += 1
        self._busy_s += service_s
        self._busy_s2 += service_s * service_s
        self.meters.served([result])
        if not onward and self._routes is not None and result.intended_ns is not None and not event.item.reason:
            response_s = (result.finished_ns - result.intended_ns) / 1e9
            flow = self._jobs.get(event.item.job, JobFlow())
            self._jobs[event.item.job] = msgspec.structs.replace(
                flow,
                finished=flow.finished + 1,
                response_s=flow.response_s + response_s,
                late=flow.late + (response_s > self.spec.slo_s),
            )
        event.outstanding = 1 + onward
        self._results.publish(result, partial(self._link.call_soon, partial(self._confirmed, event)))
        if onward:
            self._pass_on(event)

    def _pass_on(self, event: InFlightEvent) -> None:
        """Publish to the next topic; retried while its queue is full or missing (its app may not have started yet)."""
        if event.void:
            return

        def report(outcome: PublishOutcome) -> None:
            if outcome == "confirmed":
                self._confirmed(event)
            elif outcome != "lost":
                log.warning("%s does not take events (%s); trying again", event.stop.following, outcome)
                self._link.call_later(RETRY_S, partial(self._pass_on, event))

        step = int(event.delivery.headers.get(STEP, 0)) + 1
        headers = {**event.delivery.headers, STEP: step}
        headers.pop(PUBLISHED_NS, None)
        queue = topic_queue(self.spec.run, event.stop.following)
        self._link.publish(queue, event.delivery.body, report, published_ns=time.time_ns(), headers=headers)

    def _confirmed(self, event: InFlightEvent) -> None:
        """Its Result is delivered, or the event is in the next topic's queue."""
        event.outstanding -= 1
        if event.outstanding == 0 and not event.void:
            self._link.ack(event.delivery)
            event.container.event = None
            self._consume(event.container)

    # --- other threads -----------------------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Read the wanted containers, publish the report. While Redis is away both stay as they were."""
        every_s = exchange_s(self.spec.speed)
        trouble = LogOnce(log, "Redis is away (%s): the containers stay")
        while True:
            last = self._gone.wait(every_s)
            try:
                wanted = self._board.wanted(self.replica)
                if wanted is not None and wanted != self._wanted:
                    self._wanted = max(0, wanted)
                    self._link.call_soon(lambda: None)  # ends its wait
                self._board.report(self._report())
                trouble.clear()
            except REDIS_AWAY as error:
                trouble.note(error)
            if last:
                return

    def _report(self) -> AppReport:
        # ``completed`` is read first: an event that finishes between the two reads is in neither number, never in both.
        completed = self._completed
        events = [(container.tag, container.event) for container in list(self._containers)]
        return AppReport(
            replica=self.replica,
            containers=sum(bool(tag) or event is not None for tag, event in events),
            busy=sum(event is not None and not event.outstanding for _, event in events),
            completed=completed,
            busy_s=self._busy_s,
            busy_s2=self._busy_s2,
            at_ns=time.time_ns(),
            started_ns=self._started_ns,
            first_ns=self._first_ns,
            jobs=dict(self._jobs),
        )

    def _poll_results(self) -> None:
        """Poll for Kafka's delivery reports; their callbacks run in the thread that serves the link."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM or SIGINT, 2 with one line for an error that the user can correct."""
    options = parser("consumers.app", "A function app: containers on one RabbitMQ queue.")
    options.add_argument("--queue", required=True, help="AMQP queue that its containers consume")
    options.add_argument("--topic", default="", help="topic of a pub/sub network that the queue belongs to")
    given = options.parse_args(arguments)

    def make(directory: RunDirectory, endpoints: Endpoints) -> App:
        spec = directory.spec()
        schedule = Schedule.read(directory.schedule_file) if given.topic else None
        times = service_times(spec, given.topic, schedule)
        return App(spec, given.replica, given.queue, endpoints, times, given.topic)

    return run_process(given, make)


if __name__ == "__main__":
    sys.exit(main())
