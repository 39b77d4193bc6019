"""The engine for open multi-class networks of topics: jobs with routes, FIFO topics with consumers (pub/sub).

A consumer takes one task at a time; a job goes from topic to topic along its route, which may repeat a topic (A, D, D).
Service times are gamma-distributed by the topic's two moments and drawn before the run, like the arrivals: the
schedule's column ``partition`` is the job type.
"""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec
import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import JobStatus, NetworkObservation, TopicStatus
from penstock.distributions import ARRIVALS, SERVICE, Floats, draw_s, stream
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import JobSpec, NetworkSystem
from simulator.clock import nanos, whole_nanos
from simulator.engine import EventTable, simulates
from simulator.stations import StationEngine

# --- arrivals --------------------------------------------------------------------------------------------------------


def job_schedule(jobs: Sequence[JobSpec], *, duration_s: float, seed: int, from_s: float = 0.0) -> Schedule:
    """Arrivals of all job types: one renewal process each, gamma-distributed times between arrivals of the given scv.

    Where the rate changes (``phases``), the process continues in operational time: its intervals have mean 1 there and
    end where the area under the rate says, so that a change of rate makes neither a gap nor a burst. A job type keeps
    its arrivals when others are added. With ``from_s`` it is the part of ``duration_s`` after that time. PenstockError
    for impossible rates, and if nothing arrives at all.
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
            "jobs": msgspec.json.decode(msgspec.json.encode(jobs)),
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


class NetworkEngine(StationEngine):
    """Engine for one network. While the broker is away, nothing passes from topic to topic.

    A task is one visit: the visits of a job are numbered one after the other, job after job.
    """

    def __init__(self, spec: RunSpec, schedule: Schedule) -> None:
        system = spec.system
        if not isinstance(system, NetworkSystem):
            raise PenstockError(f"{spec.run}: its fleet is {type(system).__name__}, a pub/sub network was expected")
        if not system.window_s > 0:
            raise PenstockError(f"window of {system.window_s:g} s: has to be above 0")
        names = [topic.topic for topic in system.topics]
        self.system = system
        self._routes = [_route(names, job) for job in system.jobs]
        self._kinds: list[int] = schedule.partition.tolist()
        if self._kinds and not 0 <= min(self._kinds) <= max(self._kinds) < len(self._routes):
            raise PenstockError(f"the schedule has job type {max(self._kinds)}; there are {len(self._routes)}, from 0")
        lengths = np.asarray([len(route) for route in self._routes], dtype=np.int64)[schedule.partition]
        self._first = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64).tolist()
        self._job_of: list[int] = np.repeat(np.arange(len(schedule)), lengths).tolist()
        self._arrived_ns: list[list[int]] = [[] for _ in system.jobs]
        self._served: list[list[int]] = [[] for _ in names]
        self._served_ns: list[list[int]] = [[] for _ in names]
        self._left_ns: list[int] = []
        self._response_ns: list[int] = []
        self._slo_ns, self._late = nanos(spec.slo_s), 0
        super().__init__(spec, schedule, names=names, service_ns=self._drawn(spec.seed), start_up_s=system.start_up_s)

    @simulates("cut-workers")
    def _cut_workers(self, until_s: float) -> None:
        """No consumer reaches the broker: events stay and results wait as if all were frozen."""
        self._freeze_workers(until_s)

    @simulates("restart-redis")
    def _restart_store(self, until_s: float) -> None:
        """Consumers book their tasks in Redis."""
        self._stop_store(until_s)

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

    # --- results -----------------------------------------------------------------------------------------------------

    def results(self) -> EventTable:
        """One row for each visit that is over, by time of finish; the last one of a route is terminal."""
        done = self.finished_tasks()
        job = np.asarray(self._job_of, dtype=np.int64)[done]
        first = np.asarray(self._first, dtype=np.int64)
        topic = self._topics_of_visits()[done]
        visit_numbers = [_visit_numbers(route) for route in self._routes]
        visit = np.asarray([number for kind in self._kinds for number in visit_numbers[kind]], dtype=np.int32)
        return self.table(done, job, topic, visit=visit[done], terminal=done == first[job + 1] - 1)

    # --- the path of a job -------------------------------------------------------------------------------------------

    def arrive(self, event: int) -> None:
        """To the first topic of its route."""
        kind = self._kinds[event]
        self.sent_ns[event] = self.now_ns
        self._arrived_ns[kind].append(self.now_ns)
        self.deliver(self._routes[kind][0], self._first[event], through_broker=False)

    def done(self, station: int, task: int) -> None:
        """To the next topic, or out."""
        job, now_ns = self._job_of[task], self.now_ns
        self._served[station].append(task)
        self._served_ns[station].append(now_ns)
        if task + 1 < self._first[job + 1]:
            step = task + 1 - self._first[job]
            self.deliver(self._routes[self._kinds[job]][step], task + 1, through_broker=True)
        else:
            self.finished += 1
            self._left_ns.append(now_ns)
            response_ns = now_ns - self.intended_ns[job]
            self._response_ns.append(response_ns)
            self._late += response_ns > self._slo_ns

    # --- the monitor's port ------------------------------------------------------------------------------------------

    def observe(self) -> NetworkObservation:
        """The network now, with estimates over the sliding window. Its ``backlog`` are all jobs in it, that of a topic
        the tasks that wait. An estimate without enough data is None.
        """
        responses = self._response_ns[bisect_right(self._left_ns, self._since_ns()) :]
        mean_s = sum(responses) / len(responses) / NANOS_PER_SECOND if responses else None
        return self.observed(
            NetworkObservation,
            {"response_time_s": mean_s, "late": self._late},
            {} if responses else {"response_time_s": "no job has finished within the window"},
            topics=tuple(self._topic(i) for i in range(len(self.names))),
            jobs=tuple(self._job(kind, job) for kind, job in enumerate(self.system.jobs)),
        )

    def _since_ns(self) -> int:
        """The window is (since, now]; at the beginning of a run it reaches back to its start."""
        return max(-1, self.now_ns - nanos(self.system.window_s))

    def _topic(self, i: int) -> TopicStatus:
        recent = self._served[i][bisect_right(self._served_ns[i], self._since_ns()) :]
        service_ns = np.asarray([self.service_ns[task] for task in recent], dtype=np.float64)
        rate = NANOS_PER_SECOND / float(service_ns.mean()) if service_ns.any() else None
        scv = _scv(service_ns)
        unknown = {}
        if rate is None:
            unknown["service_rate_per_s"] = "no task has finished within the window"
        if scv is None:
            unknown["service_scv"] = f"{len(recent)} tasks have finished within the window"
        read = {"service_rate_per_s": rate, "service_scv": scv}
        start_ups_s = tuple(each / NANOS_PER_SECOND for each in self.start_ups_ns[i])
        return self.station_status(i, TopicStatus, read, unknown, start_ups_s=start_ups_s)

    def _job(self, kind: int, job: JobSpec) -> JobStatus:
        if self.blind:
            return JobStatus(job=job.job, route=job.route)
        times_ns = self._arrived_ns[kind]
        recent_ns = np.asarray(times_ns[bisect_right(times_ns, self._since_ns()) :], dtype=np.int64)
        length_s = min(self.system.window_s, self.now_ns / NANOS_PER_SECOND)
        return JobStatus(
            job=job.job,
            route=job.route,
            arrived=len(times_ns),
            arrival_rate_per_s=len(recent_ns) / length_s if length_s else None,
            arrival_scv=_scv(np.diff(recent_ns).astype(np.float64)),
        )


make_engine = NetworkEngine


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
    """Number of the visit to each step's topic: A, D, D gives 1, 1, 2."""
    return [route[: step + 1].count(topic) for step, topic in enumerate(route)]
