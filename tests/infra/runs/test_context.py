"""A service that has died ends a run; one that is being started, or was stopped by a fault, does not."""

from typing import Any

import pytest

from infra.runs.context import RunContext
from penstock.errors import PenstockError


class Services:
    """Says at each check what the script says."""

    def __init__(self, *script: str) -> None:
        self.script = list(script)

    def check(self) -> None:
        if said := self.script.pop(0):
            raise PenstockError(said)


def context_on(services: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[RunContext, list[bool]]:
    context = RunContext.__new__(RunContext)
    context.services, context._next_check_s, context._seen_dead = services, 0.0, False
    killed: list[bool] = []
    monkeypatch.setattr(context, "_kill_all", lambda: killed.append(True))
    return context, killed


def test_a_service_that_stays_dead_ends_the_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.runs.context.CHECK_S", 0.0)
    context, killed = context_on(Services("", "kafka has died", "kafka has died"), monkeypatch)
    context.check_services()
    context.check_services()
    assert killed == []
    with pytest.raises(PenstockError, match="kafka has died"):
        context.check_services()
    assert killed == [True]


def test_a_service_that_is_dead_for_a_moment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.runs.context.CHECK_S", 0.0)
    context, killed = context_on(Services("kafka has died", "", "kafka has died", ""), monkeypatch)
    for _ in range(4):
        context.check_services()
    assert killed == []


def test_services_are_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    services = Services("", "")
    context, _ = context_on(services, monkeypatch)
    for _ in range(100):
        context.check_services()
    assert len(services.script) == 1
