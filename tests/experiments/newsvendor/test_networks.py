"""The table of pub/sub networks: a rival that keeps the contract at less takes the cell."""

import pytest

from experiments.experiment import Options
from experiments.newsvendor import networks as table
from experiments.newsvendor.functions import Found, Played, Setting
from experiments.newsvendor.networks import GRIDS, NetworkCell, NetworkResult, NewsvendorNetworkSettings
from experiments.paper import Request
from experiments.papers import PAPERS
from experiments.run_result import simulate

CELL = NetworkCell("pubsub-mintime", 0.9)


def found(scaler: str, late: int, minutes: float) -> Found:
    return Found(scaler, (), [Played(1000, late, minutes)] * 2)


@pytest.mark.parametrize(
    ("rival", "lost", "fewer"),
    [
        (found("rps", 100, 299.0), True, False),
        (found("rps", 101, 200.0), False, False),  # misses the contract
        (found("rps", 80, 300.0), False, True),
        (found("rps", 80, 301.0), False, True),
    ],
)
def test_a_cell_is_lost_to_a_cheaper_rival_that_keeps_the_contract(rival: Found, lost: bool, fewer: bool) -> None:
    result = NetworkResult(CELL, found(table.OWN, 90, 300.0), [rival])
    assert (result.lost, result.fewer_late) == (lost, ["rps"] if fewer else [])
    assert table.cells_of(result)["result"] == ("lost" if lost else "won")


def test_a_contract_that_is_missed_loses_the_cell_to_any_rival_that_keeps_it() -> None:
    assert NetworkResult(CELL, found(table.OWN, 101, 300.0), [found("rps", 100, 900.0)]).lost


def test_the_cheapest_setting_that_keeps_the_contract_on_all_seeds_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cheaper the fewer consumers; too few are late on all seeds, or on the second only."""

    def play(calls: list[tuple[str, str, Setting, int]]) -> list[Played]:
        budgets = [(dict(setting).get("budget", 20), seed) for _, _, setting, seed in calls]
        return [Played(100, 50 if budget < 3 or (budget == 3 and seed > 21) else 5, budget) for budget, seed in budgets]

    monkeypatch.setattr(table.play, "each", play)
    chosen = table.tuned(CELL, "min-time", (21, 22, 23, 24))
    assert dict(chosen.setting)["budget"] == 4
    assert len(chosen.runs) == 4


def test_table_has_a_row_for_every_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        table.play, "each", lambda calls: [Played(100, 0, 9.0 if call[1] == "hpa" else 10.0) for call in calls]
    )
    settings = NewsvendorNetworkSettings(seeds=(21, 22), networks="pubsub-mintime,pubsub-growing")
    results = list(table.networks(Request(settings=settings)))
    assert [str(result.cell) for result in results] == [
        "pubsub-mintime, 90 %", "pubsub-mintime, 80 %", "pubsub-growing, 99 %",
        "pubsub-growing, 99 %, down to no consumer",
    ]  # fmt: skip
    assert all(result.lost for result in results)
    assert "4 of 4 cells lost" in table.note(results)


def test_all_keep_one_consumer_or_may_have_none() -> None:
    for least in (1, 0):
        cell = NetworkCell("pubsub-growing", 0.99, least)
        assert [dict(setting)["min_replicas"] for setting in cell.settings(table.OWN)] == [least]
        assert {dict(setting)["min_replicas"] for setting in cell.settings("keda-rabbitmq")} == {least}


def test_jobs_that_wait_for_the_end_of_a_run_are_paid_for_where_a_topic_may_have_no_consumer() -> None:
    setting = (("slo_share", 0.99), ("min_replicas", 0))
    finished = simulate(
        table.BY_NAME["pubsub-growing"],
        table.OWN,
        Options(world="sim", seed=1, settings={table.OWN: {name: str(value) for name, value in setting}}),
    )
    assert table.play("pubsub-growing", table.OWN, setting, 1).minutes > finished.replica_minutes()


@pytest.mark.parametrize("scaler", GRIDS)
def test_settings_of_a_grid_are_parameters_of_their_scaler(scaler: str) -> None:
    assert table.play("pubsub-dynamic", scaler, GRIDS[scaler][0], 21).minutes > 0


def test_newsvendor_has_fewer_late_jobs_for_fewer_consumers_than_the_papers_scaler() -> None:
    own, papers = (table.play("pubsub-mintime", scaler, (), 1) for scaler in (table.OWN, "min-time"))
    assert own.late < papers.late
    assert own.minutes < 0.7 * papers.minutes


def test_command_knows_the_table() -> None:
    assert table.TABLE in PAPERS["newsvendor"].tables


def test_a_start_up_is_traded_with_and_measured_where_nobody_tells_it() -> None:
    """With 8 s; 20.8 % late for 419 consumer-minutes on seeds 1 to 3 while decisions left start-ups to the next one."""
    for told_s in ("8", "0"):
        settings = {table.OWN: {"slo_share": "0.9", "start_up_s": told_s}}
        options = Options(world="sim", seed=1, settings=settings, system={"start_up_s": "8"})
        finished = simulate(table.BY_NAME["pubsub-mintime"], table.OWN, options)
        _, response_s = finished.responses()
        assert (response_s > table.BY_NAME["pubsub-mintime"].slo_s).mean() < 0.16
        assert finished.replica_minutes() < 410
