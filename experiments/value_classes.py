"""How accurate the totals of a run by class of value are: the share of each class that is found in its results.

Kathirvel and Parasuraman sort transactions by value and store them; a total is accurate when no transaction of its
class was shed. Amounts are those of the run's payments, which depend on the seed only.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from experiments.driver import schedule_of
from experiments.experiment import Experiment, Options, run_spec
from experiments.paper import median_range
from producers.payments import payments
from simulator.engine import COMPLETED, Flags
from simulator.in_memory_run import FinishedRun

HIGH_VALUE_CENTS: Final = 10_000
"""A transaction of 100 or more is one of high value: a fifth of all. The papers print no limit."""


def high_value(experiment: Experiment, seed: int) -> Flags:
    """Whether each event of the schedule is of high value, by id."""
    options = Options(world="sim", seed=seed)
    schedule = schedule_of(experiment, options, run_spec(experiment, "single-queue", options, run="values"))
    amounts = np.fromiter((payment.amount_cents for payment in payments(schedule, seed)), np.int64, len(schedule))
    return np.asarray(amounts >= HIGH_VALUE_CENTS)


def found_shares(played: FinishedRun, high: Flags, from_s: float) -> dict[str, float]:
    """Share of the transactions of each class, intended from ``from_s`` on, that the results have."""
    table = played.results
    late = table.intended_s >= from_s
    found = table.outcome == COMPLETED
    return {
        name: float(found[late & chosen].mean())
        for name, chosen in (("high", high[table.id]), ("low", ~high[table.id]))
    }


def accuracy(runs: Mapping[int, FinishedRun], high: Mapping[int, Flags], from_s: float) -> dict[str, str]:
    """Columns of a table: of runs by seed, with the flags of ``high_value``, each class over the whole run and from
    ``from_s`` on, in per cent; and in how many runs no transaction is missing then.
    """
    columns: dict[str, str] = {}
    late: list[dict[str, float]] = []
    for begin_s, label in ((0.0, "whole run"), (from_s, f"from {from_s:g} s")):
        late = [found_shares(run, high[seed], begin_s) for seed, run in runs.items()]
        for name in ("high", "low"):
            columns[f"{name} value found, %, {label}"] = percent(share[name] for share in late)
    exact = sum(min(shares.values()) == 1 for shares in late)
    return {**columns, "accurate": f"{exact} of {len(late)}"}


def percent(shares: Iterable[float]) -> str:
    """Median and range of shares."""
    return median_range([100 * share for share in shares], 1)
