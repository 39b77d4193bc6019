"""What the newest tick saw and decided, as Prometheus metrics: any kind of fleet, the acting scaler's arithmetic.

They are made from the newest record when somebody asks, so that what has ended (a queue, a term, a reading that failed)
ends in Prometheus too instead of keeping its last value.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.journal import TickRecord
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import (
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    NetworkObservation,
    QueueObservation,
    TopicStatus,
)
from penstock.measures import percentiles_s
from penstock.metrics import (
    FLEET_ARRIVED,
    FLEET_BACKLOG,
    FLEET_COMPLETED,
    FLEET_IN_FLIGHT,
    FLEET_SERVICE_RATE,
    FUNCTION_BUSY,
    FUNCTION_LAXITY,
    JOB_ARRIVAL_RATE,
    JOB_ARRIVAL_SCV,
    NETWORK_RESPONSE,
    PIPELINE_FINISHED,
    PIPELINE_MISSED,
    QUEUE_ARRIVED,
    QUEUE_DEPTH,
    QUEUE_IN_FLIGHT,
    QUEUE_REJECTED,
    QUEUE_ROUTING,
    QUEUE_SERVERS,
    REPLICAS_MAX,
    SCALER_ACTING,
    SCALER_CLAMPED,
    SCALER_LAST_ACTION,
    SCALER_TERM,
    SLO,
    TOPIC_SERVICE_SCV,
    UNKNOWN_FIELDS,
)

OWN_LABELS = ("run", "fleet")
GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    FLEET_BACKLOG: ("Events that wait", ()),
    FLEET_IN_FLIGHT: ("Events being served", ()),
    FLEET_SERVICE_RATE: ("Measured service rate, as the scalers read it", ()),
    UNKNOWN_FIELDS: ("Fields of the newest observation that could not be read", ()),
    REPLICAS_MAX: ("Replicas that the actuator grants at most", ()),
    SLO: ("Latency that the run is to keep", ()),
    SCALER_ACTING: ("1 for the scaler whose decisions are carried out, 0 for a shadow", ("scaler",)),
    SCALER_TERM: ("A number in the arithmetic of the acting scaler's newest decision", ("scaler", "term")),
    SCALER_CLAMPED: ("1 if the actuator had to cut what was decided at the newest tick", ()),
    SCALER_LAST_ACTION: ("When the acting scaler last did this, since the Unix epoch", ("scaler", "action")),
    QUEUE_DEPTH: ("Events that wait in a queue", ("queue",)),
    QUEUE_IN_FLIGHT: ("Events of a queue that are being served", ("queue",)),
    QUEUE_SERVERS: ("Containers that work on a queue", ("queue",)),
    QUEUE_ROUTING: ("Share of arrivals that a queue gets", ("queue",)),
    FUNCTION_LAXITY: ("Time to deadline less what is left to do, by quantile of the newest samples", ("quantile",)),
    TOPIC_SERVICE_SCV: ("Squared coefficient of variation of the service time", ()),
    JOB_ARRIVAL_RATE: ("Arrival rate of a job type over the monitor's window", ("job",)),
    JOB_ARRIVAL_SCV: ("Squared coefficient of variation of the interarrival time", ("job",)),
    NETWORK_RESPONSE: ("Mean response time of the jobs that finished within the window", ()),
}
COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    FLEET_ARRIVED: ("Events that arrived", ()),
    FLEET_COMPLETED: ("Events that were completed", ()),
    QUEUE_ARRIVED: ("Events offered to a queue", ("queue",)),
    QUEUE_REJECTED: ("Events that a full queue turned away", ("queue",)),
    FUNCTION_BUSY: ("Processing time of completed requests", ()),
    PIPELINE_FINISHED: ("Requests that left the pipeline", ()),
    PIPELINE_MISSED: ("Requests that left the pipeline after their deadline", ()),
}
"""Text and labels besides run and fleet of every metric here."""

MAX_TERMS = 40
"""Of one fleet; a scaler whose arithmetic has more shows the first ones."""

LAXITY_PERCENTILES = (0.0, 10.0, 50.0)

Sample = tuple[str, str, tuple[str, ...], float | None]
"""Metric, fleet, further labels, value; None for one that could not be read."""


class LastTick(Collector):
    """Written by the loop's thread, read by the metrics server's: one assignment hands a whole tick over.

    ``max_replicas`` and ``slo_s`` where the run has such limits.
    """

    def __init__(self, run: str, fleet: str, max_replicas: int | None = None, slo_s: float | None = None) -> None:
        self._run, self._fleet = run, fleet
        self._limits: tuple[Sample, ...] = (
            *(((REPLICAS_MAX, fleet, (), float(max_replicas)),) if max_replicas is not None else ()),
            *(((SLO, fleet, (), slo_s),) if slo_s is not None else ()),
        )
        self._acted_s: dict[tuple[str, str], float] = {}
        self._terms: tuple[Sample, ...] = ()
        self._scalers: dict[str, bool] = {}
        self._samples: tuple[Sample, ...] = self._limits

    def take(self, record: TickRecord) -> None:
        """The newest tick. What a scaler last decided stands until it decides again."""
        self._scalers |= {scaler: scaler == record.acting for scaler in record.decisions}
        acted = record.decisions.get(record.acting)
        if acted is not None:
            self._terms = tuple(_terms(record.acting, acted.why))
            if record.accepted is not None:
                self._acted_s[record.acting, acted.action] = record.at_ns / NANOS_PER_SECOND
        fleet = self._fleet
        self._samples = (
            *self._limits,
            *_observed(fleet, record.observation),
            *((SCALER_ACTING, fleet, (scaler,), float(acting)) for scaler, acting in self._scalers.items()),
            (SCALER_CLAMPED, fleet, (), float(record.accepted is not None and bool(record.accepted.clamped))),
            *((SCALER_LAST_ACTION, fleet, labels, at_s) for labels, at_s in self._acted_s.items()),
            *self._terms,
        )

    def describe(self) -> Iterator[Metric]:
        """Every metric, without samples: registering must not need a tick."""
        yield from self._families().values()

    def collect(self) -> Iterator[Metric]:
        """The newest tick's metrics. Unknown values are NaN; of counters, which only grow, there is no sample."""
        families = self._families()
        for name, fleet, labels, value in self._samples:
            family = families[name]
            if value is not None or isinstance(family, GaugeMetricFamily):
                family.add_metric((self._run, fleet, *labels), math.nan if value is None else value)
        yield from families.values()

    def _families(self) -> dict[str, GaugeMetricFamily | CounterMetricFamily]:
        return {
            **{
                name: GaugeMetricFamily(name, text, labels=(*OWN_LABELS, *more))
                for name, (text, more) in GAUGES.items()
            },
            **{
                name: CounterMetricFamily(name, text, labels=(*OWN_LABELS, *more))
                for name, (text, more) in COUNTERS.items()
            },
        }


def _terms(scaler: str, why: Mapping[str, Mapping[str, object]]) -> Iterator[Sample]:
    """The finite numbers of a decision's arithmetic, fleet by fleet."""
    for fleet, terms in why.items():
        numbers = [
            (name, float(value))
            for name, value in terms.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        ]
        for name, number in numbers[:MAX_TERMS]:
            yield SCALER_TERM, fleet, (scaler, name), number


def _observed(fleet: str, observation: FleetObservation) -> Iterator[Sample]:
    """The observation as a whole, then its parts where it has several fleets."""
    yield UNKNOWN_FIELDS, fleet, (), float(len(observation.unknown))
    yield from _common(observation, fleet)
    yield from _of_parts(fleet, observation.parts())
    match observation:
        case QueueObservation():
            yield from _queues(fleet, observation)
        case FunctionObservation():
            for name, value in ((PIPELINE_FINISHED, observation.finished), (PIPELINE_MISSED, observation.missed)):
                yield name, fleet, (), value
        case NetworkObservation():
            yield from _jobs(fleet, observation)


def _common(observation: FleetObservation, fleet: str) -> Iterator[Sample]:
    """What any fleet tells. A value that this kind of fleet never has is None without a reason: no sample."""
    for name, field in (
        (FLEET_ARRIVED, "arrived"),
        (FLEET_COMPLETED, "completed"),
        (FLEET_BACKLOG, "backlog"),
        (FLEET_IN_FLIGHT, "in_flight"),
        (FLEET_SERVICE_RATE, "service_rate_per_s"),
    ):
        value = getattr(observation, field)
        if value is not None or field in observation.unknown or "observation" in observation.unknown:
            yield name, fleet, (), value


def _of_parts(fleet: str, parts: Iterable[FleetObservation]) -> Iterator[Sample]:
    for part in parts:
        if part.fleet != fleet:
            yield from _common(part, part.fleet)
        match part:
            case FunctionStatus():
                yield FUNCTION_BUSY, part.fleet, (), part.busy_s
                if part.laxity_s:
                    values = percentiles_s(np.asarray(part.laxity_s), LAXITY_PERCENTILES)
                    for percentile, value in zip(LAXITY_PERCENTILES, values, strict=True):
                        yield FUNCTION_LAXITY, part.fleet, (f"{percentile / 100:g}",), float(value)
            case TopicStatus():
                yield TOPIC_SERVICE_SCV, part.fleet, (), part.service_scv


def _queues(fleet: str, observation: QueueObservation) -> Iterator[Sample]:
    for each in observation.queues:
        for name, value in (
            (QUEUE_DEPTH, each.depth),
            (QUEUE_IN_FLIGHT, each.in_flight),
            (QUEUE_SERVERS, each.servers),
            (QUEUE_ARRIVED, each.arrived),
            (QUEUE_REJECTED, each.rejected),
        ):
            yield name, fleet, (each.queue,), value
    for queue, share in observation.routing.items():
        yield QUEUE_ROUTING, fleet, (queue,), share


def _jobs(fleet: str, observation: NetworkObservation) -> Iterator[Sample]:
    yield NETWORK_RESPONSE, fleet, (), observation.response_time_s
    for each in observation.jobs:
        yield JOB_ARRIVAL_RATE, fleet, (each.job,), each.arrival_rate_per_s
        yield JOB_ARRIVAL_SCV, fleet, (each.job,), each.arrival_scv
