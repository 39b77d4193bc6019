"""docs/fidelity.md: made by its command, each larger difference explained, each live value one of a README."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import fidelity
from experiments.coverage import readme
from penstock.command import build

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fidelity.md"


def test_the_page_is_what_its_command_prints() -> None:
    done = CliRunner().invoke(build(), ["paper", "fidelity", "all", "--format", "markdown"])
    assert done.exception is None, done.exception
    assert done.stdout == PAGE.read_text()


def test_a_pair_has_a_reason_exactly_where_it_differs_by_more_than_a_tenth() -> None:
    held = [pair for pair in fidelity.PAIRS if pair["held"] == "yes"]
    assert len(held) > 200
    wrong = [pair for pair in held if fidelity.agrees(pair) == ("reason" in pair)]
    assert not wrong
    used = {pair["reason"] for pair in fidelity.PAIRS if "reason" in pair}
    assert used == set(fidelity.REASONS)


def test_differences_are_shares_of_the_simulated_value() -> None:
    assert fidelity.difference({"live": 11, "simulated": 10}) == pytest.approx(0.1)
    assert fidelity.agrees({"live": 66, "simulated": 60}) and not fidelity.agrees({"live": 0.88, "simulated": 1})
    assert fidelity.difference({"live": 0, "simulated": 0}) == 0
    assert not fidelity.agrees({"live": 1, "simulated": 0})


def test_rankings_tell_opposite_pairs_from_ties() -> None:
    def ranking(*values: tuple[float, float]) -> fidelity.Ranking:
        rows = [
            {"case": "c", "measure": "m", "scaler": name, "live": live, "simulated": simulated}
            for name, (live, simulated) in zip("abc", values, strict=True)
        ]
        (found,) = fidelity.all_rankings(rows)
        return found

    tied = ranking((1.0, 1.0), (2.0, 1.01), (3.0, 3.0))
    assert (tied.opposite, tied.orders) == (0, {"live": "a < b < c", "simulated": "a = b < c"})
    assert tied.tau == pytest.approx((2 / 3) ** 0.5)
    assert ranking((1, 3), (2, 2), (3, 1)).opposite == 3
    assert ranking((1, 1), (1, 1), (1, 1)).tau is None


@pytest.mark.parametrize("paper", dict.fromkeys(pair["paper"] for pair in fidelity.PAIRS))
def test_live_values_are_those_of_the_readme(paper: str) -> None:
    """A value of one run is in the README as it is; means over several runs are not all printed there."""
    told = {float(number) for number in re.findall(r"(?<![\w.])\d*\.?\d+", readme(paper).read_text())}
    ones = [pair for pair in fidelity.PAIRS if pair["paper"] == paper and pair["runs"] == 1]
    missing = [pair for pair in ones if float(pair["live"]) not in told and 1000 * float(pair["live"]) not in told]
    assert ones and not missing
