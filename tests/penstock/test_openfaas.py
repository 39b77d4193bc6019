"""How a function of a pipeline is deployed, with what its user sets for it."""

import json

import msgspec

from penstock import __version__
from penstock.openfaas import deployment
from penstock.systems import FunctionSpec, FunctionSystem


def sent(**settings: str) -> dict[str, object]:
    """The body of the request."""
    function = FunctionSpec(name="sha256", service_time_s=0.03)
    system = msgspec.structs.replace(FunctionSystem(functions=(function,), deadline_s=1.0), **settings)
    made = deployment(function, system, replicas=1, max_replicas=3, seed=1, run="run-1", environment={})
    body: dict[str, object] = json.loads(msgspec.json.encode(made))
    return body


def test_image_secrets_and_limits_of_the_user_are_deployed() -> None:
    body = sent(
        image="registry.me/{function}-penstock:{version}-2",
        secrets="redis-url, pull",
        cpu_limit="500m",
        memory_limit="128Mi",
    )
    assert body["image"] == f"registry.me/sha256-penstock:{__version__}-2"
    assert body["secrets"] == ["redis-url", "pull"]
    assert body["limits"] == {"cpu": "500m", "memory": "128Mi"}


def test_by_default_the_image_is_penstocks_and_nothing_else_is_asked_for() -> None:
    body = sent()
    assert body["image"] == f"penstock/sha256:{__version__}"
    assert not {"secrets", "limits", "requests"} & body.keys()
