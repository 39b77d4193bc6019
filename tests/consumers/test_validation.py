"""Validation of hostile records: never an error, and nothing is booked that the holder of the key has not signed."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from consumers.validation import RecordValidator
from penstock.records import Event, Payment, encode, event_decoder
from penstock.runspec import RunSpec, ScalerSpec
from penstock.signing import Signer
from tests.support.mutations import mutations

KEY = b"k" * 32
RUN = "run"
PAYMENT = Payment(account="a", merchant="m", amount_cents=100, currency="EUR", country="DE")


def signed() -> bytes:
    """A good payment on the wire."""
    payload = msgspec.Raw(encode(PAYMENT))
    mac = Signer(KEY, RUN).sign(7, payload)
    return encode(
        Event(id=7, run=RUN, pipeline="payments", key="a", intended_ns=1, sent_ns=2, payload=payload, mac=mac)
    )


GOOD = signed()
VALIDATOR = RecordValidator(signing_key=KEY, run=RUN, worker="w")
SPEC = RunSpec(run=RUN, experiment="e", world="local", scaler=ScalerSpec(name="linear"), slo_s=0.5, duration_s=1.0)


def test_a_signed_payment_is_booked() -> None:
    assert VALIDATOR.validate(GOOD).booking is not None


@given(value=st.none() | st.binary(max_size=400) | mutations(GOOD))
def test_whatever_comes_has_a_result_and_only_what_was_signed_is_booked(value: bytes | None) -> None:
    validated = VALIDATOR.validate(value)
    result = validated.result(SPEC, stage="s", queue="q", worker="w", received_ns=1, started_ns=2, finished_ns=3)
    assert encode(result)
    if validated.booking is None:
        assert validated.reason
        return
    event, good = event_decoder.decode(value or b""), event_decoder.decode(GOOD)
    # What the signature covers; the rest of an event is the sender's word.
    assert (event.id, event.run, bytes(event.payload)) == (good.id, good.run, bytes(good.payload))


@given(mac=st.text(max_size=80), event_id=st.integers(-(2**63), 2**63 - 1))
def test_a_made_up_signature_is_refused(mac: str, event_id: int) -> None:
    event = msgspec.structs.replace(event_decoder.decode(GOOD), id=event_id, mac=mac)
    assert VALIDATOR.validate(encode(event)).booking is None
