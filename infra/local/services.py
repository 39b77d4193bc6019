"""The services of the local world: programs of the state folder's supervisor.

``up`` and ``down`` are idempotent. Every process carries the state folder's mark in its environment, by which ``down``
finds it even after the supervisor was killed.
"""

import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from typing import Final

import msgspec

from infra.local.addresses import Addresses, choose, require_agreement
from infra.local.grafana import Grafana
from infra.local.haproxy import Gateway
from infra.local.kafka import Kafka
from infra.local.orphans import marked, names, stop_marked
from infra.local.ports import free_port, require_free
from infra.local.prometheus import Prometheus
from infra.local.rabbitmq import RabbitMq
from infra.local.redis import Redis
from infra.local.service import PREFIX, Service
from infra.local.settings import ServiceSettings
from infra.local.state import MARKER, StateFolder, tail
from infra.waiting import wait_until
from penstock.adapters.amqp import Management, ManagementError
from penstock.adapters.kafka_security import use_plain_text
from penstock.adapters.process_manager import (
    PATIENCE_S,
    NoSupervisorError,
    Program,
    ProgramStatus,
    Supervisor,
    base_environment,
    start_supervisor,
)
from penstock.errors import PenstockError
from penstock.settings import Endpoints, Folders
from penstock.world import Progress

LOAD_SESSION: Final = shlex.join((sys.executable, "-m", "infra.load.session"))
"""Command of a load session, for Locust."""
GATEWAY: Final = "PENSTOCK_GATEWAY"
ALL_SERVICES: Final = ("kafka", "rabbitmq", "redis", "prometheus", "gateway")
QUIT_TIMEOUT_S: Final = 45.0
RUNS_GRACE_S: Final = 30.0
"""For the programs of runs; then they are ended with the services."""
ORPHAN_GRACE_S: Final = 10.0
POLL_S: Final = 0.1


class LocalServices:
    """The services of one state folder. ``tell`` receives a line for each step that takes a while."""

    def __init__(self, folders: Folders, settings: ServiceSettings, tell: Progress = lambda _: None) -> None:
        self.state = StateFolder(folders.state_path)
        self._folders = folders
        self._settings = settings
        self._tell = tell
        self._supervisor = Supervisor(self.state.supervisor_endpoint, PATIENCE_S)
        self._changing: set[str] = set()
        """Services between a stop on purpose and the start of their process: seconds, on a busy machine."""

    @classmethod
    def from_settings(cls, tell: Progress = lambda _: None) -> "LocalServices":
        """From the ``PENSTOCK_*`` variables."""
        return cls(Folders(), ServiceSettings.load(), tell)

    # --- up and down -------------------------------------------------------------------------------------------------

    def up(self, services: Sequence[str] = ALL_SERVICES) -> Endpoints:
        """Start the services that do not run and wait until all answer. A failed or interrupted ``up`` stops what it
        has started. Raises PenstockError: taken port, no Java, a service that dies.
        """
        self.state.create()
        with self.state.locked():
            running = self._programs()
            if running is None:
                self._clear_orphans()
                addresses = choose(self._settings, services)
            else:
                addresses = self._addresses()
                require_agreement(addresses, self._settings)
                addresses = msgspec.structs.replace(
                    addresses, services=tuple(dict.fromkeys((*addresses.services, *services)))
                )
            wanted = self._services(addresses, services)
            pending = [service for service in wanted if not _runs(service, running)]
            programs = {service.name: self._prepare(service) for service in pending}
            started: list[str] = []
            try:
                self.state.write_addresses(addresses)
                if running is None:
                    environment = {**base_environment(), MARKER: str(self.state.path)}
                    start_supervisor(self.state.path, self.state.supervisor_log, environment)
                for service in pending:
                    if PREFIX + service.name in (running or {}):
                        self._tell(f"{service.name}: had died, see {service.log}")
                    self._tell(f"{service.name}: starting on {service.listening}")
                    started.append(service.name)
                    self._supervisor.remove(PREFIX + service.name)
                    self._supervisor.add(programs[service.name])
                for service in wanted:
                    self._await(service, wanted)
            except BaseException:
                self._undo(fresh=running is None, started=started)
                raise
        return self.endpoints()

    def down(self) -> list[str]:
        """Stop every process of the state folder, replicas and runs included; return their names. Data and logs stay.

        Raises PenstockError if a process cannot be ended.
        """
        if not self.state.path.is_dir():
            return stop_marked(self.state.path, ORPHAN_GRACE_S)
        with self.state.locked():
            return self._down()

    def _down(self) -> list[str]:
        programs = self._programs()
        stopped = [name.removeprefix(PREFIX) for name, program in (programs or {}).items() if program.pid is not None]
        if programs is not None:
            self._tell(f"stopping {', '.join(stopped) or 'the supervisor'}")
            self._end_runs()
            self._clear_broker()
            self._supervisor.quit()
            with suppress(PenstockError):
                wait_until(lambda: not marked(self.state.path), QUIT_TIMEOUT_S, lambda: "", POLL_S)
        stopped += self._clear_orphans()
        return stopped

    def _end_runs(self) -> None:
        """Stop the programs of runs before the services that they use."""
        removed: set[str] = set()

        def ended() -> bool:
            left = {name for name in self._programs() or {} if not name.startswith(PREFIX)}
            for name in left - removed:
                self._supervisor.remove(name, wait=False)
            removed.update(left)
            return not left

        with suppress(PenstockError):
            wait_until(ended, RUNS_GRACE_S, lambda: "", POLL_S)

    def _clear_broker(self) -> None:
        """Delete queues of killed runs: RabbitMQ would restore them at its next start."""
        addresses = self.state.addresses()
        if addresses is None or RabbitMq.name not in addresses.services:
            return
        with closing(Management(self.endpoints().require("rabbitmq_management"))) as management:
            try:
                for run in management.runs() if management.answers() else ():
                    self._tell(f"rabbitmq: deleting the queues of {run}")
                    management.delete_run(run)
            except ManagementError as error:
                self._tell(f"rabbitmq: the queues of killed runs stay: {error}")

    def _clear_orphans(self) -> list[str]:
        """End processes that have no supervisor any more."""
        if left := marked(self.state.path):
            self._tell(f"stopping orphaned processes: {names(left)}")
        stopped = stop_marked(self.state.path, ORPHAN_GRACE_S)
        self.state.forget()
        return stopped

    def _undo(self, *, fresh: bool, started: Sequence[str]) -> None:
        """Restore the state before ``up``."""
        try:
            if fresh:
                self._down()
            else:
                for name in started:
                    self._supervisor.remove(PREFIX + name)
        except KeyboardInterrupt:
            raise PenstockError("interrupted again while stopping: `penstock down` stops the rest") from None

    # --- one service, for fault injection ----------------------------------------------------------------------------

    def port(self, name: str) -> int:
        """A port of what is up, by the name of its setting, such as ``kafka_workers_port``."""
        return self._addresses().ports[name]

    def stop_service(self, name: str, *, wait: bool = True) -> None:
        """Stop a service gracefully; it keeps its port and data. ``wait``: return when it has ended."""
        self._changing.add(name)
        self._supervisor.remove(PREFIX + self._service(name).name, wait=wait)

    def has_program(self, name: str) -> bool:
        """Whether a service has a program: until it has ended after ``stop_service``, and from its start on."""
        return PREFIX + name in self._supervisor.programs(PREFIX)

    def start_service(self, name: str) -> None:
        """Start a stopped service on the same port and data, and wait until it answers."""
        service = self._service(name)
        if not _runs(service, self._supervisor.programs()):
            program = self._prepare(service)
            self._changing.add(name)
            try:
                self._supervisor.remove(program.name)
                self._supervisor.add(program)
            finally:
                self._changing.discard(name)
        self._await(service)

    # --- state -----------------------------------------------------------------------------------------------

    def is_up(self) -> bool:
        """Whether all requested services run."""
        try:
            return all(program.pid is not None for _, program in self.status())
        except NoSupervisorError:
            return False

    @property
    def supervised(self) -> bool:
        """Whether the supervisor runs."""
        return self._programs() is not None

    def running(self) -> frozenset[str]:
        """Names of the services that have a process; none where there is no supervisor."""
        programs = (self._programs() or {}).items()
        return frozenset(
            name.removeprefix(PREFIX)
            for name, program in programs
            if name.startswith(PREFIX) and program.pid is not None
        )

    def answers(self, name: str) -> bool:
        """Whether a service serves requests now; False if nothing is up."""
        try:
            return self._service(name).answers()
        except NoSupervisorError:
            return False

    def status(self) -> list[tuple[Service, ProgramStatus]]:
        """Every requested service; state ``down``: it was stopped on purpose. NoSupervisorError if nothing is up."""
        addresses, programs = self._addresses(), self._supervisor.programs(PREFIX)
        services = self._services(addresses, addresses.services)
        return [(each, programs.get(PREFIX + each.name, ProgramStatus(each.name, None, "down"))) for each in services]

    def check(self, needed: Collection[str] | None = None) -> None:
        """Raise PenstockError for a service that has died, with the tail of its log; of ``needed`` ones, or any. One
        that this process stops or starts has not: its program is without a process for a while.
        """
        for service, program in self.status():
            if needed is not None and service.name not in needed:
                continue
            if _has_died(program) and service.name not in self._changing:
                raise _died(service)

    def endpoints(self) -> Endpoints:
        """Addresses and secrets of the running services. Raises NoSupervisorError if nothing is up."""
        exports = self.exports()
        values = {name: exports.get(f"PENSTOCK_{name.upper()}", "") for name in Endpoints.model_fields}
        return Endpoints(**values)  # type: ignore[arg-type]  # pydantic converts

    def exports(self) -> dict[str, str]:
        """``PENSTOCK_*`` variables for clients of these services. A gateway that the user has set is theirs."""
        exports = self._own_exports()
        if chosen := _gateway_of_the_user(exports.get(GATEWAY, "")):
            exports[GATEWAY] = chosen
        return exports

    @property
    def has_users_gateway(self) -> bool:
        """Whether runs use a gateway of the user's, and not this world's own."""
        return bool(_gateway_of_the_user(self._own_exports().get(GATEWAY, "")))

    def _own_exports(self) -> dict[str, str]:
        addresses = self._addresses()
        services = self._services(addresses, addresses.services)
        return {
            "PENSTOCK_STATE": str(self.state.path),
            "PENSTOCK_JARS": str(self._folders.jars.absolute()),
            "PENSTOCK_SUPERVISOR": self.state.supervisor_endpoint,
            "PENSTOCK_SCRAPE_TARGETS": str(self.state.scrape_targets),
            "PENSTOCK_SIGNING_KEY": addresses.signing_key,
            "PENSTOCK_LOAD_SESSION": LOAD_SESSION,
            **{name: url for service in services for name, url in service.exports.items()},
        }

    def environment(self) -> dict[str, str]:
        """The complete environment of one run's processes, with a free port for the run's plan service."""
        return {
            **base_environment(),
            **self.exports(),
            "PENSTOCK_CONTROLLER": f"http://127.0.0.1:{free_port()}",
        }

    # --- parts -------------------------------------------------------------------------------------------------------

    def _services(self, addresses: Addresses, wanted: Sequence[str]) -> list[Service]:
        use_plain_text()

        def ports(name: str) -> dict[str, int]:
            """A service's fields that are ports."""
            prefix = f"{name}_"
            return {key.removeprefix(prefix): port for key, port in addresses.ports.items() if key.startswith(prefix)}

        redis = Redis(self.state, **ports("redis"), password=addresses.redis_password)
        prometheus = Prometheus(self.state, **ports("prometheus"))
        services: list[Service] = [
            Kafka(self.state, folders=self._folders, **ports("kafka"), heap_mib=self._settings.kafka_heap_mib),
            RabbitMq(self.state, **ports("rabbitmq"), password=addresses.rabbitmq_password),
            redis,
            prometheus,
            Gateway(self.state, **ports("gateway"), password=addresses.gateway_password, redis_url=redis.url),
            Grafana(self.state, **ports("grafana"), prometheus_url=prometheus.url),
        ]
        return [service for service in services if service.name in wanted]

    def _service(self, name: str) -> Service:
        for service in self._services(self._addresses(), (*ALL_SERVICES, Grafana.name)):
            if service.name == name:
                return service
        raise PenstockError(f"no service {name!r} in the local world: it has {', '.join(ALL_SERVICES)}")

    def _addresses(self) -> Addresses:
        addresses = self.state.addresses()
        if addresses is None:
            raise NoSupervisorError(f"nothing is up in {self.state.path}: `penstock up` starts the local world")
        return addresses

    def _programs(self) -> dict[str, ProgramStatus] | None:
        """Programs of the supervisor; None if there is no supervisor."""
        try:
            return self._supervisor.programs()
        except NoSupervisorError:
            return None

    def _prepare(self, service: Service) -> Program:
        """Its program: ports are free, the config is written, the previous log is kept beside the new one."""
        for setting, port in service.ports.items():
            require_free(port, setting, service.name)
        if service.log.exists():
            service.log.replace(service.log.with_name(f"{service.name}.previous.log"))
        return service.prepare()

    def _await(self, service: Service, of: Sequence[Service] = ()) -> None:
        """Wait until it answers. Raises PenstockError if it or another one of ``of`` dies, or it takes too long."""

        def answers() -> bool:
            if service.answers():
                return True
            programs = self._supervisor.programs(PREFIX)
            if not _runs(service, programs):
                raise _died(service)
            for each in of:
                if _has_died(programs.get(PREFIX + each.name)):
                    raise _died(each)
            return False

        timeout_s = self._settings.ready_timeout_s
        late = f"{service.name} has not answered on {service.listening} within {timeout_s:g} s"
        of_log = f"(PENSTOCK_READY_TIMEOUT_S); the end of {service.log}:"
        wait_until(answers, timeout_s, lambda: f"{late} {of_log}\n{tail(service.log)}", POLL_S)
        self._tell(f"{service.name}: answers on {service.listening}")


def _runs(service: Service, programs: Mapping[str, ProgramStatus] | None) -> bool:
    program = (programs or {}).get(PREFIX + service.name)
    return program is not None and program.pid is not None


def _has_died(program: ProgramStatus | None) -> bool:
    """Whether a program has ended for good; one without a status was stopped on purpose."""
    return program is not None and program.state in ("stopped", "failed")


def _died(service: Service) -> PenstockError:
    return PenstockError(f"{service.name} has died; the end of {service.log}:\n{tail(service.log)}")


def _gateway_of_the_user(own: str) -> str:
    """``PENSTOCK_GATEWAY`` as the user has set it; empty for an earlier address of our own (`penstock env`)."""
    chosen = os.environ.get(GATEWAY, "")
    return "" if chosen.rpartition("@")[2] == own.rpartition("@")[2] else chosen
