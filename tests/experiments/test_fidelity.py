"""docs/fidelity.md: made by its command, each larger difference explained, each live value one of a README."""

import re
from itertools import combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import fidelity, orders
from experiments.coverage import readme
from experiments.paper import Request, printed_values
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


Orders = dict[tuple[str, str, str, str], int]


def ranking(*values: tuple[float, float], known: Orders | None = None) -> fidelity.Ranking:
    """Of a, b, c with these live and simulated values."""
    rows = [
        {"case": "c", "measure": "m", "scaler": name, "live": live, "simulated": simulated}
        for name, (live, simulated) in zip("abc", values, strict=True)
    ]
    (found,) = fidelity.all_rankings(rows, known or {})
    return found


def test_rankings_tell_opposite_pairs_from_ties() -> None:
    tied = ranking((1.0, 1.0), (2.0, 1.01), (3.0, 3.0))
    assert (tied.opposite, tied.orders) == (0, {"live": "a < b < c", "simulated": "a = b < c"})
    assert tied.tau == tied.of_single_runs == pytest.approx((2 / 3) ** 0.5)
    assert ranking((1, 3), (2, 2), (3, 1)).opposite == 3
    assert ranking((1, 1), (1, 1), (1, 1)).tau is None


def test_what_twenty_runs_do_not_order_counts_in_neither_world() -> None:
    known = {("c", "m", "a", "b"): 0, ("c", "m", "a", "c"): -1, ("c", "m", "b", "c"): -1}
    chance = ranking((2.0, 1.0), (1.0, 2.0), (3.0, 3.0), known=known)
    assert (chance.opposite, chance.tau) == (0, 1.0)
    assert chance.of_single_runs == pytest.approx(1 / 3)


def test_an_order_of_twenty_runs_that_a_live_run_lacks_lowers_tau() -> None:
    known = {("c", "m", one, other): -1 for one, other in ("ab", "ac", "bc")}
    reversed_ = ranking((2.0, 1.0), (1.0, 1.0), (3.0, 1.0), known=known)
    assert reversed_.opposite == 1
    assert reversed_.tau == pytest.approx(1 / 3)
    hidden = ranking((1.0, 1.0), (1.0, 1.0), (3.0, 1.0), known=known)
    assert hidden.opposite == 0
    assert hidden.tau == pytest.approx((2 / 3) ** 0.5)
    assert max(reversed_.tau or 0, hidden.tau or 0) < fidelity.LEAST_TAU


def test_orders_are_of_every_ranking_and_of_twenty_seeds() -> None:
    """The rankings of pub/sub are of the lowest and highest of ten pairs."""
    rows = printed_values(fidelity.__file__, "fidelity_orders.csv")
    assert {row["seeds"] for row in rows} == {20}
    assert all(row["first lower"] + row["second lower"] <= 20 for row in rows)
    for (paper, case, measure), some in fidelity.of_each(fidelity.PAIRS, "paper", "case", "measure"):
        for one, other in combinations([str(pair["scaler"]) for pair in some], 2):
            assert paper == "pubsub" or (case, measure, one, other) in fidelity.ORDERS, (case, measure)


def test_orders_count_the_seeds_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"a": [1.0, 1.0, 1.0, None], "b": [2.0, 1.01, 0.5, 3.0]}
    runs = {name: (lambda seed, some=some: {"m": some[seed]}) for name, some in values.items()}
    monkeypatch.setattr(orders, "cases", lambda: [("p", "c", runs)])
    (row,) = orders.order_rows(Request(settings=None), range(4))
    assert (row["seeds"], row["first lower"], row["second lower"]) == (4, 1, 1)


def test_papers_agree_in_rankings_and_differences_are_explained() -> None:
    for row in fidelity.summary(Request(settings=None)):
        assert row["not explained"] == 0, row["paper"]
        assert row["Kendall's τ"] >= fidelity.LEAST_TAU, row["paper"]


@pytest.mark.parametrize("paper", dict.fromkeys(pair["paper"] for pair in fidelity.PAIRS))
def test_live_values_are_those_of_the_readme(paper: str) -> None:
    """A value of one run is in the README as it is; means over several runs are not all printed there."""
    told = {float(number) for number in re.findall(r"(?<![\w.])\d*\.?\d+", readme(paper).read_text())}
    ones = [pair for pair in fidelity.PAIRS if pair["paper"] == paper and pair["runs"] == 1]
    missing = [pair for pair in ones if float(pair["live"]) not in told and 1000 * float(pair["live"]) not in told]
    assert ones and not missing
