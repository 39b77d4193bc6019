"""The engine for pipelines of functions: branches, merges, one request per replica, a deadline (AMESoS).

A finished request goes to every successor of its function; a function with several predecessors runs when all of them
have delivered. Requests wait in the pipeline manager, in a queue for each function; its connection pool limits how many
are at the gateway. Nothing is dropped: a late request is finished and counted as a miss. Service times are drawn before
the run.
"""

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import FunctionObservation, FunctionStatus
from penstock.distributions import SERVICE, draw_s, stream
from penstock.errors import PenstockError
from penstock.function_messages import EPOCH_S, RETRY_S
from penstock.graph import Graph
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSystem
from simulator.clock import nanos, seconds, whole_nanos
from simulator.engine import EventTable
from simulator.stations import StationEngine


class FunctionEngine(StationEngine):
    """Engine for one pipeline. A task is a request at a function: its number is function × requests + request."""

    def __init__(self, spec: RunSpec, schedule: Schedule) -> None:
        system = spec.system
        if not isinstance(system, FunctionSystem):
            raise PenstockError(f"{spec.run}: its fleet is {type(system).__name__}, a pipeline was expected")
        if not system.deadline_s > 0:
            raise PenstockError(f"deadline of {system.deadline_s:g} s: has to be above 0")
        self.graph = Graph(system.functions)
        self._after = [tuple(function.after) for function in self.graph.functions]
        self.requests = len(schedule)
        self.missed = 0
        self._pipeline = spec.pipeline
        self._epoch_ns = nanos(EPOCH_S / spec.speed)
        self._deadline_s, self._deadline_ns = system.deadline_s, nanos(system.deadline_s)
        self._missing = [[len(before)] * self.requests if len(before) > 1 else None for before in self.graph.before]
        self._unfinished = [len(self.graph.sinks)] * self.requests
        self._last_task = [-1] * self.requests
        self._estimate_s = [0.0] * (self.requests * len(self.graph.functions))
        self._rate_before = [(0, 0)] * len(self.graph.functions)
        self._service_rate: list[float | None] = [None] * len(self.graph.functions)
        super().__init__(
            spec,
            schedule,
            names=[function.name for function in self.graph.functions],
            service_ns=self._drawn(spec.seed, system),
            start_up_s=system.cold_start_s,
            max_replicas_total=system.max_replicas_total,
            pooled=True,
            when_busy=system.when_busy,
            retry_s=RETRY_S / spec.speed,
            call_s=system.call_s,
        )

    def _drawn(self, seed: int, system: FunctionSystem) -> list[int]:
        """Service times of all tasks; a function keeps its draws when the order of the others changes."""
        drawn: list[int] = []
        for function in self.graph.functions:
            draws = stream(seed, SERVICE, system.functions.index(function))
            law, mean_s, scv = function.service_law, function.service_time_s, function.service_scv
            drawn += whole_nanos(draw_s(law, mean_s, scv, self.requests, draws))
        return drawn

    # --- results -----------------------------------------------------------------------------------------------------

    def results(self) -> EventTable:
        """One row for each finished request of each function, by time of finish. The row of the sink that finishes last
        is terminal.
        """
        done = self.finished_tasks()
        stage, request = np.divmod(done, max(1, self.requests))
        last_task = np.asarray(self._last_task, dtype=np.int64)
        return self.table(
            done,
            request,
            stage,
            terminal=last_task[request] == done,
            deadline_s=seconds(self.intended_ns, request) + self._deadline_s,
        )

    # --- the path of a request ---------------------------------------------------------------------------------------

    def arrive(self, event: int) -> None:
        """From Kafka into the queues of the first functions."""
        self.sent_ns[event] = self.now_ns
        for i in self.graph.sources:
            self._deliver(i, event, self.graph.total_s)

    def done(self, station: int, task: int) -> None:
        """To every successor; to a merge with the last branch (its time and progress count, A17)."""
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
                self.missed += self.now_ns - self.intended_ns[request] > self._deadline_ns

    def _deliver(self, function: int, request: int, estimate_s: float) -> None:
        task = function * self.requests + request
        self._estimate_s[task] = estimate_s
        self.deliver(function, task, through_broker=False)

    # --- the monitor's port ------------------------------------------------------------------------------------------

    def observe(self) -> FunctionObservation:
        """The pipeline now. Its ``backlog`` are all requests in it, that of a function those that wait."""
        return self.observed(
            FunctionObservation,
            {"finished": self.finished, "missed": self.missed},
            {},
            functions=tuple(self._status(i) for i in range(len(self.names))),
            pipeline=self._pipeline,
            deadline_s=self._deadline_s,
        )

    def _status(self, i: int) -> FunctionStatus:
        completed, busy_ns = self.completed[i], self.busy_ns[i]
        completed_before, busy_before_ns = self._rate_before[i]
        if busy_ns > busy_before_ns:
            self._service_rate[i] = (completed - completed_before) * NANOS_PER_SECOND / (busy_ns - busy_before_ns)
            self._rate_before[i] = completed, busy_ns
        rate = self._service_rate[i]
        read = {"service_rate_per_s": rate, "busy_s": busy_ns / NANOS_PER_SECOND, "laxity_s": self._laxities_s(i)}
        unknown = {} if rate is not None else {"service_rate_per_s": "no request has finished yet"}
        known = {"concurrency": self.connections(i), "after": self._after[i]}
        return self.station_status(i, FunctionStatus, read, unknown, **known)

    def _laxities_s(self, i: int) -> tuple[float, ...]:
        """Time to deadline minus estimate: of requests at their start of service in the last epoch, and of those that
        wait now.
        """
        taken = self.taken[i]
        while taken and taken[0][0] <= self.now_ns - self._epoch_ns:
            taken.popleft()
        samples = [self._laxity_s(i, task, at_ns) for at_ns, task in taken]
        samples += [self._laxity_s(i, task, self.now_ns) for task in self.waiting[i]]
        return tuple(samples)

    def _laxity_s(self, i: int, task: int, at_ns: int) -> float:
        time_to_deadline_ns = self.intended_ns[task - i * self.requests] + self._deadline_ns - at_ns
        return time_to_deadline_ns / NANOS_PER_SECOND - self._estimate_s[task]


make_engine = FunctionEngine
