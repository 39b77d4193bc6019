"""The table of banks of queues: a rival that does no worse anywhere takes the cell, whatever its setting."""

import pytest

from experiments.multiqueue.tables import BY_NAME
from experiments.newsvendor import queues as table
from experiments.newsvendor.functions import Setting
from experiments.newsvendor.queues import GRIDS, Found, Played
from experiments.newsvendor.tables import NewsvendorSettings
from experiments.paper import Request
from experiments.papers import PAPERS


def found(scaler: str, missed: float, queue_minutes: float, containers: float = 30.0, setting: Setting = ()) -> Found:
    return Found(scaler, setting, [Played(missed, 0.0, queue_minutes, containers)] * 3)


OWN = found(table.OWN, 0.2, 3.0)


@pytest.mark.parametrize(
    ("rival", "lost", "won"),
    [
        (found("rps", 0.2, 3.0), False, True),  # the same
        (found("rps", 0.1, 2.9), True, False),
        (found("rps", 0.1, 2.9, 31.0), False, False),
        (found("rps", 0.21, 2.0), False, False),
        (found("rps", 0.2, 3.1), False, True),
        (found("rps", 0.1, 3.1), False, False),
    ],
)
def test_a_cell_is_lost_to_a_rival_with_no_more_misses_and_minutes(rival: Found, lost: bool, won: bool) -> None:
    other = found("rps", 0.9, 2.0)
    result = table.compared("multiqueue", 0.45, OWN, {"rps": [other, rival]})
    assert (result.lost_to, result.won_over) == (["rps"] if lost else [], ["rps"] if won else [])
    assert table.cells_of(result)["lost to"] == ("rps" if lost else "–")


def test_a_rival_is_shown_with_the_fewest_queues_that_miss_no_more_else_with_the_fewest_misses() -> None:
    tried = [found("rps", 0.25, 2.0), found("rps", 0.2, 4.0), found("rps", 0.1, 3.5)]
    assert table.best(OWN, tried) is tried[2]
    assert table.best(OWN, [*tried[:1], found("rps", 0.5, 1.0)]) is tried[0]


def test_a_run_that_costs_more_is_not_hidden_by_the_others() -> None:
    rare = [Played(0.1, 0.0, 4.0, 40.0), *[Played(0.2, 0.0, 3.0, 30.0)] * 2]
    assert not Found("rps", (), rare).beats(OWN)
    assert not OWN.beats(Found("rps", (), rare))
    cheaper = [Played(0.1, 0.0, 3.0, 30.0), *[Played(0.2, 0.0, 3.0, 30.0)] * 2]
    assert Found("rps", (), cheaper).beats(OWN)


def test_table_has_a_row_for_every_contract_of_every_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(calls: list[tuple[str, str, Setting, int]]) -> list[Played]:
        return [Played(0.1 if scaler == "ds2" else 0.2, 0.0, 3.0, 30.0) for _, scaler, _, _ in calls]

    monkeypatch.setattr(table.play, "each", play)
    request = Request(settings=NewsvendorSettings(seeds=(21, 22)))
    results = list(table.queues(request))
    assert len(results) == len(BY_NAME) * len(table.CONTRACTS)
    assert all("ds2" in result.lost_to for result in results)
    assert "28 of 28 cells lost" in table.note(results)


@pytest.mark.parametrize("scaler", GRIDS)
def test_settings_of_a_grid_are_parameters_of_their_scaler(scaler: str) -> None:
    assert table.play("multiqueue-falling", scaler, GRIDS[scaler][0], 21).queue_minutes > 0


def test_command_knows_the_table() -> None:
    assert table.TABLE in PAPERS["newsvendor"].tables
