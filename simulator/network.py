"""The engine for open multi-class networks of topics: jobs with routes, FIFO topics with consumers (pub/sub, spec 5).

A consumer takes one task at a time; a job that is done at a topic goes to the next one of its route, which may be the
same again (A, D, D). Service times are gamma-distributed by the topic's two moments and drawn before the run, as are
the arrivals: the schedule's column ``partition`` is the job type.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import JobStatus, NetworkObservation, ReplicaCounts, TopicStatus
from penstock.errors import PenstockError
from penstock.laws import ARRIVALS, SERVICE, Floats, draw_s, stream
from penstock.runspec import Fault, RunSpec
from penstock.schedule import Schedule
from penstock.systems import JobSpec, NetworkSystem
from simulator.clock import nanos
from simulator.engine import COMPLETED, EventTable
from simulator.network_laws import seconds, whole_nanos
from simulator.network_stations import BLINDED, Stations


def make_engine(spec: RunSpec, schedule: Schedule) -> "NetworkEngine":
    """The engine of a run whose system is a ``NetworkSystem``. PenstockError for routes that cannot be gone."""
    if not isinstance(spec.system, NetworkSystem):
        raise PenstockError(f"{spec.run}: its fleet is {type(spec.system).__name__}, a pub/sub network was expected")
    return NetworkEngine(spec, spec.system, schedule)


# --- arrivals --------------------------------------------------------------------------------------------------------


def job_schedule(jobs: Sequence[JobSpec], *, duration_s: float, seed: int, from_s: float = 0.0) -> Schedule:
    """Arrivals of all job types: one renewal process each, gamma-distributed times between arrivals of the given scv.

    Where the rate changes (``phases``), the process runs on in operational time: its intervals have mean 1 there and
    the area under the rate says where they end, so that a change of rate makes neither a gap nor a burst. A job type
    keeps its arrivals when others are added. With ``from_s`` it is the part of ``duration_s`` from there on.
    PenstockError for impossible rates, and where nothing arrives at all.
    """
    times, kinds = [], []
    for kind, job in enumerate(jobs):
        job_times_s = _arrival_times_s(job, from_s + duration_s, stream(seed, ARRIVALS, kind))
        job_times_s = job_times_s[job_times_s >= from_s] - from_s
        times.append(np.floor(job_times_s * NANOS_PER_SECOND).astype(np.int64))
        kinds.append(np.full(len(job_times_s), kind, dtype=np.int16))
    offsets, types = np.concatenate([*times, []]).astype(np.int64), np.concatenate([*kinds, []]).astype(np.int16)
    if not len(offsets):
        raise PenstockError(f"no jobs arrive within {duration_s:g} s; take longer or higher rates")
    order = np.lexsort((types, offsets))
    return Schedule(
        intended_offset_ns=offsets[order],
        partition=types[order],
        duration_s=duration_s,
        description={
            "arrivals": "gamma",
            "seed": seed,
            "from_s": from_s,
            "seconds": duration_s,
            "jobs": [
                {
                    "job": job.job,
                    "route": list(job.route),
                    "arrival_rate_per_s": job.arrival_rate_per_s,
                    "arrival_scv": job.arrival_scv,
                    "phases": [list(phase) for phase in job.phases],
                }
                for job in jobs
            ],
        },
    )


def _arrival_times_s(job: JobSpec, duration_s: float, draws: np.random.Generator) -> Floats:
    """Ascending, shape (arrivals,), all below ``duration_s``."""
    starts_s, rates = [0.0], [job.arrival_rate_per_s]
    for from_s, rate in job.phases:
        if from_s < starts_s[-1]:
            raise PenstockError(f"job {job.job}: its phases have to be in order of time, {from_s:g} s is not")
        starts_s.append(from_s)
        rates.append(rate)
    if min(rates) < 0 or not np.isfinite(rates).all():
        raise PenstockError(f"job {job.job}: rates {', '.join(f'{rate:g}' for rate in rates)} have to be at least 0")
    edges_s = np.minimum([*starts_s, np.inf], duration_s)
    area = np.concatenate(([0.0], np.cumsum(np.diff(edges_s) * rates)))
    expected = float(area[-1])
    # As many intervals as can be needed: seven standard deviations more than the mean number.
    most = int(expected + 7 * np.sqrt(expected * max(1.0, job.arrival_scv)) + 10 * max(1.0, job.arrival_scv))
    operational = np.cumsum(draw_s("gamma", 1.0, job.arrival_scv, most, draws))
    operational = operational[operational < expected]
    # A phase without arrivals is an area of no width: the arrival after it comes when it is over.
    phase = np.searchsorted(area, operational, side="right") - 1
    return np.asarray(edges_s[phase] + (operational - area[phase]) / np.asarray(rates)[phase])


# --- the engine ------------------------------------------------------------------------------------------------------


class NetworkEngine:
    """Engine port for one network; also its monitor and the router of its stations. The actuator is the stations'.

    A task is one visit: the visits of a job are numbered one after the other, job after job.
    """

    def __init__(self, spec: RunSpec, system: NetworkSystem, schedule: Schedule) -> None:
        if not system.window_s > 0:
            raise PenstockError(f"window of {system.window_s:g} s: has to be above 0")
        names = [topic.topic for topic in system.topics]
        self.system, self.jobs = system, len(schedule)
        self.finished = 0
        self._fleet = spec.fleet
        self._routes = [_route(names, job) for job in system.jobs]
        self._kinds: list[int] = schedule.partition.tolist()
        if self._kinds and not 0 <= min(self._kinds) <= max(self._kinds) < len(self._routes):
            raise PenstockError(f"the schedule has job type {max(self._kinds)}; there are {len(self._routes)}, from 0")
        self._intended_ns: list[int] = schedule.intended_offset_ns.tolist()
        self._sent_ns = [-1] * self.jobs
        lengths = np.asarray([len(route) for route in self._routes], dtype=np.int64)[schedule.partition]
        self._first = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64).tolist()
        self._job_of: list[int] = np.repeat(np.arange(self.jobs), lengths).tolist()
        self._arrived_ns: list[list[int]] = [[] for _ in system.jobs]
        self._served: list[list[int]] = [[] for _ in names]
        self._served_ns: list[list[int]] = [[] for _ in names]
        self._left_ns: list[int] = []
        self._response_ns: list[int] = []
        self.stations = Stations(
            names=names,
            arrivals_ns=self._intended_ns,
            service_ns=self._drawn(spec.seed),
            router=self,
            initial=spec.initial_replicas,
            start_up_ns=nanos(system.start_up_s),
            max_replicas=spec.max_replicas,
        )

    def _drawn(self, seed: int) -> list[int]:
        """Service time of every visit; the draws of a topic are handed out in the order of jobs and their visits."""
        topic_of = self._topics_of_visits()
        drawn_s = np.zeros(len(topic_of))
        for i, topic in enumerate(self.system.topics):
            if not topic.service_rate_per_s > 0:
                raise PenstockError(f"topic {topic.topic}: service rate {topic.service_rate_per_s:g}/s is not above 0")
            visits = np.flatnonzero(topic_of == i)
            draws = stream(seed, SERVICE, i)
            drawn_s[visits] = draw_s("gamma", 1 / topic.service_rate_per_s, topic.service_scv, len(visits), draws)
        return whole_nanos(drawn_s)

    def _topics_of_visits(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.asarray([topic for kind in self._kinds for topic in self._routes[kind]], dtype=np.int64)

    # --- the engine's port -------------------------------------------------------------------------------------------

    @property
    def monitor(self) -> "NetworkEngine":
        """Gives NetworkObservation."""
        return self

    @property
    def actuator(self) -> Stations:
        """Takes targets by topic."""
        return self.stations

    def advance(self, until_s: float) -> None:
        """Everything up to ``until_s``, that instant included."""
        self.stations.advance(until_s)

    def inject(self, fault: Fault) -> None:
        """See ``Stations.inject``; while the broker is away nothing goes from topic to topic either."""
        self.stations.inject(fault)

    def left(self) -> int:
        """Jobs of the schedule that have not left the network."""
        return self.jobs - self.finished

    def results(self) -> EventTable:
        """One row for each visit that is over, by time of finish; the last one of a route is terminal."""
        stations = self.stations
        finished = np.asarray(stations.finished_ns, dtype=np.int64)
        done = np.flatnonzero(finished >= 0)
        done = done[np.lexsort((done, finished[done]))]
        job = np.asarray(self._job_of, dtype=np.int64)[done]
        first = np.asarray(self._first, dtype=np.int64)
        topic = self._topics_of_visits()[done].astype(np.int32)
        visit_numbers = [_visit_numbers(route) for route in self._routes]
        visit = np.asarray([number for kind in self._kinds for number in visit_numbers[kind]], dtype=np.int32)
        return EventTable(
            id=job,
            intended_s=seconds(self._intended_ns, job),
            sent_s=seconds(self._sent_ns, job),
            received_s=seconds(stations.received_ns, done),
            started_s=seconds(stations.started_ns, done),
            finished_s=seconds(stations.finished_ns, done),
            worker=np.asarray(stations.worker, dtype=np.int32)[done],
            queue=topic,
            outcome=np.full(len(done), COMPLETED, dtype=np.int8),
            stage=topic,
            attempt=np.asarray(stations.attempts, dtype=np.int32)[done],
            workers=tuple(stations.workers),
            queues=stations.names,
            stages=stations.names,
            visit=visit[done],
            terminal=done == first[job + 1] - 1,
        )

    # --- the way of a job --------------------------------------------------------------------------------------------

    def arrive(self, event: int) -> None:
        """To the first topic of its route."""
        kind = self._kinds[event]
        self._sent_ns[event] = self.stations.now_ns
        self._arrived_ns[kind].append(self.stations.now_ns)
        self.stations.deliver(self._routes[kind][0], self._first[event], through_broker=False)

    def done(self, station: int, task: int) -> None:
        """To the next topic, or out."""
        job, now_ns = self._job_of[task], self.stations.now_ns
        self._served[station].append(task)
        self._served_ns[station].append(now_ns)
        if task + 1 < self._first[job + 1]:
            step = task + 1 - self._first[job]
            self.stations.deliver(self._routes[self._kinds[job]][step], task + 1, through_broker=True)
        else:
            self.finished += 1
            self._left_ns.append(now_ns)
            self._response_ns.append(now_ns - self._intended_ns[job])

    # --- the monitor's port ------------------------------------------------------------------------------------------

    def observe(self) -> NetworkObservation:
        """The network now, with estimates over the sliding window. ``backlog`` of the whole are the jobs in it, of a
        topic those tasks that wait. What there was too little to estimate from is None.
        """
        stations = self.stations
        time_s = stations.now_ns / NANOS_PER_SECOND
        counts = [stations.counts(i) for i in range(len(stations.names))]
        together = ReplicaCounts(
            **{phase: sum(getattr(c, phase) for c in counts) for phase in ReplicaCounts.__struct_fields__}
        )
        if stations.blind:
            return NetworkObservation(
                time_s=time_s,
                fleet=self._fleet,
                replicas=together,
                topics=tuple(self._unseen(i, counts[i], time_s) for i in range(len(counts))),
                jobs=tuple(JobStatus(job=job.job, route=job.route) for job in self.system.jobs),
                unknown=dict.fromkeys(("arrived", "completed", "backlog", "in_flight", "response_time_s"), BLINDED),
            )
        arrived = sum(len(times) for times in self._arrived_ns)
        responses = self._response_ns[bisect_right(self._left_ns, self._since_ns()) :]
        return NetworkObservation(
            time_s=time_s,
            fleet=self._fleet,
            replicas=together,
            arrived=arrived,
            completed=self.finished,
            backlog=arrived - self.finished,
            in_flight=sum(stations.in_service),
            topics=tuple(self._topic(i, counts[i], time_s) for i in range(len(counts))),
            jobs=tuple(self._job(kind, job) for kind, job in enumerate(self.system.jobs)),
            response_time_s=sum(responses) / len(responses) / NANOS_PER_SECOND if responses else None,
            unknown={} if responses else {"response_time_s": "no job has finished within the window"},
        )

    def _since_ns(self) -> int:
        """The window is (since, now]; at the beginning of a run it reaches back to its start."""
        return max(-1, self.stations.now_ns - nanos(self.system.window_s))

    def _topic(self, i: int, replicas: ReplicaCounts, time_s: float) -> TopicStatus:
        stations = self.stations
        recent = self._served[i][bisect_right(self._served_ns[i], self._since_ns()) :]
        service_ns = np.asarray([stations.service_ns[task] for task in recent], dtype=np.float64)
        rate = NANOS_PER_SECOND / float(service_ns.mean()) if service_ns.any() else None
        scv = _scv(service_ns)
        unknown = {}
        if rate is None:
            unknown["service_rate_per_s"] = "no task has finished within the window"
        if scv is None:
            unknown["service_scv"] = f"{len(recent)} tasks have finished within the window"
        return TopicStatus(
            time_s=time_s,
            fleet=stations.names[i],
            replicas=replicas,
            arrived=stations.arrived[i],
            completed=stations.completed[i],
            backlog=len(stations.waiting[i]),
            in_flight=stations.in_service[i],
            service_rate_per_s=rate,
            service_scv=scv,
            unknown=unknown,
        )

    def _job(self, kind: int, job: JobSpec) -> JobStatus:
        times_ns = self._arrived_ns[kind]
        recent_ns = np.asarray(times_ns[bisect_right(times_ns, self._since_ns()) :], dtype=np.int64)
        length_s = min(self.system.window_s, self.stations.now_ns / NANOS_PER_SECOND)
        return JobStatus(
            job=job.job,
            route=job.route,
            arrived=len(times_ns),
            arrival_rate_per_s=len(recent_ns) / length_s if length_s else None,
            arrival_scv=_scv(np.diff(recent_ns).astype(np.float64)),
        )

    def _unseen(self, i: int, replicas: ReplicaCounts, time_s: float) -> TopicStatus:
        fields = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "service_scv")
        return TopicStatus(
            time_s=time_s,
            fleet=self.stations.names[i],
            replicas=replicas,
            unknown=dict.fromkeys(fields, BLINDED),
        )


def _scv(values: Floats) -> float | None:
    """Squared coefficient of variation of a sample (variance with n − 1); None for fewer than two values."""
    if len(values) < 2 or not values.any():
        return None
    return float(values.var(ddof=1) / values.mean() ** 2)


def _route(names: Sequence[str], job: JobSpec) -> list[int]:
    """Topics of a job's steps as indices."""
    if not job.route:
        raise PenstockError(f"job {job.job} has no route; give the topic of each step")
    for topic in job.route:
        if topic not in names:
            raise PenstockError(f"job {job.job} goes to topic {topic!r}; there are {', '.join(names)}")
    return [names.index(topic) for topic in job.route]


def _visit_numbers(route: Sequence[int]) -> list[int]:
    """How often the job has been at each step's topic by then: A, D, D gives 1, 1, 2."""
    return [route[: step + 1].count(topic) for step, topic in enumerate(route)]
