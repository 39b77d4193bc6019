"""What can be said of one record before it is booked: readable, signed, valid, how risky. Bad input never raises."""

import time
from typing import Any

import msgspec

from consumers.ledger import Booking
from consumers.payment import InvalidPaymentError, check, score
from penstock.records import event_decoder
from penstock.signing import Signer


class Examination(msgspec.Struct, frozen=True):
    """``booking`` for a good payment, else ``reason``. Times in ns since the epoch; None where unreadable."""

    id: int | None = None
    intended_ns: int | None = None
    sent_ns: int | None = None
    deadline_ns: int | None = None
    booking: Booking | None = None
    reason: str = ""


class Examiner:
    """Examines the records of one run on behalf of one worker."""

    def __init__(self, *, signing_key: bytes, run: str, worker: str) -> None:
        self._signer = Signer(signing_key, run)
        self._worker = worker

    def examine(self, record: Any) -> Examination:
        """Read, verify, validate and score the event in a consumer record."""
        try:
            event = event_decoder.decode(record.value or b"")
        except msgspec.DecodeError as error:
            return Examination(reason=f"unreadable: {error}")
        known = event.id if event.run == self._signer.run else None
        try:
            payment = check(event, self._signer)
        except InvalidPaymentError as error:
            return Examination(known, event.intended_ns, event.sent_ns, event.deadline_ns, reason=str(error))
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
        return Examination(known, event.intended_ns, event.sent_ns, event.deadline_ns, booking)
