"""The simulated consumer group behind the ports of the live one: its monitor is the live world's own, on simulated
offsets, and its actuator keeps the live world's roster and plan board.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from controller.actuators.roster import Roster
from controller.monitors.kafka import KafkaMonitor, OffsetReader, Reading
from controller.plans import PlanBoard
from penstock.contracts import Accepted, Decision, Groups, Phase, ReplicaCounts, ReplicaEvent
from penstock.errors import PenstockError
from penstock.plan import range_groups
from penstock.runspec import Fault, RunSpec, WorkerSpec
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from simulator.agenda import Agenda
from simulator.clock import nanos
from simulator.engine import EventTable, unsupported
from simulator.group import Group
from simulator.partitions import PartitionedEvents

Floats = npt.NDArray[np.float64]

FAULTS = ("kill-worker", "freeze-workers", "blind-monitor")
SERVICE, HEARTBEATS, READINGS = range(3)
"""Streams of random numbers that a seed makes; only append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamModel:
    """What a simulated group takes that no run description says; durations before ``speed``.

    ``rebalance_s``: a rebalance of which all members hear at once, besides ``worker.rebalance_pause_s`` (measured:
    docs/decisions/0003). ``stop_s``: from letting go of the last partition to gone. ``leaving_rebalances``: whether a
    member that has let go of everything still costs the others a rebalance when it leaves, as in Kafka.
    """

    rebalance_s: float = 0.09
    stop_s: float = 0.2
    leaving_rebalances: bool = True

    def at_speed(self, speed: float) -> "StreamModel":
        """Durations ÷ ``speed``."""
        return replace(self, rebalance_s=self.rebalance_s / speed, stop_s=self.stop_s / speed)


LIVE = StreamModel()
"""As the local world was measured."""


def make_engine(spec: RunSpec, schedule: Schedule, model: StreamModel = LIVE) -> "StreamEngine":
    """The consumer group of a run. PenstockError for a worker that cannot be simulated."""
    return StreamEngine(spec, schedule, model)


def service_times_s(worker: WorkerSpec, events: int, rng: np.random.Generator) -> Floats:
    """The service time of each event, drawn beforehand: an event costs the same whoever serves it."""
    if not worker.service_time_s > 0:
        raise PenstockError(
            "worker.service_time_s is 0: the sim world cannot know how long the real work takes; "
            "give a floor, such as --set worker.service_time_s=0.005"
        )
    if worker.service_law == "exponential":
        return rng.exponential(worker.service_time_s, events)
    return np.full(events, worker.service_time_s)


class StreamEngine:
    """Engine of a Kafka consumer group (see ``simulator.engine.Engine``).

    ``more``: parts of a long schedule that follow ``schedule``, each with the time from which its events are due. What
    has finished by then of the parts before is handed to ``sink`` and forgotten.
    """

    def __init__(
        self,
        spec: RunSpec,
        schedule: Schedule,
        model: StreamModel = LIVE,
        *,
        more: Iterable[tuple[float, Schedule]] = (),
        sink: Callable[[EventTable], None] = lambda _: None,
    ) -> None:
        system = spec.system if isinstance(spec.system, StreamSystem) else StreamSystem()
        model = model.at_speed(spec.speed)
        self.now_s = 0.0
        self._spec, self._system = spec, system
        self._streams = [np.random.default_rng(each) for each in np.random.SeedSequence([spec.seed, 4]).spawn(3)]
        self._agenda = Agenda()
        self._blind_until_s = 0.0
        self._late_s = np.full(spec.partitions, system.staleness_s)
        self._more, self._sink = iter(more), sink
        self.events = PartitionedEvents(
            spec.partitions,
            batch=system.batch,
            commit_every=spec.worker.commit_every,
            commit_interval_s=spec.worker.commit_interval_s,
        )
        self._add(schedule)
        board = PlanBoard(join_timeout_s=spec.join_timeout_s, directed=spec.worker.directed_rebalance)
        self.group = Group(
            events=self.events,
            partitions=spec.partitions,
            board=board,
            agenda=self._agenda,
            now=lambda: self.now_s,
            rng=self._streams[HEARTBEATS],
            pause_s=model.rebalance_s + spec.worker.rebalance_pause_s,
            heartbeat_s=spec.worker.heartbeat_s,
            session_timeout_s=spec.worker.session_timeout_s,
            directed=spec.worker.directed_rebalance,
            cooperative=system.cooperative,
            assigned=lambda: self.actuator.assigned(),
        )
        self.actuator = StreamActuator(
            spec=spec,
            model=model,
            start_up_s=system.start_up_s,
            group=self.group,
            board=board,
            events=self.events,
            agenda=self._agenda,
            now=lambda: self.now_s,
        )
        self.monitor = KafkaMonitor(
            fleet=spec.fleet,
            reader=cast(OffsetReader, _Reader(self._read)),  # asked for nothing but to read
            partitions=spec.partitions,
            clock=_Now(lambda: self.now_s),
            origin_s=0.0,
            replicas=self.actuator,
            plans=board,
            rate_interval_s=1.0 / spec.speed,
            blind=lambda: self.now_s < self._blind_until_s,
        )
        self.actuator.bring_up(spec.initial_replicas)
        self._await_more()

    # --- the engine's port -------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Serve until each thing that is due, let it happen, and serve on."""
        while self._agenda.next_s <= until_s:
            self._serve(self._agenda.next_s)
            self._agenda.pop()()
        self._serve(until_s)
        self.actuator.look_for_first_events()

    def inject(self, fault: Fault) -> None:
        """kill-worker (the first by name, as in the local world), freeze-workers, blind-monitor."""
        if fault.kind == "kill-worker":
            self.actuator.kill_first()
        elif fault.kind == "freeze-workers":
            self.actuator.freeze(self.now_s + fault.seconds)
        elif fault.kind == "blind-monitor":
            self._blind_until_s = max(self._blind_until_s, self.now_s + fault.seconds)
        else:
            raise unsupported(fault, FAULTS)

    def left(self) -> int:
        """Events that have arrived or will arrive and are not finished."""
        return self.events.left(self.now_s)

    def results(self) -> EventTable:
        """One row for each delivery that was finished: first the last delivery of each event by id, then earlier ones
        whose commit was lost.
        """
        return self.events.results(self.now_s, self.actuator.workers, self._queues())

    # --- inside ------------------------------------------------------------------------------------------------------

    def _serve(self, until_s: float) -> None:
        if until_s >= self.now_s:
            self.events.serve(until_s)
            self.now_s = until_s

    def _queues(self) -> tuple[str, ...]:
        return tuple(f"{self._spec.fleet}/{partition}" for partition in range(self._spec.partitions))

    def _add(self, schedule: Schedule) -> EventTable:
        service_s = service_times_s(self._spec.worker, len(schedule), self._streams[SERVICE])
        return self.events.add(schedule, service_s, at_s=self.now_s)

    def _await_more(self) -> None:
        following = next(self._more, None)
        if following is not None:
            from_s, schedule = following
            self._agenda.at(from_s, lambda: self._take_more(schedule))

    def _take_more(self, schedule: Schedule) -> None:
        self._sink(self._add(schedule))
        self._await_more()

    def _read(self) -> Reading:
        """Offsets as a monitor gets them now."""
        late_s = self._late_s
        if self._system.staleness_sd_s:
            spread_s = self._streams[READINGS].normal(0.0, self._system.staleness_sd_s, self._spec.partitions)
            late_s = late_s + np.abs(spread_s)
        ends, commits = self.events.offsets(self.now_s, self.now_s - late_s)
        return Reading(self.now_s, dict(enumerate(ends.tolist())), dict(enumerate(commits.tolist())), {})


class _Reader:
    """What the monitor asks for offsets."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self.read = read


class _Now:
    """An engine's time as a clock; only the engine can let it pass."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def sleep_until(self, time_s: float) -> None:
        """Not of any use here."""
        raise AssertionError(f"asked to wait for {time_s:g} s: only the world lets time pass")


class StreamActuator:
    """Actuator port on a simulated group; what ``ProcessActuator`` is on a supervisor."""

    def __init__(
        self,
        *,
        spec: RunSpec,
        model: StreamModel,
        start_up_s: float,
        group: Group,
        board: PlanBoard,
        events: PartitionedEvents,
        agenda: Agenda,
        now: Callable[[], float],
    ) -> None:
        self.fleet = spec.fleet
        self._spec, self._model, self._start_up_s = spec, model, start_up_s
        self._group, self._board, self._events, self._agenda, self._now = group, board, events, agenda, now
        self._roster = Roster(fleet=spec.fleet)
        self._fresh: list[tuple[str, int]] = []
        self._frozen_until_s = 0.0
        self._workers: list[str] = []

    # --- the port ----------------------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Propose the decision's plan and note who comes and who goes. Without an assignment the plan is the range
        one.
        """
        size = len(self._roster.current())
        wanted = decision.targets.get(self.fleet, size)
        target = max(0, min(wanted, self._spec.max_replicas))
        if decision.action in ("hold", "none"):
            return Accepted({self.fleet: size})
        self._change(target, decision.assignment or range_groups(range(self._spec.partitions), target))
        if target == wanted:
            return Accepted({self.fleet: target})
        return Accepted({self.fleet: target}, {self.fleet: f"{wanted} → {target}: cap {self._spec.max_replicas}"})

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        return self._roster.happened()

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        return self._roster.phases()

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return self._roster.counts()

    # --- what the engine asks ----------------------------------------------------------------------------------------

    @property
    def workers(self) -> tuple[str, ...]:
        """Name of the replica of each index."""
        return tuple(self._workers)

    def bring_up(self, replicas: int) -> None:
        """The initial replicas, there and with their partitions at once."""
        names = self._roster.request(replicas, nanos(self._now()))
        self._board.propose(range_groups(range(self._spec.partitions), replicas), names, self._now())
        for name in names:
            self._step(name, "started")
            self._join(name)
        self._group.settle_at_once()

    def assigned(self) -> None:
        """A rebalance is over: those on the way out that hold nothing any more end."""
        for name, phase in self._roster.phases().items():
            member = self._group.member(name)
            if phase == "draining" and member is not None and not member.held:
                self._agenda.at(self._now() + self._model.stop_s, partial(self._end, name))

    def look_for_first_events(self) -> None:
        """Tell of replicas that have finished their first event."""
        for name, index in list(self._fresh):
            done_s = self._events.first_done_s(index)
            if done_s is not None and done_s <= self._now():
                self._fresh.remove((name, index))
                self._roster.hear(ReplicaEvent(self.fleet, name, "first-event", nanos(done_s)))

    def kill_first(self) -> None:
        """SIGKILL to the first replica by name; its supervisor starts it again under the same name."""
        names = sorted(self._roster.replicas)
        if not names:
            return
        name, now_ns = names[0], nanos(self._now())
        self._group.kill(name)
        self._fresh = [each for each in self._fresh if each[0] != name]
        replica = self._roster.replicas[name]
        if replica.phase == "draining":
            self._gone(name)
            return
        self._roster.events.append(ReplicaEvent(self.fleet, name, "gone", now_ns, "killed"))
        self._roster.events.append(ReplicaEvent(self.fleet, name, "requested", now_ns, "respawned"))
        replica.phase, replica.born_ns = "requested", now_ns
        self._start(name)

    def freeze(self, until_s: float) -> None:
        """SIGSTOP to all replicas, SIGCONT at ``until_s``."""
        self._frozen_until_s = max(self._frozen_until_s, until_s)
        self._group.freeze(until_s)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _change(self, target: int, groups: Groups) -> None:
        """The plan first, then the count, as ``ProcessActuator`` does it (spec 4.13)."""
        now_s = self._now()
        current = self._roster.current()
        requested: list[str] = []
        if target >= len(current):
            requested = self._roster.request(target - len(current), nanos(now_s))
            members = [*(replica.name for replica in current), *requested]
        else:
            members = self._roster.choose_staying(target, groups, self._board.assigned())
        self._board.propose(groups, members, now_s)
        if self._board.pending is not None:
            self._agenda.at(now_s + self._spec.join_timeout_s, self._time_out)
        leaving = [replica.name for replica in current if replica.name not in members]
        self._roster.drain(leaving, nanos(now_s))
        for name in leaving:
            self._drain(name)
        self._group.follow()
        for name in requested:
            self._start(name)

    def _time_out(self) -> None:
        self._board.tick(self._now())
        self._group.follow()

    def _start(self, name: str) -> None:
        """The process starts at once; it joins the group when it has started up."""
        self._step(name, "started")
        born_ns = self._roster.replicas[name].born_ns
        self._agenda.at(self._now() + self._start_up_s, lambda: self._started_up(name, born_ns))

    def _started_up(self, name: str, born_ns: int) -> None:
        replica = self._roster.replicas.get(name)
        if replica is None or replica.phase != "started" or replica.born_ns != born_ns:
            return
        if self._now() < self._frozen_until_s:
            self._agenda.at(self._frozen_until_s, lambda: self._started_up(name, born_ns))
            return
        self._join(name)

    def _join(self, name: str) -> None:
        self._fresh.append((name, len(self._workers)))
        self._workers.append(name)
        self._step(name, "joined")
        self._group.join(name)

    def _drain(self, name: str) -> None:
        """Told of a new plan at once, a member leaves when that has taken everything from it. Otherwise it leaves
        first, as the paper's replicas did, and its partitions stand still until the others have learnt of it.
        """
        if self._group.member(name) is None or not self._spec.worker.directed_rebalance:
            self._end(name)
        else:
            self._agenda.at(self._now() + 2 * self._spec.join_timeout_s, partial(self._end, name))

    def _end(self, name: str) -> None:
        if name not in self._roster.replicas:
            return
        self._group.leave(name, unnoticed=not self._model.leaving_rebalances)
        self._fresh = [each for each in self._fresh if each[0] != name]
        self._gone(name)

    def _gone(self, name: str) -> None:
        del self._roster.replicas[name]
        self._roster.events.append(ReplicaEvent(self.fleet, name, "gone", nanos(self._now())))

    def _step(self, name: str, phase: Phase) -> None:
        self._roster.hear(ReplicaEvent(self.fleet, name, phase, nanos(self._now())))
