"""One attachment of ``penstock control`` to an external consumer group.

Each replica is a process of the user's command under a supervisor that outlives the controller. Every attachment has a
run directory, so that ``penstock explain`` and ``penstock watch`` read it like any other run.
"""

import logging
import math
import shlex
import shutil
from collections.abc import Sequence
from typing import Final

import msgspec

from controller.assembly import RunController, StoppableClock, make_live_scaler
from controller.control.fleet import ExternalFleet, ExternalGroupSpec, GroupSupervisor
from controller.fleets.stream.group_members import count_partitions
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import ReplicaEvent, StreamObservation
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, slug
from penstock.runspec import ScalerSpec
from penstock.settings import Endpoints, Folders

log = logging.getLogger("control")

EXPERIMENT: Final = "control"


class AttachedController(RunController):
    """Controls an external group from ``run`` until ``clock.stop``. ``command`` runs one replica; ``grace_s``: SIGTERM
    to SIGKILL. PenstockError in one line if something is missing, before anything is started.
    """

    def __init__(
        self,
        *,
        kafka: str,
        topic: str,
        group: str,
        scaler: ScalerSpec,
        shadows: Sequence[ScalerSpec],
        command: Sequence[str],
        initial_replicas: int,
        max_replicas: int | None,
        slo_s: float,
        grace_s: float,
    ) -> None:
        scalers = [make_live_scaler(each, StreamObservation) for each in (scaler, *shadows)]
        if shutil.which(command[0]) is None:
            raise PenstockError(f"{shlex.join(command)}: there is no program {command[0]}")
        partitions = count_partitions(kafka, topic)
        folders, name = Folders(), slug(group) or "fleet"
        self._supervisor = GroupSupervisor(folders.state_path / f"control-{name}", group)
        directory = RunDirectory.create(folders.runs.absolute(), EXPERIMENT, scaler.name)
        spec = ExternalGroupSpec(
            run=directory.name,
            experiment=EXPERIMENT,
            world="local",
            scaler=scaler,
            shadows=tuple(shadows),
            fleet=name,  # its replicas are shop-1, shop-2, …
            pipeline=topic,
            kafka_group=group,
            partitions=partitions,
            slo_s=slo_s,
            duration_s=0.0,
            tick_phase_s=0.0,
            initial_replicas=initial_replicas,
            max_replicas=max_replicas or partitions,
            analytics=False,
        )
        clock = StoppableClock()
        endpoints = Endpoints(kafka=kafka, controller=self._supervisor.plan_url)
        period_s = min(each.period_s for each in scalers)
        fleet = ExternalFleet(
            directory, spec, endpoints, clock, self._supervisor, command=command, grace_s=grace_s, period_s=period_s
        )
        super().__init__(directory, spec, endpoints, fleet, scalers, clock)

    def run(self) -> None:
        """Bring the replicas up and tick; at the end stop all of them in order, then their supervisor."""
        start_ns = (math.floor(self.clock.now()) + 1) * NANOS_PER_SECOND
        self.spec = msgspec.structs.replace(self.spec, start_ns=start_ns)
        self.directory.write(self.directory.spec_file, self.spec)
        self._supervisor.start()
        try:
            super().run()
        finally:
            log.info("ending the replicas")
            try:
                self.stop_replicas()
            except PenstockError as error:
                log.warning("%s", error)  # the end of the supervisor ends those that are left
            self.close()
            self._supervisor.end()

    def bring_up(self) -> None:
        """Ticks begin at once: external consumers may take long to join."""
        self.fleet.bring_up()
        log.info("%s on group %s; its journal is %s", self.spec.scaler.name, self.spec.group, self.directory.path)

    def report(self, events: Sequence[ReplicaEvent]) -> None:
        """Log replicas that ended by themselves."""
        for event in events:
            if event.phase == "gone" and event.reason:
                logs = self.directory.logs_folder / f"{event.replica}.log"
                log.warning("%s: %s; see %s", event.replica, event.reason, logs)
