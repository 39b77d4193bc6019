"""Signatures: the HMAC of the standard library, and what is altered or replayed does not verify."""

import hashlib
import hmac

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import Event, encode, event_decoder
from penstock.signing import Signer

KEY = bytes(range(32))
PAYLOAD = msgspec.Raw(b'{"account":"a-1","merchant":"m-9","amount_cents":1999,"currency":"EUR","country":"DE"}')

keys = st.binary(max_size=200)
"""Shorter, as long and longer than a block of the hash."""


def signed(**changes: object) -> Event:
    event = Event(
        id=5, run="r", pipeline="payments", key="a-1", intended_ns=1, sent_ns=2, payload=PAYLOAD,
        mac=Signer(KEY, "r").sign(5, PAYLOAD), deadline_ns=9,
    )  # fmt: skip
    return msgspec.structs.replace(event, **changes)


@settings(deadline=None)
@given(keys, st.text(max_size=40), st.integers(0, 2**63), st.binary(max_size=300))
def test_a_signature_is_the_standard_library_s_hmac(key: bytes, run: str, event_id: int, payload: bytes) -> None:
    message = run.encode() + b"/" + str(event_id).encode() + b"/" + payload
    expected = hmac.new(key, message, hashlib.sha256).hexdigest()
    signer = Signer(key, run)
    assert signer.sign(event_id, payload) == expected
    assert signer.sign(event_id, msgspec.Raw(payload)) == expected, "one signature leaves no trace in the next"


def test_an_event_verifies_after_the_wire_because_its_payload_stays_the_signed_text() -> None:
    received = event_decoder.decode(encode(signed()))
    assert Signer(KEY, "r").verify(received)
    assert bytes(received.payload) == bytes(PAYLOAD)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": 6},
        {"run": "other"},
        {"payload": msgspec.Raw(b'{"amount_cents":1}')},
        {"mac": "0" * 64},
        {"mac": ""},
        {"mac": "ü" * 64},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_altered_or_replayed_event_does_not_verify(changes: dict[str, object]) -> None:
    assert not Signer(KEY, "r").verify(signed(**changes))


def test_an_event_of_another_run_does_not_verify_although_it_is_signed_with_the_same_key() -> None:
    other = signed(run="other", mac=Signer(KEY, "other").sign(5, PAYLOAD))
    assert Signer(KEY, "other").verify(other)
    assert not Signer(KEY, "r").verify(other)


@given(keys, keys)
def test_another_key_does_not_verify(key: bytes, other: bytes) -> None:
    event = signed(mac=Signer(key, "r").sign(5, PAYLOAD))
    assert Signer(key, "r").verify(event)
    # RFC 2104 fills a short key up with zeros, so that keys that differ in those only are the same key.
    assert Signer(other, "r").verify(event) == (key.ljust(64, b"\0") == other.ljust(64, b"\0"))
