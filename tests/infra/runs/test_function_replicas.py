"""A gateway that cannot be used ends a run with one line; what it keeps of a run without a controller is deleted."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.fleets.function.provider_api import ProviderApi
from infra import waiting
from infra.local.ports import free_port
from infra.runs import function_replicas
from infra.runs.function_replicas import OF_THE_GATEWAY, FunctionReplicas, functions_of
from penstock.errors import PenstockError
from penstock.openfaas import RUN
from penstock.runspec import Fault, FaultKind
from penstock.settings import Endpoints
from tests.controller.fleets.function.openfaas_stub import SECRET, stub_gateway


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_replicas, "GATEWAY_S", 0.3)


def check(url: str, *faults: FaultKind, users: bool = True) -> None:
    spec = SimpleNamespace(faults=[Fault(kind, 1.0) for kind in faults])
    context = SimpleNamespace(endpoints=Endpoints(gateway=url), spec=spec)  # type: ignore[arg-type]
    services = SimpleNamespace(state=None, has_users_gateway=users)
    FunctionReplicas(cast(Any, context), cast(Any, services)).check()


def test_a_gateway_that_answers_is_left_as_it_is() -> None:
    with stub_gateway() as gateway:
        check(gateway.url)
        assert gateway.asked == [("GET", "/system/functions")]


def test_a_gateway_that_is_away_is_one_line_with_its_address() -> None:
    port = free_port()
    with pytest.raises(PenstockError) as raised:
        check(f"http://admin:{SECRET}@127.0.0.1:{port}")
    line = str(raised.value)
    assert line.startswith(f"gateway 127.0.0.1:{port}: ConnectError") and line.count("\n") == 0
    assert line.endswith("PENSTOCK_GATEWAY is its address") and SECRET not in line


@pytest.mark.parametrize("url", ["https://u:a-secret@faas.example", "http://u:a-secret@h:port", "faas.example"])
def test_a_url_that_the_pipeline_manager_cannot_use_is_one_line(url: str) -> None:
    with pytest.raises(PenstockError, match=r"^gateway .*: expected http://\[user:password@\]host:port$") as raised:
        check(url)
    assert "a-secret" not in str(raised.value)


def test_a_gateway_that_comes_back_in_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_replicas, "GATEWAY_S", 60.0)
    with stub_gateway() as gateway:
        gateway.away = True
        until_then = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: setattr(gateway, "away", False))
        monkeypatch.setattr(waiting, "time", until_then)
        check(gateway.url)
        assert len(gateway.asked) == 2


def test_a_wrong_password_is_final_at_once() -> None:
    with stub_gateway() as gateway:
        with pytest.raises(PenstockError, match=r"user or password in PENSTOCK_GATEWAY is wrong \(401\)$"):
            check(gateway.url.replace(SECRET, "guessed"))
        assert len(gateway.asked) == 1


@pytest.mark.parametrize("fault", OF_THE_GATEWAY)
def test_a_fault_that_would_break_the_users_gateway_is_refused(fault: FaultKind) -> None:
    with stub_gateway() as gateway:
        with pytest.raises(PenstockError, match=f"^--fault {fault}: PENSTOCK_GATEWAY is yours"):
            check(gateway.url, "kill-controller", fault)
        assert not gateway.asked
        check(gateway.url, "kill-controller")
        check(gateway.url, fault, users=False)


def context_on(url: str, *, service_lost: bool, answers: bool = True) -> Any:
    return SimpleNamespace(
        service_lost=service_lost,
        answers=lambda name: answers and name == "gateway",
        endpoints=SimpleNamespace(require=lambda name: url),
        spec=SimpleNamespace(run="mine"),
    )


@pytest.mark.parametrize(
    ("service_lost", "answers", "left"),
    [
        (True, True, ["other"]),
        (False, True, ["mine-1", "mine-2", "other"]),
        (True, False, ["mine-1", "mine-2", "other"]),
    ],
    ids=["a service has died", "the controller has ended them", "the gateway has died"],
)
def test_a_run_without_a_controller_deletes_its_functions(service_lost: bool, answers: bool, left: list[str]) -> None:
    with stub_gateway() as gateway:
        for name in ("mine-1", "mine-2"):
            gateway.put(name, 1, annotations={RUN: "mine"})
        gateway.put("other", 1, annotations={RUN: "another"})
        context = context_on(gateway.url, service_lost=service_lost, answers=answers)
        FunctionReplicas(context, cast(Any, SimpleNamespace(state=None))).close()
        assert sorted(gateway.functions) == left
        api = ProviderApi(gateway.url)
        assert functions_of(api, "mine") == [name for name in left if name != "other"]
        api.close()
