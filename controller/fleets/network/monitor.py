"""The monitor of a live pub/sub network; its values are defined as in the simulator.

Estimates are over a sliding window, from differences of the apps' cumulative reports: service times of tasks, times
between arrivals of each job type at its first topic, response times of jobs. An app counts an arrival when it takes
the job. While jobs wait, the arrival rate is therefore taken over the arrival times of the jobs taken, once there are
ten: a growing queue delays the estimate, but does not bias it. Two jobs that happen to come together tell no rate.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.fleets.apps.app import total
from controller.fleets.apps.monitor import AppMonitor
from controller.fleets.network.actuator import NetworkView, TopicView
from penstock.adapters.amqp import topic_queue
from penstock.apps import AppReport, JobFlow, scv
from penstock.clock import Clock
from penstock.contracts import JobStatus, NetworkObservation, ReplicaCounts, TopicStatus
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from penstock.systems import JobSpec, NetworkSystem

FEWEST_INTERVALS: Final = 10
WHOLE: Final = ("arrived", "completed", "backlog", "in_flight", "response_time_s", "late")
PART: Final = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "service_scv")


class Sample(msgspec.Struct, frozen=True):
    """Reports of the apps by topic at a time."""

    time_s: float
    apps: Mapping[str, AppReport]

    def of(self, topic: str) -> AppReport:
        """Report of one topic."""
        return self.apps.get(topic) or AppReport(topic)

    def flow(self, job: str) -> JobFlow:
        """Counts of one job type over all topics."""
        return total("", list(self.apps.values())).jobs.get(job, JobFlow())


class NetworkMonitor(AppMonitor[NetworkView, NetworkObservation]):
    """See ``AppMonitor``. ``backlog`` of the network: jobs in it; of a topic: tasks that wait. Estimates without enough
    data are None.
    """

    def __init__(self, spec: RunSpec, *, clock: Clock, origin_s: float, **sources: Any) -> None:
        super().__init__(spec, clock=clock, origin_s=origin_s, **sources)
        assert isinstance(spec.system, NetworkSystem)
        self._system = spec.system
        # The first window begins with the run, unless the monitor starts later than that.
        in_time = clock.now() - origin_s <= spec.system.window_s
        self._arrived = 0
        self._samples = deque([Sample(0.0, {})] if in_time else [])

    def _since(self, now: Sample) -> Sample:
        """The sample at which the window begins: the youngest that is old enough, or the first one."""
        self._samples.append(now)
        while len(self._samples) > 1 and self._samples[1].time_s <= now.time_s - self._system.window_s:
            self._samples.popleft()
        return self._samples[0]

    def _seen(self, time_s: float, view: NetworkView) -> NetworkObservation:
        queues = {topic.name: topic_queue(self._spec.run, topic.name) for topic in view.topics}
        ready = self._depths.read(queues.values())
        if missing := [queue for queue in queues.values() if queue not in ready]:
            raise PenstockError(f"RabbitMQ has no queue {missing[0]}")
        waiting = {name: ready[queue] for name, queue in queues.items()}
        now = Sample(time_s, {topic.name: topic.app for topic in view.topics})
        since = self._since(now)
        in_flight = sum(topic.app.busy for topic in view.topics)
        in_system = sum(waiting.values()) + in_flight
        flows = {job.job: (since.flow(job.job), now.flow(job.job)) for job in self._system.jobs}
        finished = sum(flow.finished for _, flow in flows.values())
        # The parts of the sum are not of one instant; the number of arrivals never decreases.
        arrived = self._arrived = max(self._arrived, finished + in_system)
        finished_lately = finished - sum(flow.finished for flow, _ in flows.values())
        response_s = sum(after.response_s - before.response_s for before, after in flows.values())
        return NetworkObservation(
            time_s=now.time_s,
            fleet=self._spec.fleet,
            replicas=ReplicaCounts.total(topic.counts for topic in view.topics),
            arrived=arrived,
            completed=finished,
            backlog=arrived - finished,
            in_flight=in_flight,
            topics=tuple(self._topic(topic, waiting[topic.name], since, now) for topic in view.topics),
            jobs=tuple(
                self._job(job, *flows[job.job], now.time_s - since.time_s, waiting[job.route[0]] > 0)
                for job in self._system.jobs
            ),
            response_time_s=response_s / finished_lately if finished_lately else None,
            late=sum(flow.late for _, flow in flows.values()),
            unknown={} if finished_lately else {"response_time_s": "no job has finished within the window"},
        )

    def _topic(self, topic: TopicView, waiting: int, since: Sample, now: Sample) -> TopicStatus:
        before, app = since.of(topic.name), topic.app
        lately = AppReport(
            topic.name,
            completed=app.completed - before.completed,
            busy_s=app.busy_s - before.busy_s,
            busy_s2=app.busy_s2 - before.busy_s2,
        )
        rate, service_scv = lately.service_rate_per_s, lately.service_scv
        unknown = {}
        if rate is None:
            unknown["service_rate_per_s"] = "no task has finished within the window"
        if service_scv is None:
            unknown["service_scv"] = f"{lately.completed} tasks have finished within the window"
        return TopicStatus(
            time_s=now.time_s,
            fleet=topic.name,
            replicas=topic.counts,
            arrived=app.completed + app.busy + waiting,
            completed=app.completed,
            backlog=waiting,
            in_flight=app.busy,
            service_rate_per_s=rate,
            service_scv=service_scv,
            start_ups_s=topic.start_ups_s,
            unknown=unknown,
        )

    def _job(self, job: JobSpec, before: JobFlow, after: JobFlow, length_s: float, waiting: bool) -> JobStatus:
        arrived = after.arrived - before.arrived
        intervals = max(0, after.arrived - 1) - max(0, before.arrived - 1)
        sum_s, squares = after.between_s - before.between_s, after.between_s2 - before.between_s2
        rate = arrived / length_s if length_s > 0 else None
        if waiting and intervals >= FEWEST_INTERVALS and sum_s > 0:
            rate = intervals / sum_s
        return JobStatus(
            job=job.job,
            route=job.route,
            arrived=after.arrived,
            arrival_rate_per_s=rate,
            arrival_scv=scv(intervals, sum_s, squares),
        )

    def _unseen(self, time_s: float, view: NetworkView, reason: str) -> NetworkObservation:
        return NetworkObservation(
            time_s=time_s,
            fleet=self._spec.fleet,
            replicas=ReplicaCounts.total(topic.counts for topic in view.topics),
            topics=tuple(
                TopicStatus(
                    time_s=time_s,
                    fleet=topic.name,
                    replicas=topic.counts,
                    start_ups_s=topic.start_ups_s,
                    unknown=dict.fromkeys(PART, reason),
                )
                for topic in view.topics
            ),
            jobs=tuple(JobStatus(job=job.job, route=job.route) for job in self._system.jobs),
            unknown=dict.fromkeys(WHOLE, reason),
        )
