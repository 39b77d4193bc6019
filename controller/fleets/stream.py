"""A Kafka consumer group: worker processes or pods under plans that the assignor asks for."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from controller.actuators.consumer_group import ConsumerGroup, GroupActuator
from controller.actuators.processes import ProcessActuator, WorkerProgram
from controller.actuators.roster import Roster
from controller.monitors.kafka import KafkaMonitor, OffsetReader
from controller.plan_service import PlanService
from controller.plans import BoardState, PlanBoard
from penstock.clock import Clock
from penstock.contracts import Decision, ReplicaCounts, StreamObservation
from penstock.plan import range_groups
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Cluster, Endpoints
from penstock.supervision import Supervisor, replica_environment

MONITOR_SHARE = 0.4
"""Of a second at the run's speed: what reading the offsets may take at most, so that a tick is not missed for it."""


class StreamFleetState(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas and plans."""

    roster: Roster
    board: BoardState


class StreamFleet:
    """Fleet port on a plan service and a supervisor, or a Kubernetes Deployment, as the run's world says. ``worker`` is
    the command of a replica on a supervisor without ``--run`` and ``--replica``.
    """

    offers = StreamObservation
    actuator: GroupActuator

    def __init__(
        self,
        directory: RunDirectory,
        spec: RunSpec,
        endpoints: Endpoints,
        clock: Clock,
        state: msgspec.Raw | None,
        worker: Sequence[str] = (sys.executable, "-m", "consumers.worker"),
    ) -> None:
        self._spec, self._endpoints, self._clock = spec, endpoints, clock
        before = msgspec.json.decode(state, type=StreamFleetState) if state is not None else None
        board = PlanBoard(
            join_timeout_s=spec.join_timeout_s,
            directed=spec.worker.directed_rebalance,
            state=before.board if before is not None else None,
        )
        self.plans = PlanService(board, group=spec.group, fleet=spec.fleet, url=endpoints.require("controller"))
        roster = before.roster if before is not None else None
        if spec.world == "kubernetes":
            self.actuator = self._pods(roster)
        else:
            self.actuator = self._processes(directory, (*worker, "--run", str(directory.path)), roster)

    def _processes(self, directory: RunDirectory, command: tuple[str, ...], roster: Roster | None) -> GroupActuator:
        """A replica is a program of the local world's supervisor."""
        return ProcessActuator(
            self._group(),
            self.plans,
            run=self._spec.run,
            supervisor=Supervisor(self._endpoints.require("supervisor")),
            worker=WorkerProgram(
                command=command, folder=directory.path, logs=directory.logs_folder, env=replica_environment()
            ),
            roster=roster,
        )

    def _pods(self, roster: Roster | None) -> GroupActuator:
        """A replica is a pod of the Deployment that has the fleet's name; how it is run is said there."""
        from controller.actuators.kubernetes import DeploymentActuator
        from penstock.kubernetes.deployment import Deployment

        deployment = Deployment(Cluster().namespace, self._spec.fleet)
        return DeploymentActuator(self._group(), self.plans, deployment=deployment, roster=roster)

    def _group(self) -> ConsumerGroup:
        return ConsumerGroup(
            fleet=self._spec.fleet,
            partitions=self._spec.partitions,
            max_replicas=self._spec.max_replicas,
            drain_timeout_s=2 * self._spec.join_timeout_s,
        )

    def start(self, after_step: Callable[[], None]) -> None:
        """Serve plans, find the replicas of a predecessor, reconcile from then on."""
        self.plans.start()
        self.actuator.connect()
        self.actuator.step()
        self.actuator.start(after_step)

    def bring_up(self) -> None:
        """The initial replicas under a range plan, unless there is a plan already. After a predecessor that has left no
        word, the replicas that there are.
        """
        if not self.plans.groups:
            wanted = self.counts().current or self._spec.initial_replicas
            groups = range_groups(range(self._spec.partitions), wanted)
            self.actuator.apply(Decision(action="up", targets={self._spec.fleet: wanted}, assignment=groups))

    def ready(self) -> bool:
        """A plan is in force and all replicas have joined."""
        counts = self.counts()
        return self.plans.current is not None and self.plans.pending is None and counts.joined == counts.current

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> KafkaMonitor:
        """Lag and arrival rates; the first reading, which makes the connections, is thrown away."""
        spec = self._spec
        reader = OffsetReader(
            bootstrap=self._endpoints.require("kafka"),
            topic=spec.events_topic,
            group=spec.group,
            partitions=spec.partitions,
            clock=self._clock,
            timeout_s=MONITOR_SHARE * min(1.0, 1.0 / spec.speed),
        )
        reader.read()
        return KafkaMonitor(
            fleet=spec.fleet,
            reader=reader,
            partitions=spec.partitions,
            clock=self._clock,
            origin_s=origin_s,
            replicas=self.actuator,
            plans=self.plans,
            rate_interval_s=1.0 / spec.speed,
            blind=blind,
        )

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return self.actuator.counts()

    def snapshot(self) -> msgspec.Raw:
        """JSON of ``StreamFleetState``."""
        state = StreamFleetState(roster=self.actuator.snapshot(), board=self.plans.snapshot())
        return msgspec.Raw(msgspec.json.encode(state))

    def stop(self) -> None:
        """Replicas stay as they are."""
        self.actuator.stop()
        self.plans.stop()

    def stop_replicas(self) -> None:
        """Raises PenstockError if some stay."""
        self.actuator.stop_replicas()
