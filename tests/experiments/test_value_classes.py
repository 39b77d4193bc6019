"""Totals by class of value: what is shed is missing in them, and nothing else."""

import numpy as np
import pytest

from experiments.elastic_faas.experiments import EXPERIMENTS
from experiments.elastic_faas.tables import run_experiment
from experiments.value_classes import accuracy, found_shares, high_value
from simulator.engine import COMPLETED


def test_a_fifth_of_the_transactions_is_of_high_value_and_the_seed_decides_which() -> None:
    high = high_value(EXPERIMENTS[0], 1)
    assert 0.15 < high.mean() < 0.25
    assert np.array_equal(high, high_value(EXPERIMENTS[0], 1))
    other = high_value(EXPERIMENTS[0], 2)
    assert len(high) != len(other) or not np.array_equal(high, other)


def test_both_classes_together_are_what_was_served() -> None:
    run, high = run_experiment("faas", 1), high_value(EXPERIMENTS[0], 1)
    shares = found_shares(run, high, 0.0)
    served = shares["high"] * high.sum() + shares["low"] * (~high).sum()
    assert served == pytest.approx(np.count_nonzero(run.results.outcome == COMPLETED))
    assert shares["low"] < 1


def test_totals_are_accurate_once_nothing_is_shed() -> None:
    runs, high = {1: run_experiment("elastic-faas", 1)}, {1: high_value(EXPERIMENTS[0], 1)}
    row = accuracy(runs, high, 90.0)
    assert row["accurate"] == "1 of 1"
    assert row["high value found, %, from 90 s"] == "100.0" != row["low value found, %, whole run"]
