"""Service floor of each event, drawn from the run's seed: the simulator draws the same times."""

from typing import TypeAlias

import numpy as np

from penstock.distributions import QUEUE_SERVICE, SERVICE, Floats, draw_s, stream
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import NetworkSystem, QueueSystem

AT_ONCE = 16_384


class QueueServiceTimes:
    """Of a queue fleet: one time for each event, whichever queue serves it."""

    def __init__(self, system: QueueSystem, seed: int) -> None:
        self._distribution, self._scv = system.service_law, system.service_scv
        self._mean_s = 1 / system.service_rate_per_s
        self._draws = stream(seed, QUEUE_SERVICE, 0)
        self._drawn_s: Floats = np.empty(0)

    def floor_ns(self, event_id: int | None, visit: int = 1) -> int:
        """Nanoseconds, drawn as far as they are needed; the mean for an event that is not in the schedule."""
        del visit
        if event_id is None or event_id < 0:
            return round(self._mean_s * 1e9)
        while event_id >= len(self._drawn_s):
            more_s = draw_s(self._distribution, self._mean_s, self._scv, AT_ONCE, self._draws)
            self._drawn_s = np.concatenate((self._drawn_s, more_s))
        return round(float(self._drawn_s[event_id]) * 1e9)


class TopicServiceTimes:
    """Of one topic of a pub/sub network, in the order of the schedule's jobs and their visits."""

    def __init__(self, system: NetworkSystem, topic: str, schedule: Schedule, seed: int) -> None:
        topics = [each.topic for each in system.topics]
        if topic not in topics:
            raise PenstockError(f"no topic {topic!r} in this run; there are {', '.join(topics)}")
        index = topics.index(topic)
        found = system.topics[index]
        per_job = np.asarray([job.route.count(topic) for job in system.jobs], dtype=np.int64)
        visits = per_job[schedule.partition]
        self._first = np.concatenate(([0], np.cumsum(visits)))
        self._mean_s = 1 / found.service_rate_per_s
        draws = stream(seed, SERVICE, index)
        self._drawn_s = draw_s("gamma", self._mean_s, found.service_scv, int(self._first[-1]), draws)

    def floor_ns(self, event_id: int | None, visit: int = 1) -> int:
        """Nanoseconds of the ``visit``-th visit; the mean for an event that is not in the schedule."""
        if event_id is None or not 0 <= event_id < len(self._first) - 1:
            return round(self._mean_s * 1e9)
        place = int(self._first[event_id]) + visit - 1
        if place >= self._first[event_id + 1]:
            return round(self._mean_s * 1e9)
        return round(float(self._drawn_s[place]) * 1e9)


ServiceTimes: TypeAlias = QueueServiceTimes | TopicServiceTimes
"""Service floors of one run's events at one queue."""


def service_times(spec: RunSpec, topic: str, schedule: Schedule | None) -> ServiceTimes:
    """Those of a run's queue or topic. Raises PenstockError if the run has none."""
    if isinstance(spec.system, QueueSystem):
        return QueueServiceTimes(spec.system, spec.seed)
    if isinstance(spec.system, NetworkSystem):
        if schedule is None:
            raise PenstockError(f"{spec.run}: service times of a pub/sub network need the run's schedule")
        return TopicServiceTimes(spec.system, topic, schedule, spec.seed)
    raise PenstockError(f"{spec.run}: a function app needs a queue or network system, not {type(spec.system).__name__}")
