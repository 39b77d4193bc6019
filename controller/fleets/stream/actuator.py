"""The actuator of a consumer group over processes, and what it shares with the one over pods.

``apply`` proposes the plan and notes the target; a thread reconciles ten times a second: it starts missing
replicas and ends those that have released their partitions. The rules are in ``replica_set``.
"""

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping

from controller.fleets.actuator import END_S, ReconcilingActuator
from controller.fleets.programs import ProgramWork, RunPrograms
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.process_manager import ProgramStatus
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Accepted, Decision, Groups
from penstock.errors import PenstockError
from penstock.limits import clamp_targets
from penstock.log_once import LogOnce
from penstock.plan import range_groups
from penstock.runspec import RunSpec

log = logging.getLogger(__name__)


class ConsumerGroupActuator(ReconcilingActuator[ConsumerReplicaSet]):
    """Actuator port of the consumer group of ``spec`` under a plan service. Replicas are named ``<fleet>-<number>``.
    ``replicas``: of a predecessor, to continue from. A draining replica is ended after twice the spec's
    ``join_timeout_s`` even if it still holds partitions, and at once if rebalances wait for heartbeats or the plan has
    no members.
    """

    def __init__(self, spec: RunSpec, plans: PlanService, replicas: ConsumerReplicaSet | None = None) -> None:
        super().__init__(replicas or ConsumerReplicaSet(fleet=spec.fleet))
        self.fleet = spec.fleet
        self._spec, self._plans = spec, plans
        self._trouble = LogOnce(log, "replicas are left as they are: %s")

    def connect(self) -> None:
        """Connect to the platform of the replicas; before the first ``step``. Raises PenstockError if it is away."""

    @abstractmethod
    def reconcile(self) -> None:
        """Observe and reconcile once. PenstockError while the platform of the replicas is away."""

    @abstractmethod
    def _end_all(self, timeout_s: float) -> None:
        """End every replica of this fleet. Raises PenstockError if some stay."""

    def apply(self, decision: Decision) -> Accepted:
        """Propose the decision's plan; request and drain replicas. Without an assignment the plan is the range one."""
        with self._lock:
            size = self._replicas.size
            if decision.action in ("hold", "none"):
                return Accepted({self.fleet: size})
            wanted = {self.fleet: decision.targets.get(self.fleet, size)}
            accepted = clamp_targets(wanted, {self.fleet: size}, each=self._spec.max_replicas)
            target = accepted.targets[self.fleet]
            self._change(target, decision.assignment or range_groups(range(self._spec.partitions), target))
        self._wake.set()
        return accepted

    def stop_replicas(self, timeout_s: float = END_S) -> None:
        """End every replica, requested ones included; after ``stop``. Raises PenstockError if some stay."""
        with self._lock:
            self._replicas.drain([replica.name for replica in self._replicas.current()], time.time_ns())
        self._end_all(timeout_s)
        with self._lock:
            self._replicas.observe({}, {}, time.time_ns())

    def start_ups_s(self) -> tuple[float, ...]:
        """From request to joining, of the replicas that joined last."""
        with self._lock:
            return self._replicas.start_ups_s()

    def step(self) -> None:
        """Observe and reconcile once. An absent platform is logged once."""
        with self._trouble.skipping(PenstockError):
            self.reconcile()

    def _change(self, target: int, groups: Groups) -> None:
        """Propose the plan before the number of replicas changes, so that no partition is without an owner."""
        now_ns = time.time_ns()
        current = [replica.name for replica in self._replicas.current()]
        if target >= len(current):
            members = current + self._replicas.request(target - len(current), now_ns)
        else:
            members = self._replicas.choose_staying(target, groups, self._plans.snapshot().assigned())
        self._plans.propose(groups, self._replicas.named_by(groups, members), now_ns / NANOS_PER_SECOND)
        self._replicas.drain([name for name in current if name not in members], now_ns)

    def _work_for(self, programs: Mapping[str, ProgramStatus], now_ns: int) -> ProgramWork:
        """Observe programs by replica name and the members' reports; returns programs to start and to end. ``now_ns``:
        when the programs were asked for. An answer that comes late tells nothing of the time since.
        """
        with self._lock:
            self._plans.tick(now_ns / NANOS_PER_SECOND)
            state = self._plans.snapshot()
            seen = len(self._replicas.events)
            self._replicas.observe(programs, state.steps, now_ns)
            for event in self._replicas.events[seen:]:
                if event.phase == "gone":
                    replica = self._replicas.replicas.get(event.replica)
                    self._plans.forget(event.replica, event.at_ns if replica is None else replica.requested_ns)
            # Who learns of a rebalance by heartbeat leaves at once: its leaving is in the rebalance of the new plan.
            drain_s = 2 * self._spec.join_timeout_s if self._spec.worker.directed_rebalance else 0.0
            return self._replicas.work(
                programs, state.members, state.current, now_ns, drain_timeout_ns=round(drain_s * NANOS_PER_SECOND)
            )


class ProcessActuator(ConsumerGroupActuator):
    """A replica is a program of the local world's process manager, which outlives the controller: the command of
    ``programs`` and ``--replica NAME``.
    """

    def __init__(
        self, spec: RunSpec, plans: PlanService, programs: RunPrograms, replicas: ConsumerReplicaSet | None = None
    ) -> None:
        super().__init__(spec, plans, replicas)
        self._programs = programs
        self._own = f"{spec.fleet}-"

    def reconcile(self) -> None:
        """Start missing replicas, end those that have released their partitions."""
        asked_ns = time.time_ns()
        work = self._work_for(self._programs.look(self._own), asked_ns)
        for name in work.end:
            self._programs.end(name)
        for name in work.start:
            self._start(name)

    def _start(self, name: str) -> None:
        self._programs.start(name, "--replica", name)

    def _end_all(self, timeout_s: float) -> None:
        self._programs.end_all(prefix=self._own, timeout_s=timeout_s)
