"""What the actuators of a consumer group share, whatever their replicas are made of.

``apply`` only notes what is wanted and proposes the plan; a thread reconciles, some ten times a second: it starts what
is missing, ends what has let go of its partitions, and tells what happened. The reckoning itself is in ``roster``.
"""

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Final

import msgspec

from controller.actuators.roster import Roster, Work
from controller.actuators.stepping import SteppingActuator
from controller.plan_service import PlanService
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Accepted, Decision, Groups, ReplicaCounts
from penstock.errors import PenstockError
from penstock.plan import range_groups
from penstock.supervision import ProgramStatus

log = logging.getLogger(__name__)

SILENCE_S: Final = 5.0
"""A worker that its supervisor gave up (it ended again and again) is tried anew after this long."""


class ConsumerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Which group it is. ``max_replicas`` is the cap of the cluster; what it cuts is reported. ``drain_timeout_s``: a
    replica that goes is ended after this long even if it was not seen to let go of its partitions.
    """

    fleet: str
    partitions: int
    max_replicas: int
    drain_timeout_s: float = 5.0


class GroupActuator(SteppingActuator[Roster]):
    """Actuator port of a consumer group under a plan service. Replicas are named ``<fleet>-<number>``. ``roster``: of a
    predecessor, to go on from.
    """

    def __init__(self, group: ConsumerGroup, plans: PlanService, roster: Roster | None = None) -> None:
        super().__init__(roster or Roster(fleet=group.fleet))
        self.fleet = group.fleet
        self._group = group
        self._plans = plans
        self._trouble = ""

    def connect(self) -> None:
        """Reach what keeps the replicas; before the first ``step``. Raises PenstockError if it can't be reached."""

    @abstractmethod
    def reconcile(self) -> None:
        """Look once and do what is to be done. PenstockError if that which keeps the replicas is away."""

    @abstractmethod
    def _end_all(self, timeout_s: float) -> None:
        """End everything that is a replica of this fleet. Raises PenstockError if some stay."""

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Propose the decision's plan and note who comes and who goes. Without an assignment the plan is the range
        one.
        """
        with self._lock:
            size = len(self._roster.current())
            wanted = decision.targets.get(self.fleet, size)
            target = max(0, min(wanted, self._group.max_replicas))
            if decision.action in ("hold", "none"):
                return Accepted({self.fleet: size})
            groups = decision.assignment or range_groups(range(self._group.partitions), target)
            self._change(target, groups)
        self._wake.set()
        if target == wanted:
            return Accepted({self.fleet: target})
        return Accepted({self.fleet: target}, {self.fleet: f"{wanted} → {target}: cap {self._group.max_replicas}"})

    # --- what else the controller asks -------------------------------------------------------------------------------

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        with self._lock:
            return self._roster.counts()

    def snapshot(self) -> Roster:
        """A copy of the roster, to be written down."""
        with self._lock:
            return msgspec.json.decode(msgspec.json.encode(self._roster), type=Roster)

    def stop_replicas(self, timeout_s: float = 30.0) -> None:
        """End every replica of this fleet, also those on the way; after ``stop``. Raises PenstockError if some stay."""
        with self._lock:
            self._roster.drain([replica.name for replica in self._roster.current()], time.time_ns())
        self._end_all(timeout_s)
        with self._lock:
            self._roster.observe({}, {}, time.time_ns())

    def step(self) -> None:
        """Look once and do what is to be done. What keeps the replicas is named once if it is away, and looked for
        again.
        """
        try:
            self.reconcile()
        except PenstockError as error:
            if str(error) != self._trouble:
                log.warning("replicas are left as they are: %s", error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    # --- inside ------------------------------------------------------------------------------------------------------

    def _change(self, target: int, groups: Groups) -> None:
        """The plan first, then the count (spec 4.13)."""
        now_ns = time.time_ns()
        current = self._roster.current()
        if target >= len(current):
            members = [replica.name for replica in current]
            members += self._roster.request(target - len(current), now_ns)
        else:
            members = self._roster.choose_staying(target, groups, self._plans.assigned())
        self._plans.propose(groups, members, now_ns / NANOS_PER_SECOND)
        self._roster.drain([replica.name for replica in current if replica.name not in members], now_ns)

    def _reckon(self, programs: Mapping[str, ProgramStatus]) -> Work:
        """Take in what runs, by replica name, and what the members said; what is to be done follows."""
        now_ns = time.time_ns()
        with self._lock:
            self._plans.tick(now_ns / NANOS_PER_SECOND)
            reports = self._plans.snapshot().members
            for event in self._plans.events():
                self._roster.hear(event)
            seen = len(self._roster.events)
            self._roster.observe(programs, reports, now_ns)
            for event in self._roster.events[seen:]:
                report, replica = reports.get(event.replica), self._roster.replicas.get(event.replica)
                born_ns = event.at_ns if replica is None else replica.born_ns
                if event.phase == "gone" and report is not None and report.at_ns < born_ns:
                    self._plans.forget(event.replica)
            return self._roster.work(
                programs,
                reports,
                self._plans.current,
                now_ns,
                drain_timeout_ns=round(self._group.drain_timeout_s * NANOS_PER_SECOND),
                silence_ns=round(SILENCE_S * NANOS_PER_SECOND),
            )
