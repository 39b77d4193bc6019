"""The table of functions: every rival gets a search on the load that is scored, and a loss is a loss."""

from collections.abc import Iterator

import pytest

from experiments import processes
from experiments.newsvendor import functions as table
from experiments.newsvendor.functions import RIVALS, Cell, CellResult, Found, Played, Setting
from experiments.newsvendor.tables import NewsvendorSettings
from experiments.paper import Rendering, Request
from experiments.papers import PAPERS
from penstock.errors import PenstockError

CELL = Cell("synthetic", 0.99)


def found(scaler: str, late: int, minutes: float, setting: Setting = ()) -> Found:
    return Found(scaler, setting, [Played(1000, late, minutes), Played(1000, late, minutes)])


def result(own: tuple[int, float], rival: tuple[int, float], cell: Cell = CELL) -> CellResult:
    unable = found("dwp", 500, 1.0)
    return CellResult(cell, found(table.OWN, *own), found("amesos", 20, 50.0), [found("lass", *rival), unable])


@pytest.mark.parametrize(
    ("own", "rival", "lost", "fewer_late"),
    [
        ((9, 25.0), (9, 26.0), False, []),
        ((9, 25.0), (5, 26.0), False, ["lass"]),
        ((9, 25.0), (10, 24.9), True, []),
        ((11, 20.0), (10, 26.0), True, ["lass"]),
        ((11, 20.0), (11, 10.0), False, []),
    ],
)
def test_a_cell_is_lost_to_a_rival_that_keeps_the_contract_for_less_or_alone(
    own: tuple[int, float], rival: tuple[int, float], lost: bool, fewer_late: list[str]
) -> None:
    compared = result(own, rival)
    assert compared.lost == lost
    assert compared.fewer_late == fewer_late
    row = table.cells_of(compared)
    assert row["result"] == ("lost" if lost else "won")
    assert row[table.OWN]["contract"] == ("kept" if own[0] <= 10 else "missed")


def test_the_paper_s_scaler_as_published_is_a_rival_too() -> None:
    kept = found("amesos", 10, 20.0)
    assert result((9, 25.0), (5, 26.0))._replace(published=kept).lost


def test_lost_cells_are_first_and_then_those_with_fewer_late_requests_elsewhere() -> None:
    won, open_, lost = result((9, 25.0), (9, 26.0)), result((9, 25.0), (5, 26.0)), result((9, 25.0), (9, 24.0))
    assert table.in_order([won, open_, lost]) == [lost, open_, won]


def test_the_cheapest_that_keeps_the_contract_is_chosen_else_the_one_with_the_fewest_late() -> None:
    tried = [found("rps", 20, 10.0), found("rps", 10, 26.0), found("rps", 5, 28.0)]
    assert table.best(tried, 0.01).cost == 26.0
    assert table.best(tried, 0.001).cost == 28.0


def test_cheaper_settings_that_nearly_keep_the_contract_go_on_beside_those_that_keep_it() -> None:
    tried = [
        found("rps", late, minutes, (("rho", rho),))
        for late, minutes, rho in ((90, 8.0, 1.0), (12, 9.0, 0.9), (10, 10.0, 0.8), (5, 11.0, 0.7), (40, 12.0, 0.6))
    ]
    assert table.promising(tried, 0.01, 1) == [(("rho", 0.9),), (("rho", 0.8),)]
    assert table.promising(tried, 0.001, 2) == [(("rho", 0.8),), (("rho", 0.7),)]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Setting, int]]]:
    """What was played, on a load where ρ 0.85 is the largest that keeps 99 %, but 0.875 keeps it on the first seeds."""
    calls = []

    def play(_: str, scaler: str, setting: Setting, seed: int) -> Played:
        calls.append((scaler, setting, seed))
        if scaler == table.OWN or not setting:
            return Played(1000, 8, 90.0)
        rho, interval_s = (dict(setting)[name] for name in ("rho", "decision_interval_s"))
        late = 5 if rho <= 0.85 else 10 if rho <= 0.88 and seed <= table.CLOSER_SEEDS else 30
        return Played(1000, late, 100.0 / rho + interval_s)

    monkeypatch.setattr(processes, "cores", lambda: 1)
    monkeypatch.setattr(table, "play", processes.Remembered(play))
    monkeypatch.setattr(table, "grid", lambda *_: table._settings(rho=(0.7, 0.8, 0.9)))
    yield calls


def test_a_rival_is_refined_and_has_to_keep_the_contract_on_all_seeds(played: list[tuple[str, Setting, int]]) -> None:
    chosen = table.tuned(CELL, "rps", range(1, 11))
    assert dict(chosen.setting) == {"rho": 0.85, "decision_interval_s": 1.0}
    assert len(chosen.runs) == 10
    on_all = {setting for _, setting, seed in played if seed == 10}
    assert (("rho", 0.875), ("decision_interval_s", 1.0)) in on_all  # cheaper, and tried
    assert len(played) == len(set(played))


def test_a_rival_that_nearly_keeps_the_contract_is_made_safer_in_fine_steps(
    played: list[tuple[str, Setting, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "FINER", (0.125,))  # 0.8675 is too large, two steps more are not
    monkeypatch.setattr(table, "CLOSER_GOING_ON", 1)
    monkeypatch.setattr(table, "grid", lambda *_: table._settings(rho=(0.88,)))
    monkeypatch.setattr(table, "NEAR", 3.5)
    assert dict(table.tuned(CELL, "rps", range(1, 11)).setting)["rho"] == pytest.approx(0.8425)
    monkeypatch.setattr(table, "NEAR", 2.0)  # 2.4 % late is too far away
    assert table.tuned(CELL, "rps", range(1, 11)).late > CELL.allowed


def test_the_table_has_a_row_for_each_contract_with_its_seeds_and_the_settings_of_all_rivals(
    played: list[tuple[str, Setting, int]],
) -> None:
    steps: list[str] = []
    settings = NewsvendorSettings(seeds=(1, 2), pipelines="synthetic")
    made = Rendering(table.TABLE, list(table.functions(Request(settings=settings, progress=steps.append))))
    assert steps[0] == "1 of 10: synthetic, 99 %: newsvendor-function"
    [first, second] = made.as_data()["rows"]
    assert (first["pipeline, contract"], first["seeds"]) == ("synthetic, 99 %", 2)
    assert first["rps setting"] == "rho=0.875, decision_interval_s=1"
    assert second["pipeline, contract"] == "synthetic, 99.9 %"
    for rival in RIVALS:
        assert first[f"{rival} contract"] == "kept" and second[f"{rival} contract"] == "missed"
    assert "0.800 % @ 90.00 (90.00–90.00), missed |" in made.markdown()
    assert {setting for scaler, setting, _ in played if scaler == table.OWN} == {
        (("slo_share", 0.99),),
        (("slo_share", 0.999),),
    }


@pytest.mark.parametrize("rival", RIVALS)
def test_all_rivals_choose_among_the_same_decision_intervals(rival: str) -> None:
    settings = table.grid("matrix", rival)
    assert {dict(setting)["decision_interval_s"] for setting in settings} == set(table.INTERVALS_S)
    assert len(settings) == len(set(settings))
    for setting in table.beside(settings[-1], 0.5):
        assert setting not in settings
        assert dict(setting).get("rho", 1.0) <= 1


@pytest.mark.parametrize(
    ("settings", "near"),
    [(NewsvendorSettings(pipelines="matrices"), "matrix"), (NewsvendorSettings(rivals="lass,dpw"), "dwp")],
)
def test_an_unknown_pipeline_or_rival_is_refused_with_the_nearest_name(settings: NewsvendorSettings, near: str) -> None:
    with pytest.raises(PenstockError, match=near):
        list(table.functions(Request(settings=settings)))


def test_rivals_that_are_not_chosen_are_not_played(played: list[tuple[str, Setting, int]]) -> None:
    settings = NewsvendorSettings(seeds=(1, 2), pipelines="synthetic", rivals="rps")
    rows = list(table.functions(Request(settings=settings)))
    assert [[rival.scaler for rival in row.rivals] for row in rows] == [["rps"], ["rps"]]
    assert {scaler for scaler, setting, _ in played if setting} == {table.OWN, "rps"}


def test_the_command_has_the_table() -> None:
    assert [each.name for each in PAPERS["newsvendor"].select(["functions"])] == ["functions"]
