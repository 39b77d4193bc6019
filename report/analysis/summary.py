"""The measures of a run: the content of summary.json."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.measures import Conservation, Distribution, ScaleCounts
from penstock.rundir import Verdict
from penstock.runspec import FaultKind


class MeanSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Where time was spent on average, seconds; the three add up to the mean latency of the same events."""

    send_delay_s: float | None = None
    queueing_s: float | None = None
    service_s: float | None = None


class FaultEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An injected fault and its cost (docs/measurement.md). ``hit``: whether it had an effect."""

    kind: FaultKind
    at_s: float
    """Seconds from the start of the run."""
    seconds: float
    """Duration, for a fault that lasts."""
    hit: bool = True
    detail: str = ""
    slo_recovery_s: float | None = None
    """From the fault until events are within the SLO again; 0: they always were. None: not within the run."""
    replicas_recovery_s: float | None = None
    """From the fault until all wanted replicas serve again; 0: they always did. None: not within the run."""
    late_events: int = 0
    missing_replica_s: float = 0.0
    """Replica-seconds that were wanted and did not serve."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is measured of one run (``summary.json``).

    ``slo_share`` is the share of acknowledged events that completed within ``slo_s``: lost and failed ones are misses.
    ``replica_minutes`` run from requested to gone, within the ``duration_s`` of the schedule. ``slowest_mean`` is the
    mean split over the slowest 1 % of events. ``holds`` counts the acting scaler's holds by reason. Tick phases are
    seconds after a whole second of the run; ``tick_phase_error_p99_s`` is the p99 of their distance to the wanted one.
    ``cpu_saturation`` is the share of seconds in which all cores were busy, ``cpu_stolen`` the share of the cores' time
    that a virtual machine's host gave to others. ``missed_seconds`` is the number of seconds that missed the SLO
    (``penstock.measures``), None in a summary of an older Penstock. ``decisions`` are the ticks on which the acting
    scaler decided, of ``due_decisions``; ``scaler_failures`` those on which it raised an error or gave no valid answer,
    ``first_failure`` the first of these errors. ``decisions_of`` are the ticks by scaler, shadows included, on which it
    was due, ``slow_decisions`` those on which its decision took longer than its interval; ``failed_actions`` are those
    on which the actuator failed. On ``guarded`` ticks the guards changed the decision or remarked on it. ``starts`` are
    the steps from a decision to the first event on a new replica. ``faults`` are those that were injected, with what
    they cost.
    ``record_from_s`` is the time of the first tick or replica event on record, negative before the schedule.
    ``late_periods`` is how often events came late for a while (``penstock.measures.merged``), ``longest_recovery_s``
    the length of the longest such period, 0 without any; both None in a summary of an older Penstock.
    ``needed_replica_minutes`` are those that the arrivals required (``report.analysis.needed``), None where the service
    time is unknown.
    ``conditions`` is what run.json fixed: two runs of one scaler with equal conditions are repetitions of each other.
    """

    run: str
    experiment: str
    world: str
    scaler: str
    seed: int
    speed: float
    slo_s: float
    duration_s: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    scheduled_events: int
    acknowledged_events: int
    completed_events: int
    issued_share: float
    slo_share: float | None
    latency: Distribution
    send_delay: Distribution
    queueing: Distribution
    service: Distribution
    mean: MeanSplit
    slowest_mean: MeanSplit
    negative_latencies: int
    arrival_rate_mean_per_s: float
    arrival_rate_peak_per_s: float
    replica_minutes: float
    replica_price_per_hour: float
    money: float
    scale: ScaleCounts
    rebalances: int
    ticks: int
    missed_ticks: int
    tick_phase_p50_s: float | None
    tick_phase_p99_s: float | None
    tick_phase_error_p99_s: float | None
    holds: Mapping[str, int]
    conservation: Conservation
    unsuccessful_by_reason: Mapping[str, int]
    missed_seconds: int | None = None
    cpu_saturation: float | None = None
    cpu_stolen: float | None = None
    decisions: int = 0
    due_decisions: int = 0
    scaler_failures: int = 0
    first_failure: str = ""
    decisions_of: Mapping[str, int] = msgspec.field(default_factory=dict)
    slow_decisions: Mapping[str, int] = msgspec.field(default_factory=dict)
    failed_actions: int = 0
    guarded: int = 0
    starts: Mapping[str, Distribution] = msgspec.field(default_factory=dict)
    faults: tuple[FaultEffect, ...] = ()
    record_from_s: float | None = None
    late_periods: int | None = None
    longest_recovery_s: float | None = None
    needed_replica_minutes: float | None = None
    conditions: Mapping[str, Any] = msgspec.field(default_factory=dict)
