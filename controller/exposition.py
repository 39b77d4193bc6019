"""Prometheus metrics of the controller: the observation and the decisions of every tick, as in the journal.

Values of the newest tick are made from its record at each scrape, so that a series ends with its queue, term or failed
reading instead of keeping its last value.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.journal import TickRecord
from penstock import metrics
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import (
    Accepted,
    Decision,
    FleetObservation,
    FunctionObservation,
    NetworkObservation,
    QueueObservation,
    ReplicaEvent,
    StreamObservation,
)
from penstock.measures import percentiles_s
from penstock.runspec import RunSpec

CAUSES = ("unknown", "error", "scaler")
"""Why a scaler holds: a value could not be read, a component failed, or its own rule (a hold time)."""

TICK_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
OWN_LABELS = ("run", "fleet")
PHASES = ("requested", "started", "joined", "draining", "pooled")
OF_TICK: Final[Mapping[str, tuple[str, ...]]] = {
    metrics.TICK_PHASE: ("How far after its grid point the last tick began",),
    metrics.TICK_PHASE_ERROR: ("Distance of that to the tick phase of the run",),
    metrics.PLAN_EPOCH: ("Epoch of the plan in force",),
    metrics.REPLICAS: ("Replicas by phase", "phase"),
    metrics.REPLICA_START_UP: ("From request to joining, of the replica that joined last",),
    metrics.LAG: ("Events not yet consumed", "partition"),
    metrics.ARRIVAL_RATE: ("Arrival rate measured from end offsets", "partition"),
    metrics.FLEET_BACKLOG: ("Events that wait",),
    metrics.FLEET_IN_FLIGHT: ("Events being served",),
    metrics.FLEET_SERVICE_RATE: ("Measured service rate, as the scalers read it",),
    metrics.UNKNOWN_FIELDS: ("Fields of the newest observation that could not be read",),
    metrics.REPLICAS_MAX: ("Replicas that the actuator grants at most",),
    metrics.SLO: ("Latency that the run is to keep",),
    metrics.RUN_INFO: ("1, with what the run is of", "experiment", "scaler", "world"),
    metrics.RUN_START: ("Offset 0 of the run, since the Unix epoch",),
    metrics.RUN_DURATION: ("Length of the run's schedule",),
    metrics.SCALER_ACTING: ("1 for the scaler whose decisions are carried out, 0 for a shadow", "scaler"),
    metrics.SCALER_TERM: ("A number in the arithmetic of the acting scaler's newest decision", "scaler", "term"),
    metrics.SCALER_DECISION: ("1 for the acting scaler's newest decision, with its reason", "scaler", "decision"),
    metrics.SCALER_CLAMPED: ("1 if the actuator cut the decision of the newest tick",),
    metrics.SCALER_LAST_ACTION: (
        "When the acting scaler last did this, since the Unix epoch, and by how much",
        "scaler",
        "action",
        "change",
    ),
    metrics.QUEUE_DEPTH: ("Events that wait in a queue", "queue"),
    metrics.QUEUE_IN_FLIGHT: ("Events of a queue that are being served", "queue"),
    metrics.QUEUE_SERVERS: ("Containers that work on a queue", "queue"),
    metrics.QUEUE_ROUTING: ("Share of arrivals that a queue gets", "queue"),
    metrics.FUNCTION_LAXITY: (
        "Time to deadline less what is left to do, by quantile of the newest samples",
        "quantile",
    ),
    metrics.TOPIC_SERVICE_SCV: ("Squared coefficient of variation of the service time",),
    metrics.JOB_ARRIVAL_RATE: ("Arrival rate of a job type over the monitor's window", "job"),
    metrics.JOB_ARRIVAL_SCV: ("Squared coefficient of variation of the interarrival time", "job"),
    metrics.NETWORK_RESPONSE: ("Mean response time of the jobs that finished within the window",),
    metrics.FLEET_ARRIVED: ("Events that arrived",),
    metrics.FLEET_COMPLETED: ("Events that were completed",),
    metrics.QUEUE_ARRIVED: ("Events offered to a queue", "queue"),
    metrics.QUEUE_REJECTED: ("Events that a full queue turned away", "queue"),
    metrics.FUNCTION_BUSY: ("Processing time of completed requests",),
    metrics.PIPELINE_FINISHED: ("Requests that left the pipeline",),
    metrics.PIPELINE_MISSED: ("Requests that left the pipeline after their deadline",),
}
"""By metric of the newest tick: its help text, then its labels in addition to run and fleet."""

MAX_TERMS = 40
"""Largest number of terms per fleet; further ones are not exported."""

LAXITY_PERCENTILES = (0.0, 10.0, 50.0)

Sample = tuple[str, str, tuple[str, ...], float | None]
"""Metric, fleet, further labels, value; None: could not be read."""


class ControllerMetrics(Collector):
    """Metrics of one loop, a ``TickJournal``. Unknown values are NaN, never zero or the last one. ``spec`` is
    the run's description, whose limits are told, if there is one.

    The loop's thread writes a tick's samples with one assignment, the metrics server's thread reads them.
    """

    def __init__(
        self,
        run: str,
        fleet: str,
        registry: CollectorRegistry,
        spec: RunSpec | None = None,
    ) -> None:
        self._run, self._fleet, self._own = run, fleet, {"run": run, "fleet": fleet}

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, (*OWN_LABELS, *labels), registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, (*OWN_LABELS, *labels), registry=registry)

        self._ticks = counter(metrics.TICKS, "Ticks that were done or skipped", "outcome")
        text = "Observe, decide and act of one tick"
        self._duration = Histogram(metrics.TICK_DURATION, text, OWN_LABELS, registry=registry, buckets=TICK_BUCKETS_S)
        self._holding = gauge(metrics.HOLDING, "1 while a scaler holds, by cause", "scaler", "cause")
        self._failures = counter(metrics.OBSERVATION_FAILURES, "Ticks that could not read what arrived")
        self._desired = gauge(metrics.REPLICAS_DESIRED, "Replicas that a scaler last requested", "scaler")
        self._actions = counter(
            metrics.SCALE_ACTIONS, "Decisions by action, of acting scaler and shadows", "scaler", "action"
        )
        self._spec = spec
        self._limits: tuple[Sample, ...] = () if spec is None else tuple(_described(fleet, spec))
        self._acted: dict[tuple[str, str], tuple[str, float]] = {}
        self._terms: tuple[Sample, ...] = ()
        self._scalers: dict[str, bool] = {}
        self._requested_ns: dict[tuple[str, str], int] = {}
        self._start_up_s: dict[str, float] = {}
        self._samples: tuple[Sample, ...] = self._limits
        registry.register(self)

    def replicas(self, events: Iterable[ReplicaEvent]) -> None:
        """Take in what happened to replicas, in order; told with the next tick."""
        for event in events:
            key = event.fleet, event.replica
            if event.phase == "requested":
                self._requested_ns[key] = event.at_ns
            elif event.phase in ("joined", "gone"):
                requested_ns = self._requested_ns.pop(key, None)
                if event.phase == "joined" and requested_ns is not None:
                    self._start_up_s[event.fleet] = (event.at_ns - requested_ns) / NANOS_PER_SECOND

    def tick(self, record: TickRecord) -> None:
        """Take in one tick. The terms of the acting scaler's last decision are kept until its next one."""
        own, fleet = self._own, self._fleet
        self._ticks.labels(**own, outcome="done").inc()
        self._ticks.labels(**own, outcome="skipped").inc(record.skipped)
        self._duration.labels(**own).observe((record.observe_us + record.decide_us + record.act_us) / 1e6)
        self._failures.labels(**own).inc(record.observation.arrived is None)
        for scaler, decision in record.decisions.items():
            self._decision(scaler, decision, record)
        self._scalers |= {scaler: scaler == record.acting for scaler in record.decisions}
        acted = record.decisions.get(record.acting)
        if acted is not None:
            self._terms = tuple(_terms(record.acting, acted))
            if record.accepted is not None:
                acted_s = record.at_ns / NANOS_PER_SECOND
                self._acted[record.acting, acted.action] = _change(record.accepted, record.observation), acted_s
        self._samples = (
            *self._limits,
            *_timed(fleet, self._spec, record),
            *((metrics.REPLICA_START_UP, each, (), took_s) for each, took_s in tuple(self._start_up_s.items())),
            (metrics.TICK_PHASE, fleet, (), record.phase_s),
            (metrics.PLAN_EPOCH, fleet, (), record.plan_epoch),
            *_observed(fleet, record.observation),
            *((metrics.SCALER_ACTING, fleet, (scaler,), float(acting)) for scaler, acting in self._scalers.items()),
            (metrics.SCALER_CLAMPED, fleet, (), float(record.accepted is not None and bool(record.accepted.clamped))),
            *(
                (metrics.SCALER_LAST_ACTION, fleet, (*labels, change), at_s)
                for labels, (change, at_s) in self._acted.items()
            ),
            *self._terms,
        )

    def _decision(self, scaler: str, decision: Decision, record: TickRecord) -> None:
        own = self._own
        self._actions.labels(**own, scaler=scaler, action=decision.action).inc()
        for fleet, target in decision.targets.items():
            self._desired.labels(**{**own, "fleet": fleet}, scaler=scaler).set(target)
        found = cause_of_hold(scaler, decision, record)
        for cause in CAUSES:
            self._holding.labels(**own, scaler=scaler, cause=cause).set(cause == found)

    def collect(self) -> Iterator[Metric]:
        """Metrics of the newest tick. An unknown gauge is NaN, an unknown counter has no sample."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, (text, *labels) in OF_TICK.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            families[name] = kind(name, text, labels=(*OWN_LABELS, *labels))
        for name, fleet, more, value in self._samples:
            family = families[name]
            if value is not None or isinstance(family, GaugeMetricFamily):
                family.add_metric((self._run, fleet, *more), math.nan if value is None else value)
        yield from families.values()


def cause_of_hold(scaler: str, decision: Decision, record: TickRecord) -> str:
    """One of ``CAUSES``, or "" if the scaler does not hold."""
    if decision.action != "hold":
        return ""
    if scaler in record.errors or "monitor" in record.errors:
        return "error"
    return "unknown" if record.observation.unknown else "scaler"


def _described(fleet: str, spec: RunSpec) -> Iterator[Sample]:
    """The run and its limits; one without an end has no duration."""
    yield metrics.RUN_INFO, fleet, (spec.experiment, spec.scaler.name, spec.world), 1.0
    yield metrics.REPLICAS_MAX, fleet, (), spec.max_replicas
    yield metrics.SLO, fleet, (), spec.slo_s
    if spec.duration_s > 0:
        yield metrics.RUN_DURATION, fleet, (), spec.duration_s


def _timed(fleet: str, spec: RunSpec | None, record: TickRecord) -> Iterator[Sample]:
    """Offset 0, for the tick's grid point is ``time_s`` without the tick phase after it; how far the tick was off."""
    if spec is not None:
        yield metrics.TICK_PHASE_ERROR, fleet, (), abs(record.phase_s - spec.tick_phase_s)
        since_start_s = record.time_s - spec.tick_phase_s + record.phase_s
        yield metrics.RUN_START, fleet, (), round(record.at_ns / NANOS_PER_SECOND - since_start_s, 3)


def _change(accepted: Accepted, seen: FleetObservation) -> str:
    """Replicas from and to, of each fleet whose number changes."""
    current = {part.fleet: part.replicas.current for part in (seen, *seen.parts())}
    return ", ".join(
        f"{fleet} {current.get(fleet, '?')} → {target}"
        for fleet, target in accepted.targets.items()
        if current.get(fleet) != target
    )


def _terms(scaler: str, decision: Decision) -> Iterator[Sample]:
    """The action, with its reason if it has one, and the finite numbers among the terms, by fleet."""
    for fleet, terms in decision.why.items():
        reason = terms.get("reason")
        text = f"{decision.action}: {reason}" if reason else decision.action
        yield metrics.SCALER_DECISION, fleet, (scaler, text), 1.0
        numbers = [
            (name, float(value))
            for name, value in terms.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        ]
        for name, number in numbers[:MAX_TERMS]:
            yield metrics.SCALER_TERM, fleet, (scaler, name), number


def _observed(fleet: str, observation: FleetObservation) -> Iterator[Sample]:
    """The whole observation, then its parts if it has several fleets."""
    yield metrics.UNKNOWN_FIELDS, fleet, (), len(observation.unknown)
    yield from _common(observation, fleet)
    for part in observation.parts():
        if part.fleet != fleet:
            yield from _common(part, part.fleet)
    match observation:
        case StreamObservation():
            for partition in observation.partitions:
                yield metrics.LAG, fleet, (str(partition.partition),), partition.lag
                yield metrics.ARRIVAL_RATE, fleet, (str(partition.partition),), partition.arrival_rate_per_s
        case QueueObservation():
            for queue in observation.queues:
                yield metrics.QUEUE_DEPTH, fleet, (queue.queue,), queue.depth
                yield metrics.QUEUE_IN_FLIGHT, fleet, (queue.queue,), queue.in_flight
                yield metrics.QUEUE_SERVERS, fleet, (queue.queue,), queue.servers
                yield metrics.QUEUE_ARRIVED, fleet, (queue.queue,), queue.arrived
                yield metrics.QUEUE_REJECTED, fleet, (queue.queue,), queue.rejected
            for name, share in observation.routing.items():
                yield metrics.QUEUE_ROUTING, fleet, (name,), share
        case FunctionObservation():
            yield metrics.PIPELINE_FINISHED, fleet, (), observation.finished
            yield metrics.PIPELINE_MISSED, fleet, (), observation.missed
            for function in observation.functions:
                yield metrics.FUNCTION_BUSY, function.fleet, (), function.busy_s
                if function.laxity_s:
                    values = percentiles_s(np.asarray(function.laxity_s), LAXITY_PERCENTILES)
                    for percentile, value in zip(LAXITY_PERCENTILES, values, strict=True):
                        yield metrics.FUNCTION_LAXITY, function.fleet, (f"{percentile / 100:g}",), float(value)
        case NetworkObservation():
            yield metrics.NETWORK_RESPONSE, fleet, (), observation.response_time_s
            for topic in observation.topics:
                yield metrics.TOPIC_SERVICE_SCV, topic.fleet, (), topic.service_scv
            for job in observation.jobs:
                yield metrics.JOB_ARRIVAL_RATE, fleet, (job.job,), job.arrival_rate_per_s
                yield metrics.JOB_ARRIVAL_SCV, fleet, (job.job,), job.arrival_scv


def _common(observation: FleetObservation, fleet: str) -> Iterator[Sample]:
    """Values of any fleet. A value that this kind never has is None without a reason: no sample."""
    for phase in PHASES:
        yield metrics.REPLICAS, fleet, (phase,), getattr(observation.replicas, phase)
    for name, field in (
        (metrics.FLEET_ARRIVED, "arrived"),
        (metrics.FLEET_COMPLETED, "completed"),
        (metrics.FLEET_BACKLOG, "backlog"),
        (metrics.FLEET_IN_FLIGHT, "in_flight"),
        (metrics.FLEET_SERVICE_RATE, "service_rate_per_s"),
    ):
        value = getattr(observation, field)
        if value is not None or field in observation.unknown or "observation" in observation.unknown:
            yield name, fleet, (), value
