"""A shell is told the names that are typed most."""

from pathlib import Path

import pytest

from experiments.command import complete_experiments
from penstock import completion


def test_scalers_are_completed_also_as_the_last_of_a_list() -> None:
    assert set(completion.scalers("binpack")) == {"binpack", "binpack-tail"}
    assert completion.scalers("hpa,lin") == ["hpa,linear"]
    assert completion.scalers("nothing-like-this") == []


def test_experiments_are_completed() -> None:
    assert complete_experiments("multiqueue-f") == ["multiqueue-falling"]


def test_runs_are_completed_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    for name, file in (("20260101-a", "run.json"), ("20260102-b", "compare.json"), ("20260103-c", "notes.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    assert completion.runs("") == [str(tmp_path / "20260102-b"), str(tmp_path / "20260101-a")]
    assert completion.runs(str(tmp_path / "20260101")) == [str(tmp_path / "20260101-a")]
