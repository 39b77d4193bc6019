"""Stations in virtual time: FIFO queues, each with a fleet of replicas that serve one task at a time. Event-exact.

The core of two engines: the functions of a pipeline and the topics of a pub/sub network. A station knows tasks by
number; its engine decides where a task goes next. Times are whole nanoseconds since the start of the run.
Order of simultaneous events: ends of service, replicas that join, retries, deliveries, arrivals from outside; within
these in the order in which they were planned.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Self, TypeVar

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import MEASURED, Accepted, Decision, FleetObservation, Phase, ReplicaCounts, ReplicaEvent
from penstock.errors import PenstockError
from penstock.limits import clamp_targets
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from simulator.clock import nanos, seconds
from simulator.engine import COMPLETED, EventTable, FaultInjection, Ints, simulates

FINISH, JOIN, RETRY, DELIVER = range(4)

BLINDED: Final = "the monitor was blinded on purpose"

NEVER: Final = 1 << 62


ObservationT = TypeVar("ObservationT", bound=FleetObservation)

COUNTED: Final = ("arrived", "completed", "backlog", "in_flight")


@dataclass(slots=True, eq=False)
class _Scale:
    """A scale action in progress: it completes when the last of its replicas has joined, or has gone."""

    left: int


@dataclass(slots=True, eq=False)
class _Replica:
    """One replica. ``task`` is -1 while it serves none; ``ticket`` identifies the end of its current task, so that a
    postponed or cancelled end is ignored.
    """

    index: int
    name: str
    station: int
    scale: _Scale
    requested_ns: int
    phase: Phase = "requested"
    task: int = -1
    ticket: int = -1


class StationEngine(FaultInjection):
    """The common part of the engines over stations: arrivals, replicas, faults, observations and rows of results. It is
    its own monitor and actuator. An event of the schedule is one or more tasks; ``finished`` counts the events that
    have left.

    By task: ``received_ns``, ``started_ns``, ``finished_ns`` (-1: not yet), ``worker`` (index into ``workers``) and
    ``attempts``. By station: ``arrived``, ``completed``, ``busy_ns`` (service time of the completed), ``refused``
    (429), ``taken`` (time and number of each task that a replica took up; a reader removes those that it has read) and
    ``start_ups_ns`` (from request to joining, of the last replicas that joined).
    """

    def __init__(
        self,
        spec: RunSpec,
        schedule: Schedule,
        *,
        names: Sequence[str],
        service_ns: Sequence[int],
        start_up_s: float,
        max_replicas_total: int | None = None,
        pooled: bool = False,
        when_busy: str = "queue",
        retry_s: float = 0.0,
        call_s: float = 0.0,
    ) -> None:
        """``names``: fleets, one a station. ``service_ns``: by task. ``start_up_s``: from requested to joined.
        ``pooled``: the number of connections to a station is limited to the replicas that the last completed scale
        action left (AMESoS 3.11, step 5). Then ``when_busy`` reject means: a task that gets a connection but finds no
        free replica is answered 429, and its connection waits for ``retry_s``. ``call_s``: how long each task keeps its
        replica beyond the service time.
        """
        self.names = tuple(names)
        if len(set(self.names)) < len(self.names) or not self.names:
            raise PenstockError(f"stations {', '.join(self.names) or 'none'}: at least one is needed, each once")
        if pooled and when_busy == "reject" and retry_s <= 0:
            raise PenstockError("retry_s of 0 would retry forever")
        if start_up_s < 0:
            raise PenstockError(f"start-up of {start_up_s:g} s: must be at least 0")
        count, tasks, initial = len(self.names), len(service_ns), spec.initial_replicas
        self.now_ns = self.finished = 0
        self.arrived, self.completed, self.busy_ns, self.refused = ([0] * count for _ in range(4))
        self.taken: list[deque[tuple[int, int]]] = [deque() for _ in range(count)]
        self.waiting: list[deque[int]] = [deque() for _ in range(count)]
        self.in_service = [0] * count
        self.received_ns, self.started_ns, self.finished_ns, self.worker = ([-1] * tasks for _ in range(4))
        self.attempts = [1] * tasks
        self.workers: list[str] = []
        self.intended_ns: list[int] = schedule.intended_offset_ns.tolist()
        self.sent_ns = [-1] * len(schedule)
        self.service_ns = service_ns
        self._fleet, self._next_arrival = spec.fleet, 0
        self._call_ns, self._start_up_ns, self._retry_ns = nanos(call_s), nanos(start_up_s), nanos(retry_s)
        self._max_replicas, self._max_total = spec.max_replicas, max_replicas_total
        self._pooled, self._reject = pooled, pooled and when_busy == "reject"
        self._idle: list[deque[_Replica]] = [deque() for _ in range(count)]
        self._replicas: list[dict[str, _Replica]] = [{} for _ in range(count)]
        self._numbers = [0] * count
        self._connections = [max(1, initial) if pooled else NEVER] * count
        self._backing_off = [0] * count
        self._heap: list[tuple[int, int, int, int, _Replica | None]] = []
        self._ticket = 0
        self._events: list[ReplicaEvent] = []
        self._frozen_until_ns = self._broker_back_ns = self._store_back_ns = 0
        self.start_ups_ns = [deque[int](maxlen=MEASURED) for _ in range(count)]
        for station in range(count):
            self._grow(station, initial, start_up_ns=0)
        self._run_until(0, arrivals=False)
        for start_ups_ns in self.start_ups_ns:
            start_ups_ns.clear()  # the first replicas were there before the start

    @abstractmethod
    def arrive(self, event: int) -> None:
        """Event number ``event`` of the schedule arrives now."""

    @abstractmethod
    def done(self, station: int, task: int) -> None:
        """``task`` has been served at ``station`` now."""

    @property
    def monitor(self) -> Self:
        """Observes the fleet."""
        return self

    @property
    def actuator(self) -> Self:
        """Takes decisions."""
        return self

    @property
    def now_s(self) -> float:
        """The engine's time."""
        return self.now_ns / NANOS_PER_SECOND

    # --- time --------------------------------------------------------------------------------------------------------

    def advance(self, until_s: float) -> None:
        """Everything up to ``until_s``, that instant included."""
        self._run_until(nanos(until_s), arrivals=True)

    def _run_until(self, until_ns: int, *, arrivals: bool) -> None:
        heap, arrivals_ns = self._heap, self.intended_ns
        last = len(arrivals_ns) if arrivals else self._next_arrival
        while True:
            due_ns = heap[0][0] if heap else NEVER
            arrival_ns = arrivals_ns[self._next_arrival] if self._next_arrival < last else NEVER
            if arrival_ns < self._broker_back_ns:
                arrival_ns = self._broker_back_ns
            if arrival_ns < due_ns:
                if arrival_ns > until_ns:
                    break
                self.now_ns = arrival_ns
                self._next_arrival += 1
                self.arrive(self._next_arrival - 1)
                continue
            if due_ns > until_ns:
                break
            self.now_ns, kind, ticket, argument, replica = heappop(heap)
            if kind == FINISH:
                if replica is not None and replica.ticket == ticket:
                    self._finish(replica)
            elif kind == JOIN:
                if replica is not None and replica.phase == "requested":
                    self._join(replica)
            elif kind == RETRY:
                self._backing_off[argument] -= 1
                self._dispatch(argument)
            else:
                self._receive(argument // len(self.service_ns), argument % len(self.service_ns))
        self.now_ns = max(self.now_ns, until_ns)

    def _at(self, at_ns: int, kind: int, argument: int = 0, replica: _Replica | None = None) -> int:
        self._ticket += 1
        heappush(self._heap, (at_ns, kind, self._ticket, argument, replica))
        return self._ticket

    # --- tasks -------------------------------------------------------------------------------------------------------

    def deliver(self, station: int, task: int, *, through_broker: bool) -> None:
        """``task`` goes to ``station``: now, or when the broker is back if it has to pass through one that is away."""
        if through_broker and self.now_ns < self._broker_back_ns:
            self._at(self._broker_back_ns, DELIVER, station * len(self.service_ns) + task)
        else:
            self._receive(station, task)

    def _receive(self, station: int, task: int) -> None:
        self.received_ns[task] = self.now_ns
        self.arrived[station] += 1
        self.waiting[station].append(task)
        self._dispatch(station)

    def _dispatch(self, station: int) -> None:
        waiting, idle = self.waiting[station], self._idle[station]
        while waiting and self.in_service[station] + self._backing_off[station] < self._connections[station]:
            if idle:
                self._take(station, waiting.popleft(), idle.popleft())
            elif self._reject:
                self.refused[station] += 1
                self._backing_off[station] += 1
                self._at(self.now_ns + self._retry_ns, RETRY, station)
            else:
                return

    def _take(self, station: int, task: int, replica: _Replica) -> None:
        now_ns = self.now_ns
        self.started_ns[task], self.worker[task] = now_ns, replica.index
        self.taken[station].append((now_ns, task))
        self.in_service[station] += 1
        replica.task = task
        if replica.phase == "joined":
            self._enter(replica, "first-event")
        done_ns = max(now_ns, self._frozen_until_ns) + self.service_ns[task] + self._call_ns
        done_ns = max(done_ns, self._store_back_ns)
        replica.ticket = self._at(done_ns, FINISH, replica=replica)

    def _finish(self, replica: _Replica) -> None:
        station, task = replica.station, replica.task
        replica.task = replica.ticket = -1
        self.finished_ns[task] = self.now_ns
        self.completed[station] += 1
        self.busy_ns[station] += self.service_ns[task]
        self.in_service[station] -= 1
        if replica.phase == "draining":
            self._gone(replica)
        else:
            self._idle[station].append(replica)
        self.done(station, task)
        self._dispatch(station)

    # --- replicas ----------------------------------------------------------------------------------------------------

    def current(self, station: int) -> int:
        """Replicas that exist or were requested, without draining ones."""
        return sum(replica.phase != "draining" for replica in self._replicas[station].values())

    def counts(self, station: int) -> ReplicaCounts:
        """Replicas of one station by phase."""
        return ReplicaCounts.count(replica.phase for replica in self._replicas[station].values())

    def connections(self, station: int) -> int | None:
        """Limit of the connection pool, None where there is none."""
        return self._connections[station] if self._pooled else None

    def apply(self, decision: Decision) -> Accepted:
        """Work towards the targets: cap each fleet, then all of them together, and grow or shrink at once."""
        sizes = {name: self.current(station) for station, name in enumerate(self.names)}
        if decision.action in ("hold", "none"):
            return Accepted(sizes)
        accepted = clamp_targets(decision.targets, sizes, each=self._max_replicas, total=self._max_total)
        for name, target in accepted.targets.items():
            station = self.names.index(name)
            if target > sizes[name]:
                self._grow(station, target - sizes[name], self._start_up_ns)
            elif target < sizes[name]:
                self._shrink(station, sizes[name] - target)
        # A start-up of no length is over now.
        self._run_until(self.now_ns, arrivals=False)
        return accepted

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas since the last call, in order."""
        handed_out, self._events = self._events, []
        return handed_out

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase, by station and age."""
        return {name: replica.phase for fleet in self._replicas for name, replica in fleet.items()}

    def _grow(self, station: int, count: int, start_up_ns: int, reason: str = "") -> None:
        scale = _Scale(count)
        for _ in range(count):
            self._numbers[station] += 1
            name = f"{self.names[station]}-{self._numbers[station]}"
            replica = _Replica(len(self.workers), name, station, scale, self.now_ns)
            self.workers.append(name)
            self._replicas[station][name] = replica
            self._enter(replica, "requested", reason)
            self._at(self.now_ns + start_up_ns, JOIN, replica=replica)

    def _join(self, replica: _Replica) -> None:
        """The replica serves from now on: for a function, "started" and "in the gateway's list" are one step."""
        station = replica.station
        self._enter(replica, "started")
        self._enter(replica, "joined")
        self.start_ups_ns[station].append(self.now_ns - replica.requested_ns)
        self._idle[station].append(replica)
        self._step_of(replica.scale, station)
        self._dispatch(station)

    def _shrink(self, station: int, count: int) -> None:
        """Those still starting go first, then idle ones (both the newest first), then busy ones when they finish."""

        def order(replica: _Replica) -> tuple[bool, bool, int]:
            return replica.phase != "requested", replica.task >= 0, -replica.index

        staying = [replica for replica in self._replicas[station].values() if replica.phase != "draining"]
        going = sorted(staying, key=order)[:count]
        scale = _Scale(count)
        for replica in going:
            starting, before = replica.phase == "requested", replica.scale
            replica.scale = scale
            self._enter(replica, "draining")
            if starting:
                self._step_of(before, station)
            if replica.task < 0:
                if not starting:
                    self._idle[station].remove(replica)
                self._gone(replica)

    def _gone(self, replica: _Replica, reason: str = "") -> None:
        del self._replicas[replica.station][replica.name]
        self._enter(replica, "gone", reason)
        self._step_of(replica.scale, replica.station)

    def _step_of(self, scale: _Scale, station: int) -> None:
        scale.left -= 1
        if scale.left == 0 and self._pooled:
            serving = sum(r.phase in ("joined", "first-event") for r in self._replicas[station].values())
            self._connections[station] = max(1, serving)

    def _enter(self, replica: _Replica, phase: Phase, reason: str = "") -> None:
        replica.phase = phase
        self._events.append(ReplicaEvent(self.names[replica.station], replica.name, phase, self.now_ns, reason))

    # --- faults ------------------------------------------------------------------------------------------------------

    @property
    def blind(self) -> bool:
        """Whether the monitor is to see nothing now."""
        return self.now_s < self.blind_until_s

    @simulates("stop-broker")
    def _stop_broker(self, until_s: float) -> None:
        """Nothing from outside comes in until it is back."""
        self._broker_back_ns = max(self._broker_back_ns, nanos(until_s))

    @simulates("kill-worker")
    def _kill_worker(self, _: float) -> bool:
        """The oldest busy replica ends, else the oldest idle one; its task is served again, a new replica comes."""
        serving = [
            replica
            for fleet in self._replicas
            for replica in fleet.values()
            if replica.phase in ("joined", "first-event", "draining")
        ]
        if not serving:
            return False
        victim = min(serving, key=lambda replica: (replica.task < 0, replica.index))
        station, wanted = victim.station, victim.phase != "draining"
        if victim.task >= 0:
            self.attempts[victim.task] += 1
            self.waiting[station].appendleft(victim.task)
            self.in_service[station] -= 1
            victim.task = victim.ticket = -1
        else:
            self._idle[station].remove(victim)
        if wanted:
            # It leaves no scale action behind that could complete: the pool keeps its connections.
            victim.scale = _Scale(NEVER)
        self._gone(victim, "killed")
        if wanted:
            self._grow(station, 1, self._start_up_ns, "replaces one that was killed")
        self._dispatch(station)
        return True

    @simulates("freeze-workers")
    def _freeze_workers(self, until_s: float) -> None:
        """What is in service ends later by as long as the workers stand still."""
        until_ns = nanos(until_s)
        longer_ns = until_ns - max(self.now_ns, self._frozen_until_ns)
        if longer_ns <= 0:
            return
        self._finish_later(lambda end_ns: end_ns + longer_ns)
        self._frozen_until_ns = until_ns

    def _stop_store(self, until_s: float) -> None:
        """What is served by then is finished then."""
        self._store_back_ns = until_ns = max(self._store_back_ns, nanos(until_s))
        self._finish_later(lambda end_ns: max(end_ns, until_ns))

    def _finish_later(self, end_of: Callable[[int], int]) -> None:
        """What is in service ends at ``end_of`` its end."""
        ends = {replica.ticket: at_ns for at_ns, kind, _, _, replica in self._heap if kind == FINISH and replica}
        for fleet in self._replicas:
            for replica in fleet.values():
                if replica.task >= 0:
                    replica.ticket = self._at(end_of(ends[replica.ticket]), FINISH, replica=replica)

    # --- observations and results -------------------------------------------------------------------------------------

    def left(self) -> int:
        """Events of the schedule that have not left."""
        return len(self.intended_ns) - self.finished

    def finished_tasks(self) -> Ints:
        """Tasks that are done, by time of finish."""
        finished = np.asarray(self.finished_ns, dtype=np.int64)
        done = np.flatnonzero(finished >= 0)
        return done[np.lexsort((done, finished[done]))]

    def table(self, done: Ints, event: Ints, station: Ints, **more: Any) -> EventTable:
        """A row for each task of ``done``, with the event and the station of each; ``more``: further columns."""
        return EventTable(
            id=event,
            intended_s=seconds(self.intended_ns, event),
            sent_s=seconds(self.sent_ns, event),
            received_s=seconds(self.received_ns, done),
            started_s=seconds(self.started_ns, done),
            finished_s=seconds(self.finished_ns, done),
            worker=np.asarray(self.worker, dtype=np.int32)[done],
            queue=station.astype(np.int32),
            stage=station.astype(np.int32),
            outcome=np.full(len(done), COMPLETED, dtype=np.int8),
            attempt=np.asarray(self.attempts, dtype=np.int32)[done],
            workers=tuple(self.workers),
            queues=self.names,
            stages=self.names,
            **more,
        )

    def observed(
        self, kind: type[ObservationT], read: Mapping[str, Any], unknown: Mapping[str, str], **known: Any
    ) -> ObservationT:
        """The whole fleet now; its ``backlog`` are all events in it. A blind monitor reads nothing but ``known``;
        ``unknown``: reasons for the None in ``read``.
        """
        arrived, replicas = self._next_arrival, ReplicaCounts.count(self.replicas().values())
        counted = arrived, self.finished, arrived - self.finished, sum(self.in_service)
        return self._observation(kind, self._fleet, replicas, counted, read, unknown, known)

    def station_status(
        self, station: int, kind: type[ObservationT], read: Mapping[str, Any], unknown: Mapping[str, str], **known: Any
    ) -> ObservationT:
        """The same for one station; its ``backlog`` are the tasks that wait."""
        arrived, completed, waiting = self.arrived[station], self.completed[station], len(self.waiting[station])
        counted = arrived, completed, waiting, self.in_service[station]
        return self._observation(kind, self.names[station], self.counts(station), counted, read, unknown, known)

    def _observation(
        self,
        kind: type[ObservationT],
        fleet: str,
        replicas: ReplicaCounts,
        counted: Sequence[int],
        read: Mapping[str, Any],
        unknown: Mapping[str, str],
        known: Mapping[str, Any],
    ) -> ObservationT:
        read = {**dict(zip(COUNTED, counted, strict=True)), **read}
        if self.blind:
            read, unknown = {}, dict.fromkeys(read, BLINDED)
        return kind(time_s=self.now_s, fleet=fleet, replicas=replicas, unknown=dict(unknown), **read, **known)
