"""The controller on somebody's own consumers: ``penstock control``.

Each replica is a process of the user's command, kept by a supervisor of its own that outlives the controller: one
that was killed finds its replicas again when it is started anew for the same group. Consumers with our assignor and
membership (``consumers.assignor``, ``consumers.membership``) follow the scaler's plans; of others only the number is
scaled, and they count as joined as far as the group has members.

Every attachment has a run directory, so that ``penstock explain`` and ``penstock watch`` read it like any other run.
"""

import fcntl
import logging
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import msgspec
from prometheus_client import REGISTRY

from controller.actuators.consumer_group import ConsumerGroup
from controller.actuators.processes import ProcessActuator, WorkerProgram
from controller.exposition import ControllerMetrics
from controller.foreign import make_stream_scaler, reason_of
from controller.journal import RunJournal, TickRecord
from controller.loop import Loop
from controller.main import StoppableClock
from controller.monitors.group import GroupReader, count_partitions
from controller.monitors.kafka import KafkaMonitor, OffsetReader
from controller.plan_service import PlanService
from controller.plans import PlanBoard
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Decision, ReplicaCounts
from penstock.errors import PenstockError
from penstock.exposition import expose
from penstock.plan import range_groups
from penstock.rundir import RunDirectory, slug
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints, Folders
from penstock.supervision import NoSupervisorError, Program, Supervisor

log = logging.getLogger("control")

EXPERIMENT: Final = "control"
JOIN_TIMEOUT_S: Final = 5.0
MONITOR_SHARE: Final = 0.4
"""Of a second: what reading the offsets may take at most."""
START_TIMEOUT_S: Final = 30.0


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """What to look after, and how. ``command`` runs one replica; ``drain_s``: SIGTERM to SIGKILL."""

    kafka: str
    topic: str
    group: str
    scaler: ScalerSpec
    command: tuple[str, ...]
    shadows: tuple[ScalerSpec, ...] = ()
    initial_replicas: int = 1
    max_replicas: int | None = None
    slo_s: float = 0.5
    drain_s: float = 10.0

    @property
    def fleet(self) -> str:
        """What its replicas are named after: shop-1, shop-2, …"""
        return slug(self.group) or "fleet"


class OwnConsumers(ProcessActuator):
    """The process actuator with a user's command instead of ours: what a replica has to know is in its environment."""

    def __init__(
        self, attachment: Attachment, partitions: int, supervisor: Supervisor, plans: PlanService, logs: Path
    ) -> None:
        self._attachment = attachment
        self._reader = GroupReader(bootstrap=attachment.kafka, topic=attachment.topic, group=attachment.group)
        super().__init__(
            ConsumerGroup(
                fleet=attachment.fleet,
                partitions=partitions,
                max_replicas=attachment.max_replicas or partitions,
                drain_timeout_s=2 * JOIN_TIMEOUT_S,
            ),
            plans,
            run=attachment.fleet,
            supervisor=supervisor,
            worker=WorkerProgram(
                command=attachment.command, folder=Path.cwd(), logs=logs, env={}, grace_s=attachment.drain_s
            ),
        )

    def watch_group(self) -> None:
        """Begin to look who is in the group."""
        self._reader.start()

    def close(self) -> None:
        """Stop looking."""
        self._reader.stop()

    def counts(self) -> ReplicaCounts:
        """Replicas by phase. Where nobody reports, as many have joined as the group has members."""
        counts = super().counts()
        if self._plans.phases:
            return counts
        joined = min(counts.started, len(self._reader.members or ()))
        return msgspec.structs.replace(counts, started=counts.started - joined, joined=counts.joined + joined)

    def _program(self, name: str) -> Program:
        program = super()._program(name)
        return msgspec.structs.replace(program, command=self._worker.command, env=self._environment(name))

    def _environment(self, replica: str) -> dict[str, str]:
        """All of the user's, for the command is the user's."""
        attachment = self._attachment
        return {
            **os.environ,
            "PENSTOCK_REPLICA": replica,
            "PENSTOCK_KAFKA": attachment.kafka,
            "PENSTOCK_TOPIC": attachment.topic,
            "PENSTOCK_GROUP": attachment.group,
            "PENSTOCK_CONTROLLER": self._plans.url,
        }


class Control:
    """One attachment from ``run`` until ``clock.stop``. PenstockError in one line where something is missing."""

    def __init__(self, attachment: Attachment, folders: Folders) -> None:
        self.attachment = attachment
        self.clock = StoppableClock()
        self._scalers = [make_stream_scaler(each) for each in (attachment.scaler, *attachment.shadows)]
        if shutil.which(attachment.command[0]) is None:
            raise PenstockError(f"{shlex.join(attachment.command)}: there is no program {attachment.command[0]}")
        self._partitions = count_partitions(attachment.kafka, attachment.topic)
        self._keeper = Keeper(folders.state_path / f"control-{attachment.fleet}", attachment.group)
        self.directory = RunDirectory.create(folders.runs.absolute(), EXPERIMENT, attachment.scaler.name)
        self._plans = PlanService(
            PlanBoard(join_timeout_s=JOIN_TIMEOUT_S), group=attachment.group, fleet=attachment.fleet, url=self._plan_url
        )
        self.actuator = OwnConsumers(
            attachment, self._partitions, self._keeper.supervisor, self._plans, self.directory.logs_folder
        )
        self._journal = RunJournal(self.directory)

    def run(self) -> None:
        """Bring the replicas up and tick; at the end all of them are gone, in order, and so is their supervisor."""
        fleet, directory = self.attachment.fleet, self.directory
        start_s = math.floor(self.clock.now()) + 1
        directory.write(directory.spec_file, self._spec(start_s))
        self._keeper.start()
        try:
            self._plans.start()
            self._keeper.plan_url_file.write_text(self._plans.url)
            expose(f"{directory.name}-controller", Endpoints().scrape_targets, {"run": directory.name, "fleet": fleet})
            self.actuator.watch_group()
            self.actuator.step()  # finds the replicas of a predecessor that was killed
            self.actuator.start(self._after_step)
            if found := self.actuator.replicas():
                log.info("found %s running already", ", ".join(found))
            else:
                wanted = self.attachment.initial_replicas
                groups = range_groups(range(self._partitions), wanted)
                self.actuator.apply(Decision(action="up", targets={fleet: wanted}, assignment=groups))
            log.info("%s on group %s; its journal is %s", self._scalers[0].name, self.attachment.group, directory.path)
            self._loop(start_s).run(lambda: self.clock.stopped, self._after_tick)
        finally:
            self._end()

    def _spec(self, start_s: int) -> RunSpec:
        """What others read of this run. Its topic and group are not those that a run would have made for itself."""
        attachment = self.attachment
        return RunSpec(
            run=self.directory.name,
            experiment=EXPERIMENT,
            world="local",
            scaler=attachment.scaler,
            shadows=attachment.shadows,
            fleet=attachment.fleet,
            pipeline=attachment.topic,
            partitions=self._partitions,
            slo_s=attachment.slo_s,
            duration_s=0.0,
            start_ns=start_s * NANOS_PER_SECOND,
            tick_phase_s=0.0,
            initial_replicas=attachment.initial_replicas,
            max_replicas=attachment.max_replicas or self._partitions,
            analytics=False,
        )

    def _loop(self, start_s: int) -> Loop:
        attachment = self.attachment
        reader = OffsetReader(
            bootstrap=attachment.kafka,
            topic=attachment.topic,
            group=attachment.group,
            partitions=self._partitions,
            clock=self.clock,
            timeout_s=MONITOR_SHARE * min(1.0, *(scaler.period_s for scaler in self._scalers)),
        )
        reader.read()  # connections are made before the first tick, not in it
        monitor = KafkaMonitor(
            fleet=attachment.fleet,
            reader=reader,
            partitions=self._partitions,
            clock=self.clock,
            origin_s=start_s,
            replicas=self.actuator,
            plans=self._plans,
        )
        return Loop(
            fleet=attachment.fleet,
            clock=self.clock,
            monitor=monitor,
            actuator=self.actuator,
            acting=self._scalers[0],
            shadows=self._scalers[1:],
            journals=(self._journal, ControllerMetrics(self.directory.name, attachment.fleet, REGISTRY)),
            origin_s=start_s,
        )

    def _after_tick(self, record: TickRecord) -> None:
        fleet, decision = self.attachment.fleet, record.decisions.get(record.acting)
        if record.note:
            log.warning("%s", record.note)
        if decision is not None and record.accepted is not None:
            before, after = record.observation.replicas.current, record.accepted.targets[fleet]
            log.info("%d → %d replicas, %s", before, after, reason_of(decision, fleet))

    def _after_step(self) -> None:
        events = self.actuator.events()
        self._journal.replicas(events)
        for event in events:
            if event.phase == "gone" and event.reason:
                logs = self.directory.logs_folder / f"{event.replica}.log"
                log.warning("%s: %s; see %s", event.replica, event.reason, logs)

    def _end(self) -> None:
        """Replicas first: they may ask for the plan while they leave."""
        log.info("ending the replicas")
        self.actuator.stop()
        try:
            self.actuator.stop_replicas(timeout_s=self.attachment.drain_s + START_TIMEOUT_S)
        except PenstockError as error:
            log.warning("%s", error)  # the end of their supervisor ends those that are left
        self._after_step()
        self.actuator.close()
        self._plans.stop()
        self._journal.close()
        self._keeper.end()

    @property
    def _plan_url(self) -> str:
        """Where the replicas of a killed predecessor look for plans, if there was one; else any free port."""
        try:
            return self._keeper.plan_url_file.read_text()
        except FileNotFoundError:
            return "http://127.0.0.1:0"


class Keeper:
    """The supervisor of one group's replicas, in a state folder of its own; one controller at a time looks after it."""

    def __init__(self, folder: Path, group: str) -> None:
        self._folder, self._group = folder, group
        self._lock: IO[str] | None = None
        self.plan_url_file = folder / "plan-service"
        self.supervisor = Supervisor(f"ipc://{folder / 'ctl.sock'}")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "logs").mkdir(exist_ok=True)
        self._lock = (folder / "control.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PenstockError(f"group {group!r}: another `penstock control` looks after it ({folder})") from None
        if not self.runs():
            self.plan_url_file.unlink(missing_ok=True)

    def runs(self) -> bool:
        """Whether a supervisor is there from a predecessor's time."""
        try:
            self.supervisor.programs()
        except NoSupervisorError:
            return False
        return True

    def start(self) -> None:
        """Start the supervisor if there is none."""
        if self.runs():
            return
        log_file = self._folder / "logs" / "supervisor.log"
        with log_file.open("ab") as output:
            done = subprocess.run(
                (sys.executable, "-m", "infra.local.daemon", str(self._folder)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                timeout=START_TIMEOUT_S,
            )
        if done.returncode != 0:
            raise PenstockError(f"the supervisor of the replicas does not start: see {log_file}")

    def end(self) -> None:
        """End the supervisor, and with it whatever it still keeps."""
        try:
            self.supervisor.quit()
        except PenstockError as error:
            log.warning("%s", error)
        self.plan_url_file.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
