"""The payment work: only what is signed, meant and readable is booked, and every score can be explained."""

import time

import msgspec
import pytest

from consumers.payment import InvalidPaymentError, Risk, check, score, validate
from consumers.validation import RecordValidator
from penstock.records import Event, Payment, encode
from penstock.signing import Signer

KEY = bytes(range(32))
RUN = "run-1"
GOOD = Payment(account="a-1", merchant="m-1", amount_cents=1250, currency="EUR", country="DE")


def event(payment: object = GOOD, *, event_id: int = 7, run: str = RUN, key: bytes = KEY) -> Event:
    payload = msgspec.Raw(msgspec.json.encode(payment))
    return Event(event_id, run, "payments", "k", 100, 200, payload, Signer(key, run).sign(event_id, payload))


def test_a_signed_payment_of_this_run_is_taken() -> None:
    assert check(event(), Signer(KEY, RUN)) == GOOD


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event(key=b"other"), "bad signature"),
        (msgspec.structs.replace(event(), id=8), "bad signature"),
        (msgspec.structs.replace(event(), payload=msgspec.Raw(b'{"amount_cents":1}')), "bad signature"),
        (event(run="run-2"), "belongs to run 'run-2'"),
        (event({"account": "a"}), "not a payment"),
        (event(msgspec.structs.replace(GOOD, amount_cents=0)), "amount_cents 0"),
        (event(msgspec.structs.replace(GOOD, amount_cents=-5)), "amount_cents -5"),
        (event(msgspec.structs.replace(GOOD, currency="euro")), "currency 'euro'"),
        (event(msgspec.structs.replace(GOOD, country="Germany")), "country 'Germany'"),
        (event(msgspec.structs.replace(GOOD, account="")), "must be named"),
    ],
)
def test_what_must_not_be_booked_is_refused_with_its_reason(bad: Event, reason: str) -> None:
    with pytest.raises(InvalidPaymentError, match=reason):
        check(bad, Signer(KEY, RUN))


@pytest.mark.parametrize(
    ("payment", "expected"),
    [
        (GOOD, Risk(0)),
        (msgspec.structs.replace(GOOD, amount_cents=123_456), Risk(20, ("amount of 1,000 or more",))),
        (
            msgspec.structs.replace(GOOD, amount_cents=2_000_000),
            Risk(55, ("amount of 10,000 or more", "round amount")),
        ),
        (msgspec.structs.replace(GOOD, currency="GBP"), Risk(25, ("currency foreign to the country",))),
        (msgspec.structs.replace(GOOD, merchant="a-1"), Risk(50, ("pays itself",))),
        (
            Payment("a", "a", 5_000_000, "USD", "FR"),
            Risk(
                100,
                ("amount of 10,000 or more", "round amount", "currency foreign to the country", "pays itself"),
            ),
        ),
    ],
)
def test_every_score_is_the_sum_of_named_rules(payment: Payment, expected: Risk) -> None:
    validate(payment)
    assert score(payment) == expected
    assert score(payment) == score(payment)


def test_a_currency_of_no_known_home_is_not_foreign_anywhere() -> None:
    assert score(msgspec.structs.replace(GOOD, currency="SEK")).score == 0


def test_an_examination_keeps_what_can_be_known_of_a_bad_event() -> None:
    validator = RecordValidator(signing_key=KEY, run=RUN, worker="w")

    def reason(value: bytes | None) -> tuple[int | None, int | None, str]:
        found = validator.validate(value)
        assert found.booking is None
        return found.id, found.sent_ns, found.reason

    assert reason(encode(event(key=b"x"))) == (7, 200, "bad signature")
    assert reason(encode(msgspec.structs.replace(event(), mac="ü" * 64))) == (7, 200, "bad signature")
    assert reason(encode(event(run="run-2"))) == (None, 200, "belongs to run 'run-2'")
    assert reason(b"{broken")[:2] == (None, None)
    assert reason(b"")[2].startswith("unreadable")
    assert reason(None)[2].startswith("unreadable")


def test_a_good_event_becomes_a_booking() -> None:
    before_ns = time.time_ns()
    found = RecordValidator(signing_key=KEY, run=RUN, worker="w").validate(encode(event()))
    assert found.reason == ""
    assert found.booking is not None
    assert (found.booking.id, found.booking.account, found.booking.amount_cents) == (7, "a-1", 1250)
    assert found.booking.at_ns >= before_ns
