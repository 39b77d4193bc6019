"""The engine for pipelines of functions: branches, merges, one request per replica, a deadline (AMESoS, spec 3.12).

A request goes to every successor of a function that is done with it; a function with several predecessors runs when
all of them have delivered. Requests wait in the pipeline manager, in a queue for each function; as many of them as its
connection pool has connections are handed to the gateway. Nothing is dropped: a late request is finished and counted
as a miss. What a request needs at each function is drawn before the run.
"""

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import FunctionObservation, FunctionStatus, ReplicaCounts
from penstock.errors import PenstockError
from penstock.functions import EPOCH_S, RETRY_S
from penstock.graph import Graph
from penstock.laws import SERVICE, draw_s, stream
from penstock.runspec import Fault, RunSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSystem
from simulator.clock import nanos
from simulator.engine import COMPLETED, EventTable
from simulator.network_laws import seconds, whole_nanos
from simulator.network_stations import BLINDED, Stations


def make_engine(spec: RunSpec, schedule: Schedule) -> "PipelineEngine":
    """The engine of a run whose system is a ``FunctionSystem``. PenstockError for a graph that cannot be run."""
    if not isinstance(spec.system, FunctionSystem):
        raise PenstockError(f"{spec.run}: its fleet is {type(spec.system).__name__}, a pipeline was expected")
    return PipelineEngine(spec, spec.system, schedule)


class PipelineEngine:
    """Engine port for one pipeline; also its monitor and the router of its stations. The actuator is the stations'.

    A task is a function with a request: number of the function × requests + number of the request.
    """

    def __init__(self, spec: RunSpec, system: FunctionSystem, schedule: Schedule) -> None:
        if not system.deadline_s > 0:
            raise PenstockError(f"deadline of {system.deadline_s:g} s: has to be above 0")
        self.graph = Graph(system.functions)
        self.requests = len(schedule)
        self.finished = self.missed = 0
        self._fleet, self._pipeline = spec.fleet, spec.pipeline
        self._epoch_ns = nanos(EPOCH_S / spec.speed)
        self._deadline_s, self._deadline_ns = system.deadline_s, nanos(system.deadline_s)
        self._intended_ns: list[int] = schedule.intended_offset_ns.tolist()
        self._sent_ns = [-1] * self.requests
        self._missing = [[len(before)] * self.requests if len(before) > 1 else None for before in self.graph.before]
        self._unfinished = [len(self.graph.sinks)] * self.requests
        self._last_task = [-1] * self.requests
        self._estimate_s = [0.0] * (self.requests * len(self.graph.functions))
        self._rate_before = [(0, 0)] * len(self.graph.functions)
        self._service_rate: list[float | None] = [None] * len(self.graph.functions)
        self.stations = Stations(
            names=[function.name for function in self.graph.functions],
            arrivals_ns=self._intended_ns,
            service_ns=self._drawn(spec.seed, system),
            router=self,
            initial=spec.initial_replicas,
            start_up_ns=nanos(system.cold_start_s),
            max_replicas=spec.max_replicas,
            max_replicas_total=system.max_replicas_total,
            pooled=True,
            when_busy=system.when_busy,
            retry_ns=nanos(RETRY_S / spec.speed),
            call_ns=nanos(system.call_s),
        )

    def _drawn(self, seed: int, system: FunctionSystem) -> list[int]:
        """Service times of all tasks; a function keeps its draws when the order of the others changes."""
        drawn: list[int] = []
        for function in self.graph.functions:
            draws = stream(seed, SERVICE, system.functions.index(function))
            law, mean_s, scv = function.service_law, function.service_time_s, function.service_scv
            drawn += whole_nanos(draw_s(law, mean_s, scv, self.requests, draws))
        return drawn

    # --- the engine's port -------------------------------------------------------------------------------------------

    @property
    def monitor(self) -> "PipelineEngine":
        """Gives FunctionObservation."""
        return self

    @property
    def actuator(self) -> Stations:
        """Takes targets by function."""
        return self.stations

    def advance(self, until_s: float) -> None:
        """Everything up to ``until_s``, that instant included."""
        self.stations.advance(until_s)

    def inject(self, fault: Fault) -> None:
        """See ``Stations.inject``."""
        self.stations.inject(fault)

    def left(self) -> int:
        """Requests of the schedule that have not left the pipeline."""
        return self.requests - self.finished

    def results(self) -> EventTable:
        """One row for each function and request that it is done with, by time of finish. The row of the sink that was
        the last to finish is terminal.
        """
        stations = self.stations
        finished = np.asarray(stations.finished_ns, dtype=np.int64)
        done = np.flatnonzero(finished >= 0)
        done = done[np.lexsort((done, finished[done]))]
        stage, request = np.divmod(done, max(1, self.requests))
        last_task = np.asarray(self._last_task, dtype=np.int64)
        names = stations.names
        intended_s = seconds(self._intended_ns, request)
        return EventTable(
            id=request.astype(np.int64),
            intended_s=intended_s,
            sent_s=seconds(self._sent_ns, request),
            received_s=seconds(stations.received_ns, done),
            started_s=seconds(stations.started_ns, done),
            finished_s=seconds(stations.finished_ns, done),
            worker=np.asarray(stations.worker, dtype=np.int32)[done],
            queue=stage.astype(np.int32),
            outcome=np.full(len(done), COMPLETED, dtype=np.int8),
            stage=stage.astype(np.int32),
            attempt=np.asarray(stations.attempts, dtype=np.int32)[done],
            workers=tuple(stations.workers),
            queues=names,
            stages=names,
            terminal=last_task[request] == done,
            deadline_s=intended_s + self._deadline_s,
        )

    # --- the way of a request ----------------------------------------------------------------------------------------

    def arrive(self, event: int) -> None:
        """From Kafka into the queues of the first functions."""
        self._sent_ns[event] = self.stations.now_ns
        for i in self.graph.sources:
            self._deliver(i, event, self.graph.total_s)

    def done(self, station: int, task: int) -> None:
        """On to every successor; into a merge with the last branch (its time and progress count, A17)."""
        request = task - station * self.requests
        for i in self.graph.after[station]:
            missing = self._missing[i]
            if missing is not None:
                missing[request] -= 1
                if missing[request]:
                    continue
            self._deliver(i, request, self.graph.remaining_s[station])
        if not self.graph.after[station]:
            self._unfinished[request] -= 1
            if not self._unfinished[request]:
                self._last_task[request] = task
                self.finished += 1
                self.missed += self.stations.now_ns - self._intended_ns[request] > self._deadline_ns

    def _deliver(self, function: int, request: int, estimate_s: float) -> None:
        task = function * self.requests + request
        self._estimate_s[task] = estimate_s
        self.stations.deliver(function, task, through_broker=False)

    # --- the monitor's port ------------------------------------------------------------------------------------------

    def observe(self) -> FunctionObservation:
        """The pipeline now. ``backlog`` of the whole are the requests in it, of a function those that wait."""
        stations = self.stations
        time_s = stations.now_ns / NANOS_PER_SECOND
        count = len(self.graph.functions)
        counts = [stations.counts(i) for i in range(count)]
        together = ReplicaCounts(
            **{phase: sum(getattr(c, phase) for c in counts) for phase in ReplicaCounts.__struct_fields__}
        )
        if stations.blind:
            return FunctionObservation(
                time_s=time_s,
                fleet=self._fleet,
                replicas=together,
                pipeline=self._pipeline,
                deadline_s=self._deadline_s,
                functions=tuple(self._unseen(i, counts[i], time_s) for i in range(count)),
                unknown=dict.fromkeys(("arrived", "completed", "backlog", "in_flight", "finished", "missed"), BLINDED),
            )
        arrived = stations.arrived[self.graph.sources[0]]
        return FunctionObservation(
            time_s=time_s,
            fleet=self._fleet,
            replicas=together,
            arrived=arrived,
            completed=self.finished,
            backlog=arrived - self.finished,
            in_flight=sum(stations.in_service),
            pipeline=self._pipeline,
            deadline_s=self._deadline_s,
            functions=tuple(self._status(i, counts[i], time_s) for i in range(count)),
            finished=self.finished,
            missed=self.missed,
        )

    def _status(self, i: int, replicas: ReplicaCounts, time_s: float) -> FunctionStatus:
        stations = self.stations
        completed, busy_ns = stations.completed[i], stations.busy_ns[i]
        completed_before, busy_before_ns = self._rate_before[i]
        if busy_ns > busy_before_ns:
            self._service_rate[i] = (completed - completed_before) * NANOS_PER_SECOND / (busy_ns - busy_before_ns)
            self._rate_before[i] = completed, busy_ns
        rate = self._service_rate[i]
        return FunctionStatus(
            time_s=time_s,
            fleet=stations.names[i],
            replicas=replicas,
            arrived=stations.arrived[i],
            completed=completed,
            backlog=len(stations.waiting[i]),
            in_flight=stations.in_service[i],
            service_rate_per_s=rate,
            busy_s=busy_ns / NANOS_PER_SECOND,
            laxity_s=self._laxities_s(i),
            concurrency=stations.connections(i),
            unknown={} if rate is not None else {"service_rate_per_s": "no request has finished yet"},
        )

    def _laxities_s(self, i: int) -> tuple[float, ...]:
        """Time to deadline minus estimate: of requests when they were taken up in the last epoch, of those that wait
        now.
        """
        stations, taken = self.stations, self.stations.taken[i]
        while taken and taken[0][0] <= stations.now_ns - self._epoch_ns:
            taken.popleft()
        samples = [self._laxity_s(i, task, at_ns) for at_ns, task in taken]
        samples += [self._laxity_s(i, task, stations.now_ns) for task in stations.waiting[i]]
        return tuple(samples)

    def _laxity_s(self, i: int, task: int, at_ns: int) -> float:
        time_to_deadline_ns = self._intended_ns[task - i * self.requests] + self._deadline_ns - at_ns
        return time_to_deadline_ns / NANOS_PER_SECOND - self._estimate_s[task]

    def _unseen(self, i: int, replicas: ReplicaCounts, time_s: float) -> FunctionStatus:
        fields = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "busy_s", "laxity_s")
        return FunctionStatus(
            time_s=time_s,
            fleet=self.stations.names[i],
            replicas=replicas,
            unknown=dict.fromkeys(fields, BLINDED),
        )
