"""The comparison with tuned rivals: a fair choice for everybody, and a loss is a loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.newsvendor import tables
from experiments.newsvendor.tables import Cell, CellResult, Found, NewsvendorSettings, best, cells_of, note, tuned
from experiments.paper import Request
from penstock.errors import PenstockError

CELL = Cell("binpack-workload-1", "instant", 0.99)


def found(scaler: str, share: float, minutes: float) -> Found:
    return Found(scaler, 0.12, None, (share,), (minutes,))


@pytest.mark.parametrize(
    ("own", "rival", "verdict"),
    [
        ((0.991, 25.0), (0.992, 26.0), "won"),
        ((0.991, 25.0), (0.992, 24.9), "lost"),
        ((0.989, 20.0), (0.992, 26.0), "lost"),
        ((0.989, 20.0), (0.980, 26.0), "kept by none"),
        ((0.991, 25.0), (0.980, 20.0), "won"),
    ],
)
def test_a_cell_is_lost_to_a_rival_that_keeps_the_share_for_less_or_alone(
    own: tuple[float, float], rival: tuple[float, float], verdict: str
) -> None:
    result = CellResult(CELL, [found("newsvendor", *own), found("linear", *rival)], 24.0)
    assert result.lost == (verdict == "lost")
    row = cells_of(result)
    assert row["result"] == verdict
    assert str(row["newsvendor"]).startswith("missed") == (own[0] < 0.99)
    assert note([result]).startswith(f"{int(result.lost)} of 1 cells lost")


def test_the_cheapest_that_keeps_the_share_is_chosen_else_the_closest() -> None:
    runs = [found("linear", 0.980, 20.0), found("linear", 0.992, 26.0), found("linear", 0.995, 28.0)]
    assert best(0.99, runs).cost == 26.0
    assert best(0.999, runs).cost == 28.0


@pytest.mark.parametrize("least", [24.0, None])
def test_a_cell_is_measured_once_and_then_read_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: float | None
) -> None:
    measured = []

    def compared(cell: Cell, s: NewsvendorSettings) -> CellResult:
        measured.append((cell, s.seeds))
        return CellResult(cell, [found("newsvendor", 0.991, 25.0), found("linear", 0.992, 26.0)], least)

    monkeypatch.setattr(tables, "compared", compared)

    def rows(seeds: tuple[int, ...], shares: str) -> list[Any]:
        settings = NewsvendorSettings(
            experiments="step,poisson", systems="2/0.5", file=str(tmp_path / "cells.jsonl"), seeds=seeds, shares=shares
        )
        return [cells_of(result) for result in tables.contract(Request(settings=settings))]

    first = rows((1,), "0.99")
    assert len(measured) == 2
    assert rows((1,), "0.99") == first
    assert len(measured) == 2
    assert len(rows((1,), "0.99,0.999")) == 4  # the other half of them is new
    assert len(measured) == 4
    rows((2,), "0.99")  # other seeds
    assert len(measured) == 6


def test_cells_with_an_announced_peak_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def compared(cell: Cell, s: NewsvendorSettings) -> CellResult:
        measured.append(s.announced)
        return CellResult(cell, [found("newsvendor", 0.991, 25.0), found("linear", 0.992, 26.0)], None)

    monkeypatch.setattr(tables, "compared", compared)
    for announced in (False, True, False, True):
        settings = NewsvendorSettings(
            experiments="step", systems="2/0.5", shares="0.99", file=str(tmp_path / "cells.jsonl"), announced=announced
        )
        assert len(list(tables.contract(Request(settings=settings)))) == 1
    assert measured == [False, True]


def test_a_contract_that_one_step_breaks_is_kept_where_nothing_or_the_peak_is_announced() -> None:
    cell = Cell("step", "10/0.5", 0.99)
    assert tables.peak_per_s(tables.BY_NAME["step"]) == 300.0
    phase_s = tables.phase_of(cell)
    guessed, told = (
        tables.runs(cell, (1,), phase_s, "newsvendor", None, announced=announced) for announced in (False, True)
    )
    # A peak that is there from the start: no jump is expected.
    given = (("slo_share", cell.share), ("announced_peak_per_s", 100))
    misled, _ = tables.run("step", cell.system, 1, phase_s, "newsvendor", given)
    assert misled < 0.98
    for found in (guessed, told):
        assert found.share >= 0.99
        assert found.cost < 0.9 * 50  # five replicas all the time cost 50


@pytest.mark.parametrize(("name", "near"), [("stp", "step"), ("on-of", "on-off")])
def test_an_unknown_load_is_refused_with_the_nearest_name(name: str, near: str) -> None:
    with pytest.raises(PenstockError, match=near):
        list(tables.contract(Request(settings=NewsvendorSettings(experiments=name))))


def test_a_system_is_named_or_has_a_start_up_and_a_rebalance_time() -> None:
    assert tables.system_of("2/0.5") == {"start_up_s": "2", "rebalance_s": "0.5"}
    assert tables.system_of("default") == {}
    assert tables.system_of("instant-10") == {**tables.system_of("instant"), "start_up_s": "10"}
    with pytest.raises(PenstockError, match="instant"):
        tables.system_of("instnt")


def test_thresholds_that_can_only_be_dearer_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def runs(cell: Cell, seeds: Sequence[int], phase_s: float, scaler: str, threshold: float | None) -> Found:
        assert threshold is not None
        tried.append(threshold)
        return Found(scaler, phase_s, threshold, (0.98,), (20.0 / threshold,))  # it never keeps the share

    monkeypatch.setattr(tables, "runs", runs)
    settings = NewsvendorSettings(seeds=(1,), rounds=4)
    assert len(list(tables.bisected(CELL, settings, 0.12, "linear"))) == 8
    # What misses the share down to a threshold of 0.3 is searched below.
    assert [round(20 / each) for each in tried] == [30, 41, 51, 58, 125, 222, 364, 533]
    tried.clear()
    list(tables.bisected(CELL, settings, 0.12, "linear", 40.0))
    assert [round(20 / each) for each in tried] == [30, 41]


@pytest.mark.parametrize(("least_threshold", "tried_below"), [(0.5, 0), (0.1, 4)])
def test_a_rival_is_searched_below_the_usual_thresholds_only_if_none_of_them_keeps_the_share(
    monkeypatch: pytest.MonkeyPatch, least_threshold: float, tried_below: int
) -> None:
    def runs(cell: Cell, seeds: Sequence[int], phase_s: float, scaler: str, threshold: float | None) -> Found:
        assert threshold is not None
        return Found(scaler, phase_s, threshold, (0.999 if threshold < least_threshold else 0.98,), (20.0,))

    monkeypatch.setattr(tables, "runs", runs)
    tried = list(tables.bisected(CELL, NewsvendorSettings(seeds=(1,), rounds=4), 0.12, "linear"))
    assert [each.threshold for each in tried if (each.threshold or 1) < tables.LEAST_THRESHOLD] == [
        each.threshold for each in tried[4:]
    ]
    assert len(tried) == 4 + tried_below
    assert best(CELL.share, tried).share >= CELL.share


def test_a_rival_is_tuned_until_it_keeps_the_share() -> None:
    result = tuned(CELL, NewsvendorSettings(seeds=(1,), rounds=3), "linear")
    assert result.share >= CELL.share
    assert result.threshold is not None
    assert result.cost < 40  # five replicas all the time cost 50
