"""The replicas of a fleet and what is to be done next, without doing it.

After Dask's adaptive scaling: what the plan wants, what was requested and what is observed are three sets, and the
difference is the work. No clock, no I/O: a timeline of calls gives a timeline of steps, so that it can be tested and
written down.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.contracts import Groups, Phase, ReplicaCounts, ReplicaEvent
from penstock.plan import MemberPhase, MemberReport, Plan, match_members
from penstock.supervision import ProgramStatus

LIFE: Final[tuple[Phase, ...]] = ("requested", "started", "joined", "first-event")
"""The steps of a replica that is wanted, in order."""

REPORTED: Final[Mapping[MemberPhase, Phase]] = {"started": "started", "joined": "joined", "first-event": "first-event"}
"""What a member's report means for its replica; the other phases mean nothing, the supervisor sees processes end."""


class Replica(msgspec.Struct, kw_only=True):
    """One replica under its name. It lives once more, under the same name, when its process is respawned.

    ``born_ns``: what was reported before belongs to an earlier life. ``told_ns``: when its last step was. ``pid``: its
    process as last seen, at ``seen_ns``. ``drain_since_ns``: since when it is on the way out. ``silent_ns``: since when
    its program has no process.
    """

    name: str
    phase: Phase = "requested"
    born_ns: int
    told_ns: int = 0
    pid: int | None = None
    seen_ns: int = 0
    drain_since_ns: int | None = None
    silent_ns: int | None = None

    @property
    def number(self) -> int:
        """Position in the order of creation."""
        return int(self.name.rpartition("-")[2])


class Work(msgspec.Struct, frozen=True):
    """What to do with processes: start these, end those."""

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


class Roster(msgspec.Struct, kw_only=True):
    """All replicas of one fleet that have not gone, and the number to name the next one with.

    A plain struct: written down after each change, it is where a restarted controller goes on. ``events`` are those
    that ``observe`` has not handed out yet.
    """

    fleet: str
    replicas: dict[str, Replica] = msgspec.field(default_factory=dict)
    next_number: int = 1
    events: list[ReplicaEvent] = msgspec.field(default_factory=list)

    # --- the plan's side ---------------------------------------------------------------------------------------------

    def current(self) -> list[Replica]:
        """Replicas that the plan counts on: those not on the way out. Oldest first."""
        wanted = (replica for replica in self.replicas.values() if replica.phase != "draining")
        return sorted(wanted, key=lambda replica: replica.number)

    def phases(self) -> dict[str, Phase]:
        """Every replica with its phase, oldest first."""
        ordered = sorted(self.replicas.values(), key=lambda replica: replica.number)
        return {replica.name: replica.phase for replica in ordered}

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return ReplicaCounts.count(replica.phase for replica in self.replicas.values())

    def request(self, count: int, now_ns: int) -> list[str]:
        """Ask for ``count`` more replicas; returns their names."""
        names = [f"{self.fleet}-{self.next_number + offset}" for offset in range(count)]
        self.next_number += count
        for name in names:
            self.replicas[name] = Replica(name=name, born_ns=now_ns)
            self._tell(name, "requested", now_ns)
        return names

    def choose_staying(self, count: int, groups: Groups, held: Mapping[str, Iterable[int]]) -> list[str]:
        """The ``count`` current replicas that stay: those that hold most of what their group in the plan has, then
        those that are furthest in their life, then the oldest.
        """
        current = self.current()
        holding = {replica.name: set(held.get(replica.name, ())) for replica in current}
        match = match_members(groups, holding)

        def order(replica: Replica) -> tuple[int, int, int]:
            kept = len(holding[replica.name].intersection(match[replica.name]))
            serving = replica.phase in ("joined", "first-event")
            return -kept, -2 if serving else -LIFE.index(replica.phase), replica.number

        return [replica.name for replica in sorted(current, key=order)[:count]]

    def drain(self, names: Sequence[str], now_ns: int) -> None:
        """These go, once a plan without them has taken everything from them."""
        for name in names:
            replica = self.replicas[name]
            replica.phase, replica.drain_since_ns = "draining", now_ns
            self._tell(name, "draining", now_ns)

    # --- the world's side --------------------------------------------------------------------------------------------

    def observe(self, programs: Mapping[str, ProgramStatus], reports: Mapping[str, MemberReport], now_ns: int) -> None:
        """Take in what runs (by replica name) and what each member said last."""
        for name, program in programs.items():
            there = program.pid is not None or program.state == "starting"
            if name not in self.replicas and there and program.state != "stopping":
                self._adopt(name, now_ns)
        for replica in list(self.replicas.values()):
            self._watch(replica, programs.get(replica.name), now_ns)
            report = reports.get(replica.name)
            if report is not None and (phase := REPORTED.get(report.phase)) is not None:
                self.hear(ReplicaEvent(self.fleet, replica.name, phase, report.at_ns))

    def hear(self, event: ReplicaEvent) -> None:
        """A member told of a step in its life. Steps that it did not tell of are taken as done at the same time; those
        told twice, out of order, or of an earlier life change nothing.
        """
        replica = self.replicas.get(event.replica)
        if replica is None or replica.phase not in LIFE or event.phase not in LIFE or event.at_ns < replica.born_ns:
            return
        for phase in LIFE[LIFE.index(replica.phase) + 1 : LIFE.index(event.phase) + 1]:
            replica.phase = phase
            self._tell(replica.name, phase, max(event.at_ns, replica.told_ns))

    def happened(self) -> list[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        handed_out, self.events = self.events, []
        return handed_out

    def work(
        self,
        programs: Mapping[str, ProgramStatus],
        reports: Mapping[str, MemberReport],
        plan: Plan | None,
        now_ns: int,
        *,
        drain_timeout_ns: int,
        silence_ns: int,
    ) -> Work:
        """What brings what runs closer to what is wanted. Nothing is taken as done until it is seen: it is asked for
        again.

        ``plan`` is the one in force. A draining replica ends when the plan has taken everything from it, or
        ``drain_timeout_ns`` after it was told; a program that its supervisor gave up is ended after ``silence_ns``, and
        started anew once it is gone.
        """
        start, end = [], []
        for replica in self.replicas.values():
            program = programs.get(replica.name)
            if replica.drain_since_ns is not None:
                overdue = now_ns - replica.drain_since_ns >= drain_timeout_ns
                idle = overdue or _has_let_go(replica, reports.get(replica.name), plan)
                if program is not None and program.state != "stopping" and idle:
                    end.append(replica.name)
            elif program is None:
                start.append(replica.name)
            elif program.state in ("stopped", "failed") and now_ns - (replica.silent_ns or now_ns) >= silence_ns:
                end.append(replica.name)
        return Work(tuple(start), tuple(end))

    def _adopt(self, name: str, now_ns: int) -> None:
        """A replica runs that nobody remembers: its controller died before it could write it down."""
        replica = Replica(name=name, born_ns=now_ns)
        self.replicas[name] = replica
        self.next_number = max(self.next_number, replica.number + 1)
        self._tell(name, "requested", now_ns, "adopted")

    def _watch(self, replica: Replica, program: ProgramStatus | None, now_ns: int) -> None:
        """Compare its process with the one seen before."""
        pid = program.pid if program is not None else None
        if replica.phase == "draining":
            replica.pid = pid
            if program is None:
                del self.replicas[replica.name]
                self._tell(replica.name, "gone", now_ns)
            return
        if replica.pid is not None and pid != replica.pid:
            self._tell(replica.name, "gone", now_ns, f"process {replica.pid} ended by itself")
            self._tell(replica.name, "requested", now_ns, "respawned")
            # Its successor may have reported before it is seen here; the process that ended was there until then.
            replica.phase, replica.born_ns = "requested", replica.seen_ns + 1 if replica.seen_ns else now_ns
        replica.pid = pid
        replica.seen_ns = replica.seen_ns if pid is None else now_ns
        replica.silent_ns = (replica.silent_ns or now_ns) if pid is None else None
        if pid is not None and replica.phase == "requested":
            replica.phase = "started"
            self._tell(replica.name, "started", now_ns)

    def _tell(self, name: str, phase: Phase, at_ns: int, reason: str = "") -> None:
        self.events.append(ReplicaEvent(self.fleet, name, phase, at_ns, reason))
        if (replica := self.replicas.get(name)) is not None:
            replica.told_ns = at_ns


def _has_let_go(replica: Replica, report: MemberReport | None, plan: Plan | None) -> bool:
    """Whether a draining replica holds nothing any more: it never took part, or the plan in force gave it nothing."""
    if report is None or report.at_ns < replica.born_ns or report.phase in ("started", "left"):
        return True
    if plan is None or replica.name in plan.members:
        return False
    return report.epoch >= plan.epoch and not report.partitions
