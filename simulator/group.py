"""A consumer group in virtual time: who is a member, who holds which partitions, and what a rebalance costs.

The plans are the live world's (``controller.plans.PlanBoard``), members are matched to groups as its assignor does it.
A rebalance begins with a new plan, or when a member comes, goes or is thrown out. Every member stops for it with the
event in hand finished, and all go on together some time after the last has stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from controller.plans import PlanBoard
from penstock.contracts import Groups
from penstock.plan import MemberReport, Plan, match_members, range_assignment
from simulator.agenda import Agenda
from simulator.clock import nanos
from simulator.partitions import PartitionedEvents


@dataclass(slots=True, eq=False)
class Member:
    """A replica as the group's coordinator knows it. ``index``: of the replica's row in ``PartitionedEvents``.

    ``stopped``: it waits for the rebalance under way to end. ``silent_since_s``: since when it has sent no heartbeats
    (killed or frozen); the coordinator learns of that only a session time-out later. ``thaw_s``: a frozen one goes on
    then.
    """

    name: str
    index: int
    heartbeat_phase_s: float
    held: tuple[int, ...] = ()
    epoch: int = -1
    stopped: bool = False
    silent_since_s: float | None = None
    killed: bool = False
    thaw_s: float = 0.0


class Group:
    """The group of one topic.

    ``pause_s``: from the moment the last member has stopped until all go on. ``directed``: members hear of a rebalance
    at once; otherwise only the leader (the oldest) does, and the others with their next heartbeat. ``cooperative``:
    only the partitions that move stop. ``now`` is the engine's time; ``assigned`` is called after each rebalance.
    """

    def __init__(
        self,
        *,
        events: PartitionedEvents,
        partitions: int,
        board: PlanBoard,
        agenda: Agenda,
        now: Callable[[], float],
        rng: np.random.Generator,
        pause_s: float,
        heartbeat_s: float,
        session_timeout_s: float,
        directed: bool,
        cooperative: bool,
        assigned: Callable[[], None],
    ) -> None:
        self.members: list[Member] = []
        self.rebalances = 0
        self._events, self._partitions = events, partitions
        self._board, self._agenda, self._now, self._rng = board, agenda, now, rng
        self._pause_s, self._heartbeat_s, self._session_timeout_s = pause_s, heartbeat_s, session_timeout_s
        self._directed, self._cooperative = directed, cooperative
        self._assigned = assigned
        self._running = False
        self._attempt = 0
        self._ready_s = 0.0
        self._told_epoch = -1
        self._away: list[Member] = []  # thrown out while frozen; they come back when they thaw

    # --- members -----------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Member | None:
        """The living member of that name, also one that was thrown out and will be back."""
        known = (member for member in (*self.members, *self._away) if not member.killed)
        return next((member for member in known if member.name == name), None)

    def join(self, name: str) -> None:
        """A replica comes. It gets nothing before the rebalance that this begins is over."""
        index = self._events.new_replica()
        phase_s = float(self._rng.uniform(0.0, self._heartbeat_s))
        member = Member(name=name, index=index, heartbeat_phase_s=phase_s)
        self._events.stop(index)
        member.stopped = True
        self.members.append(member)
        self._board.report(name, MemberReport("joined", nanos(self._now()), epoch=-1))
        self.rebalance()

    def leave(self, name: str, *, unnoticed: bool = False) -> None:
        """A member goes: it finishes the event in hand; what it holds stands still until the others have it.
        ``unnoticed``: it holds nothing, and the others are spared a rebalance.
        """
        member = self.member(name)
        self._board.report(name, MemberReport("left", nanos(self._now())))
        if member is None:
            self.follow()
            return
        self._ready_s = max(self._ready_s, self._events.stop(member.index))
        self._forget(member)
        self._apply()
        if not unnoticed or member.held or self._running:
            self.rebalance()

    def kill(self, name: str) -> None:
        """A member's process ends without a word. Its event in hand and whatever it has not committed are delivered
        again; its partitions stand still until its session has timed out.
        """
        member = self.member(name)
        self._board.forget(name)
        if member is not None:
            member.killed, member.stopped = True, False
            self._events.take_back(member.index, member.held, self._now(), lost=True)
            self._events.stop(member.index)
            if member in self._away:
                self._away.remove(member)
            else:
                self._attempt += 1  # a rebalance that was about to end waits for its session
                self._fall_silent(member)

    def freeze(self, until_s: float) -> None:
        """Every member stands still, heartbeats too; those whose session times out before ``until_s`` are thrown out
        and come back.
        """
        now_s = self._now()
        for member in [each for each in (*self.members, *self._away) if not each.killed]:
            member.thaw_s = max(member.thaw_s, until_s)
            self._events.freeze(member.index, now_s, member.thaw_s)
            self._agenda.at(member.thaw_s, partial(self._thaw, member))
            self._fall_silent(member)

    def _fall_silent(self, member: Member) -> None:
        since_s = self._now() if member.silent_since_s is None else member.silent_since_s
        member.silent_since_s = since_s
        self._agenda.at(since_s + self._session_timeout_s, lambda: self._expel(member, since_s))

    def _expel(self, member: Member, since_s: float) -> None:
        """The coordinator has not heard of a member for a session's length."""
        if member not in self.members or member.silent_since_s != since_s:
            return
        self.members.remove(member)
        if not member.killed:
            self._events.take_back(member.index, member.held, self._now(), lost=False)
            self._away.append(member)
        member.held, member.stopped = (), False
        self._apply()
        self.rebalance()

    def _thaw(self, member: Member) -> None:
        if self._now() < member.thaw_s or member.killed:
            return
        member.silent_since_s = None
        if member in self._away:
            self._away.remove(member)
            self.members.append(member)
            self._stop(member, check=False)
            self.rebalance()
        elif self._running and not member.stopped:
            self._stop(member)

    def _forget(self, member: Member) -> None:
        (self._away if member in self._away else self.members).remove(member)

    # --- rebalances --------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Begin a rebalance if another plan has come into force."""
        plan = self._board.current
        if plan is not None and plan.epoch != self._told_epoch:
            self.rebalance()

    def settle_at_once(self) -> None:
        """Assign without a rebalance: before anything has arrived."""
        self._complete(self._attempt)

    def rebalance(self) -> None:
        """Begin a rebalance, or begin the one under way again. Members that have stopped for it stay stopped."""
        plan = self._board.current
        self._told_epoch = plan.epoch if plan is not None else -1
        self._running = True
        self._attempt += 1
        awake = [member for member in self.members if member.silent_since_s is None]
        for place, member in enumerate(awake):
            if member.stopped:
                continue
            if self._directed or place == 0:
                self._stop(member, check=False)
            else:
                self._agenda.at(self._next_heartbeat_s(member), partial(self._hear, member))
        self._check()

    def _next_heartbeat_s(self, member: Member) -> float:
        now_s, every_s = self._now(), self._heartbeat_s
        return member.heartbeat_phase_s + every_s * ceil((now_s - member.heartbeat_phase_s) / every_s)

    def _hear(self, member: Member) -> None:
        if self._running and not member.stopped and member.silent_since_s is None and member in self.members:
            self._stop(member)

    def _stop(self, member: Member, *, check: bool = True) -> None:
        member.stopped = True
        if not self._cooperative:
            self._ready_s = max(self._ready_s, self._events.stop(member.index))
        if check:
            self._check()

    def _check(self) -> None:
        """Once the last member has stopped, the end of the rebalance is known."""
        if not self.members or not all(member.stopped for member in self.members):
            return
        if self._cooperative:
            wanted = self._assignment()
            losing = [each for each in self.members if set(each.held).difference(wanted[each.name])]
            kept = {each.index: tuple(set(each.held).intersection(wanted[each.name])) for each in self.members}
            self._events.assign(kept)
            in_hand = (float(self._events.free_s[each.index]) for each in losing)
            self._ready_s = max((self._ready_s, *in_hand))
        attempt = self._attempt
        self._agenda.at(max(self._now(), self._ready_s) + self._pause_s, lambda: self._complete(attempt))

    def _complete(self, attempt: int) -> None:
        """All go on, with what the plan in force gives them."""
        if attempt != self._attempt:
            return
        now_s = self._now()
        self._running = False
        self._attempt += 1
        self.rebalances += 1
        plan = self._board.current
        wanted = self._assignment()
        for member in self.members:
            member.held = wanted[member.name]
            member.epoch = plan.epoch if plan is not None else -1
            member.stopped = False
            self._events.resume(member.index, max(now_s, member.thaw_s))
            report = MemberReport("joined", nanos(now_s), member.held, self.rebalances, member.epoch)
            self._board.report(member.name, report)
        self._apply()
        self._assigned()
        self.follow()

    def _apply(self) -> None:
        """Members serve what they hold."""
        self._events.assign({member.index: member.held for member in self.members})

    def _assignment(self) -> dict[str, tuple[int, ...]]:
        """Partitions by member: by the plan in force; range without a valid one, as the live assignor answers."""
        plan, names = self._board.current, [member.name for member in self.members]
        if plan is None or not _covers(plan.groups, self._partitions):
            return range_assignment(range(self._partitions), names)
        named = _named(plan, names)
        matched = match_members(plan.groups, {each.name: each.held for each in self.members if each.name in named})
        return {name: matched.get(name, ()) for name in names}


def _covers(groups: Groups, partitions: int) -> bool:
    return sorted(partition for group in groups for partition in group) == list(range(partitions))


def _named(plan: Plan, names: Sequence[str]) -> Sequence[str]:
    """Members whom the plan is for; everybody if none of them is here."""
    return [name for name in names if not plan.members or name in plan.members] or names
