"""The local world: one run on real services, with controller, sender, Spark and replicas as processes of this machine.

Every process is a program of the supervisor, named ``<run>:<part>``, so that whatever ends this one (also SIGKILL)
leaves nothing that ``penstock down`` would not find.
"""

from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Final, Self

import msgspec

from infra.local.kafka import allocate_indexes
from infra.local.runs.run import LocalRun
from infra.local.services import LocalServices
from infra.local.warm_up import warm_up
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem
from penstock.world import OneRunWorld, Progress

RUNS: Final[Mapping[type[msgspec.Struct], str]] = {
    StreamSystem: "infra.local.runs.stream:StreamRun",
    QueueSystem: "infra.local.runs.queue:QueueRun",
    FunctionSystem: "infra.local.runs.function:FunctionRun",
    NetworkSystem: "infra.local.runs.network:NetworkRun",
}
"""Who carries out a run of which system; imported only when it is wanted."""


class LocalWorld(OneRunWorld):
    """World port on this machine. Services that were not up are brought up, and taken down again at the end."""

    def __init__(self, tell: Progress = lambda _: None, services: LocalServices | None = None) -> None:
        self._services = services or LocalServices.from_settings(tell)
        self._started_services = False

    def __enter__(self) -> Self:
        self._started_services = not self._services.is_up()
        endpoints = self._services.up(LocalRun.needs)
        if self._started_services:
            warm_up(endpoints.require("kafka"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self._started_services:
            self._services.down()

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Services that only this kind of run needs, then all that is its own."""
        module, _, name = RUNS[type(spec.system)].partition(":")
        kind: type[LocalRun] = getattr(import_module(module), name)
        if besides := [service for service in kind.needs if service not in LocalRun.needs]:
            self._services.up(besides)
        self.run = run = kind(self._services, spec, directory)
        run.prepare()
        allocate_indexes(self._services.state, [spec.events_topic, spec.results_topic])
