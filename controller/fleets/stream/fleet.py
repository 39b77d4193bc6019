"""A Kafka consumer group: worker processes or pods under plans that the assignor asks for."""

import sys
from collections.abc import Callable, Sequence

import msgspec

from controller.fleets.fleet import Fleet
from controller.fleets.programs import RunPrograms, WorkerProgram
from controller.fleets.stream.actuator import ConsumerGroupActuator, ProcessActuator
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.monitor import KafkaMonitor
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.process_manager import Supervisor
from penstock.clock import Clock
from penstock.contracts import Decision
from penstock.plan import range_groups
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Cluster, Endpoints
from penstock.systems import StreamSystem


class StreamFleetState(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas and plans."""

    replicas: ConsumerReplicaSet
    plans: AssignmentPlanner


class StreamFleet(Fleet[ConsumerGroupActuator]):
    """Fleet port on a plan service and a process manager, or a Kubernetes Deployment, as the run's world says.
    ``worker``: command of a replica on a process manager, without ``--run`` and ``--replica``. ``period_s``: the
    shortest decision period.
    """

    System = StreamSystem

    def __init__(
        self,
        directory: RunDirectory,
        spec: RunSpec,
        endpoints: Endpoints,
        clock: Clock,
        state: msgspec.Raw | None,
        worker: Sequence[str] = (sys.executable, "-m", "consumers.worker"),
        period_s: float = 1.0,
    ) -> None:
        super().__init__(spec, endpoints, clock)
        self._period_s = min(period_s, 1.0 / spec.speed)
        before = msgspec.json.decode(state, type=StreamFleetState) if state is not None else None
        planner = (
            before.plans
            if before is not None
            else AssignmentPlanner(join_timeout_s=spec.join_timeout_s, directed=spec.worker.directed_rebalance)
        )
        self.plans = PlanService(planner, group=spec.group, fleet=spec.fleet, url=endpoints.require("controller"))
        replicas = before.replicas if before is not None else None
        if spec.world == "kubernetes":
            self.actuator = self._pods(replicas)
        else:
            self.actuator = self._processes(WorkerProgram.of_run(directory, worker), replicas)

    def _processes(self, worker: WorkerProgram, replicas: ConsumerReplicaSet | None) -> ConsumerGroupActuator:
        """A replica is a program of the local world's process manager."""
        programs = RunPrograms(self._spec.run, Supervisor(self._endpoints.require("supervisor")), worker)
        return ProcessActuator(self._spec, self.plans, programs, replicas)

    def _pods(self, replicas: ConsumerReplicaSet | None) -> ConsumerGroupActuator:
        """A replica is a pod of the Deployment that has the fleet's name; its pod template has the command."""
        from controller.fleets.stream.pod_actuator import DeploymentActuator
        from penstock.adapters.kubernetes.deployment import Deployment

        deployment = Deployment(Cluster().namespace, self._spec.fleet)
        return DeploymentActuator(self._spec, self.plans, deployment, replicas)

    def start(self, after_step: Callable[[], None]) -> None:
        """Serve plans, find the replicas of a predecessor, reconcile from then on."""
        self.plans.start()
        self.actuator.connect()
        super().start(after_step)

    def bring_up(self) -> None:
        """Unless there is a plan: a range plan of the replicas that exist, of the initial number if there is none."""
        if not self.plans.snapshot().groups:
            wanted = self.counts().current or self._spec.initial_replicas
            groups = range_groups(range(self._spec.partitions), wanted)
            self.actuator.apply(Decision(action="up", targets={self._spec.fleet: wanted}, assignment=groups))

    def ready(self) -> bool:
        """A plan is in force and all replicas have joined."""
        counts, plans = self.counts(), self.plans.snapshot()
        return plans.current is not None and plans.pending is None and counts.joined == counts.current

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> KafkaMonitor:
        """The monitor of lag and arrival rates, connected."""
        spec = self._spec
        return KafkaMonitor.connected(
            bootstrap=self._endpoints.require("kafka"),
            topic=spec.events_topic,
            group=spec.group,
            partitions=spec.partitions,
            clock=self._clock,
            period_s=self._period_s,
            fleet=spec.fleet,
            origin_s=origin_s,
            counts=self.actuator.counts,
            plans=self.plans.snapshot,
            start_ups=self.actuator.start_ups_s,
            rate_interval_s=1.0 / spec.speed,
            reads_arrivals=spec.reads_arrivals,
            blind=blind,
        )

    def snapshot(self) -> msgspec.Raw:
        """JSON of ``StreamFleetState``."""
        state = StreamFleetState(replicas=self.actuator.snapshot(), plans=self.plans.snapshot())
        return msgspec.Raw(msgspec.json.encode(state))

    def stop(self) -> None:
        """End actuator and plan service; replicas stay as they are."""
        super().stop()
        self.plans.stop()
