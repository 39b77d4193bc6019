"""What a closed run has left on a machine and on its services."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import psutil

from controller.fleets.function.provider_api import ProviderApi
from infra.local.orphans import marked
from infra.runs.function_replicas import functions_of
from infra.waiting import wait_until
from penstock.adapters.amqp import Management
from penstock.adapters.kafka import broker_errors
from penstock.adapters.process_manager import Supervisor
from penstock.adapters.redis import redis_client, redis_errors
from penstock.adapters.topics import admin_client
from penstock.errors import PenstockError
from penstock.settings import Endpoints

GONE_TIMEOUT_S: Final = 15.0
"""Kafka and RabbitMQ delete in the background."""
POLL_S: Final = 0.3


def left_for_good(find: Callable[[], Iterable[str]]) -> Sequence[str]:
    """What ``find`` finds and still finds after ``GONE_TIMEOUT_S``."""
    left: list[str] = []

    def gone() -> bool:
        left[:] = find()
        return not left

    with suppress(PenstockError):
        wait_until(gone, GONE_TIMEOUT_S, lambda: "", POLL_S)
    return left


def left_on_services(run: str, endpoints: Endpoints, state: Path, *, functions: bool = False) -> Iterator[str]:
    """Programs of the supervisor, processes that belong to state folder ``state``, topics, queues and keys; with
    ``functions`` also those of the gateway. Raises PenstockError for a service that does not answer.
    """
    for name in Supervisor(endpoints.require("supervisor")).programs(f"{run}:"):
        yield f"program {name}"
    for process in marked(state):
        with suppress(psutil.Error):
            if any(run in argument for argument in process.cmdline()):
                yield f"process {process.pid} {process.name()}"
    with broker_errors():
        topics = admin_client(endpoints.require("kafka")).list_topics(timeout=GONE_TIMEOUT_S).topics
    yield from (f"topic {topic}" for topic in topics if topic.startswith(f"{run}."))
    with redis_errors(), redis_client(endpoints.require("redis"), GONE_TIMEOUT_S) as client:
        yield from (f"key {key.decode()}" for key in client.scan_iter(match=f"penstock:{run}:*", count=1000))
    if endpoints.rabbitmq_management:
        with closing(Management(endpoints.require("rabbitmq_management"))) as management:
            if run in management.runs():
                yield "queues in RabbitMQ"
    if functions:
        with closing(ProviderApi(endpoints.require("gateway"))) as api:
            yield from (f"function {name}" for name in functions_of(api, run))
