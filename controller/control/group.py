"""The attachment of ``penstock control`` to an external consumer group: each replica is a process of the user's command
under a supervisor that outlives the controller.
"""

import hashlib
import logging
import shlex
import shutil
from collections.abc import Sequence
from typing import Final

from controller.assembly import StoppableClock, make_live_scaler
from controller.control.attachment import EXPERIMENT, AttachedController
from controller.control.fleet import ExternalFleet, ExternalGroupSpec, GroupSupervisor
from controller.fleets.stream.group_members import count_partitions
from penstock.contracts import ReplicaEvent, StreamObservation
from penstock.errors import PenstockError
from penstock.registry import reads_arrivals
from penstock.rundir import RunDirectory, slug
from penstock.runspec import ScalerSpec
from penstock.settings import Endpoints, Folders

log = logging.getLogger("control")

DIGEST_LENGTH: Final = 8


class GroupController(AttachedController):
    """Controls an external group. ``command`` runs one replica; ``grace_s``: SIGTERM to SIGKILL. PenstockError in one
    line if something is missing, before anything is started.
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
        tick_phase_s: float,
        grace_s: float,
    ) -> None:
        scalers = [make_live_scaler(each, StreamObservation) for each in (scaler, *shadows)]
        if shutil.which(command[0]) is None:
            raise PenstockError(f"{shlex.join(command)}: there is no program {command[0]}")
        partitions = count_partitions(kafka, topic)
        folders, name = Folders(), fleet_of(group)
        self.of = f"group {group}"
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
            tick_phase_s=tick_phase_s,
            initial_replicas=initial_replicas,
            max_replicas=max_replicas or partitions,
            reads_arrivals=reads_arrivals((scaler, *shadows)),
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
        """Start the supervisor of the replicas, then tick."""
        self._supervisor.start()
        super().run()

    def end(self) -> None:
        """Stop all replicas in order, then their supervisor."""
        log.info("ending the replicas")
        try:
            self.stop_replicas()
        except PenstockError as error:
            log.warning("%s", error)  # the end of the supervisor ends those that are left
        self._supervisor.end()

    def report(self, events: Sequence[ReplicaEvent]) -> None:
        """Log replicas that ended by themselves."""
        for event in events:
            if event.phase == "gone" and event.reason:
                logs = self.directory.logs_folder / f"{event.replica}.log"
                log.warning("%s: %s; see %s", event.replica, event.reason, logs)


def fleet_of(group: str) -> str:
    """Name of a group's fleet and state folder, which no other group has: where the group's name has characters that a
    slug lacks, a digest tells it from those with the same slug.
    """
    plain = slug(group)
    if plain == group:
        return group
    return f"{plain or 'fleet'}-{hashlib.sha256(group.encode()).hexdigest()[:DIGEST_LENGTH]}"
