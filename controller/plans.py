"""The plan board: the plan in force in a consumer group, the one that waits for its members, and what each one holds.

A pure state machine with explicit time. Replicas join one by one: the old plan stays in force until everyone the new
one needs has joined (or a time-out), then one epoch bump moves everything at once (spec 4.13).
"""

from collections.abc import Collection, Mapping

import msgspec

from penstock.contracts import Groups
from penstock.plan import MemberPhase, MemberReport, Plan, same_grouping

PRESENT: frozenset[MemberPhase] = frozenset({"joined", "first-event"})
"""Phases in which a member takes part in the group and can be given partitions."""


class PendingPlan(msgspec.Struct, frozen=True):
    """A plan that waits until ``awaited`` have joined. ``since_s``: when it was proposed, on the controller's clock."""

    groups: Groups
    members: tuple[str, ...]
    awaited: tuple[str, ...]
    since_s: float


class BoardState(msgspec.Struct, frozen=True):
    """Everything a board knows; written to the journal so that a restarted controller goes on with it."""

    serial: int = 0
    current: Plan | None = None
    pending: PendingPlan | None = None
    members: Mapping[str, MemberReport] = msgspec.field(default_factory=dict)
    highest_epoch: int = 0
    last_rebalance_ns: int | None = None


class PlanBoard:
    """One consumer group's plans.

    ``join_timeout_s``: how long a proposal waits for members that have not joined. ``directed``: members are told of
    every membership change, not of new plans only, so that nobody waits for a heartbeat to learn of it.
    """

    def __init__(self, *, join_timeout_s: float, directed: bool = True, state: BoardState | None = None) -> None:
        self.join_timeout_s = join_timeout_s
        self.directed = directed
        restored = state or BoardState()
        self._serial = restored.serial
        self._current = restored.current
        self._pending = restored.pending
        self._members: dict[str, MemberReport] = dict(restored.members)
        self._highest_epoch = restored.highest_epoch
        self._last_rebalance_ns = restored.last_rebalance_ns

    @classmethod
    def restore(cls, state: BoardState, *, join_timeout_s: float, directed: bool = True) -> "PlanBoard":
        """The board that ``snapshot`` was taken of."""
        return cls(join_timeout_s=join_timeout_s, directed=directed, state=state)

    def snapshot(self) -> BoardState:
        """Everything it knows, as a plain struct."""
        return BoardState(
            serial=self._serial,
            current=self._current,
            pending=self._pending,
            members=dict(self._members),
            highest_epoch=self._highest_epoch,
            last_rebalance_ns=self._last_rebalance_ns,
        )

    # --- what it knows ---------------------------------------------------------------------------------------------

    @property
    def serial(self) -> int:
        """Grows whenever the members should rejoin."""
        return self._serial

    @property
    def current(self) -> Plan | None:
        """The plan in force, None before the first."""
        return self._current

    @property
    def pending(self) -> PendingPlan | None:
        """The proposal that waits for members, None if there is none."""
        return self._pending

    @property
    def groups(self) -> Groups:
        """The grouping that was last asked for, in force or not: what a scaler decides on (spec 4.13)."""
        if self._pending is not None:
            return self._pending.groups
        return self._current.groups if self._current is not None else ()

    @property
    def phases(self) -> dict[str, MemberPhase]:
        """Each member's phase as it last reported it."""
        return {replica: report.phase for replica, report in sorted(self._members.items())}

    @property
    def last_rebalance_ns(self) -> int | None:
        """When a member last reported a new generation of the group (its clock, Unix epoch); None before the first."""
        return self._last_rebalance_ns

    def assigned(self) -> dict[str, tuple[int, ...]]:
        """The partitions that each present member reported to hold."""
        return {
            replica: report.partitions for replica, report in sorted(self._members.items()) if report.phase in PRESENT
        }

    # --- what happens to it ----------------------------------------------------------------------------------------

    def propose(self, groups: Groups, members: Collection[str], now_s: float) -> None:
        """Ask for a plan. It comes into force at once if everyone it needs is there; otherwise it waits, and the old
        plan stays. A proposal replaces a waiting one; asking for what is in force only withdraws the waiting one.
        """
        wanted = tuple(sorted(members))
        if self._current is not None and _same(self._current, groups, wanted):
            self._pending = None
            return
        awaited = tuple(replica for replica in wanted if not self._present(replica))
        pending = self._pending
        unchanged = pending is not None and pending.members == wanted and same_grouping(pending.groups, groups)
        since_s = pending.since_s if pending is not None and unchanged else now_s
        self._pending = PendingPlan(groups=groups, members=wanted, awaited=awaited, since_s=since_s)
        self._settle()

    def report(self, replica: str, report: MemberReport) -> None:
        """A member tells where it is. Reports that were overtaken by a later one of the same member are ignored."""
        before = self._members.get(replica)
        if before is not None and report.at_ns < before.at_ns:
            return
        if report.phase == "left":
            self._members.pop(replica, None)
        else:
            self._members[replica] = report
        self._highest_epoch = max(self._highest_epoch, report.epoch)
        if report.phase in PRESENT and report.generation > (before.generation if before is not None else -1):
            self._last_rebalance_ns = max(report.at_ns, self._last_rebalance_ns or 0)
        if self.directed and report.phase in ("joining", "left"):
            self._serial += 1
        self._await_less()

    def forget(self, replica: str) -> None:
        """A replica is gone without a word (killed): nobody waits for it any longer."""
        self._members.pop(replica, None)
        if self._pending is not None and replica in self._pending.awaited:
            self._pending = msgspec.structs.replace(
                self._pending, awaited=tuple(name for name in self._pending.awaited if name != replica)
            )
            self._settle()

    def tick(self, now_s: float) -> None:
        """Let time pass: a proposal that has waited ``join_timeout_s`` comes into force with those who are there."""
        pending = self._pending
        if pending is not None and now_s - pending.since_s >= self.join_timeout_s:
            self._pending = msgspec.structs.replace(pending, awaited=())
            self._settle()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _present(self, replica: str) -> bool:
        report = self._members.get(replica)
        return report is not None and report.phase in PRESENT

    def _await_less(self) -> None:
        if self._pending is not None:
            awaited = tuple(replica for replica in self._pending.awaited if not self._present(replica))
            self._pending = msgspec.structs.replace(self._pending, awaited=awaited)
            self._settle()

    def _settle(self) -> None:
        """Put the waiting plan in force if it waits for nobody: one epoch, one serial."""
        pending = self._pending
        if pending is None or pending.awaited:
            return
        self._highest_epoch += 1
        self._current = Plan(epoch=self._highest_epoch, groups=pending.groups, members=pending.members)
        self._pending = None
        self._serial += 1


def _same(plan: Plan, groups: Groups, members: tuple[str, ...]) -> bool:
    return plan.members == members and same_grouping(plan.groups, groups)
