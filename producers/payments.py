"""The payments that a schedule's events carry: made-up, seeded, cheap to draw by the hundred thousand.

An account belongs to one partition, so that an event's key and its partition always agree.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np

from penstock.records import Payment
from penstock.schedule import Schedule
from producers.random_streams import streams

ACCOUNTS_PER_PARTITION = 1000
MERCHANTS = 500
MEDIAN_AMOUNT_CENTS = 3_500
AMOUNT_SPREAD = 1.2
"""Standard deviation of the amount's natural logarithm: one payment in a hundred is above 570."""
COUNTRIES = (("DE", "EUR"), ("FR", "EUR"), ("NL", "EUR"), ("GB", "GBP"), ("CH", "CHF"), ("US", "USD"), ("JP", "JPY"))
"""Country with its currency."""
CHUNK = 4096

_MERCHANT_NAMES = tuple(f"merchant-{number:04d}" for number in range(MERCHANTS))


def payments(schedule: Schedule, seed: int) -> Iterator[Payment]:
    """The payment of each event, in the order of the schedule. One seed, one sequence."""
    rng = streams(seed).payments
    for first in range(0, len(schedule), CHUNK):
        partitions = schedule.partition[first : first + CHUNK].tolist()
        size = len(partitions)
        # Every chunk is drawn in full: what the last events pay does not depend on how many there are.
        accounts = rng.integers(ACCOUNTS_PER_PARTITION, size=CHUNK)[:size].tolist()
        merchants = rng.integers(MERCHANTS, size=CHUNK)[:size].tolist()
        amounts = np.ceil(rng.lognormal(np.log(MEDIAN_AMOUNT_CENTS), AMOUNT_SPREAD, size=CHUNK))[:size]
        countries = rng.integers(len(COUNTRIES), size=CHUNK)[:size].tolist()
        rows = zip(partitions, accounts, merchants, amounts.astype(np.int64).tolist(), countries, strict=True)
        for partition, account, merchant, amount_cents, country in rows:
            name, currency = COUNTRIES[country]
            yield Payment(account_names(partition)[account], _MERCHANT_NAMES[merchant], amount_cents, currency, name)


@cache
def account_names(partition: int) -> tuple[str, ...]:
    """The accounts of a partition; their names are their events' keys."""
    return tuple(f"account-{partition:03d}-{number:04d}" for number in range(ACCOUNTS_PER_PARTITION))
