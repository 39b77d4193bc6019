"""Wire records: what survives the wire."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.records import Result, encode, event_decoder, read_record, read_result, rejected, result_decoder
from penstock.results import RESULT_SCHEMA
from tests.support.mutations import mutations


def test_a_result_survives_the_wire_with_unknown_fields_unknown() -> None:
    result = Result(
        id=None, run="r", pipeline="payments", stage="payments", outcome="failed", queue="payments/3",
        intended_ns=None, sent_ns=None, received_ns=1, started_ns=2, finished_ns=3, worker="w", reason="not JSON",
    )  # fmt: skip
    assert result_decoder.decode(encode(result)) == result


# --- hostile input ---------------------------------------------------------------------------------------------------

EVENT = b'{"id":1,"run":"r","pipeline":"p","key":"k","intended_ns":1,"sent_ns":1,"payload":{},"mac":"x"}'
HOSTILE = {
    "not UTF-8": EVENT.replace(b'"x"', b'"\xff"'),
    "deeply nested": EVENT.replace(b"{}", b"[" * 100_000 + b"]" * 100_000),
    "an id of 100 digits": EVENT.replace(b'"id":1', b'"id":' + b"9" * 100),
    "a time beyond 64 bits": EVENT.replace(b'"intended_ns":1', b'"intended_ns":9300000000000000000'),
    "half a surrogate pair": EVENT.replace(b'"x"', b'"\\ud800"'),
    "nothing": b"",
    "no value": None,
}


def test_the_sample_is_an_event() -> None:
    assert read_record(event_decoder, EVENT).id == 1


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_bytes_that_are_no_event_have_one_kind_of_error(value: bytes | None) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_record(event_decoder, value)


@given(value=st.binary(max_size=300) | mutations(EVENT))
def test_whatever_is_read_can_be_written_and_stored(value: bytes) -> None:
    try:
        event = read_record(event_decoder, value)
    except msgspec.DecodeError:
        return
    result = rejected(event, run="r", pipeline="p", queue="q", at_ns=1)
    row = {name: [getattr(result, name)] for name in RESULT_SCHEMA.names}
    assert pa.table(row, schema=RESULT_SCHEMA).num_rows == 1
    assert result_decoder.decode(encode(result)) == result


RESULT = (
    b'{"id":1,"run":"r","pipeline":"p","stage":"p","outcome":"completed","queue":"q","intended_ns":1,"sent_ns":1,'
    b'"received_ns":1,"started_ns":2,"finished_ns":3,"worker":"w","visit":1}'
)


@given(value=st.binary(max_size=300) | mutations(RESULT))
@example(value=RESULT.replace(b'"id":1', b'"id":' + b"9" * 30))
@example(value=RESULT.replace(b'"visit":1', b'"visit":3000000000'))
@example(value=RESULT.replace(b'"w"', b'"\xff"'))
@example(value=b"[" * 100_000)
def test_whatever_is_on_the_results_topic_can_be_stored_and_counts_for_no_event_unless_it_is_a_result(
    value: bytes,
) -> None:
    result = read_result(value)
    row = {name: [getattr(result, name)] for name in RESULT_SCHEMA.names}
    assert pa.table(row, schema=RESULT_SCHEMA).num_rows == 1
    if result.reason.startswith("not a result: "):
        assert (result.id, result.run, result.outcome, result.terminal) == (None, "", "rejected", True)
    else:
        assert msgspec.json.decode(value, type=Result) == result
