"""What the ramp promises."""

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.producers.workloads import parse_workload
from penstock.producers.workloads.contract import rates_per_s

RAMP = f"{Path(__file__).parent / 'ramp.py'}:Ramp"


def test_a_second_has_the_rate_of_its_middle() -> None:
    """A line from 0 to 100 within ten seconds."""
    rates = rates_per_s(parse_workload(f"{RAMP}:from_per_s=0,to_per_s=100,duration_s=10"))
    assert rates.tolist() == pytest.approx([5, 15, 25, 35, 45, 55, 65, 75, 85, 95])


def test_a_negative_rate_is_refused() -> None:
    """Before a run, in one line."""
    with pytest.raises(PenstockError, match="to_per_s has to be a number of at least 0"):
        parse_workload(f"{RAMP}:from_per_s=100,to_per_s=-100")
