"""Samples of the machine's load, and the outcomes that end a run."""

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from infra.local.collect import MachineSampler, OutcomeCounter
from penstock.records import Result


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


def test_only_outcomes_of_the_runs_own_events_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can write on the topic: other ids would end the run before its last events."""
    own = Result(1, "r", "p", "s", "completed", "q", 1, 1, 1, 1, 1, "w")
    others: list[dict[str, Any]] = [{"id": 3}, {"id": -1}, {"id": None}, {"run": "other", "id": 2}]
    results = [own, own, *(msgspec.structs.replace(own, **each) for each in others)]
    results.append(msgspec.structs.replace(own, id=0, terminal=False))
    messages = [SimpleNamespace(error=lambda: None, value=partial(msgspec.json.encode, each)) for each in results]
    consumer = SimpleNamespace(consume=lambda *_, **__: [messages.pop(0)] if messages else [])
    monkeypatch.setattr("infra.local.collect.make_consumer", lambda *_: consumer)
    monkeypatch.setattr("infra.local.collect.assign_from_start", lambda *_: None)
    assert OutcomeCounter("kafka", "results", "r", scheduled=3).count() == 1
    assert messages == []
