"""Bank: which class a transaction belongs to, by a logistic score over what is known of it (the function app of
the multi-queue paper classifies synthetic transactions; the features and weights are ours).
"""

import math
from typing import Any

from claim_check import FunctionError, field, read_json

HOME = {"DE": "EUR", "FR": "EUR", "NL": "EUR", "GB": "GBP", "CH": "CHF", "US": "USD", "JP": "JPY"}
BIAS, PER_TENFOLD, FOREIGN, ROUND_HUNDREDS = -11.0, 1.6, 2.2, 0.7
SUSPICIOUS, LARGE_CENTS = 0.5, 1_000_000


def handle(event: Any, _context: Any) -> dict[str, Any]:
    """A payment (``amount_cents``, ``currency``, ``country``) → ``{"class": regular, large or suspicious, "score":
    probability}``.
    """
    payment = read_json(event)
    amount = field(payment, "amount_cents")
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < 1:
        raise FunctionError(400, f"amount_cents is {amount!r}, expected a whole number of cents above 0")
    foreign = HOME.get(str(field(payment, "country"))) != field(payment, "currency")
    evidence = BIAS + PER_TENFOLD * math.log10(amount) + FOREIGN * foreign + ROUND_HUNDREDS * (amount % 10_000 == 0)
    score = 1 / (1 + math.exp(-evidence))
    name = "suspicious" if score >= SUSPICIOUS else "large" if amount >= LARGE_CENTS else "regular"
    return {"body": {"class": name, "score": round(score, 6)}}
