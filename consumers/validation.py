"""Validation of a record before it is booked: readable, signed, valid, risk score. Bad input never raises."""

import time

import msgspec

from consumers.ledger import Booking
from consumers.payment import InvalidPaymentError, check, score
from penstock.records import Result, event_decoder, read_record
from penstock.runspec import RunSpec
from penstock.signing import Signer


class ValidatedRecord(msgspec.Struct, frozen=True):
    """``booking`` for a good payment, else ``reason``. Times in ns since the epoch; None where unreadable. ``job``: the
    event's job type, where a run has several.
    """

    id: int | None = None
    intended_ns: int | None = None
    sent_ns: int | None = None
    deadline_ns: int | None = None
    booking: Booking | None = None
    reason: str = ""
    job: str = ""

    def result(
        self,
        spec: RunSpec,
        *,
        stage: str,
        queue: str,
        worker: str,
        received_ns: int,
        started_ns: int,
        finished_ns: int,
        attempt: int = 1,
        broker_ns: int | None = None,
        visit: int = 1,
        terminal: bool = True,
    ) -> Result:
        """The Result of this event at one stage: completed, or failed for its reason."""
        return Result(
            id=self.id,
            run=spec.run,
            pipeline=spec.pipeline,
            stage=stage,
            outcome="failed" if self.reason else "completed",
            queue=queue,
            intended_ns=self.intended_ns,
            sent_ns=self.sent_ns,
            broker_ns=broker_ns,
            deadline_ns=self.deadline_ns,
            received_ns=received_ns,
            started_ns=started_ns,
            finished_ns=finished_ns,
            worker=worker,
            visit=visit,
            attempt=attempt,
            terminal=terminal,
            reason=self.reason,
        )


class RecordValidator:
    """Validates the records of one run for one worker."""

    def __init__(self, *, signing_key: bytes, run: str, worker: str) -> None:
        self._signer = Signer(signing_key, run)
        self._worker = worker

    def validate(self, value: bytes | None) -> ValidatedRecord:
        """Read, verify, validate and score the event in a record's value."""
        try:
            event = read_record(event_decoder, value)
        except msgspec.DecodeError as error:
            return ValidatedRecord(reason=f"unreadable: {error}")
        known = event.id if event.run == self._signer.run else None
        booking, reason = None, ""
        try:
            payment = check(event, self._signer)
        except InvalidPaymentError as error:
            reason = str(error)
        else:
            risk = score(payment)
            booking = Booking(
                id=event.id,
                account=payment.account,
                amount_cents=payment.amount_cents,
                currency=payment.currency,
                risk=risk.score,
                review=risk.review,
                worker=self._worker,
                at_ns=time.time_ns(),
            )
        times_ns = event.intended_ns, event.sent_ns, event.deadline_ns
        return ValidatedRecord(known, *times_ns, booking=booking, reason=reason, job=event.job)
