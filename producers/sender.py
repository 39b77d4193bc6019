"""The open-loop sender: every event leaves at its intended time, or as soon after as can be; none is skipped.

One thread sends, encodes ahead while it has time, and serves delivery reports. Whatever holds it up shows as send
delay against the schedule, which never moves: that is what makes latencies measured from intended times honest.
"""

import gc
import sys
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from penstock.adapters import kafka
from penstock.adapters.kafka import KafkaError, KafkaException, Message, Producer
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from producers.delivery import DeliveryLog
from producers.encoding import SignedRecord, signed_records
from producers.shard import WHOLE, Shard

AHEAD = 65_536
"""Records kept encoded and signed ahead of their time; some 50 MB. Most runs are signed before they start."""
LOT = 64
"""Events that are handed over, or encoded ahead, between two looks at the clock and two services of delivery reports;
well below a millisecond.
"""
SPARE_NS = 2_000_000
"""Time before the next event below which the sender neither encodes nor waits inside the client library."""
SWITCH_INTERVAL_S = 0.0005
"""How long a metrics scrape may keep the interpreter from the sending thread at a time; the default is 5 ms."""
LONGEST_WAIT_NS = 100_000_000
"""A stop is noticed this soon."""
STOP_WAIT_S = 30.0
"""After a stop, how long outstanding reports are waited for."""

WITHDRAWN = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""Errors of events that were withdrawn from a client."""

Report = Callable[[KafkaError | None, Message], None]
"""Callback of the client library with the outcome of one event."""


BUSY_PER_S = 5_000
"""Peak rate above which requests to the broker, not their delay, are what to save."""

CLIENT = {
    "acks": "all",
    "enable.idempotence": True,
    # A broker that is away for half a minute costs lateness, not events.
    "delivery.timeout.ms": 300_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "retry.backoff.ms": 50,
    "log.connection.close": False,
}


def make_producer(bootstrap: str, schedule: Schedule) -> Producer:
    """The client as the sender wants it: nothing acknowledged is lost, nothing doubled, long outages are sat out.

    Where many events a second are to come, one waits a little longer for others to share a request with.
    """
    busy = schedule.arrivals_per_second().max(initial=0) > BUSY_PER_S
    return kafka.make_producer(bootstrap, client_id="penstock-sender", linger_ms=5 if busy else 1, **CLIENT)


class Sender:
    """Sends one run's schedule, or a shard of it. ``log`` has the outcome of every event, also during sending.

    ``producer``: confluent_kafka's, or a client with ``produce``, ``produce_batch``, ``poll``, ``flush``, ``purge``.
    ``renew``: makes another one in place of one that has lost its broker; ``stall`` tells it.
    """

    def __init__(
        self,
        spec: RunSpec,
        schedule: Schedule,
        signing_key: bytes,
        producer: Any,
        shard: Shard = WHOLE,
        *,
        renew: Callable[[], Any] | None = None,
        stall: kafka.Stall | None = None,
    ) -> None:
        self.log = DeliveryLog(spec, schedule, shard)
        self.stopped = False
        self._topic = spec.events_topic
        self._producer = producer
        self._renew, self._stall = renew, stall
        self._acknowledged = self._acknowledged_before = 0
        self._intended_ns = self.log.intended_ns.data
        self._partition = self.log.partition.data
        report = self._recorder()
        self._records: Iterator[tuple[SignedRecord, Report]] = (
            (record, partial(report, row))
            for row, record in enumerate(signed_records(spec, schedule, signing_key, shard))
        )
        self._ahead: deque[tuple[SignedRecord, Report]] = deque()
        self._spent: list[list[tuple[SignedRecord, Report]]] = []

    def check_topic(self, timeout_s: float = 10.0) -> None:
        """Connect to the broker ahead of the first event. Raises PenstockError if it or a partition is not there."""
        needed = int(self.log.partition.max(initial=0)) + 1
        until_s = time.monotonic() + timeout_s
        with kafka.broker_errors(remedy=": is it up? `penstock up` starts it"):
            # A topic that was just created may not be known to the broker yet.
            while (found := len(kafka.partitions_of(self._producer, self._topic, timeout_s))) < needed:
                if time.monotonic() > until_s or found > 0:
                    raise PenstockError(
                        f"topic {self._topic} has {found} partitions, the schedule needs {needed}: "
                        "create it before the sender starts"
                    )
                time.sleep(0.05)

    def run(self) -> None:
        """Send everything at its time, then wait until every event sent has its delivery report."""
        with _undisturbed():
            while self.log.reached < len(self.log) and not self.stopped:
                if not self._send_lot():
                    self._send_due()
                self._poll(0)
                self._use_spare_time()
        self._collect_reports()

    def stop(self) -> None:
        """Send nothing more. May be called from a signal handler."""
        self.stopped = True

    def _send_lot(self) -> bool:
        """Send as many events as delivery reports are served after, if that many are due; whether they were. They share
        one look at the clock, which is what a burst costs least with: the last of a lot leaves some 150 µs after
        its recorded time. Events refused by a full client queue are sent after the accepted ones.
        """
        log, ahead = self.log, self._ahead
        first, end = log.reached, log.reached + LOT
        if end > len(log) or self._intended_ns[end - 1] > time.time_ns():
            return False
        if len(ahead) < LOT:
            self._encode_ahead()
            self._spent.clear()
        lot = [ahead.popleft() for _ in range(LOT)]
        self._spent.append(lot)  # to free four objects an event takes a tenth of a burst's time, and can wait
        sending_ns = time.time_ns()
        sent = b"%d" % sending_ns
        messages: list[dict[str, Any]] = []
        # The client library (2.16) overlooks a partition that a message of a batch names.
        by_partition: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for ((key, head, tail), reported), partition in zip(lot, self._partition[first:end], strict=True):
            message = {"value": head + sent + tail, "key": key, "callback": reported}
            messages.append(message)
            by_partition[partition].append(message)
        log.sent_ns[first:end] = array("q", (sending_ns,)) * LOT
        produce = self._producer.produce_batch
        if sum(produce(self._topic, those, partition) for partition, those in by_partition.items()) < LOT:
            refused = [number for number, message in enumerate(messages) if "_error" in message]
            for number in refused:
                log.sent_ns[first + number] = 0
            for number in refused:
                self._send(first + number, *lot[number])
        log.reached = end
        return True

    def _send_due(self) -> None:
        """Send every event whose time has come, up to the number after which delivery reports want to be served."""
        # At 100,000 events/s every look-up by name shows: what the loop needs is bound once.
        log, ahead, now_ns, produce = self.log, self._ahead, time.time_ns, self._producer.produce
        topic, partition, intended_ns, sent_ns = self._topic, self._partition, self._intended_ns, log.sent_ns
        for row in range(log.reached, min(log.reached + LOT, len(log))):
            if (sending_ns := now_ns()) < intended_ns[row]:
                return
            if ahead:
                record, reported = ahead.popleft()
            else:
                record, reported = next(self._records)
                sending_ns = now_ns()
            try:
                produce(topic, record.value(sending_ns), record.key, partition[row], reported)
            except (BufferError, KafkaException):
                self._send(row, record, reported)
            else:
                sent_ns[row] = sending_ns
            if self.stopped:
                return
            log.reached = row + 1

    def _send(self, row: int, record: SignedRecord, reported: Report) -> None:
        """Hand over an event that was refused. A full client queue holds it and its successors up; none is dropped."""
        partition = self._partition[row]
        while True:
            sent_ns = time.time_ns()
            try:
                self._producer.produce(self._topic, record.value(sent_ns), record.key, partition, reported)
            except BufferError:
                self._poll(0.01)
                if self.stopped:
                    return
            except KafkaException as error:
                self.log.errors[row] = kafka.reason(error)
                return
            else:
                self.log.sent_ns[row] = sent_ns
                return

    def _use_spare_time(self) -> None:
        """Until the next event is due: encode ahead, serve delivery reports, sleep the rest in one piece."""
        while self.log.reached < len(self.log) and not self.stopped:
            left_ns = self._intended_ns[self.log.reached] - time.time_ns()
            if left_ns <= 0:
                return
            if left_ns <= SPARE_NS:
                time.sleep(left_ns / NANOS_PER_SECOND)
            elif self._spent:
                self._spent.pop()
            elif len(self._ahead) >= AHEAD or not self._encode_ahead():
                self._poll(min(left_ns - SPARE_NS, LONGEST_WAIT_NS) / NANOS_PER_SECOND)
            else:
                self._poll(0)

    def _encode_ahead(self) -> bool:
        """Make a few more records; whether there were any left to make."""
        before = len(self._ahead)
        self._ahead.extend(islice(self._records, LOT))
        return len(self._ahead) > before

    def _collect_reports(self) -> None:
        """Wait for outstanding delivery reports; each comes at the client's time-out at the latest.

        After a stop the wait is short. What is still unreported then is withdrawn, so that nothing reaches the broker
        after its event was written down as never sent.
        """
        give_up_s: float | None = None
        while self._producer.flush(0.2):
            self._poll(0)
            if self.stopped:
                give_up_s = give_up_s or time.monotonic() + STOP_WAIT_S
                if time.monotonic() > give_up_s:
                    self._producer.purge()
                    self._producer.flush(1.0)
                    return

    def _poll(self, timeout_s: float) -> None:
        """Serve delivery reports, and replace a client that has lost its broker."""
        self._producer.poll(timeout_s)
        if self._stall is None:
            return
        if self._acknowledged > self._acknowledged_before or not len(self._producer):
            self._acknowledged_before = self._acknowledged
            self._stall.over()
        elif self._renew is not None and self._stall.is_lost():
            lost, self._producer = self._producer, self._renew()
            lost.purge()
            lost.flush(1.0)  # reports all as withdrawn, so that they are sent again

    def _recorder(self) -> Callable[[int, KafkaError | None, Message], None]:
        """The callback that writes an event's delivery report into the log. What was withdrawn from a lost client is
        handed to the new one as it was: it may then be twice in the topic, as after any retry without idempotence.
        """
        log = self.log
        acked_ns, offsets, now_ns = log.acked_ns, log.offset, time.time_ns

        def reported(row: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                if error.code() in WITHDRAWN and not self.stopped:
                    self._send_again(row, message, partial(reported, row))
                else:
                    log.errors[row] = error.str()
                return
            self._acknowledged += 1
            acked_ns[row] = now_ns()
            offset = message.offset()
            if offset is not None:
                offsets[row] = offset

        return reported

    def _send_again(self, row: int, message: Message, reported: Report) -> None:
        try:
            self._producer.produce(self._topic, message.value(), message.key(), self._partition[row], reported)
        except (BufferError, KafkaException) as error:
            self.log.errors[row] = f"not sent again: {error}"


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Neither the garbage collector nor another thread may hold the sending thread up for long.

    Sending makes no reference cycles, so there is nothing to collect meanwhile.
    """
    interval_s, collecting = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        if collecting:
            gc.enable()
