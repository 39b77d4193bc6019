"""The assignment of a consumer group: the plan in force, the pending one, and the partitions of each member.

A pure state machine with explicit time. Replicas join one by one: the old plan stays in force until all members of the
new one have joined (or a time-out), then one epoch bump moves everything at once.
"""

import math
from collections.abc import Collection, Iterable
from functools import lru_cache
from statistics import median
from typing import Self

import msgspec

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import MEASURED, Groups
from penstock.plan import MemberPhase, MemberReport, Plan, same_grouping

PRESENT: frozenset[MemberPhase] = frozenset({"joined", "first-event"})
"""Phases in which a member takes part in the group and can be given partitions."""
BY_HEARTBEAT: frozenset[MemberPhase] = PRESENT | {"joining"}
"""Phases in which a plan does not wait for a member where rebalances wait for heartbeats. The rebalance that a request
to join begins ends with the next heartbeats of the others; a plan that came into force after it would need another one.
"""


class PendingPlan(msgspec.Struct, frozen=True):
    """A plan that waits until ``awaited`` have joined. ``since_s``: when it was proposed, on the controller's clock."""

    groups: Groups
    members: tuple[str, ...]
    awaited: tuple[str, ...]
    since_s: float


class AssignmentPlanner(msgspec.Struct, kw_only=True):
    """One consumer group's plans; a restarted controller continues from a copy.

    ``join_timeout_s``: how long a proposal waits for members that have not joined. ``directed``: members are notified
    of every membership change, not of new plans only, so that none waits for a heartbeat to learn of it. Otherwise a
    member that asks to join counts as one that has joined.

    ``serial`` grows whenever the members should rejoin. ``current``: the plan in force. ``pending``: the proposal that
    waits for members. ``members``: the last report of each. ``steps``: when each member reported each phase of its
    present process. ``last_rebalance_ns``: when a member last reported a new generation of the group (its clock, Unix
    epoch). ``past``: finished and late events and busy time (ns) of processes that have ended. ``stops``: by generation
    of the group and member, how long it stood still in that rebalance; the last ``MEASURED`` generations.
    """

    join_timeout_s: float
    directed: bool = True
    serial: int = 0
    current: Plan | None = None
    pending: PendingPlan | None = None
    members: dict[str, MemberReport] = msgspec.field(default_factory=dict)
    steps: dict[str, dict[MemberPhase, int]] = msgspec.field(default_factory=dict)
    highest_epoch: int = 0
    last_rebalance_ns: int | None = None
    past: tuple[int, int, int] = (0, 0, 0)
    stops: dict[int, dict[str, int]] = msgspec.field(default_factory=dict)

    @property
    def finished(self) -> int | None:
        """Events that members have finished, as far as they have reported; None if no member counts them."""
        return self._counted(0, "finished")

    @property
    def late(self) -> int | None:
        """Of the finished events, those later than the SLO."""
        return self._counted(1, "late")

    @property
    def busy_s(self) -> float | None:
        """Time that members spent on the finished events."""
        busy_ns = self._counted(2, "busy_ns")
        return None if busy_ns is None else busy_ns / NANOS_PER_SECOND

    @property
    def delivery_s(self) -> float | None:
        """From an event's intended time until a member that was idle begins to serve it: the median over the members
        that have reported it, None if there are none.
        """
        known = [each.delivery_ns for each in self.members.values() if each.delivery_ns is not None]
        return median(known) / NANOS_PER_SECOND if known else None

    def rebalances_s(self) -> tuple[float, ...]:
        """How long members stood still in each of the last rebalances, the median of them, oldest first."""
        return tuple(_median_s(tuple(each.values())) for each in self.stops.values())

    @property
    def groups(self) -> Groups:
        """The grouping that was last proposed, in force or not: the basis of a scaler's decision."""
        if self.pending is not None:
            return self.pending.groups
        return self.current.groups if self.current is not None else ()

    def assigned(self) -> dict[str, tuple[int, ...]]:
        """The partitions in the last report of each present member."""
        return {
            replica: report.partitions for replica, report in sorted(self.members.items()) if report.phase in PRESENT
        }

    def copy(self) -> Self:
        """A copy that later changes leave as it is."""
        steps = {replica: dict(steps) for replica, steps in self.steps.items()}
        stops = {generation: dict(each) for generation, each in self.stops.items()}
        return msgspec.structs.replace(self, members=dict(self.members), steps=steps, stops=stops)

    def propose(self, groups: Groups, members: Collection[str], now_s: float) -> None:
        """Propose a plan. It comes into force once all its members have joined. A proposal replaces a pending one; a
        proposal of the plan in force only withdraws it.
        """
        wanted = tuple(sorted(members))
        if _same(self.current, groups, wanted):
            self.pending = None
            return
        since_s = self.pending.since_s if self.pending is not None and _same(self.pending, groups, wanted) else now_s
        self.pending = PendingPlan(groups=groups, members=wanted, awaited=wanted, since_s=since_s)
        self._await_less()

    def report(self, replica: str, report: MemberReport) -> None:
        """A member reports its phase. Reports overtaken by a later one of the same member are ignored. One of a later
        generation is later, whatever the clock says: it may have been set back.
        """
        before = self.members.get(replica)
        if before is not None and report.at_ns < before.at_ns and report.generation <= before.generation:
            return
        if report.phase == "started":
            self._end(before)
            self.steps.pop(replica, None)
        self.steps.setdefault(replica, {}).setdefault(report.phase, report.at_ns)
        if report.phase == "left":
            if self.members.pop(replica, None) is not None:
                self._end(report)
        else:
            self.members[replica] = report
        self.highest_epoch = max(self.highest_epoch, report.epoch)
        if report.phase in PRESENT and report.generation > (before.generation if before is not None else -1):
            self.last_rebalance_ns = max(report.at_ns, self.last_rebalance_ns or 0)
        if report.stopped_ns is not None:
            self._note_stop(replica, report.generation, report.stopped_ns)
        if self.directed and report.phase in ("joining", "left"):
            self.serial += 1
        if self.current is not None and report.epoch > self.current.epoch:
            # A plan of a predecessor that died before it was written down: the members have to leave it.
            self._put_in_force(self.current.groups, self.current.members)
        self._await_less()

    def forget(self, replica: str, before_ns: float = math.inf) -> None:
        """A replica's process has ended: no plan waits for it, unless a successor has reported since ``before_ns``.
        A farewell is of the process that ended, however late.
        """
        steps = self.steps.get(replica, {})
        if any(at_ns >= before_ns for phase, at_ns in steps.items() if phase not in ("leaving", "left")):
            return
        self.steps.pop(replica, None)
        self._end(self.members.pop(replica, None))
        if self.pending is not None and replica in self.pending.awaited:
            self._await(name for name in self.pending.awaited if name != replica)

    def tick(self, now_s: float) -> None:
        """Let time pass: a proposal comes into force after ``join_timeout_s`` with the members that have joined."""
        if self.pending is not None and now_s - self.pending.since_s >= self.join_timeout_s:
            self._await(())

    def _end(self, last: MemberReport | None) -> None:
        """A process has ended; its counts stay."""
        if last is not None:
            finished, late, busy_ns = self.past
            self.past = finished + (last.finished or 0), late + (last.late or 0), busy_ns + (last.busy_ns or 0)

    def _counted(self, which: int, field: str) -> int | None:
        known = [count for each in self.members.values() if (count := getattr(each, field)) is not None]
        return self.past[which] + sum(known) if known or any(self.past) else None

    def _note_stop(self, replica: str, generation: int, stopped_ns: int) -> None:
        self.stops.setdefault(generation, {})[replica] = stopped_ns
        for oldest in list(self.stops)[:-MEASURED]:
            del self.stops[oldest]

    def _await_less(self) -> None:
        if self.pending is not None:
            enough = PRESENT if self.directed else BY_HEARTBEAT
            there = {replica for replica, report in self.members.items() if report.phase in enough}
            self._await(replica for replica in self.pending.awaited if replica not in there)

    def _await(self, replicas: Iterable[str]) -> None:
        """The pending plan waits for these only; for none, it comes into force: one epoch, one serial."""
        assert self.pending is not None
        self.pending = pending = msgspec.structs.replace(self.pending, awaited=tuple(replicas))
        if pending.awaited:
            return
        self._put_in_force(pending.groups, pending.members)
        self.pending = None

    def _put_in_force(self, groups: Groups, members: tuple[str, ...]) -> None:
        self.highest_epoch += 1
        self.current = Plan(epoch=self.highest_epoch, groups=groups, members=members)
        self.serial += 1


@lru_cache(maxsize=1024)
def _median_s(times_ns: tuple[int, ...]) -> float:
    """Kept, since each tick asks for those of the last generations."""
    return median(times_ns) / NANOS_PER_SECOND


def _same(plan: Plan | PendingPlan | None, groups: Groups, members: tuple[str, ...]) -> bool:
    return plan is not None and plan.members == members and same_grouping(plan.groups, groups)
