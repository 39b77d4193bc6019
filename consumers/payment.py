"""The work of the pipeline ``payments`` before booking: verify the signature, validate the payment, score its risk.

The score is a sum of named rules, which show why a payment was marked for review. It never stops a payment.
"""

import re

import msgspec

from penstock.records import Event, Payment, payment_decoder, read_record
from penstock.signing import Signer

REVIEW_SCORE = 60
"""A payment that scores this or more is marked for review."""
HIGHEST_SCORE = 100
LARGEST_AMOUNT_CENTS = 100_000_000

_CURRENCY = re.compile(r"[A-Z]{3}")
_COUNTRY = re.compile(r"[A-Z]{2}")
_EURO_COUNTRIES = frozenset((
    "AT", "BE", "CY", "DE", "EE", "ES", "FI", "FR", "GR", "HR",
    "IE", "IT", "LT", "LU", "LV", "MT", "NL", "PT", "SI", "SK",
))  # fmt: skip
_HOME_OF = {
    "EUR": _EURO_COUNTRIES,
    "USD": frozenset(("US", "EC", "PR", "SV")),
    "GBP": frozenset(("GB", "GG", "IM", "JE")),
    "CHF": frozenset(("CH", "LI")),
    "CAD": frozenset(("CA",)),
    "JPY": frozenset(("JP",)),
}


class InvalidPaymentError(Exception):
    """A payment that must not be booked; the text is the reason published in its Result."""


class Risk(msgspec.Struct, frozen=True):
    """Score from 0 to 100 and the rules that made it."""

    score: int
    rules: tuple[str, ...] = ()

    @property
    def review(self) -> bool:
        """Whether it needs a review."""
        return self.score >= REVIEW_SCORE


def check(event: Event, signer: Signer) -> Payment:
    """The payment of a signed event of the signer's run. Raises InvalidPaymentError with the reason."""
    if event.run != signer.run:
        raise InvalidPaymentError(f"belongs to run {event.run!r}")
    if not signer.verify(event):
        raise InvalidPaymentError("bad signature")
    try:
        payment = read_record(payment_decoder, event.payload)
    except msgspec.DecodeError as error:
        raise InvalidPaymentError(f"not a payment: {error}") from None
    validate(payment)
    return payment


def validate(payment: Payment) -> None:
    """Raise InvalidPaymentError for a payment that cannot be meant."""
    if not payment.account or not payment.merchant:
        raise InvalidPaymentError("account and merchant must be named")
    if not 0 < payment.amount_cents <= LARGEST_AMOUNT_CENTS:
        raise InvalidPaymentError(f"amount_cents {payment.amount_cents} is not in 1…{LARGEST_AMOUNT_CENTS}")
    if _CURRENCY.fullmatch(payment.currency) is None:
        raise InvalidPaymentError(f"currency {payment.currency!r} is not an ISO 4217 code")
    if _COUNTRY.fullmatch(payment.country) is None:
        raise InvalidPaymentError(f"country {payment.country!r} is not an ISO 3166 code")


def score(payment: Payment) -> Risk:
    """Risk of a valid payment: same payment, same score."""
    score, rules = 0, []
    if payment.amount_cents >= 1_000_000:
        score += 40
        rules.append("amount of 10,000 or more")
    elif payment.amount_cents >= 100_000:
        score += 20
        rules.append("amount of 1,000 or more")
    if payment.amount_cents >= 50_000 and payment.amount_cents % 10_000 == 0:
        score += 15
        rules.append("round amount")
    home = _HOME_OF.get(payment.currency)
    if home is not None and payment.country not in home:
        score += 25
        rules.append("currency foreign to the country")
    if payment.account == payment.merchant:
        score += 50
        rules.append("pays itself")
    return Risk(min(HIGHEST_SCORE, score), tuple(rules))
