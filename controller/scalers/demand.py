"""What scalers of single fleets read of the work that comes to a fleet and is in it, and how fast it gets done."""

from collections.abc import Iterable, Mapping
from math import fsum
from typing import NamedTuple

from controller.scalers.single_fleet import PartDecision, Window, hold_part, unknown_part
from penstock.contracts import FleetObservation, FunctionObservation, NetworkObservation

Windows = dict[str, Window]
"""Readings of several counters, by name."""


def unknown_in_system(part: FleetObservation) -> PartDecision | None:
    """A hold if ``in_system`` cannot be told. A fleet without a count of events in flight has them in its backlog."""
    return unknown_part(part, "backlog", *(("in_flight",) if "in_flight" in part.unknown else ()))


def in_system(part: FleetObservation) -> int:
    """Events that wait or are worked on: RabbitMQ's ready and unacknowledged messages, Knative's concurrency.

    A consumer group's lag holds both already, and it tells no events in flight.
    """
    assert part.backlog is not None
    return part.backlog + (part.in_flight or 0)


def busy_s(part: FleetObservation) -> float | None:
    """Cumulative processing time of a fleet that measures it, None for all others."""
    value: float | None = getattr(part, "busy_s", None)
    return value


def true_rate_per_s(
    part: FleetObservation, completions: Window, busy: Window, over_s: float, fallback_per_s: float | None
) -> tuple[float | None, str]:
    """Events per second that one busy replica gets done, and where that number is from; None if nothing tells it.

    Events done by time spent on them, over ``over_s``; else the monitor's measured rate; else ``fallback_per_s``.
    """
    done, spent = completions.rate_per_s(over_s), busy.rate_per_s(over_s)
    if done and spent:
        return done / spent, "events by busy time"
    if part.service_rate_per_s:
        return part.service_rate_per_s, "measured service rate"
    return fallback_per_s, "parameter"


class Source(NamedTuple):
    """Where events enter that come to a fleet: the count of those that did, or their rate, and how many visits to the
    fleet each makes.
    """

    name: str
    arrived: int | None
    rate_per_s: float | None
    visits: int


def sources(part: FleetObservation, observation: FleetObservation) -> tuple[Source, ...]:
    """The sources of a fleet's input, so that a bottleneck before it hides nothing (DS2's topological order).

    Each request of a pipeline visits every function once; a job visits a topic as often as its route says; any other
    fleet is its own source.
    """
    if isinstance(observation, FunctionObservation):
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
) -> float | PartDecision:
    """Events per second that come to the fleet, every visit one; a hold if a source's rate cannot be told."""
    rates = []
    for each in of:
        if each.arrived is None and each.rate_per_s is None:
            said = f" ({unknown['arrived']})" if "arrived" in unknown else ""
            return hold_part(f"arrivals at {each.name} are unknown{said}")
        rate = each.rate_per_s if each.arrived is None else windows[each.name].rate_per_s(over_s, whole=whole)
        if rate is None:
            return hold_part(f"no arrival rate yet at {each.name}: too few readings")
        rates.append(each.visits * rate)
    return fsum(rates)
