"""Drawn loads: one number is one load, all shapes occur, and the peak is as asked."""

import numpy as np
import pytest

from penstock.errors import PenstockError
from producers.workloads import parse_workload
from producers.workloads.contract import rates_per_s
from producers.workloads.drawn import SHAPES, Drawn


def test_a_number_is_one_load_and_another_is_another() -> None:
    first = rates_per_s(Drawn(3))
    assert np.array_equal(first, rates_per_s(Drawn(3)))
    assert not np.array_equal(first, rates_per_s(Drawn(4)))


def test_forty_numbers_have_all_shapes_and_the_peak_that_was_asked_for() -> None:
    loads = [Drawn(number, peak_per_s=250.0) for number in range(40)]
    assert {load.shape for load in loads} == set(SHAPES)
    for load in loads:
        rates = rates_per_s(load)
        assert rates.shape == (600,)
        assert rates.max() == pytest.approx(250.0)
        assert rates.min() >= 0
        assert rates.mean() > 10


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(PenstockError, match="number has to be at least 0, not -1"):
        parse_workload("drawn:number=-1")
