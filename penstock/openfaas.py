"""The records of the OpenFaaS provider API (``/system/…``), and how a function of a pipeline is deployed with it.

Field names on the wire are OpenFaaS' own. Messages of Penstock's own are in ``penstock.function_messages``.
"""

from collections.abc import Mapping

import msgspec

from penstock import __version__
from penstock.errors import PenstockError
from penstock.systems import FunctionSpec, FunctionSystem

NAMESPACE = "openfaas-fn"
"""Namespace of all functions: the only one that OpenFaaS CE and Penstock's gateway have."""

MIN_REPLICAS = "com.openfaas.scale.min"
"""Label: replicas right after the deployment."""
MAX_REPLICAS = "com.openfaas.scale.max"
"""Label: more are not granted."""
QUEUE_LIMIT = "com.penstock.queue-limit"
"""Annotation: requests that may wait at the gateway while all replicas are busy; 0 answers 429 at once."""

RUN = "penstock.run"
"""Annotation: the run, or the program, that has deployed the function. One without it is not Penstock's."""

WAITING_AT_MOST = 1000
"""``QUEUE_LIMIT`` where the gateway queues."""


class FunctionDeployment(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Body of POST and PUT /system/functions. ``env_vars`` is the environment of its replicas. Go clients send null for
    what is not set.
    """

    service: str
    image: str
    namespace: str = ""
    env_process: str | None = None
    env_vars: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    secrets: tuple[str, ...] | None = None
    constraints: tuple[str, ...] | None = None
    limits: Mapping[str, str] | None = None
    requests: Mapping[str, str] | None = None
    read_only_root_filesystem: bool = False

    @property
    def environment(self) -> Mapping[str, str]:
        """``env_vars``, empty for null."""
        return self.env_vars or {}


class DeployedFunction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A deployed function. ``replicas`` are those wanted, ``available_replicas`` those that take requests."""

    name: str
    image: str = ""
    namespace: str = ""
    env_process: str | None = None
    env_vars: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    secrets: tuple[str, ...] | None = None
    invocation_count: float = 0
    replicas: int = 0
    available_replicas: int = 0
    created_at: str = ""


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Body of POST /system/scale-function/{name}."""

    service_name: str = ""
    namespace: str = ""
    replicas: int


class DeleteRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Body of DELETE /system/functions."""

    function_name: str
    namespace: str = ""


def check_namespace(namespace: str) -> None:
    """PenstockError, in OpenFaaS CE's words, unless it is ``NAMESPACE`` or empty, which stands for it."""
    if namespace not in ("", NAMESPACE):
        raise PenstockError(f"namespace must be: {NAMESPACE}")


def function_of(name: str) -> str:
    """The function that a caller names as NAME or NAME.NAMESPACE. PenstockError for another namespace."""
    function, dot, namespace = name.partition(".")
    check_namespace(namespace or dot)
    return function


def deployment(
    function: FunctionSpec,
    system: FunctionSystem,
    *,
    replicas: int,
    max_replicas: int,
    seed: int,
    run: str,
    environment: Mapping[str, str],
) -> FunctionDeployment:
    """How a function of a pipeline is deployed for a run. ``environment``: more variables of its replicas
    (``redis_url``).
    """
    waiting = WAITING_AT_MOST if system.when_busy == "queue" else 0
    limits = {name: value for name, value in (("cpu", system.cpu_limit), ("memory", system.memory_limit)) if value}
    return FunctionDeployment(
        service=function.name,
        image=system.image.replace("{function}", function.name).replace("{version}", __version__),
        env_vars={
            "floor_s": repr(function.service_time_s),
            "service_law": function.service_law,
            "service_scv": repr(function.service_scv),
            "cold_start_s": repr(system.cold_start_s),
            "seed": str(seed),
            **environment,
        },
        labels={MIN_REPLICAS: str(replicas), MAX_REPLICAS: str(max_replicas)},
        annotations={QUEUE_LIMIT: str(waiting), RUN: run},
        secrets=tuple(each.strip() for each in system.secrets.split(",") if each.strip()) or None,
        limits=limits or None,
    )
