"""Wire records: what survives the wire."""

from penstock.records import Result, encode, result_decoder


def test_a_result_survives_the_wire_with_unknown_fields_unknown() -> None:
    result = Result(
        id=None, run="r", pipeline="payments", stage="payments", outcome="failed", queue="payments/3",
        intended_ns=None, sent_ns=None, received_ns=1, started_ns=2, finished_ns=3, worker="w", reason="not JSON",
    )  # fmt: skip
    assert result_decoder.decode(encode(result)) == result
