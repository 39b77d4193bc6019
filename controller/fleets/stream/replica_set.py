"""Replicas of a consumer group and their next steps, without I/O (``penstock.replica_set``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, Self

import msgspec

from controller.fleets.programs import SILENCE_NS, ProcessWatch, ProgramWork
from penstock.adapters.process_manager import ProgramStatus
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Groups
from penstock.plan import MemberPhase, MemberReport, Plan, match_members
from penstock.replica_set import LIFECYCLE, SERVING, Replica, ReplicaSet

CLOCK_MARGIN_NS: Final = NANOS_PER_SECOND
"""A clock that is set back is noticed at the next observation, which is not longer than this after the one before."""


class ConsumerReplica(Replica, kw_only=True):
    """One replica with its process, last seen at ``seen_ns`` (0 in a copy). Respawned, it is the same replica."""

    seen_ns: int = 0
    process: ProcessWatch = msgspec.field(default_factory=ProcessWatch)


class ConsumerReplicaSet(ReplicaSet[ConsumerReplica], kw_only=True):
    """All replicas of one consumer group."""

    Kind: ClassVar[type[ConsumerReplica]] = ConsumerReplica

    looked_ns: int = 0
    """When it was last observed; 0 in a copy."""

    def copy(self) -> Self:
        """A copy to be written down, which changes only when a replica does: without the times of observations."""
        copy = super().copy()
        copy.looked_ns = 0
        for replica in copy.replicas.values():
            replica.seen_ns = 0
        return copy

    def choose_staying(self, count: int, groups: Groups, held: Mapping[str, Iterable[int]]) -> list[str]:
        """Those ``count`` that stay: first by partitions kept from the plan, then by phase, then the oldest."""
        current = self.current()
        holding = {replica.name: set(held.get(replica.name, ())) for replica in current}
        match = match_members(groups, holding)

        def order(replica: ConsumerReplica) -> tuple[int, int, int]:
            kept = len(holding[replica.name].intersection(match[replica.name]))
            return -kept, *_furthest(replica)

        return [replica.name for replica in sorted(current, key=order)[:count]]

    def named_by(self, groups: Groups, staying: Sequence[str]) -> list[str]:
        """Of the replicas that stay, those that a plan with these groups names: all that have joined, and of the others
        those that came furthest, as many as there are further groups. The rest get partitions from a later plan.
        """
        if not groups or len(groups) >= len(staying):
            return list(staying)
        joined = sum(self.replicas[name].phase in SERVING for name in staying)
        return sorted(staying, key=lambda name: _furthest(self.replicas[name]))[: max(joined, len(groups))]

    def observe(
        self, programs: Mapping[str, ProgramStatus], steps: Mapping[str, Mapping[MemberPhase, int]], now_ns: int
    ) -> None:
        """Observe programs by replica name, and the times at which members reported their phases."""
        if now_ns < self.looked_ns:  # the clock was set back: what is reported now is not from before the request
            back_ns = self.looked_ns - now_ns + CLOCK_MARGIN_NS
            for replica in self.replicas.values():
                replica.requested_ns -= back_ns
                replica.seen_ns = max(0, replica.seen_ns - back_ns)
        self.looked_ns = now_ns
        for name, program in programs.items():
            exists = program.pid is not None or program.state == "starting"
            if name not in self.replicas and exists and program.state != "stopping":
                self.adopt(name, now_ns)
        for replica in list(self.replicas.values()):
            self._watch(replica, programs.get(replica.name), now_ns)
            for phase, at_ns in steps.get(replica.name, {}).items():
                if phase in ("started", "joined", "first-event"):
                    self.reach(replica.name, phase, at_ns)
            if replica.process.pid is not None and replica.phase == "requested":
                self.enter(replica.name, "started", now_ns)

    def _watch(self, replica: ConsumerReplica, program: ProgramStatus | None, now_ns: int) -> None:
        last_ns = replica.seen_ns or max(replica.entered_ns, replica.process.born_ns)
        lost = replica.process.look(program, now_ns)
        if replica.phase == "draining":
            if program is None:
                self.remove([replica.name], now_ns)
        elif lost:
            self.respawn(replica.name, now_ns, lost)
            # The new process may report before it is seen here; the old one existed until it was last seen. What a
            # broken watch shows is older than it looks: there the end that the platform tells counts.
            ended_ns = program.former_ended_ns if program is not None else None
            replica.requested_ns = min(last_ns + 1, last_ns + 1 if ended_ns is None else ended_ns)
        if replica.process.pid is not None:
            replica.seen_ns = now_ns

    def work(
        self,
        programs: Mapping[str, ProgramStatus],
        reports: Mapping[str, MemberReport],
        plan: Plan | None,
        now_ns: int,
        *,
        drain_timeout_ns: int,
        silence_ns: int = SILENCE_NS,
    ) -> ProgramWork:
        """Programs to start and to end. Work is repeated until its effect is observed.

        ``plan`` is the one in force. A draining replica ends when the plan has taken all partitions from it, or
        after ``drain_timeout_ns``. It ends at once if the plan has no members. A program that its process manager gave
        up ends after ``silence_ns``, and is started anew once it is gone.
        """
        start, end = [], []
        for replica in self.replicas.values():
            program = programs.get(replica.name)
            if replica.phase == "draining":
                overdue = now_ns - replica.entered_ns >= drain_timeout_ns
                idle = overdue or _has_released(replica, reports.get(replica.name), plan)
                if program is not None and program.state != "stopping" and idle:
                    end.append(replica.name)
            elif program is None:
                start.append(replica.name)
            elif replica.process.is_given_up(program, now_ns, silence_ns):
                end.append(replica.name)
        return ProgramWork(tuple(start), tuple(end))


def _furthest(replica: Replica) -> tuple[int, int]:
    """Sorts those that have joined before those that came furthest, and the oldest first among equals."""
    return -2 if replica.phase in SERVING else -LIFECYCLE.index(replica.phase), replica.number


def _has_released(replica: Replica, report: MemberReport | None, plan: Plan | None) -> bool:
    """Whether a draining replica holds no partition that another member is to take: it never took part, the plan in
    force gives it none, or the plan has no members. Under a plan without members the group's leader assigns the
    partitions to all present members, so that a draining replica would keep its own until it ends.
    """
    if report is None or report.at_ns < replica.requested_ns or report.phase in ("started", "left"):
        return True
    if plan is None or replica.name in plan.members:
        return False
    if not plan.members:
        return True
    return report.epoch >= plan.epoch and not report.partitions
