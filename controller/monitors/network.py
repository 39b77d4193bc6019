"""The monitor of a live pub/sub network, with the meaning that the simulated one gives to each figure.

Estimates are over a sliding window and come from differences of what the apps report since they began: service times
of tasks, the times between arrivals of each job type at its first topic, response times of jobs. An app knows of an
arrival when it takes the job up. While some wait before it, arrivals are therefore counted over the time that those
taken up had arrived in: a queue that grows makes the estimate late, not wrong.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from controller.actuators.app_process import added
from controller.actuators.topics import NetworkView, TopicView
from controller.monitors.depths import Depths
from controller.monitors.kafka import BLINDED
from penstock.amqp import topic_queue
from penstock.apps import AppReport, JobFlow
from penstock.clock import Clock
from penstock.contracts import JobStatus, NetworkObservation, ReplicaCounts, TopicStatus
from penstock.runspec import RunSpec
from penstock.systems import JobSpec, NetworkSystem

WHOLE: Final = ("arrived", "completed", "backlog", "in_flight", "response_time_s")
PART: Final = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "service_scv")


class Network(Protocol):
    """The actuator, as far as the monitor asks it."""

    def view(self) -> NetworkView:
        """What it knows."""
        ...


class Sample(msgspec.Struct, frozen=True):
    """What the apps had done by a time, by topic."""

    time_s: float
    apps: Mapping[str, AppReport]

    def of(self, topic: str) -> AppReport:
        """One topic's."""
        return self.apps.get(topic) or AppReport(topic, 0, 0, 0, 0.0, 0.0, 0)

    def flow(self, job: str) -> JobFlow:
        """One job type's, of all topics."""
        return added("", self.apps.values()).jobs.get(job, JobFlow()) if self.apps else JobFlow()


class NetworkMonitor:
    """Monitor port on the network of ``spec``. While ``blind()`` is true nothing is read and everything is unknown."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        clock: Clock,
        origin_s: float,
        network: Network,
        depths: Depths,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        assert isinstance(spec.system, NetworkSystem)
        self._spec, self._system = spec, spec.system
        self._clock, self._origin_s = clock, origin_s
        self._network, self._depths, self._blind = network, depths, blind
        # At the beginning of a run the window reaches back to its start; a monitor that comes later has not seen that.
        in_time = clock.now() - origin_s <= spec.system.window_s
        self._arrived = 0
        self._samples = deque([Sample(0.0, {})] if in_time else [])

    def observe(self) -> NetworkObservation:
        """The network now. ``backlog`` of the whole are the jobs in it, of a topic those tasks that wait. What there
        was too little to estimate from is None.
        """
        time_s = self._clock.now() - self._origin_s
        view = self._network.view()
        if self._blind():
            return self._unseen(time_s, view, BLINDED)
        if view.away:
            return self._unseen(time_s, view, f"Redis is away: {view.away}")
        queues = {topic.name: topic_queue(self._spec.run, topic.name) for topic in view.topics}
        reading = self._depths.read(queues.values())
        missing = [queue for queue in queues.values() if queue not in reading.ready]
        if reading.away or missing:
            return self._unseen(time_s, view, reading.away or f"RabbitMQ has no queue {missing[0]}")
        waiting = {name: reading.ready[queue] for name, queue in queues.items()}
        now = Sample(time_s, {topic.name: topic.app for topic in view.topics})
        return self._seen(view, waiting, self._since(now), now)

    def _since(self, now: Sample) -> Sample:
        """The sample at which the window begins: the youngest that is old enough, or the first one."""
        self._samples.append(now)
        while len(self._samples) > 1 and self._samples[1].time_s <= now.time_s - self._system.window_s:
            self._samples.popleft()
        return self._samples[0]

    def _seen(self, view: NetworkView, waiting: Mapping[str, int], since: Sample, now: Sample) -> NetworkObservation:
        in_flight = sum(topic.app.busy for topic in view.topics)
        in_system = sum(waiting.values()) + in_flight
        flows = {job.job: (since.flow(job.job), now.flow(job.job)) for job in self._system.jobs}
        finished = sum(flow.finished for _, flow in flows.values())
        # What is summed up is not of one instant: what has arrived stays so.
        arrived = self._arrived = max(self._arrived, finished + in_system)
        finished_lately = finished - sum(flow.finished for flow, _ in flows.values())
        response_s = sum(after.response_s - before.response_s for before, after in flows.values())
        return NetworkObservation(
            time_s=now.time_s,
            fleet=self._spec.fleet,
            replicas=_together(view),
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
            unknown={} if finished_lately else {"response_time_s": "no job has finished within the window"},
        )

    def _topic(self, topic: TopicView, waiting: int, since: Sample, now: Sample) -> TopicStatus:
        before, app = since.of(topic.name), topic.app
        lately = AppReport(
            topic.name,
            0,
            0,
            app.completed - before.completed,
            app.busy_s - before.busy_s,
            app.busy_s2 - before.busy_s2,
            app.at_ns,
        )
        rate, scv = lately.service_rate_per_s, lately.service_scv
        unknown = {}
        if rate is None:
            unknown["service_rate_per_s"] = "no task has finished within the window"
        if scv is None:
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
            service_scv=scv,
            unknown=unknown,
        )

    def _job(self, job: JobSpec, before: JobFlow, after: JobFlow, length_s: float, waiting: bool) -> JobStatus:
        arrived = after.arrived - before.arrived
        intervals = max(0, after.arrived - 1) - max(0, before.arrived - 1)
        sum_s, squares = after.between_s - before.between_s, after.between_s2 - before.between_s2
        rate = arrived / length_s if length_s > 0 else None
        if waiting and intervals > 0 and sum_s > 0:
            rate = intervals / sum_s
        return JobStatus(
            job=job.job,
            route=job.route,
            arrived=after.arrived,
            arrival_rate_per_s=rate,
            arrival_scv=_scv(intervals, sum_s, squares),
        )

    def _unseen(self, time_s: float, view: NetworkView, reason: str) -> NetworkObservation:
        return NetworkObservation(
            time_s=time_s,
            fleet=self._spec.fleet,
            replicas=_together(view),
            topics=tuple(
                TopicStatus(time_s=time_s, fleet=topic.name, replicas=topic.counts, unknown=dict.fromkeys(PART, reason))
                for topic in view.topics
            ),
            jobs=tuple(JobStatus(job=job.job, route=job.route) for job in self._system.jobs),
            unknown=dict.fromkeys(WHOLE, reason),
        )


def _scv(n: int, sum_s: float, squares: float) -> float | None:
    """Squared coefficient of variation of ``n`` values (variance with n − 1); None for fewer than two."""
    if n < 2 or sum_s <= 0:
        return None
    return max(0.0, (squares - sum_s * sum_s / n) / (n - 1)) / (sum_s / n) ** 2


def _together(view: NetworkView) -> ReplicaCounts:
    counts = [topic.counts for topic in view.topics]
    return ReplicaCounts(**{phase: sum(getattr(c, phase) for c in counts) for phase in ReplicaCounts.__struct_fields__})
