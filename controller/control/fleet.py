"""An external consumer group as a fleet: a stream fleet whose replicas run the user's command.

Consumers with Penstock's assignor and membership (``consumers.assignor``, ``consumers.membership``) follow the scaler's
plans. Of others only the number is scaled; as many have joined as the group has members.
"""

import fcntl
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from controller.fleets.programs import RunPrograms, WorkerProgram
from controller.fleets.stream.actuator import ProcessActuator
from controller.fleets.stream.fleet import StreamFleet
from controller.fleets.stream.group_members import GroupReader
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.process_manager import NoSupervisorError, Supervisor, start_supervisor
from penstock.clock import Clock
from penstock.contracts import ReplicaCounts
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints

log = logging.getLogger("control")

STOP_MARGIN_S: Final = 30.0
"""Beyond the grace period: how long the end of all replicas may take."""


class GroupSupervisor:
    """The process manager of one group's replicas, in a state folder of its own. It outlives a controller that is
    killed, so that its successor finds the replicas. One controller at a time: PenstockError for a second one.
    """

    def __init__(self, folder: Path, group: str) -> None:
        self._folder = folder
        self._plan_url_file = folder / "plan-service"
        self.client = Supervisor(f"ipc://{folder / 'ctl.sock'}")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "logs").mkdir(exist_ok=True)
        self._lock = (folder / "control.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PenstockError(f"group {group!r}: another `penstock control` looks after it ({folder})") from None
        if not self._runs():
            self._plan_url_file.unlink(missing_ok=True)

    @property
    def plan_url(self) -> str:
        """URL of the plan service that running replicas know from a predecessor; else that of any free port."""
        try:
            return self._plan_url_file.read_text()
        except FileNotFoundError:
            return "http://127.0.0.1:0"

    @plan_url.setter
    def plan_url(self, url: str) -> None:
        self._plan_url_file.write_text(url)

    def start(self) -> None:
        """Start the supervisor if none runs."""
        if not self._runs():
            start_supervisor(self._folder, self._folder / "logs" / "supervisor.log")

    def end(self) -> None:
        """End the supervisor and every replica that is left."""
        try:
            self.client.quit()
        except PenstockError as error:
            log.warning("%s", error)
        self._plan_url_file.unlink(missing_ok=True)
        self._lock.close()

    def _runs(self) -> bool:
        try:
            self.client.programs()
        except NoSupervisorError:
            return False
        return True


class ExternalGroupSpec(RunSpec, frozen=True, kw_only=True):
    """A run on an existing group. ``pipeline`` is its topic."""

    kafka_group: str

    @property
    def events_topic(self) -> str:
        """The topic that the group consumes."""
        return self.pipeline

    @property
    def group(self) -> str:
        """The group's name at the broker."""
        return self.kafka_group


class ExternalConsumers(ProcessActuator):
    """A process actuator whose replicas run the user's command; they are configured by environment variables."""

    def __init__(
        self,
        spec: ExternalGroupSpec,
        kafka: str,
        plans: PlanService,
        supervisor: GroupSupervisor,
        worker: WorkerProgram,
    ) -> None:
        # Named by the fleet, not by the run: a successor has another run.
        super().__init__(spec, plans, RunPrograms(spec.fleet, supervisor.client, worker))
        self._group_supervisor = supervisor
        self._reader = GroupReader(bootstrap=kafka, topic=spec.events_topic, group=spec.group)

    def connect(self) -> None:
        """Begin to read the group's members; keep the plan service's address for a successor."""
        self._reader.start()
        self._group_supervisor.plan_url = self._plans.url

    def close(self) -> None:
        """End the reading."""
        self._reader.stop()

    def counts(self) -> ReplicaCounts:
        """Replicas by phase. Where no replica reports, as many have joined as the group has members."""
        counts = super().counts()
        if self._plans.snapshot().members:
            return counts
        joined = min(counts.started, len(self._reader.members or ()))
        return msgspec.structs.replace(counts, started=counts.started - joined, joined=counts.joined + joined)

    def _start(self, name: str) -> None:
        """Without ``--replica``: the command is the user's."""
        env = {**self._programs.program.env, "PENSTOCK_REPLICA": name, "PENSTOCK_CONTROLLER": self._plans.url}
        self._programs.start(name, env=env)


class ExternalFleet(StreamFleet):
    """Fleet port on an external group."""

    actuator: ExternalConsumers

    def __init__(
        self,
        directory: RunDirectory,
        spec: ExternalGroupSpec,
        endpoints: Endpoints,
        clock: Clock,
        supervisor: GroupSupervisor,
        *,
        command: Sequence[str],
        grace_s: float,
        period_s: float,
    ) -> None:
        self._external, self._supervisor = spec, supervisor
        self._command, self._grace_s = tuple(command), grace_s
        super().__init__(directory, spec, endpoints, clock, None, period_s=period_s)

    def _processes(self, worker: WorkerProgram, replicas: ConsumerReplicaSet | None) -> ExternalConsumers:
        del replicas  # those of a killed predecessor are adopted
        spec, kafka = self._external, self._endpoints.require("kafka")
        env = {**os.environ, "PENSTOCK_KAFKA": kafka, "PENSTOCK_TOPIC": spec.events_topic, "PENSTOCK_GROUP": spec.group}
        worker = msgspec.structs.replace(
            worker, command=self._command, folder=Path.cwd(), env=env, grace_s=self._grace_s
        )
        return ExternalConsumers(spec, kafka, self.plans, self._supervisor, worker)

    def bring_up(self) -> None:
        """The initial replicas, unless those of a killed predecessor run."""
        if found := self.actuator.replicas():
            log.info("found %s running already", ", ".join(found))
        else:
            super().bring_up()

    def stop(self) -> None:
        """The plan service stays as long as the replicas: they may ask for the plan while they leave."""
        self.actuator.stop()

    def stop_replicas(self) -> None:
        """PenstockError if some stay."""
        try:
            self.actuator.stop_replicas(self._grace_s + STOP_MARGIN_S)
        finally:
            self.actuator.close()
            self.plans.stop()
