"""Only a run with a cut among its faults has proxies; each leads the part that is cut, and no other."""

from types import SimpleNamespace
from typing import Any

import pytest

from infra.runs.context import RunContext
from infra.runs.cuts import AROUND_KAFKA, cuts_of
from penstock.adapters.process_manager import replica_environment
from penstock.runspec import Fault

DIRECT, WORKERS, MONITOR = "127.0.0.1:1", "127.0.0.2:2", "127.0.0.2:3"
SERVICES: Any = SimpleNamespace(port={"kafka_workers_port": 2, "kafka_monitor_port": 3}.__getitem__)


def context_of(*faults: Fault) -> RunContext:
    context = RunContext.__new__(RunContext)
    context.spec = SimpleNamespace(faults=faults)  # type: ignore[assignment]
    context.environment = {"PENSTOCK_KAFKA": DIRECT}
    return context


def test_a_run_without_a_cut_has_no_proxy() -> None:
    context = context_of(Fault("kill-worker", 1.0), Fault("fill-disk", 2.0, 1.0))
    assert cuts_of(context, SERVICES, AROUND_KAFKA) == {}
    assert not context.detours


@pytest.mark.parametrize(
    ("kinds", "controller", "replica"),
    [
        (("cut-workers",), DIRECT, WORKERS),
        (("cut-controller",), MONITOR, DIRECT),
        (("cut-workers", "cut-controller"), MONITOR, WORKERS),
    ],
)
def test_each_cut_leads_its_part_through_a_proxy(
    kinds: Any, controller: str, replica: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(*(Fault(kind, 1.0, 1.0) for kind in kinds))
    assert set(cuts_of(context, SERVICES, AROUND_KAFKA)) == set(kinds)
    own = {**context.environment, **context.detours}
    assert own["PENSTOCK_KAFKA"] == controller
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    given = replica_environment()
    assert given["PENSTOCK_KAFKA"] == replica
    assert "PENSTOCK_REPLICAS_KAFKA" not in given
