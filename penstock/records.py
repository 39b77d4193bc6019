"""Wire records: what producers send and what workers publish. JSON on the wire, versioned.

Times are wall-clock nanoseconds since the Unix epoch as int64. An event's ``id`` is its row in the run's
schedule, so that (run, id) is unique and every count can be taken by distinct id.
"""

from typing import Annotated, Literal, TypeVar

import msgspec

SCHEMA_VERSION = 1

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""An integer that the columns of results can hold. msgspec reads integers of any length."""
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An integer of a small column."""

Outcome = Literal["completed", "failed", "rejected", "dead-lettered"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One payment, document or matrix request.

    ``payload`` stays the JSON text that was signed, so that verifying never depends on how it is encoded again.
    ``deadline_ns`` is absolute. ``job`` names the job type where a run has several. ``sent_ns`` is when the sender
    handed it to the client library, ``intended_ns`` when the schedule wanted it to.
    """

    id: Int64
    run: str
    pipeline: str
    key: str
    intended_ns: Int64
    sent_ns: Int64
    payload: msgspec.Raw
    mac: str
    deadline_ns: Int64 | None = None
    job: str = ""
    schema: Int64 = SCHEMA_VERSION


class Payment(msgspec.Struct, frozen=True):
    """The payload of the pipeline ``payments``. Amounts are integer cents; ``currency`` is an ISO 4217 code."""

    account: str
    merchant: str
    amount_cents: int
    currency: str
    country: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker publishes when one stage of an event ends.

    ``broker_ns`` only where the broker gives its own time stamp (Kafka: millisecond resolution). ``attempt`` is 2 or
    more where the ledger already knew the event. ``event_id`` of something that could not even be read is None; such
    results carry ``reason`` and are counted apart.
    """

    id: Int64 | None
    run: str
    pipeline: str
    stage: str
    outcome: Outcome
    queue: str
    intended_ns: Int64 | None
    sent_ns: Int64 | None
    received_ns: Int64
    started_ns: Int64
    finished_ns: Int64
    worker: str
    broker_ns: Int64 | None = None
    deadline_ns: Int64 | None = None
    visit: Int32 = 1
    attempt: Int32 = 1
    terminal: bool = True
    reason: str = ""
    schema: Int32 = SCHEMA_VERSION


def rejected(
    event: Event | None, *, run: str, pipeline: str, queue: str, at_ns: int, worker: str = "", reason: str = ""
) -> Result:
    """The Result of an event that found its queue full at ``at_ns``. ``event`` None: it could not be read."""
    return Result(
        id=event.id if event else None,
        run=run,
        pipeline=pipeline,
        stage=pipeline,
        outcome="rejected",
        queue=queue,
        intended_ns=event.intended_ns if event else None,
        sent_ns=event.sent_ns if event else None,
        received_ns=at_ns,
        started_ns=at_ns,
        finished_ns=at_ns,
        worker=worker,
        deadline_ns=event.deadline_ns if event else None,
        reason=reason,
    )


encode = msgspec.json.Encoder().encode
"""JSON text of a wire record."""
event_decoder = msgspec.json.Decoder(Event)
payment_decoder = msgspec.json.Decoder(Payment)
result_decoder = msgspec.json.Decoder(Result)

RecordT = TypeVar("RecordT")


def read_record(decoder: "msgspec.json.Decoder[RecordT]", value: "bytes | msgspec.Raw | None") -> RecordT:
    """A record of anybody's bytes. Raises msgspec.DecodeError for all that is none; the decoder itself has errors of
    other kinds for text that is not UTF-8 and for deep nesting.
    """
    try:
        return decoder.decode(value or b"")
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def read_result(value: "bytes | None") -> Result:
    """A record of the results topic, on which anybody with access to the broker can write. What is no Result becomes a
    rejection of no run and no event, which is counted apart.
    """
    try:
        return read_record(result_decoder, value)
    except msgspec.DecodeError as error:
        return rejected(None, run="", pipeline="", queue="", at_ns=0, reason=f"not a result: {error}")
