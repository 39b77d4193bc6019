"""Cuts of the network between a part of a run and its broker.

A run with such a fault has a proxy on the way, from its beginning; every other run has none.
"""

import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from infra.local.kafka import BEHIND_PROXY
from infra.local.service import listens
from infra.runs.context import RunContext
from infra.runs.faults import Injected
from penstock.adapters.process_manager import OF_REPLICAS
from penstock.runspec import FaultKind

if TYPE_CHECKING:
    from infra.local.services import LocalServices

START_TIMEOUT_S: Final = 30.0


class Detour(NamedTuple):
    """The way through a proxy to ``port``. ``variable`` leads the part to it with ``url``; ``between`` names both."""

    between: str
    port: int
    variable: str
    url: str


Detours = Mapping[FaultKind, Callable[["LocalServices"], Detour]]


def _around_kafka(between: str, setting: str, variable: str) -> Callable[["LocalServices"], Detour]:
    """The part has a listener of the broker's that tells the proxy's address; ``setting`` is that of its port."""

    def of(services: "LocalServices") -> Detour:
        port = services.port(setting)
        return Detour(between, port, variable, f"{BEHIND_PROXY}:{port}")

    return of


AROUND_KAFKA: Final[Detours] = {
    "cut-workers": _around_kafka("workers and Kafka", "kafka_workers_port", f"{OF_REPLICAS}KAFKA"),
    "cut-controller": _around_kafka("controller and Kafka", "kafka_monitor_port", "PENSTOCK_KAFKA"),
}


def _workers_around_rabbitmq(services: "LocalServices") -> Detour:
    """A client of RabbitMQ stays at the address that it has; the forwarder has that of the workers."""
    port, url = services.port("rabbitmq_port"), services.exports()["PENSTOCK_RABBITMQ"]
    behind = url.replace(f"@127.0.0.1:{port}", f"@{BEHIND_PROXY}:{port}")
    return Detour("workers and RabbitMQ", port, f"{OF_REPLICAS}RABBITMQ", behind)


AROUND_RABBITMQ: Final[Detours] = {"cut-workers": _workers_around_rabbitmq}


class Cut:
    """One proxy of a run, a program of the supervisor."""

    def __init__(self, context: RunContext, fault: FaultKind, detour: Detour) -> None:
        self._context, self._part, self._detour = context, fault, detour

    def start(self) -> None:
        """Start the proxy and wait until it listens. PenstockError with the end of its log if it cannot."""
        port = self._detour.port
        ends = ("--listen", f"{BEHIND_PROXY}:{port}", "--to", f"127.0.0.1:{port}")
        self._context.add(self._part, "infra.local.proxy", *ends, respawn=True, grace_s=5)

        def serves() -> bool:
            self._context.check_started()
            return listens(port, BEHIND_PROXY)

        self._context.wait_until(serves, self._part, START_TIMEOUT_S)

    def begin(self) -> Injected:
        """Pass nothing on until it is undone."""
        self._context.send_signal(self._part, signal.SIGUSR1)
        return Injected(self._detour.between, lambda: self._context.send_signal(self._part, signal.SIGUSR2))


def cuts_of(context: RunContext, services: "LocalServices", detours: Detours) -> dict[FaultKind, Cut]:
    """The cuts among the faults of a run; its controller and replicas are led through their proxies."""
    found = {fault.kind: detours[fault.kind](services) for fault in context.spec.faults if fault.kind in detours}
    if found:
        direct = {f"{OF_REPLICAS}KAFKA": context.environment["PENSTOCK_KAFKA"]}  # or else as the controller
        context.detours = {**direct, **{detour.variable: detour.url for detour in found.values()}}
    return {kind: Cut(context, kind, detour) for kind, detour in found.items()}
