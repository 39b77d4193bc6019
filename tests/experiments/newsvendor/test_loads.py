"""The contract on drawn loads: every load is its number's, and a miss is a miss unless the scaler said why."""

import pytest

from experiments.newsvendor import loads as table
from experiments.newsvendor.loads import HIGHEST, Load, Played
from experiments.newsvendor.tables import NewsvendorSettings
from experiments.paper import Rendering, Request
from experiments.papers import PAPERS


def test_a_number_is_one_load_that_the_largest_fleet_can_serve() -> None:
    drawn = [Load.drawn(number) for number in range(1, 61)]
    assert drawn[:5] == [Load.drawn(number) for number in range(1, 6)]
    assert {load.start_up_s for load in drawn} == set(table.START_UPS_S)
    assert {load.rebalance_s for load in drawn} == set(table.REBALANCES_S)
    assert {load.arrivals for load in drawn} == set(HIGHEST)
    for load in drawn:
        assert max(load.weights) * load.peak_per_s <= HIGHEST[load.arrivals] + 1
        experiment = load.experiment()
        assert 1 <= experiment.initial_replicas <= experiment.max_replicas == len(load.weights)


@pytest.mark.parametrize(
    ("share", "refused", "result"),
    [(0.99, "", "kept"), (0.987, "", "kept"), (0.9869, "", "missed"), (0.9, "too steep", "refused")],
)
def test_a_run_is_missed_by_more_than_the_margin_unless_it_is_refused(share: float, refused: str, result: str) -> None:
    assert Played(Load.drawn(1), share, 20.0, refused).result == result


def test_the_table_has_missed_loads_first_and_counts_refused_ones_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {1: 0.991, 2: 0.95, 3: 0.98}

    class Plays:
        @staticmethod
        def each(calls: list[tuple[int, bool]]) -> list[Played]:
            return [
                Played(Load.drawn(number), shares[number], 20.0, "a jump" if number == 2 else "", 0.999)
                for number, announced in calls
                if not announced
            ]

    monkeypatch.setattr(table, "play", Plays)
    request = Request(settings=NewsvendorSettings(first=1, loads=3))
    made = Rendering(table.TABLE, list(table.loads(request)))
    assert [row["load"] for row in made.as_data()["rows"]] == [3, 2, 1]
    text = made.markdown()
    assert "1 of 3 runs (33.3 %) miss the contract of 99 % by more than 0.3 points, 1 more are refused" in text
    assert "| 1 | kept |" not in text  # people see those that were not kept
    assert PAPERS["newsvendor"].select(["loads"]) == [table.TABLE]


def test_a_load_is_played_with_the_largest_fleet_too_when_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MARGIN", -0.1)  # no run keeps it
    number = next(each for each in range(1, 100) if sum(Load.drawn(each).weights) * Load.drawn(each).peak_per_s < 120)
    played = table.play(number)
    assert played.result == "missed"
    assert played.all_share is not None and played.all_share > 0.999
    assert 5 < played.minutes < 10 * len(played.load.weights)


@pytest.mark.parametrize("number", [90, 133, 156])
def test_a_load_that_jumps_early_is_kept_where_its_peak_is_announced(number: int) -> None:
    untold, told = (table.play(number, announced) for announced in (False, True))
    assert untold.result == "refused"
    assert told.result == "kept"
