"""The local world's services: Kafka, RabbitMQ, Redis and Prometheus, programs of the state folder's supervisor.

``up`` and ``down`` are idempotent. All that is started carries the state folder's mark, by which ``down`` finds it
again, even if the supervisor itself has been killed.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from infra.local.addresses import Addresses, choose, require_agreement
from infra.local.grafana import Grafana
from infra.local.haproxy import Gateway
from infra.local.kafka import Kafka
from infra.local.leftovers import marked, names, stop_marked, wait_until_gone
from infra.local.ports import free_port, require_free
from infra.local.prometheus import Prometheus
from infra.local.rabbitmq import RabbitMq
from infra.local.redis import Redis
from infra.local.service import PREFIX, Service
from infra.local.settings import ServiceSettings
from infra.local.state import MARKER, StateFolder, tail
from penstock.amqp import Management, ManagementError
from penstock.errors import PenstockError
from penstock.settings import Endpoints, Folders
from penstock.supervision import NoSupervisorError, Program, ProgramStatus, Supervisor, base_environment
from penstock.world import Progress

ALL_SERVICES: Final = ("kafka", "rabbitmq", "redis", "prometheus", "gateway")
QUIT_TIMEOUT_S: Final = 45.0
RUNS_GRACE_S: Final = 30.0
"""For the programs of runs; what takes longer is ended with the services."""
LEFTOVER_GRACE_S: Final = 10.0
POLL_S: Final = 0.1


class ServiceStatus(msgspec.Struct, frozen=True):
    """``state``: the supervisor's, or ``down`` for a service that was stopped on purpose. ``ports`` by setting."""

    name: str
    state: str
    pid: int | None
    ports: dict[str, int]
    log: Path


class LocalServices:
    """The services of one state folder. ``tell`` is given a line for everything that takes a while."""

    def __init__(self, folders: Folders, settings: ServiceSettings, tell: Progress = lambda _: None) -> None:
        self.state = StateFolder(folders.state_path)
        self._folders = folders
        self._settings = settings
        self._tell = tell
        self._supervisor = Supervisor(self.state.supervisor_endpoint)

    @classmethod
    def from_settings(cls, tell: Progress = lambda _: None) -> "LocalServices":
        """As ``PENSTOCK_*`` say."""
        return cls(Folders(), ServiceSettings.load(), tell)

    # --- up and down -------------------------------------------------------------------------------------------------

    def up(self, services: Sequence[str] = ALL_SERVICES) -> Endpoints:
        """Start what does not run yet and wait until all of it answers. What a failed or interrupted ``up`` has
        started, it stops again. Raises PenstockError: taken port, no Java, a service that dies.
        """
        self.state.create()
        with self.state.locked():
            running = self._programs()
            if running is None:
                self._clear_leftovers()
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
                    self._start_supervisor()
                for service in pending:
                    if PREFIX + service.name in (running or {}):
                        self._tell(f"{service.name}: had died, see {self._log(service.name)}")
                    self._tell(f"{service.name}: starting on {_ports(service)}")
                    started.append(service.name)
                    self._supervisor.remove(PREFIX + service.name)
                    self._supervisor.add(programs[service.name])
                for service in wanted:
                    self._await(service)
            except BaseException:
                self._undo(fresh=running is None, started=started)
                raise
        return self.endpoints()

    def down(self) -> list[str]:
        """Stop everything that belongs to the state folder, replicas and runs included, and make sure that it is gone;
        returns the names of what was stopped. Data and logs stay. Raises PenstockError if something cannot be ended.
        """
        if not self.state.path.is_dir():
            return stop_marked(self.state.path, LEFTOVER_GRACE_S)
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
            wait_until_gone(self.state.path, QUIT_TIMEOUT_S)
        stopped += self._clear_leftovers()
        return stopped

    def _end_runs(self) -> None:
        """Programs of runs go before the services that they use, so that they can say their last words."""
        told: set[str] = set()
        deadline = time.monotonic() + RUNS_GRACE_S
        while (left := self._programs_of_runs()) and time.monotonic() < deadline:
            for name in left:
                if name not in told:
                    self._supervisor.remove(name, wait=False)
                    told.add(name)
            time.sleep(POLL_S)

    def _programs_of_runs(self) -> list[str]:
        return [name for name in self._programs() or {} if not name.startswith(PREFIX)]

    def _clear_broker(self) -> None:
        """A run that was killed could not clear its queues: they would be there again when RabbitMQ starts anew."""
        addresses = self.state.addresses()
        if addresses is None or RabbitMq.name not in addresses.services:
            return
        management = Management(self.endpoints().require("rabbitmq_management"))
        try:
            for run in management.runs() if management.answers() else ():
                self._tell(f"rabbitmq: deleting what {run} has left")
                management.delete_run(run)
        except ManagementError as error:
            self._tell(f"rabbitmq: what runs have left stays there: {error}")
        finally:
            management.close()

    def _clear_leftovers(self) -> list[str]:
        """End what no supervisor looks after any more."""
        if left := marked(self.state.path):
            self._tell(f"ending what was left running: {names(left)}")
        stopped = stop_marked(self.state.path, LEFTOVER_GRACE_S)
        self.state.forget()
        return stopped

    def _undo(self, *, fresh: bool, started: Sequence[str]) -> None:
        """Back to what was before ``up``."""
        try:
            if fresh:
                self._down()
            else:
                for name in started:
                    self._supervisor.remove(PREFIX + name)
        except KeyboardInterrupt:
            raise PenstockError("interrupted again while stopping: `penstock down` stops the rest") from None

    # --- one service, for fault injection ----------------------------------------------------------------------------

    def stop_service(self, name: str) -> None:
        """Stop a service gracefully; it keeps its port and data. Returns when it has ended."""
        self._supervisor.remove(PREFIX + self._service(name).name)

    def start_service(self, name: str) -> None:
        """Start a stopped service on the same port and data, and wait until it answers."""
        service = self._service(name)
        if not _runs(service, self._supervisor.programs()):
            program = self._prepare(service)
            self._supervisor.remove(program.name)
            self._supervisor.add(program)
        self._await(service)

    def restart_service(self, name: str) -> None:
        """Stop, start and wait until it answers."""
        self.stop_service(name)
        self.start_service(name)

    # --- what there is -----------------------------------------------------------------------------------------------

    def is_up(self) -> bool:
        """Whether all that ``up`` was asked for runs."""
        try:
            return all(status.pid is not None for status in self.status())
        except NoSupervisorError:
            return False

    def status(self) -> list[ServiceStatus]:
        """Every service that ``up`` was asked for. Raises NoSupervisorError if nothing is up."""
        addresses = self._addresses()
        programs = self._supervisor.programs(PREFIX)
        found = []
        for service in self._services(addresses, addresses.services):
            program = programs.get(PREFIX + service.name) or ProgramStatus(service.name, None, "down")
            found.append(
                ServiceStatus(service.name, program.state, program.pid, dict(service.ports), self._log(service.name))
            )
        return found

    def check(self) -> None:
        """Raise PenstockError that names a service which has died, with the tail of its log."""
        for status in self.status():
            if status.state in ("stopped", "failed"):
                raise self._died(status.name)

    def endpoints(self) -> Endpoints:
        """Addresses and secrets of what is up. Raises NoSupervisorError if nothing is."""
        unset = dict.fromkeys(
            ("kafka", "rabbitmq", "rabbitmq_management", "redis", "prometheus", "gateway", "controller"), ""
        )
        values = {name.removeprefix("PENSTOCK_").lower(): value for name, value in self.exports().items()}
        known = {name: value for name, value in values.items() if name in Endpoints.model_fields}
        return Endpoints(**{**unset, **known})  # type: ignore[arg-type]  # pydantic converts

    def exports(self) -> dict[str, str]:
        """``PENSTOCK_*`` for a shell in which to work with these services."""
        addresses = self._addresses()
        return {
            "PENSTOCK_STATE": str(self.state.path),
            "PENSTOCK_JARS": str(self._folders.jars.absolute()),
            "PENSTOCK_SUPERVISOR": self.state.supervisor_endpoint,
            "PENSTOCK_SCRAPE_TARGETS": str(self.state.scrape_targets),
            "PENSTOCK_SIGNING_KEY": addresses.signing_key,
            **{
                name: url
                for service in self._services(addresses, addresses.services)
                for name, url in _urls(service).items()
            },
        }

    def environment(self) -> dict[str, str]:
        """All of the environment of one run's processes: the exports, what most programs want of a shell, and a free
        port for the run's plan service.
        """
        return {
            **base_environment(),
            **self.exports(),
            "PENSTOCK_CONTROLLER": f"http://127.0.0.1:{free_port()}",
        }

    # --- parts -------------------------------------------------------------------------------------------------------

    def _services(self, addresses: Addresses, wanted: Sequence[str]) -> list[Service]:
        redis = Redis(self.state, addresses.redis_port, addresses.redis_password)
        prometheus = Prometheus(self.state, addresses.prometheus_port)
        services: list[Service] = [
            Kafka(
                self.state,
                self._folders,
                port=addresses.kafka_port,
                controller_port=addresses.kafka_controller_port,
                heap_mib=self._settings.kafka_heap_mib,
            ),
            RabbitMq(
                self.state,
                port=addresses.rabbitmq_port,
                management_port=addresses.rabbitmq_management_port,
                metrics_port=addresses.rabbitmq_metrics_port,
                node_port=addresses.rabbitmq_node_port,
                epmd_port=addresses.rabbitmq_epmd_port,
                password=addresses.rabbitmq_password,
            ),
            redis,
            prometheus,
            Gateway(self.state, addresses.gateway_port, addresses.gateway_password, redis.url),
            Grafana(self.state, addresses.grafana_port, prometheus.url),
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
        """What the supervisor keeps; None if there is no supervisor."""
        try:
            return self._supervisor.programs()
        except NoSupervisorError:
            return None

    def _start_supervisor(self) -> None:
        log = self.state.supervisor_log
        with log.open("ab") as output:
            done = subprocess.run(
                (sys.executable, "-m", "infra.local.daemon", str(self.state.path)),
                cwd=self.state.path,
                env={**base_environment(), MARKER: str(self.state.path)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if done.returncode != 0:
            raise PenstockError(f"the supervisor does not start; the end of {log}:\n{tail(log)}")

    def _prepare(self, service: Service) -> Program:
        """Its program, with the ports free, the config written, and a fresh log beside the one of its last life."""
        for setting, port in service.ports.items():
            require_free(port, setting, service.name)
        log = self._log(service.name)
        if log.exists():
            log.replace(log.with_name(f"{service.name}.previous.log"))
        return service.prepare()

    def _await(self, service: Service) -> None:
        """Return when it answers. Raises PenstockError when it dies meanwhile, or takes too long."""
        begun = time.monotonic()
        while not service.answers():
            if not _runs(service, self._supervisor.programs(PREFIX)):
                raise self._died(service.name)
            if time.monotonic() - begun > self._settings.ready_timeout_s:
                log = self._log(service.name)
                raise PenstockError(
                    f"{service.name} has not answered on {_ports(service)} within {self._settings.ready_timeout_s:g} s "
                    f"(PENSTOCK_READY_TIMEOUT_S); the end of {log}:\n{tail(log)}"
                )
            time.sleep(POLL_S)
        self._tell(f"{service.name}: answers on {_ports(service)}")

    def _log(self, name: str) -> Path:
        return self.state.logs / f"{name}.log"

    def _died(self, name: str) -> PenstockError:
        log = self._log(name)
        return PenstockError(f"{name} has died; the end of {log}:\n{tail(log)}")


def _runs(service: Service, programs: Mapping[str, ProgramStatus] | None) -> bool:
    program = (programs or {}).get(PREFIX + service.name)
    return program is not None and program.pid is not None


def _urls(service: Service) -> dict[str, str]:
    """What clients are given of it, by name of the variable."""
    urls = {f"PENSTOCK_{service.name.upper()}": service.url}
    if isinstance(service, RabbitMq):
        urls["PENSTOCK_RABBITMQ_MANAGEMENT"] = service.management_url
    return urls


def _ports(service: Service) -> str:
    return "127.0.0.1:" + ", ".join(str(port) for port in service.ports.values())
