"""Replicas that the arrivals needed, whoever scales."""

import math

import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import Floats, Ints
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem

SLOTS_PER_S = 20
"""Arrivals are counted in slots of 50 ms."""


def needed_replicas(spec: RunSpec, schedule: Schedule) -> Ints:
    """Replicas that the arrivals of each second needed, shape (⌈duration⌉,); empty where the service time is unknown.
    At least one for each part of the fleet (function, topic).

    The greater of two lower bounds: the offered load in erlangs (arrival rate × mean service time, Erlang 1917), its
    rate the mean over the SLO and at least over a second; and the replicas that finish the arrivals of the second's
    fullest slot within the SLO.
    """
    seconds = math.ceil(spec.duration_s)
    slots = seconds * SLOTS_PER_S
    slot = np.minimum(schedule.intended_offset_ns * SLOTS_PER_S // NANOS_PER_SECOND, slots - 1)
    needed = []
    for work_s in _work_s(spec, schedule, slot, slots):
        by_second = work_s.reshape(seconds, SLOTS_PER_S)
        fullest = by_second.max(axis=1) / (spec.slo_s + 1 / SLOTS_PER_S)
        most = np.maximum(_smoothed(by_second.sum(axis=1), spec.slo_s), fullest)
        needed.append(np.maximum(1, np.ceil(most - 1e-9)))
    return np.sum(needed, axis=0).astype(np.int64) if needed else np.empty(0, np.int64)


def _work_s(spec: RunSpec, schedule: Schedule, slot: Ints, slots: int) -> list[Floats]:
    """Service time that arrives in each slot, by part of the fleet."""
    arrived = np.bincount(slot, minlength=slots).astype(np.float64)
    match spec.system:
        case QueueSystem(service_rate_per_s=rate_per_s):
            return [arrived / rate_per_s]
        case FunctionSystem(functions=functions, call_s=call_s):
            return [arrived * (function.service_time_s + call_s) for function in functions]
        case NetworkSystem(topics=topics, jobs=jobs):
            by_job = [np.bincount(slot[schedule.partition == job], minlength=slots) for job in range(len(jobs))]
            return [
                np.sum([by_job[i] * job.route.count(each.topic) for i, job in enumerate(jobs)], axis=0)
                / each.service_rate_per_s
                for each in topics
            ]
        case StreamSystem() if spec.worker.service_time_s:
            return [arrived * spec.worker.service_time_s]
    return []


def _smoothed(load: Floats, over_s: float) -> Floats:
    """Means over the last ``over_s`` seconds, at least one; fewer at the beginning."""
    width = max(1, min(len(load), math.ceil(over_s)))
    summed = np.cumsum(np.concatenate([np.zeros(1), load]))
    ends = np.arange(1, len(load) + 1)
    begins = np.maximum(0, ends - width)
    return np.asarray((summed[ends] - summed[begins]) / (ends - begins))
