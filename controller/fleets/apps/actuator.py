"""The common part of the actuators of function apps.

Steps that need an absent service (process manager, Redis, RabbitMQ) are skipped until it is back, which is logged
once.
"""

import logging
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from controller.fleets.actuator import ReconcilingActuator, ReplicaSetT
from controller.fleets.programs import ProgramWork, RunPrograms
from penstock.adapters.amqp import Management
from penstock.adapters.app_boards import AppBoard
from penstock.adapters.process_manager import ProgramStatus
from penstock.adapters.redis import REDIS_AWAY
from penstock.apps import AppReport, exchange_s
from penstock.errors import PenstockError
from penstock.log_once import LogOnce
from penstock.runspec import RunSpec
from penstock.settings import Endpoints

log = logging.getLogger(__name__)

AGAIN_S: Final = 5.0
"""What Redis keeps for the apps is sent again after this long."""


class AppActuator(ReconcilingActuator[ReplicaSetT]):
    """Actuator port of the fleet of ``spec``. ``programs`` keep its apps, which are processes or pods; arguments of one
    app follow their command. ``replicas``: of a predecessor, to continue from.
    """

    def __init__(self, spec: RunSpec, endpoints: Endpoints, programs: RunPrograms, replicas: ReplicaSetT) -> None:
        super().__init__(replicas)
        self._spec, self._programs = spec, programs
        self._apps = AppBoard(endpoints.require("redis"), spec.run)
        self._management = Management(endpoints.require("rabbitmq_management"))
        self._troubles: dict[str, LogOnce] = {}
        self._wanted: dict[str, int] = {}
        self._again_s = 0.0

    @property
    def step_s(self) -> float:
        """Not longer than until the next reports of the apps."""
        return min(self.STEP_S, exchange_s(self._spec.speed))

    @abstractmethod
    def bring_up(self) -> None:
        """Request the initial replicas, unless that was done already."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether all requested replicas have joined and receive events."""

    @abstractmethod
    def _observe(self, programs: Mapping[str, ProgramStatus], reports: Mapping[str, AppReport]) -> ProgramWork:
        """Show the replica set what there is, by name; returns what is to be done."""

    @abstractmethod
    def _tell(self) -> None:
        """Send the apps what has changed."""

    @abstractmethod
    def _carry_out(self, work: ProgramWork) -> None:
        """Change queues and programs."""

    def step(self) -> None:
        """Observe and reconcile once. Without the process manager nothing is known of replicas: nothing is done."""
        programs: dict[str, ProgramStatus] | None = None
        with self._with("supervisor"):
            programs = self._programs.look()
        if programs is None:
            return
        reports: Mapping[str, AppReport] = {}
        with self._with("Redis"):
            reports = self._reports()
        work = self._observe(programs, reports)
        with self._with("Redis, targets"):  # apart from "Redis": without targets it succeeds while Redis is away
            self._tell()
        self._carry_out(work)

    def stop(self) -> None:
        """End the thread and close the connections; replicas stay as they are."""
        super().stop()
        self._apps.close()
        self._management.close()

    def trouble(self, service: str) -> str:
        """Why a service was away at the last step, empty if it was not."""
        return self._troubles[service].trouble if service in self._troubles else ""

    def _with(self, service: str) -> AbstractContextManager[None]:
        """Use a service; if it is away, the rest of the block is skipped."""
        trouble = self._troubles.setdefault(service, LogOnce(log, f"{service}: %s; skipped until it is back"))
        return trouble.skipping(PenstockError, *REDIS_AWAY)

    def _reports(self) -> Mapping[str, AppReport]:
        """The last reports of the apps."""
        return self._apps.reports()

    def _want(self, wanted: Mapping[str, int]) -> bool:
        """Send each app its number of containers if it has changed, and all of them now and then: Redis may have lost
        them. Returns whether all were sent again.
        """
        again = time.monotonic() >= self._again_s
        for name, containers in wanted.items():
            if again or self._wanted.get(name) != containers:
                self._apps.want(name, containers)
                self._wanted[name] = containers
        if again:
            self._again_s = time.monotonic() + AGAIN_S
        return again

    def _end(self, programs: Iterable[str]) -> None:
        for name in programs:
            self._programs.end(name)
