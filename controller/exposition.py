"""What the controller tells Prometheus: every tick's observation and decisions as they are in the journal.

It is a journal too (``controller.journal.Journal``), so that whatever is exported was written down, and nothing else.
Counts and what outlives a tick are here, what is true of the newest tick only in ``controller.last_tick``.
"""

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.journal import TickRecord
from controller.last_tick import LastTick
from penstock import metrics
from penstock.contracts import Decision, ReplicaEvent, StreamObservation

CAUSES = ("unknown", "error", "scaler")
"""Why a scaler holds: something could not be read, something failed, or it chose to (a hold time)."""

PHASES = ("requested", "started", "joined", "draining", "pooled")

TICK_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class ControllerMetrics:
    """Metrics of one loop. Unknown values are NaN, never zero or the last one. ``max_replicas`` and ``slo_s`` are the
    run's limits, where it has some.
    """

    def __init__(
        self,
        run: str,
        fleet: str,
        registry: CollectorRegistry,
        *,
        max_replicas: int | None = None,
        slo_s: float | None = None,
    ) -> None:
        self._own = {"run": run, "fleet": fleet}
        own = tuple(self._own)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, (*own, *labels), registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, (*own, *labels), registry=registry)

        self._ticks = counter(metrics.TICKS, "Ticks that were done or skipped", "outcome")
        self._duration = Histogram(
            metrics.TICK_DURATION, "Observe, decide and act of one tick", own, registry=registry, buckets=TICK_BUCKETS_S
        )
        self._phase = gauge(metrics.TICK_PHASE, "How far after its grid point the last tick began")
        self._holding = gauge(metrics.HOLDING, "1 while a scaler holds, by cause", "scaler", "cause")
        self._failures = counter(metrics.OBSERVATION_FAILURES, "Ticks that could not read what arrived")
        self._lag = gauge(metrics.LAG, "Events not yet consumed", "partition")
        self._rate = gauge(metrics.ARRIVAL_RATE, "Arrival rate measured from end offsets", "partition")
        self._replicas = gauge(metrics.REPLICAS, "Replicas by phase", "phase")
        self._desired = gauge(metrics.REPLICAS_DESIRED, "Replicas that a scaler last asked for", "scaler")
        self._actions = counter(
            metrics.SCALE_ACTIONS, "Decisions by action, of acting scaler and shadows", "scaler", "action"
        )
        self._epoch = gauge(metrics.PLAN_EPOCH, "Epoch of the plan in force")
        self._last_tick = LastTick(run, fleet, max_replicas=max_replicas, slo_s=slo_s)
        registry.register(self._last_tick)

    def tick(self, record: TickRecord) -> None:
        """Take in one tick."""
        own = self._own
        self._ticks.labels(**own, outcome="done").inc()
        self._ticks.labels(**own, outcome="skipped").inc(record.skipped)
        self._duration.labels(**own).observe((record.observe_us + record.decide_us + record.act_us) / 1e6)
        self._phase.labels(**own).set(record.phase_s)
        self._epoch.labels(**own).set(record.plan_epoch)
        self._failures.labels(**own).inc(record.observation.arrived is None)
        self._last_tick.take(record)
        for part in (record.observation, *record.observation.parts()):
            for phase in PHASES:
                labels = {**own, "fleet": part.fleet, "phase": phase}
                self._replicas.labels(**labels).set(getattr(part.replicas, phase))
        if isinstance(record.observation, StreamObservation):
            self._partitions(record.observation)
        for scaler, decision in record.decisions.items():
            self._decision(scaler, decision, record)

    def replicas(self, events: Iterable[ReplicaEvent]) -> None:
        """The replicas' lives are exported as counts by phase, tick by tick."""

    def _partitions(self, observation: StreamObservation) -> None:
        for each in observation.partitions:
            labels = {**self._own, "partition": str(each.partition)}
            self._lag.labels(**labels).set(math.nan if each.lag is None else each.lag)
            rate = each.arrival_rate_per_s
            self._rate.labels(**labels).set(math.nan if rate is None else rate)

    def _decision(self, scaler: str, decision: Decision, record: TickRecord) -> None:
        own = self._own
        self._actions.labels(**own, scaler=scaler, action=decision.action).inc()
        for fleet, target in decision.targets.items():
            self._desired.labels(**{**own, "fleet": fleet}, scaler=scaler).set(target)
        for cause in CAUSES:
            self._holding.labels(**own, scaler=scaler, cause=cause).set(
                cause == cause_of_hold(scaler, decision, record)
            )


def cause_of_hold(scaler: str, decision: Decision, record: TickRecord) -> str:
    """One of ``CAUSES``, or nothing if the scaler does not hold."""
    if decision.action != "hold":
        return ""
    if scaler in record.errors or "monitor" in record.errors:
        return "error"
    return "unknown" if record.observation.unknown else "scaler"
