"""Signed records, made ahead of their intended time: only the moment of sending is filled in when they are sent."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from penstock.clock import NANOS_PER_SECOND
from penstock.records import Event, encode
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.signing import Signer
from penstock.systems import NetworkSystem
from producers.payments import payments
from producers.shard import WHOLE, Shard

_UNSENT = b'"sent_ns":0'
_SENT = b'"sent_ns":'


class SignedRecord(NamedTuple):
    """An event's JSON text before and after the value of ``sent_ns``, which the signature does not cover."""

    key: bytes
    head: bytes
    tail: bytes

    def value(self, sent_ns: int) -> bytes:
        """The wire record of the event, sent at ``sent_ns``."""
        return self.head + b"%d" % sent_ns + self.tail


def signed_records(
    spec: RunSpec, schedule: Schedule, signing_key: bytes, shard: Shard = WHOLE
) -> Iterator[SignedRecord]:
    """The record of each event of a run whose ``start_ns`` is set, or of those of a shard of them, in the schedule's
    order, made when asked for. In a pub/sub network the schedule's column ``partition`` is the job type.
    """
    deadline_after_ns = round(spec.slo_s * NANOS_PER_SECOND)
    signer = Signer(signing_key, spec.run)
    offsets_ns = schedule.intended_offset_ns.data
    jobs = [job.job for job in spec.system.jobs] if isinstance(spec.system, NetworkSystem) else []
    for event_id, payment in islice(enumerate(payments(schedule, spec.seed)), shard.number, None, shard.of):
        intended_ns = spec.start_ns + offsets_ns[event_id]
        payload = encode(payment)
        event = Event(
            id=event_id,
            run=spec.run,
            pipeline=spec.pipeline,
            key=payment.account,
            intended_ns=intended_ns,
            sent_ns=0,
            payload=msgspec.Raw(payload),
            mac=signer.sign(event_id, payload),
            deadline_ns=intended_ns + deadline_after_ns,
            job=jobs[schedule.partition[event_id]] if jobs else "",
        )
        # The payload comes after sent_ns and the names before it are ours, so the first match is the field itself.
        head, _, tail = encode(event).partition(_UNSENT)
        yield SignedRecord(payment.account.encode(), head + _SENT, tail)
