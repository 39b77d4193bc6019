"""What a gateway keeps of a run whose controller could not end its functions."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.fleets.function.provider_api import ProviderApi
from infra.runs.function_replicas import FunctionReplicas, functions_of
from penstock.openfaas import RUN
from tests.controller.fleets.function.openfaas_stub import stub_gateway

ALL = ["mine-1", "mine-2", "other"]


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
        FunctionReplicas(context, cast(Any, None)).close()
        assert sorted(gateway.functions) == left
        api = ProviderApi(gateway.url)
        assert functions_of(api, "mine") == [name for name in left if name != "other"]
        api.close()
