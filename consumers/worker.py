"""One replica of a stream fleet: takes payments from its partitions, books them in the ledger, publishes results.

At least once towards the broker (an offset is committed once its result is delivered), exactly once in the ledger. Run
as ``python -m consumers.worker --run DIR --replica NAME`` with the endpoints in the environment.
"""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from consumers.assignor import PlanAssignor
from consumers.commit_tracker import CommitTracker
from consumers.group import GroupConsumer, Offsets
from consumers.ledger import Ledger
from consumers.membership import Counts, Membership
from consumers.meters import Meters
from consumers.pacing import Pacer
from consumers.process import parser, run_process
from consumers.validation import RecordValidator, ValidatedRecord
from penstock.adapters.redis import REDIS_AWAY
from penstock.errors import PenstockError
from penstock.records import Result
from penstock.runspec import RunSpec
from penstock.settings import Endpoints

log = logging.getLogger(__name__)

STAGE = "payment"
IDLE_MS = 50
DELIVERIES = 15
"""Deliveries to an idle worker that the reported median is of."""
ANNOUNCE_S = 0.01
SETTLE_S = 2.0
FIRST_COMMIT_S = 0.5
BACKOFF_S = (0.05, 1.0)
LINGER_MS = 5


class StoppedError(Exception):
    """SIGTERM came while a service was away: events in progress stay uncommitted and are delivered again."""


class Worker:
    """The replica ``name`` of the run ``spec``. ``run`` returns after ``stop``."""

    def __init__(self, spec: RunSpec, name: str, endpoints: Endpoints) -> None:
        if spec.worker.heartbeat_s >= spec.worker.session_timeout_s:
            raise PenstockError(
                f"heartbeat_s {spec.worker.heartbeat_s:g} must be less than session_timeout_s "
                f"{spec.worker.session_timeout_s:g}: a member that is silent for a session is thrown out of the group"
            )
        self.spec = spec
        self.name = name
        self._stopping = threading.Event()
        self.meters = Meters(spec.fleet, name, spec.slo_s)
        self._validator = RecordValidator(signing_key=endpoints.signing_key_bytes(), run=spec.run, worker=name)
        self._ledger = Ledger(endpoints.require("redis"), spec.ledger_key)
        # Under a service floor results come one by one; a request each would cost more than the payment.
        linger_ms = LINGER_MS if spec.worker.service_time_s else 0
        self._tracker = CommitTracker(endpoints.require("kafka"), spec.results_topic, name, linger_ms)
        self._pacer = Pacer(spec.worker.service_time_s, spec.worker.service_law, seed=spec.seed, replica=name)
        self._assignor = PlanAssignor(
            endpoints.controller, spec.group, name, on_fallback=lambda _: self.meters.fell_back_to_range()
        )
        self._membership = Membership(
            endpoints.controller,
            spec.group,
            self._assignor,
            rejoin=lambda: self._consumer.request_rejoin(),
            may_ask=lambda: self._joined and (spec.worker.directed_rebalance or bool(self._consumer.is_leader)),
            counts=self._counts,
        )
        self._count_every_s = 1.0 / spec.speed
        self._counted_at = 0.0
        self._bootstrap = endpoints.require("kafka")
        self._consumer: Any = None
        self._commit: tuple[Any, Offsets] | None = None
        self._commit_interval_ns = round(spec.worker.commit_interval_s * 1e9)
        self._committed_ns = 0
        self._joined = False
        self._announcing = threading.Thread()
        self._first_event_reported = False
        self._sources = [TopicPartition(spec.events_topic, partition) for partition in range(spec.partitions)]
        self._unseen: set[TopicPartition] = set()
        self._assigned_at = 0.0
        self._stopped_at_ns: int | None = None
        self._resumed_at_ns: int | None = None
        self._stalled_ns = 0
        self._deliveries_ns: deque[int] = deque(maxlen=DELIVERIES)

    def stop(self) -> None:
        """Finish the event in progress, commit, leave the group. May be called from a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Work until ``stop``."""
        self._membership.report("started")
        try:
            self._consumer = self._connect()
            while not self._stopping.is_set():
                self._turn()
        except StoppedError:
            log.info("stopped while a service was away")
        finally:
            self._leave()

    # --- one turn: take records, then work or settle -----------------------------------------------------------------

    def _turn(self) -> None:
        try:
            records = self._take()
        except KafkaError as error:
            log.warning("poll: %s", error)
            self._stopping.wait(BACKOFF_S[0])
            return
        if records:
            self._serve(records)
        if self._joined and (now := time.monotonic()) - self._counted_at >= self._count_every_s:
            self._counted_at = now
            self._membership.report_counts()
        if self._unseen and (not records or time.monotonic() - self._assigned_at > FIRST_COMMIT_S):
            self._commit_first_positions()

    def _take(self) -> list[Any]:
        """Records to work on now. Outstanding results are settled before the worker waits for more."""
        most = self.spec.worker.commit_every
        if self._tracker.unsettled and (records := self._consumer.take(most, 0)):
            return list(records)
        self._settle(time.monotonic_ns() + round(SETTLE_S * 1e9), at_once=True)
        if not self._joined and not self._announcing.is_alive():
            self._announcing = threading.Thread(target=self._announce, name="announcer", daemon=True)
            self._announcing.start()
        return list(self._consumer.take(most, IDLE_MS))

    def _announce(self) -> None:
        """Report once the request to join waits at the broker: the controller can have the other members rejoin."""
        while not self._joined and not self._stopping.wait(ANNOUNCE_S):
            if self._consumer.waiting_to_join:
                self._membership.report("joining")
                return

    def _serve(self, records: Sequence[Any]) -> None:
        """Work on a chunk of records: validate and book all, then give each its slot and publish its result. Results
        are published one by one where there is a service floor to wait for, else together.
        """
        received_ns = time.monotonic_ns()
        wall_ns = time.time_ns() - received_ns
        work = [self._validator.validate(record.value) for record in records]
        sent_ns, free_ns = (work[0].sent_ns or 0) - wall_ns, self._pacer.free_ns
        stopped = self._end_stop(received_ns, sent_ns)
        attempts = self._book(work)
        slot = self._pacer.next(received_ns, sent_ns)
        if not stopped and 0 < sent_ns <= free_ns:
            self._stalled_ns += slot.start_ns - free_ns
        elif free_ns < sent_ns and work[0].intended_ns is not None:
            self._deliveries_ns.append(slot.start_ns + wall_ns - work[0].intended_ns)
        self._settle(
            slot.deadline_ns
        )  # the delivery reports of the chunk before arrive within this one's first service time
        done: list[tuple[Any, Result]] = []
        for index, (record, item, attempt) in enumerate(zip(records, work, attempts, strict=True)):
            if index > 0:
                slot = self._pacer.following()
                if self._pacer.waits(slot):
                    self._publish(done)
            finished_ns = self._pacer.wait(slot)
            result = item.result(
                self.spec,
                stage=STAGE,
                queue=f"{self.spec.fleet}/{record.partition}",
                worker=self.name,
                attempt=attempt,
                broker_ns=record.timestamp * 1_000_000 if record.timestamp_type == 1 else None,
                received_ns=received_ns + wall_ns,
                started_ns=slot.start_ns + wall_ns,
                finished_ns=finished_ns + wall_ns,
            )
            done.append((record, result))
            if self._stopping.is_set():
                break
        self._publish(done)
        self._tracker.throttle(lambda: not self._stopping.is_set())

    def _book(self, work: Sequence[ValidatedRecord]) -> list[int]:
        """Book the valid payments. Retries while Redis is away and keeps the group's heartbeats going. Returns the
        attempt of each record, 1 for an invalid one.
        """
        bookings = [item.booking for item in work if item.booking is not None]
        delay_s = BACKOFF_S[0]
        while True:
            try:
                attempts = iter(self._ledger.book(bookings))
                return [1 if item.booking is None else next(attempts) for item in work]
            except REDIS_AWAY as error:
                log.warning("ledger is away (%s); trying again in %.2g s", error, delay_s)
            if self._stopping.wait(delay_s):
                raise StoppedError
            delay_s = min(2 * delay_s, BACKOFF_S[1])

    def _publish(self, done: list[tuple[Any, Result]]) -> None:
        """Publish the results; ``done`` is empty afterwards."""
        for record, result in done:
            source = self._sources[record.partition]
            self._tracker.publish(source, record.offset, result)
        self.meters.served([result for _, result in done])
        if self._unseen:
            self._unseen.difference_update(self._sources[record.partition] for record, _ in done)
        done.clear()
        if not self._first_event_reported:
            self._first_event_reported = True
            self._membership.report("first-event", self._held())

    # --- commits -----------------------------------------------------------------------------------------------------

    def _settle(self, until_ns: int, *, at_once: bool = False) -> None:
        """Collect delivery reports until the deadline and commit the delivered events, unless the last commit is more
        recent than the interval (``at_once``: also then). One commit at a time: a connection takes a few requests only,
        fetches and heartbeats included.
        """
        self._tracker.collect(until_ns)
        if self._commit is not None:
            future, offsets = self._commit
            if not future.is_done:
                return
            self._commit = None
            if future.failed():
                log.warning("commit: %s", future.exception)
                self._tracker.restore(offsets)
        now_ns = time.monotonic_ns()
        if not at_once and now_ns - self._committed_ns < self._commit_interval_ns:
            return
        if offsets := self._tracker.committable():
            self._committed_ns = now_ns
            future = self._consumer.commit_soon(offsets)
            if future is None:
                self._tracker.restore(offsets)
            else:
                self._commit = future, offsets

    def _commit_first_positions(self) -> None:
        unseen, self._unseen = self._unseen, set()
        try:
            self._consumer.commit_first_positions(unseen)
        except KafkaError as error:
            log.warning("first commit: %s", error)

    # --- the group ---------------------------------------------------------------------------------------------------

    def _connect(self) -> GroupConsumer:
        """A consumer with a connection to the broker, retried while the broker is away."""
        while not self._stopping.is_set():
            try:
                return GroupConsumer(
                    bootstrap=self._bootstrap,
                    client_id=self.name,
                    group=self.spec.group,
                    topic=self.spec.events_topic,
                    worker=self.spec.worker,
                    assignor=self._assignor,
                    on_revoke=self._revoked,
                    on_uncommitted=self._tracker.restore,
                    on_lost=self._lost,
                    on_assign=self._assigned,
                )
            except KafkaError as error:
                log.warning("broker %s is away: %s", self._bootstrap, error)
                self._stopping.wait(BACKOFF_S[1])
        raise StoppedError

    def _revoked(self) -> Offsets:
        """Committable offsets, after a short wait for results in flight. No event is taken from here to the next
        assignment.
        """
        self._end_stop()
        if self._joined and self._stopped_at_ns is None:
            self._stopped_at_ns = time.monotonic_ns()
        self._tracker.collect(time.monotonic_ns() + round(SETTLE_S * 1e9))
        return self._tracker.committable()

    def _lost(self) -> None:
        self._joined = False
        self._stopped_at_ns = self._resumed_at_ns = None
        self._tracker.keep(())

    def _assigned(self, sources: set[TopicPartition]) -> None:
        self._joined = True
        self._assigned_at = time.monotonic()
        self._tracker.keep(sources)
        self._unseen = set(sources)
        self.meters.rebalanced(len(sources))
        partitions = sorted(source.partition for source in sources)
        log.info("generation %d, plan %d: partitions %s", self._assignor.generation, self._assignor.epoch, partitions)
        self._membership.report("joined", partitions)
        if self._stopped_at_ns is not None:  # None for its first assignment
            self._resumed_at_ns = time.monotonic_ns() + round(self.spec.worker.rebalance_pause_s * 1e9)
        self._membership.assigned()

    def _leave(self) -> None:
        """Report it, commit, leave the group. Each step is tried even if the one before failed."""
        self._membership.report("leaving", self._held())
        if self._consumer is not None:
            try:
                self._consumer.close(timeout_ms=round(SETTLE_S * 1000))
            except KafkaError as error:
                log.warning("leaving the group: %s", error)
        self._membership.report("left")
        self._membership.close(timeout_s=1.0)
        self._ledger.close()

    def _end_stop(self, received_ns: int = 0, sent_ns: int = 0) -> bool:
        """Report how long the last rebalance stopped this member, if that was not reported yet: until the first event
        after it, if that had waited for it, or until it was over. Whether it had to be reported.
        """
        if self._stopped_at_ns is None or self._resumed_at_ns is None:
            return False
        waited = received_ns > self._resumed_at_ns > sent_ns
        self._membership.report_again((received_ns if waited else self._resumed_at_ns) - self._stopped_at_ns)
        self._stopped_at_ns = self._resumed_at_ns = None
        return True

    def _counts(self) -> Counts | None:
        if not self.spec.reads_arrivals:
            return None
        meters, deliveries_ns = self.meters, tuple(self._deliveries_ns)
        delivery_ns = round(median(deliveries_ns)) if deliveries_ns else None
        return Counts(meters.finished, meters.late, meters.busy_ns + self._stalled_ns, delivery_ns)

    def _held(self) -> list[int]:
        return [] if self._consumer is None else [source.partition for source in self._consumer.assignment()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM or SIGINT, 2 with one line for an error that the user can correct."""
    given = parser("consumers.worker", "One replica of a stream fleet.", in_pods=True).parse_args(arguments)
    logging.getLogger("kafka").setLevel(logging.WARNING)
    for chatty in ("kafka.net", "kafka.cluster"):  # log each attempt while the broker is away; the coordinator does too
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    return run_process(given, lambda directory, endpoints: Worker(directory.spec(), given.replica, endpoints))


if __name__ == "__main__":
    sys.exit(main())
