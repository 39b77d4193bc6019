"""Puts the simulated parts in the place of client libraries, threads and clocks in all product modules."""

import http
import importlib
import logging
import sys
import warnings
from typing import Any

from tests.faults import gateway, kafka_broker, kubernetes_api, machine, network, rabbit_broker, redis_server
from tests.faults.kernel import MODULES

PRESENT: list[Any] = []
"""The world of the present run, last."""
PACKAGES = ("penstock.", "controller.", "consumers.", "functions.")
LOADED = (
    "controller.main",
    "consumers.worker",
    "consumers.app",
    "controller.fleets.stream.fleet",
    "controller.fleets.stream.pod_actuator",
    "controller.fleets.queue.fleet",
    "controller.fleets.queue.forwarder",
    "controller.fleets.network.fleet",
    "controller.fleets.function.fleet",
    "functions.dataflow.manager",
    "functions.dataflow.connectors.kafka",
)


def nothing(*_: Any, **__: Any) -> None:
    """In place of what a simulation has no use for."""


class TickWatch:
    """``controller.exposition.ControllerMetrics``: the checks see each tick that was journaled."""

    def __init__(self, *_: Any, **__: Any) -> None:
        return

    def tick(self, record: Any) -> None:
        PRESENT[-1].observe_tick(record)

    def replicas(self, events: Any) -> None:
        return


def make_live_scaler(*_: Any) -> Any:
    """``controller.assembly.make_live_scaler``."""
    return PRESENT[-1].scaler()


def listen(host: str, port: int, way_out: str) -> tuple[network.Listener, int]:
    """``penstock.sockets.listen``."""
    del host, way_out
    listener = network.Listener(network.HttpConnection.network, port)
    return listener, listener.port


def install() -> None:
    """Once for a Python process. From then on product code runs only within a simulation."""
    for name in LOADED:
        importlib.import_module(name)
    import httpx
    import kubernetes
    import uvicorn
    from confluent_kafka import Producer
    from kubernetes.watch import Watch

    import controller.assembly
    import controller.exposition
    import penstock.adapters.amqp
    import penstock.adapters.exposition
    import penstock.adapters.kafka
    import penstock.adapters.kubernetes.deployment
    import penstock.adapters.process_manager
    import penstock.adapters.redis
    import penstock.sockets
    from consumers import worker
    from consumers.group import GroupConsumer
    from functions.dataflow import manager, publisher
    from functions.dataflow.http import HttpPool

    places: dict[int, Any] = {id(real): simulated for real, simulated in MODULES.items()}
    places |= {
        id(http): network.HttpClient(),
        id(httpx): gateway.Httpx(),
        id(HttpPool): gateway.Pool,
        id(uvicorn): network.Uvicorn(),
        id(kubernetes): kubernetes_api.Library(),
        id(penstock.adapters.kubernetes.deployment.api_client): nothing,
        id(Watch): kubernetes_api.Stream,
        id(penstock.sockets.listen): listen,
        id(penstock.adapters.redis.redis_client): redis_server.RedisClient,
        id(penstock.adapters.redis.async_redis_client): redis_server.AsyncRedisClient,
        id(Producer): kafka_broker.Producer,
        id(penstock.adapters.kafka.make_consumer): kafka_broker.Consumer,
        id(GroupConsumer): kafka_broker.GroupClient,
        id(penstock.adapters.process_manager.Supervisor): machine.ManagerClient,
        id(penstock.adapters.amqp.Link): rabbit_broker.Link,
        id(penstock.adapters.amqp.Management): rabbit_broker.Management,
        id(penstock.adapters.amqp.Depths): rabbit_broker.Depths,
        id(penstock.adapters.exposition.expose): nothing,
        id(controller.exposition.ControllerMetrics): TickWatch,
        id(controller.assembly.make_live_scaler): make_live_scaler,
    }
    for name, module in list(sys.modules.items()):
        if not name.startswith(PACKAGES):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in places and not attribute.startswith("__"):
                setattr(module, attribute, places[id(value)])
    for module, name, value in ((manager, "REPORTS_S", 0.05), (publisher, "INTERVAL_S", 0.2), (worker, "IDLE_MS", 200)):
        setattr(module, name, value)  # less to simulate: records and rebalances wake a worker that waits
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
