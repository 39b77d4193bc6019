"""Wire records: what is signed, and what survives the wire."""

import msgspec
import pytest

from penstock.records import Event, Result, encode, event_decoder, result_decoder, sign, verify

KEY = bytes(range(32))
PAYLOAD = msgspec.Raw(b'{"account":"a-1","merchant":"m-9","amount_cents":1999,"currency":"EUR","country":"DE"}')


def signed(**changes: object) -> Event:
    event = Event(
        id=5, run="r", pipeline="payments", key="a-1", intended_ns=1, sent_ns=2, payload=PAYLOAD,
        mac=sign(KEY, run="r", event_id=5, payload=PAYLOAD), deadline_ns=9,
    )  # fmt: skip
    return msgspec.structs.replace(event, **changes)


def test_an_event_verifies_after_the_wire_because_its_payload_stays_the_signed_text() -> None:
    received = event_decoder.decode(encode(signed()))
    assert verify(KEY, received)
    assert bytes(received.payload) == bytes(PAYLOAD)


@pytest.mark.parametrize(
    "changes",
    [{"id": 6}, {"run": "other"}, {"payload": msgspec.Raw(b'{"amount_cents":1}')}, {"mac": "0" * 64}, {"mac": ""}],
    ids=lambda changes: next(iter(changes)),
)
def test_an_altered_or_replayed_event_does_not_verify(changes: dict[str, object]) -> None:
    assert not verify(KEY, signed(**changes))


def test_a_result_survives_the_wire_with_unknown_fields_unknown() -> None:
    result = Result(
        id=None, run="r", pipeline="payments", stage="payments", outcome="failed", queue="payments/3",
        intended_ns=None, sent_ns=None, received_ns=1, started_ns=2, finished_ns=3, worker="w", reason="not JSON",
    )  # fmt: skip
    assert result_decoder.decode(encode(result)) == result
