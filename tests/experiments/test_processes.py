"""Simulations that tables share are made once, by processes on all cores."""

import os

import pytest

from experiments import processes
from experiments.processes import Remembered


@Remembered
def squared(number: int) -> tuple[int, int]:
    """The process that did it, and the square."""
    return os.getpid(), number * number


def test_each_call_is_made_once_and_the_outcomes_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    first = squared.each((number,) for number in (3, 1, 2, 3))
    assert [square for _, square in first] == [9, 1, 4, 9]
    assert first[0] == squared(3) and first[0][0] == os.getpid()
    assert {process for process, _ in first[1:3]} - {os.getpid()}
    assert squared.each([(2,), (1,)]) == [first[2], first[1]]


def test_few_calls_need_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    assert {process for process, _ in squared.each([(11,), (12,)])} == {os.getpid()}


def test_cores_are_counted_where_the_system_restricts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processes.cores() == os.cpu_count()
