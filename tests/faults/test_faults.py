"""Seeds of the simulation: none finds a violation in the code as it is, each planted bug is found."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.faults.bugs import BUGS, FOUND_BY

ROOT = Path(__file__).resolve().parents[2]


def faults(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: the simulation puts its parts into product modules."""
    return subprocess.run(
        [sys.executable, "-m", "tests.faults", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_handful_of_seeds_of_each_kind_of_fleet_find_nothing() -> None:
    done = faults("--seeds", "5", "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_thousand_seeds_find_nothing() -> None:
    done = faults("--seeds", "1000", "--first", "100000")
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def planted() -> dict[str, dict[str, str]]:
    """What each bug's seed finds with it and without it."""
    done = faults("--planted")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_by_its_seed(bug: str) -> None:
    assert FOUND_BY[bug] < 1000
    assert planted()[bug]["with"], f"seed {FOUND_BY[bug]} does not show it; --bug finds another one"
    assert "died of" not in planted()[bug]["with"], "the planted code does not fit the product any more"
    assert planted()[bug]["without"] == ""


@pytest.mark.long
def test_a_failing_seed_replays_exactly_and_is_shrunk() -> None:
    words = (
        "--fleet",
        "stream",
        "--seed",
        str(FOUND_BY["an event finished twice"]),
        "--plant",
        "an event finished twice",
    )
    once, again = (faults(*words) for _ in range(2))
    assert (once.returncode, once.stdout) == (1, again.stdout)
    assert "was finished twice" in once.stdout
    shrunk = faults(*words, "--shrink")
    before, after = (
        [line for line in each.stdout.splitlines() if line.startswith("fault ")] for each in (once, shrunk)
    )
    assert 0 < len(after) < len(before)
    assert "was finished twice" in shrunk.stdout
