"""The simulated consumer group behind the ports of the live one: its monitor is the live world's own, on simulated
offsets, and its actuator keeps the live world's replica set and assignment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Self, cast

import msgspec
import numpy as np

from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.monitor import KafkaMonitor, OffsetSource
from controller.fleets.stream.offsets import OffsetReading
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.contracts import ARRIVAL_SLOTS, Accepted, Decision, Groups, Phase, ReplicaCounts, ReplicaEvent
from penstock.distributions import draw_s
from penstock.errors import PenstockError
from penstock.limits import clamp_targets
from penstock.plan import range_groups
from penstock.runspec import RunSpec, WorkerSpec
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from simulator.clock import EventQueue, VirtualClock, nanos
from simulator.consumer_group import SimulatedGroup
from simulator.engine import EventTable, FaultInjection, Floats, simulates
from simulator.partitions import PartitionedEvents

AWAY, CUT_OFF = "the broker is stopped", "the network between controller and broker is cut"
SERVICE, HEARTBEATS, READINGS = range(3)
"""Streams of random numbers that a seed makes; only append."""


def service_times_s(worker: WorkerSpec, scv: float, events: int, rng: np.random.Generator) -> Floats:
    """The service time of each event, drawn before the run: independent of the replica. ``scv``: squared coefficient of
    variation of a deterministic one.
    """
    if not worker.service_time_s > 0:
        raise PenstockError(
            "worker.service_time_s is 0: the sim world cannot know how long the real work takes; "
            "give a floor, such as --set worker.service_time_s=0.005"
        )
    if worker.service_law == "exponential":
        return rng.exponential(worker.service_time_s, events)
    return draw_s("gamma", worker.service_time_s, scv, events, rng)


def drawn_service_s(spec: RunSpec, events: int) -> Floats:
    """The service times that an engine draws for the first events of a run."""
    system = spec.system if isinstance(spec.system, StreamSystem) else StreamSystem()
    return service_times_s(spec.worker, system.service_scv, events, _streams(spec.seed)[SERVICE])


def _streams(seed: int) -> list[np.random.Generator]:
    return [np.random.default_rng(each) for each in np.random.SeedSequence([seed, 4]).spawn(3)]


class StreamEngine(FaultInjection):
    """Engine of a Kafka consumer group (see ``simulator.engine.Engine``); also its actuator, the counterpart of
    ``ProcessActuator``.

    ``service_s``: what ``drawn_service_s`` gives for the schedule, for runs that share it.
    ``more``: further parts of a long schedule, each with the start time of its events. Results of earlier parts that
    are finished by then are passed to ``sink`` and dropped.
    """

    def __init__(
        self,
        spec: RunSpec,
        schedule: Schedule,
        *,
        service_s: Floats | None = None,
        more: Iterable[tuple[float, Schedule]] = (),
        sink: Callable[[EventTable], None] = lambda _: None,
    ) -> None:
        system = spec.system if isinstance(spec.system, StreamSystem) else StreamSystem()
        self.clock = VirtualClock()
        self._spec, self._system = spec, system
        self._streams = _streams(spec.seed)
        self._event_queue = EventQueue()
        self._late_s = np.full(spec.partitions, system.staleness_s)
        self._more, self._sink = iter(more), sink
        self.topic = PartitionedEvents(
            spec.partitions,
            batch=system.batch,
            commit_every=spec.worker.commit_every,
            commit_interval_s=spec.worker.commit_interval_s,
        )
        self._add(schedule, service_s)
        self._board = board = AssignmentPlanner(
            join_timeout_s=spec.join_timeout_s, directed=spec.worker.directed_rebalance
        )
        self.group = SimulatedGroup(
            spec,
            events=self.topic,
            board=board,
            event_queue=self._event_queue,
            clock=self.clock,
            rng=self._streams[HEARTBEATS],
            pause_s=system.rebalance_s + spec.worker.rebalance_pause_s,
            cooperative=system.cooperative,
            assigned=self._assigned,
        )
        self._replicas = ConsumerReplicaSet(fleet=spec.fleet)
        self._fresh: list[tuple[str, int]] = []
        self._workers: list[str] = []
        self._frozen_until_s = self._cut_off_until_s = 0.0
        self.monitor = KafkaMonitor(
            fleet=spec.fleet,
            reader=cast(OffsetSource, SimpleNamespace(read=self._read)),  # only ``read`` is used
            partitions=spec.partitions,
            clock=self.clock,
            origin_s=0.0,
            counts=self.counts,
            plans=lambda: board,
            rate_interval_s=1.0 / spec.speed,
            start_ups=lambda: self._replicas.start_ups_s(),
            blind=lambda: self.now_s < self.blind_until_s,
        )
        self._bring_up(spec.initial_replicas)
        self._await_more()

    @property
    def actuator(self) -> Self:
        """Takes decisions."""
        return self

    @property
    def now_s(self) -> float:
        """The engine's time."""
        return self.clock.now()

    # --- the engine's port -------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Serve until each due action, run it, and continue."""
        while self._event_queue.next_s <= until_s:
            self._serve(self._event_queue.next_s)
            self._event_queue.pop()()
        self._serve(until_s)
        self._look_for_first_events()

    def left(self) -> int:
        """Events that have arrived or will arrive and are not finished."""
        return self.topic.left(self.now_s)

    def results(self) -> EventTable:
        """One row for each delivery that was finished: first the last delivery of each event by id, then earlier ones
        whose commit was lost.
        """
        queues = tuple(f"{self._spec.fleet}/{partition}" for partition in range(self._spec.partitions))
        return self.topic.results(self.now_s, tuple(self._workers), queues)

    # --- the actuator's port -----------------------------------------------------------------------------------------

    def apply(self, decision: Decision) -> Accepted:
        """Propose the decision's plan and note who comes and who goes. Without an assignment the plan is the range
        one.
        """
        size, fleet = self._replicas.size, self._spec.fleet
        if decision.action in ("hold", "none"):
            return Accepted({fleet: size})
        wanted = {fleet: decision.targets.get(fleet, size)}
        accepted = clamp_targets(wanted, {fleet: size}, each=self._spec.max_replicas)
        target = accepted.targets[fleet]
        self._change(target, decision.assignment or range_groups(range(self._spec.partitions), target))
        return accepted

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        return self._replicas.take_events()

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        return self._replicas.phases()

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return self._replicas.counts()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _serve(self, until_s: float) -> None:
        if until_s >= self.now_s:
            self.topic.serve(until_s)
            self.clock.sleep_until(until_s)

    def _add(self, schedule: Schedule, service_s: Floats | None = None) -> EventTable:
        if service_s is None:
            rng = self._streams[SERVICE]
            service_s = service_times_s(self._spec.worker, self._system.service_scv, len(schedule), rng)
        return self.topic.add(schedule, service_s, at_s=self.now_s)

    def _await_more(self) -> None:
        following = next(self._more, None)
        if following is not None:
            from_s, schedule = following
            self._event_queue.at(from_s, lambda: self._take_more(schedule))

    def _take_more(self, schedule: Schedule) -> None:
        if self._spec.reads_arrivals:
            self.topic.count_finished(self.now_s, self._spec.slo_s)
        self._sink(self._add(schedule))
        self._await_more()

    def _read(self) -> OffsetReading:
        """Offsets as a monitor reads them now; none from a broker that is away or cut off."""
        if self.group.away or self.now_s < self._cut_off_until_s:
            fields, why = ("end_offset", "committed_offset"), AWAY if self.group.away else CUT_OFF
            unknown = {f"partitions.{p}.{field}": why for p in range(self._spec.partitions) for field in fields}
            return OffsetReading(self.now_s, {}, {}, unknown)
        late_s = self._late_s
        if self._system.staleness_sd_s:
            spread_s = self._streams[READINGS].normal(0.0, self._system.staleness_sd_s, self._spec.partitions)
            late_s = late_s + np.abs(spread_s)
        ends, commits = self.topic.offsets(self.now_s, self.now_s - late_s)
        offsets = OffsetReading(self.now_s, dict(enumerate(ends.tolist())), dict(enumerate(commits.tolist())), {})
        if not self._spec.reads_arrivals:
            return offsets
        slots = self.topic.arrivals_by_slot(self.now_s, ARRIVAL_SLOTS, 1.0 / self._spec.speed)
        finished, late, busy_s = self.topic.count_finished(self.now_s - self._system.staleness_s, self._spec.slo_s)
        arrivals = dict(enumerate(map(tuple, slots.tolist())))
        return msgspec.structs.replace(offsets, arrivals=arrivals, finished=finished, late=late, busy_s=busy_s)

    # --- replicas -----------------------------------------------------------------------------------------------------

    def _bring_up(self, replicas: int) -> None:
        """Add the initial replicas, with their partitions at once."""
        names = self._replicas.request(replicas, nanos(self.now_s))
        self._board.propose(range_groups(range(self._spec.partitions), replicas), names, self.now_s)
        for name in names:
            self._step(name, "started")
            self._join(name)
        self._replicas.start_ups_ns = ()  # they were there before the start
        self.group.settle_at_once()

    def _assigned(self) -> None:
        """A rebalance is over: draining replicas without partitions end."""
        for name, phase in self._replicas.phases().items():
            member = self.group.member(name)
            if phase == "draining" and member is not None and not member.held:
                self._event_queue.at(self.now_s + self._system.stop_s, partial(self._end, name))

    def _look_for_first_events(self) -> None:
        """Report replicas that have finished their first event."""
        for name, index in list(self._fresh):
            done_s = self.topic.first_done_s(index)
            if done_s is not None and done_s <= self.now_s:
                self._fresh.remove((name, index))
                self._replicas.reach(name, "first-event", nanos(done_s))

    @simulates("freeze-workers")
    def _freeze_workers(self, until_s: float) -> None:
        """SIGSTOP to all replicas, SIGCONT at ``until_s``."""
        self._frozen_until_s = max(self._frozen_until_s, until_s)
        self.group.freeze(until_s)

    @simulates("cut-workers")
    def _cut_workers(self, until_s: float) -> None:
        """No replica reaches the broker: heartbeats, events and commits end as if all were frozen."""
        self._freeze_workers(until_s)

    @simulates("cut-controller")
    def _cut_controller(self, until_s: float) -> None:
        """The monitor reads nothing from the broker; plans still reach the members, without it."""
        self._cut_off_until_s = max(self._cut_off_until_s, until_s)

    @simulates("restart-redis")
    def _stop_store(self, until_s: float) -> None:
        """No worker finishes an event until then; all keep their sessions."""
        self._frozen_until_s = max(self._frozen_until_s, until_s)
        self.group.stall(until_s)

    @simulates("stop-broker")
    def _stop_broker(self, until_s: float) -> None:
        """No worker gets or finishes an event until then, and nobody joins; sessions begin anew when it is back."""
        self._stop_store(until_s)
        self.group.stop_coordinator(until_s)

    @simulates("kill-worker")
    def _kill_worker(self, _: float) -> bool:
        """SIGKILL to the first replica by name; its supervisor starts it again under the same name."""
        return self._kill(sorted(self._replicas.replicas)[:1])

    @simulates("kill-all-workers")
    def _kill_all_workers(self, _: float) -> bool:
        """SIGKILL to every replica, as when their machine fails."""
        return self._kill(sorted(self._replicas.replicas))

    def _kill(self, names: Sequence[str]) -> bool:
        """A killed replica that drains is gone; every other one is started again. False if there are none."""
        for name in names:
            self.group.kill(name)
            self._fresh = [each for each in self._fresh if each[0] != name]
            replica = self._replicas.replicas[name]
            if replica.phase == "draining":
                self._replicas.remove([name], nanos(self.now_s))
            else:
                self._replicas.respawn(name, nanos(self.now_s), "killed")
                self._start(name)
        return bool(names)

    def _change(self, target: int, groups: Groups) -> None:
        """The plan first, then the count, as ``ProcessActuator`` does it."""
        now_s = self.now_s
        current = [replica.name for replica in self._replicas.current()]
        requested: list[str] = []
        if target >= len(current):
            requested = self._replicas.request(target - len(current), nanos(self.now_s))
            members = current + requested
        else:
            members = self._replicas.choose_staying(target, groups, self._board.assigned())
        self._board.propose(groups, self._replicas.named_by(groups, members), now_s)
        if self._board.pending is not None:
            self._event_queue.at(now_s + self._spec.join_timeout_s, self._time_out)
        leaving = [name for name in current if name not in members]
        self._replicas.drain(leaving, nanos(self.now_s))
        for name in leaving:
            self._drain(name, nobody_stays=not members)
        self.group.follow()
        for name in requested:
            self._start(name)

    def _time_out(self) -> None:
        self._board.tick(self.now_s)
        self.group.follow()

    def _start(self, name: str) -> None:
        """The process starts at once; it joins the group when it has started up."""
        self._step(name, "started")
        requested_ns = self._replicas.replicas[name].requested_ns
        self._event_queue.at(self.now_s + self._system.start_up_s, lambda: self._started_up(name, requested_ns))

    def _started_up(self, name: str, requested_ns: int) -> None:
        replica = self._replicas.replicas.get(name)
        if replica is None or replica.phase != "started" or replica.requested_ns != requested_ns:
            return
        if self.now_s < self._frozen_until_s:
            self._event_queue.at(self._frozen_until_s, lambda: self._started_up(name, requested_ns))
            return
        self._join(name)

    def _join(self, name: str) -> None:
        self._fresh.append((name, len(self._workers)))
        self._workers.append(name)
        self._step(name, "joined")
        self.group.join(name)

    def _drain(self, name: str, *, nobody_stays: bool) -> None:
        """End a replica. With directed rebalances its member leaves when it has lost all partitions; if the plan has no
        members (``nobody_stays``), it leaves after its current event. Otherwise the member leaves first, like the
        paper's replicas, and its partitions stand still until the other members are notified.
        """
        member = self.group.member(name)
        if member is None or not self._spec.worker.directed_rebalance:
            self._end(name)
            return
        member.leaving = True
        if nobody_stays:
            released_s = max(self.now_s, self.topic.stop(member.index), member.thaw_s)
            end_s = released_s + self._system.stop_s
        else:
            end_s = self.now_s + 2 * self._spec.join_timeout_s
        self._event_queue.at(end_s, partial(self._end, name))

    def _end(self, name: str) -> None:
        if name not in self._replicas.replicas:
            return
        self.group.leave(name, unnoticed=not self._system.leaving_rebalances)
        self._fresh = [each for each in self._fresh if each[0] != name]
        self._replicas.remove([name], nanos(self.now_s))

    def _step(self, name: str, phase: Phase) -> None:
        self._replicas.reach(name, phase, nanos(self.now_s))


make_engine = StreamEngine
