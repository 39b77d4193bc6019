"""The soak finds a leak in one long life and over many short ones, and names each count that must not be."""

import argparse
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from tests.bench.soak import EXPECTED, STORES, Life, Seen, events, faults, memory
from tests.experiments.synthetic import Toy, write_run

HOUR_S = 3600.0


def life(began_s: float, lasts_s: float, mb: float, mb_per_s: float = 0.0) -> Life:
    return [(began_s + at_s, mb + mb_per_s * at_s) for at_s in range(0, int(lasts_s) + 1, 10)]


def seen_with(program: str = "", *lives: Life) -> Seen:
    """Every expected program is flat, but for these lives of ``program``."""
    seen: Seen = defaultdict(list)
    for name in EXPECTED:
        for number, each in enumerate(lives if name == program else [life(0, 3590, 100.0)]):
            seen[name, number, each[0][0]] = each
    return seen


def test_programs_that_stay_flat_break_no_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(memory(HOUR_S, seen_with())) == []
    assert "| kafka | 1 | 3590 | 100 | 100 | yes |" in capsys.readouterr().out


def test_a_long_life_that_grows_is_named() -> None:
    assert list(memory(HOUR_S, seen_with("producers.send", life(0, 3590, 100.0, 0.02)))) == [
        "producers.send grew from 127 to 163 MB"
    ]


def test_short_lives_of_which_each_begins_larger_are_named() -> None:
    lives = [life(begin, 400, 100.0 + begin / 36) for begin in range(0, 3200, 400)]
    assert list(memory(HOUR_S, seen_with("controller.main", *lives))) == ["controller.main grew from 139 to 178 MB"]
    alike = [life(begin, 400, 100.0, 0.2) for begin in range(0, 3200, 400)]
    assert list(memory(HOUR_S, seen_with("controller.main", *alike))) == [], "each life warms up alike"


def test_a_program_without_lives_to_compare_fails_a_whole_soak_only() -> None:
    short = seen_with("kafka", *(life(begin, 60, 100.0) for begin in range(0, 3200, 400)))
    assert list(memory(HOUR_S, short)) == ["kafka had no life that can be compared"]
    assert list(memory(600.0, seen_with("kafka", life(0, 60, 100.0)))) == []


def test_a_program_that_was_never_sampled_is_named() -> None:
    seen = seen_with()
    del seen["penstock", 0, 0.0]
    assert list(memory(HOUR_S, seen)) == ["penstock was never seen"]


def test_the_broker_s_heap_may_fill() -> None:
    assert list(memory(HOUR_S, seen_with("kafka", life(0, 3590, 400.0, 0.03)))) == []
    assert list(memory(HOUR_S, seen_with("kafka", life(0, 3590, 400.0, 0.08)))) == ["kafka grew from 508 to 652 MB"]


@pytest.mark.parametrize("store", STORES)
def test_a_store_is_shown_and_not_judged(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(memory(HOUR_S, seen_with(store, life(0, 3590, 100.0, 1.0)))) == []
    assert f"| {store} | 1 | 3590 |" in capsys.readouterr().out


# --- events and faults -----------------------------------------------------------------------------------------------


def claims(directory: RunDirectory, seconds: float) -> list[str]:
    return list(events(argparse.Namespace(seconds=seconds, seed=1), directory))


def test_each_count_that_must_not_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_run(tmp_path, Toy(seconds=20))
    assert claims(directory, 60.0) == []
    good = summary_of(RunData(directory))
    replace = msgspec.structs.replace
    bad = replace(good.conservation, lost=1, in_flight=2, failed=3, dead_lettered=4, acknowledged=0)
    monkeypatch.setattr("tests.bench.soak.summary_of", lambda _: replace(good, conservation=bad, verdict="INVALID"))
    monkeypatch.setattr("tests.bench.soak.finished_twice", lambda _: 5)
    found = claims(directory, 60.0)
    assert found[:4] == ["1 lost", "5 finished twice", "2 left over", "7 failed"]
    assert found[4] == f"{good.conservation.scheduled} not issued"
    assert found[-1] == "the run is INVALID"


def test_a_fault_that_was_not_injected_or_hit_nothing_is_named(tmp_path: Path) -> None:
    plan = [text.partition("@")[0] for text in faults(180.0, 1)]
    missing = claims(write_run(tmp_path, Toy(seconds=20)), 180.0)
    assert missing[0].startswith("injected faults {}, planned {")
    assert missing[1:] == [f"no {kind} had an effect" for kind in plan]
