"""Samples of the machine's load."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.local.collect import MachineSampler


def test_the_first_sample_is_of_the_second_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_by: set[int] = set()

    def cpu_times_percent() -> SimpleNamespace:
        """As psutil's: nothing is known of the time before a thread's first call, and all shares of it are 0."""
        known = threading.get_ident() in asked_by
        asked_by.add(threading.get_ident())
        return SimpleNamespace(idle=75.0 if known else 0.0, iowait=0.0, nice=0.0, steal=0.0)

    monkeypatch.setattr("infra.local.collect.psutil.cpu_times_percent", cpu_times_percent)
    sampler = MachineSampler()
    seconds = iter((False, False, True))
    sampler._stop = cast(Any, SimpleNamespace(wait=lambda _: next(seconds)))
    sampler.start()
    sampler._thread.join()
    assert [row["cpu_busy_share"] for row in sampler._rows] == [0.25, 0.25]
