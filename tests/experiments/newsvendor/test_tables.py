"""The comparison with tuned rivals: a fair choice for everybody, and a loss is a loss."""

import pytest

from experiments.newsvendor.tables import Cell, CellResult, Found, NewsvendorSettings, best, cells_of, note, tuned

CELL = Cell("binpack-workload-1", "instant", 0.99)


def found(scaler: str, share: float, minutes: float) -> Found:
    return Found(scaler, 0.12, None, (share,), (minutes,))


@pytest.mark.parametrize(
    ("own", "rival", "lost"),
    [
        ((0.991, 25.0), (0.992, 26.0), False),
        ((0.991, 25.0), (0.992, 24.9), True),
        ((0.989, 20.0), (0.992, 26.0), True),
        ((0.989, 20.0), (0.980, 26.0), False),
        ((0.991, 25.0), (0.980, 20.0), False),
    ],
)
def test_a_cell_is_lost_to_a_rival_that_keeps_the_share_for_less_or_alone(
    own: tuple[float, float], rival: tuple[float, float], lost: bool
) -> None:
    result = CellResult(CELL, [found("newsvendor", *own), found("linear", *rival)], 24.0)
    assert result.lost == lost
    row = cells_of(result)
    assert row["result"] == ("lost" if lost else "won")
    assert str(row["newsvendor"]).startswith("missed") == (own[0] < 0.99)
    assert note([result]).startswith(f"{int(lost)} of 1 cells lost")


def test_the_cheapest_that_keeps_the_share_is_chosen_else_the_closest() -> None:
    runs = [found("linear", 0.980, 20.0), found("linear", 0.992, 26.0), found("linear", 0.995, 28.0)]
    assert best(0.99, runs).cost == 26.0
    assert best(0.999, runs).cost == 28.0


def test_a_rival_is_tuned_until_it_keeps_the_share() -> None:
    result = tuned(CELL, NewsvendorSettings(seeds=(1,), rounds=3), "linear")
    assert result.share >= CELL.share
    assert result.threshold is not None
    assert result.cost < 40  # five replicas all the time cost 50
