"""Demand and speed of a single fleet: events in the system, input rate, true rate of a replica."""

from collections.abc import Iterable, Mapping
from math import fsum
from typing import NamedTuple

from controller.scalers.shared.base import CannotDecide, check_known, reason_of
from controller.scalers.shared.single_fleet import Window
from penstock.contracts import FleetObservation, FunctionObservation, NetworkObservation, QueueObservation

Windows = dict[str, Window]
"""Readings of several counters, by name."""


def in_system(part: FleetObservation) -> int:
    """Events that wait or are processed: RabbitMQ's ready and unacknowledged messages, Knative's concurrency.

    The backlog of a bank of queues has both, and so has a consumer group's lag; that of a function or a topic only
    waits. Raises CannotDecide for an unknown value.
    """
    if isinstance(part, QueueObservation):
        check_known(part, "backlog")
        return part.backlog or 0
    _check_both(part)
    return (part.backlog or 0) + (part.in_flight or 0)


def waiting(part: FleetObservation) -> int:
    """Events that wait and are not in service. Of a consumer group: the lag, which includes events in service.

    Raises CannotDecide for an unknown value.
    """
    _check_both(part)
    backlog = part.backlog or 0
    return max(0, backlog - (part.in_flight or 0)) if isinstance(part, QueueObservation) else backlog


def _check_both(part: FleetObservation) -> None:
    check_known(part, "backlog", *(("in_flight",) if "in_flight" in part.unknown else ()))


def busy_s(part: FleetObservation) -> float | None:
    """Cumulative processing time of a fleet that measures it, None for all others."""
    value: float | None = getattr(part, "busy_s", None)
    return value


def true_rate_per_s(
    part: FleetObservation, completions: Window, busy: Window, over_s: float, fallback_per_s: float | None
) -> tuple[float, str]:
    """Events per second that one busy replica completes, and the origin of that number.

    Completions over busy time within ``over_s``; else the monitor's measured rate; else ``fallback_per_s``. Raises
    CannotDecide if there is none of them.
    """
    done, spent = completions.rate_per_s(over_s), busy.rate_per_s(over_s)
    if done and spent:
        return done / spent, "events by busy time"
    if part.service_rate_per_s:
        return part.service_rate_per_s, "measured service rate"
    if fallback_per_s is None:
        raise CannotDecide("true rate is unknown: no busy time, no measured rate; set service_rate_per_s")
    return fallback_per_s, "parameter"


class Source(NamedTuple):
    """A source of a fleet's input: its count of events, or their rate, and the visits of each event to the fleet."""

    name: str
    arrived: int | None
    rate_per_s: float | None
    visits: int


def sources(part: FleetObservation, observation: FleetObservation) -> tuple[Source, ...]:
    """The sources of a fleet's input, which a bottleneck upstream does not reduce (DS2's topological order).

    Each request of a pipeline visits every function once; a job visits a topic as often as its route says; any other
    fleet, a function without a pipeline included, is its own source.
    """
    if isinstance(observation, FunctionObservation) and observation.pipeline:
        return (Source(observation.fleet, observation.arrived, None, 1),)
    if isinstance(observation, NetworkObservation) and observation.jobs:
        visits = ((job, job.route.count(part.fleet)) for job in observation.jobs)
        return tuple(Source(job.job, job.arrived, job.arrival_rate_per_s, n) for job, n in visits if n)
    return (Source(part.fleet, part.arrived, None, 1),)


def read_sources(windows: Mapping[str, Window], of: Iterable[Source], time_s: float, keep_s: float) -> Windows:
    """The readings of all sources with one more."""
    return {each.name: windows.get(each.name, Window()).add(time_s, each.arrived, keep_s) for each in of}


def input_rate(
    windows: Mapping[str, Window],
    of: Iterable[Source],
    over_s: float,
    unknown: Mapping[str, str],
    *,
    whole: bool = False,
) -> float:
    """Events per second that come to the fleet, each visit counted. Raises CannotDecide for an unknown source's.

    The monitor's rate comes before the growth of the count: live, an app counts a job when it takes it, and in overload
    it takes as many as it completes.
    """
    rates = []
    for each in of:
        if each.arrived is None and each.rate_per_s is None:
            raise CannotDecide(f"arrivals at {each.name} are unknown{reason_of(unknown, 'arrived')}")
        counted = None if each.arrived is None else windows[each.name].rate_per_s(over_s, whole=whole)
        if each.arrived is not None and counted is None:
            raise CannotDecide(f"no arrival rate yet at {each.name}: too few readings")
        rate = counted if each.rate_per_s is None else each.rate_per_s
        assert rate is not None
        rates.append(each.visits * rate)
    return fsum(rates)
