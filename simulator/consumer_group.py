"""A consumer group in virtual time: members, their partitions, and the cost of rebalances.

The plans come from the live world's ``controller.fleets.stream.assignment.AssignmentPlanner``; members are matched
to groups as in the live assignor. A rebalance begins with a new plan, or when a member joins, leaves or is expelled.
Every member finishes its current event and stops; all resume together some time after the last has stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from controller.fleets.stream.assignment import AssignmentPlanner
from penstock.clock import Clock
from penstock.plan import MemberReport, match_members, range_assignment
from penstock.runspec import RunSpec
from simulator.clock import EventQueue, nanos
from simulator.partitions import PartitionedEvents


@dataclass(slots=True, eq=False)
class Member:
    """A replica in the group's coordinator. ``index``: of the replica's row in ``PartitionedEvents``.

    ``stopped``: it waits for the current rebalance to end, since ``stopped_at_s`` if it served before.
    ``silent_since_s``: time of its last heartbeat (killed or frozen); the coordinator expels it a session time-out
    later. ``thaw_s``: a frozen member continues then. ``leaving``: its replica drains; a plan without members
    assigns it no partition.
    """

    name: str
    index: int
    heartbeat_phase_s: float
    held: tuple[int, ...] = ()
    epoch: int = -1
    stopped: bool = False
    stopped_at_s: float | None = None
    silent_since_s: float | None = None
    killed: bool = False
    thaw_s: float = 0.0
    leaving: bool = False


class SimulatedGroup:
    """The group of one topic.

    ``pause_s``: from the stop of the last member until all resume. With ``worker.directed_rebalance`` members are
    notified of a rebalance at once; otherwise only the leader (the oldest), and the others with their next heartbeat.
    ``cooperative``: only the partitions that move stop. ``clock`` has the engine's time; ``assigned`` is called after
    each rebalance.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        events: PartitionedEvents,
        board: AssignmentPlanner,
        event_queue: EventQueue,
        clock: Clock,
        rng: np.random.Generator,
        pause_s: float,
        cooperative: bool,
        assigned: Callable[[], None],
    ) -> None:
        self.members: list[Member] = []
        self.rebalances = 0
        self._worker, self._partitions, self._events, self._board = spec.worker, spec.partitions, events, board
        self._event_queue, self._clock, self._rng = event_queue, clock, rng
        self._pause_s, self._cooperative, self._assigned = pause_s, cooperative, assigned
        self._running = False
        self._attempt = 0
        self._ready_s = self._stalled_until_s = self._back_s = 0.0
        self._followed_epoch = -1
        self._expelled: list[Member] = []  # while frozen; they rejoin when they thaw

    # --- members -----------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Member | None:
        """The living member of that name, also an expelled one that will rejoin."""
        known = (member for member in (*self.members, *self._expelled) if not member.killed)
        return next((member for member in known if member.name == name), None)

    def join(self, name: str) -> None:
        """Add a replica. It gets partitions with the rebalance that this begins."""
        index = self._events.new_replica()
        phase_s = float(self._rng.uniform(0.0, self._worker.heartbeat_s))
        member = Member(name=name, index=index, heartbeat_phase_s=phase_s, thaw_s=self._stalled_until_s)
        self._events.stop(index)
        member.stopped = True
        self.members.append(member)
        self._board.report(name, MemberReport("joined", nanos(self._clock.now()), epoch=-1))
        self.rebalance()

    def leave(self, name: str, *, unnoticed: bool = False) -> None:
        """Remove a member after its current event; its partitions stand still until others have them. ``unnoticed``: it
        holds nothing, and there is no rebalance.
        """
        member = self.member(name)
        self._board.report(name, MemberReport("left", nanos(self._clock.now())))
        if member is None:
            self.follow()
            return
        self._ready_s = max(self._ready_s, self._events.stop(member.index))
        (self._expelled if member in self._expelled else self.members).remove(member)
        self._apply()
        if not unnoticed or member.held or self._running:
            self.rebalance()

    def kill(self, name: str) -> None:
        """End a member's process without notice. Its uncommitted events are delivered again; its partitions stand still
        until its session has timed out.
        """
        member = self.member(name)
        self._board.forget(name)
        if member is not None:
            member.killed, member.stopped = True, False
            self._events.take_back(member.index, member.held, self._clock.now(), lost=True)
            self._events.stop(member.index)
            if member in self._expelled:
                self._expelled.remove(member)
            else:
                self._attempt += 1  # a rebalance that was about to end waits for the session
                self._fall_silent(member)

    def freeze(self, until_s: float) -> None:
        """Stop every member with its heartbeats; those whose session times out before ``until_s`` are expelled and
        rejoin.
        """
        now_s = self._clock.now()
        for member in [each for each in (*self.members, *self._expelled) if not each.killed]:
            member.thaw_s = max(member.thaw_s, until_s)
            self._events.freeze(member.index, now_s, member.thaw_s)
            self._event_queue.at(member.thaw_s, partial(self._thaw, member))
            self._fall_silent(member)

    def stall(self, until_s: float) -> None:
        """No member finishes or starts an event until then; heartbeats go on."""
        self._stalled_until_s = max(self._stalled_until_s, until_s)
        for member in (*self.members, *self._expelled):
            if not member.killed:
                member.thaw_s = max(member.thaw_s, until_s)
                self._events.freeze(member.index, self._clock.now(), member.thaw_s)
                if member.silent_since_s is not None:  # frozen as well: it thaws later
                    self._event_queue.at(member.thaw_s, partial(self._thaw, member))

    def stop_coordinator(self, until_s: float) -> None:
        """No rebalance ends and no session times out until then; sessions begin anew when the coordinator is back."""
        self._back_s = max(self._back_s, until_s)
        self._ready_s = max(self._ready_s, until_s)
        if self._running:
            self._attempt += 1  # a rebalance that was about to end waits for the coordinator
            self._check()

    @property
    def away(self) -> bool:
        """Whether the coordinator is stopped now."""
        return self._clock.now() < self._back_s

    def _fall_silent(self, member: Member) -> None:
        since_s = self._clock.now() if member.silent_since_s is None else member.silent_since_s
        member.silent_since_s = since_s
        self._event_queue.at(since_s + self._worker.session_timeout_s, lambda: self._expel(member, since_s))

    def _expel(self, member: Member, since_s: float) -> None:
        """Expel a member that has sent no heartbeat for a session time-out."""
        if member not in self.members or member.silent_since_s != since_s:
            return
        anew_s = self._back_s + self._worker.session_timeout_s
        if self._back_s > since_s and self._clock.now() < anew_s:
            self._event_queue.at(anew_s, lambda: self._expel(member, since_s))
            return
        self.members.remove(member)
        if not member.killed:
            self._events.take_back(member.index, member.held, self._clock.now(), lost=False)
            self._expelled.append(member)
        member.held, member.stopped = (), False
        self._apply()
        self.rebalance()

    def _thaw(self, member: Member) -> None:
        if self._clock.now() < member.thaw_s or member.killed:
            return
        member.silent_since_s = None
        if member in self._expelled:
            self._expelled.remove(member)
            self.members.append(member)
            self._stop(member, check=False)
            self.rebalance()
        elif self._running and not member.stopped:
            self._stop(member)

    # --- rebalances --------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Begin a rebalance if another plan is in force."""
        plan = self._board.current
        if plan is not None and plan.epoch != self._followed_epoch:
            self.rebalance()

    def settle_at_once(self) -> None:
        """Assign without a rebalance: before the first event arrives."""
        self._complete(self._attempt)

    def rebalance(self) -> None:
        """Begin a rebalance, or restart the current one. Members that have stopped for it stay stopped."""
        plan = self._board.current
        self._followed_epoch = plan.epoch if plan is not None else -1
        self._running = True
        self._attempt += 1
        awake = [member for member in self.members if member.silent_since_s is None]
        for place, member in enumerate(awake):
            if member.stopped:
                continue
            if self._worker.directed_rebalance or place == 0:
                self._stop(member, check=False)
            else:
                self._event_queue.at(self._next_heartbeat_s(member), partial(self._notified, member))
        self._check()

    def _next_heartbeat_s(self, member: Member) -> float:
        now_s, every_s = self._clock.now(), self._worker.heartbeat_s
        return member.heartbeat_phase_s + every_s * ceil((now_s - member.heartbeat_phase_s) / every_s)

    def _notified(self, member: Member) -> None:
        if self._running and not member.stopped and member.silent_since_s is None and member in self.members:
            self._stop(member)

    def _stop(self, member: Member, *, check: bool = True) -> None:
        member.stopped = True
        if not self._cooperative:
            member.stopped_at_s = max(self._clock.now(), self._events.stop(member.index))
            self._ready_s = max(self._ready_s, member.stopped_at_s)
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
            finished_s = (self._events.free_s(each.index) for each in losing)
            self._ready_s = max((self._ready_s, *finished_s))
        attempt = self._attempt
        self._event_queue.at(max(self._clock.now(), self._ready_s) + self._pause_s, lambda: self._complete(attempt))

    def _complete(self, attempt: int) -> None:
        """All members resume with their partitions of the plan in force."""
        if attempt != self._attempt:
            return
        now_s = self._clock.now()
        self._running = False
        self._attempt += 1
        self.rebalances += 1
        plan = self._board.current
        wanted = self._assignment()
        for member in self.members:
            member.held = wanted[member.name]
            member.epoch = plan.epoch if plan is not None else -1
            resumed_s = max(now_s, member.thaw_s)
            stopped_ns = None if member.stopped_at_s is None else nanos(resumed_s - member.stopped_at_s)
            member.stopped, member.stopped_at_s = False, None
            self._events.resume(member.index, resumed_s)
            report = MemberReport(
                "joined", nanos(now_s), member.held, self.rebalances, member.epoch, stopped_ns=stopped_ns
            )
            self._board.report(member.name, report)
        self._apply()
        self._assigned()
        self.follow()

    def _apply(self) -> None:
        """Members serve their partitions."""
        self._events.assign({member.index: member.held for member in self.members})

    def _assignment(self) -> dict[str, tuple[int, ...]]:
        """Partitions by member: by the plan in force; range without a valid one, as in the live assignor."""
        plan, held = self._board.current, {member.name: member.held for member in self.members}
        everything = list(range(self._partitions))
        if plan is None or sorted(partition for group in plan.groups for partition in group) != everything:
            return range_assignment(everything, held)
        if plan.members:  # those of them that are here, or all that are
            named = {name: mine for name, mine in held.items() if name in plan.members} or held
        else:
            named = {member.name: member.held for member in self.members if not member.leaving}
        matched = match_members(plan.groups, named)
        return {name: matched.get(name, ()) for name in held}
