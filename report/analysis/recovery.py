"""What each fault of a run did, and how long it took until all was well again (measures: ``penstock.measures``)."""

import msgspec
import numpy as np

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import (
    QUIET_S,
    Bools,
    Floats,
    Ints,
    Span,
    disturbed_until_s,
    late_spans,
    merged,
    missing_replicas,
)
from report.analysis.outcomes import RunEvents
from report.analysis.run_data import RunData
from report.analysis.summary import FaultEffect

LAST_S = 1.0
"""What is disturbed within the last second of a run has not recovered within it."""


def fault_effects(run: RunData, events: RunEvents) -> tuple[FaultEffect, ...]:
    """The effect of each injected fault, in order."""
    if not run.faults:
        return ()
    spec, end_s = run.spec, run.spec.duration_s
    intended_s, late = _late(run, events)
    disturbed = late_spans(intended_s, late)
    at_ns, missing = missing_replicas(run.paid_replicas)
    steps_s = (at_ns - spec.start_ns) / NANOS_PER_SECOND
    unserved = _spans(steps_s, missing > 0, end_s)
    began = [run.second_of(fault.at_ns) for fault in run.faults]
    hits = [at_s for at_s, fault in zip(began, run.faults, strict=True) if fault.hit]
    effects = []
    for at_s, fault in zip(began, run.faults, strict=True):
        effect = FaultEffect(
            kind=fault.kind, at_s=round(at_s, 3), seconds=fault.seconds, hit=fault.hit, detail=fault.detail
        )
        if fault.hit:
            span = at_s, at_s + fault.seconds
            next_s = min((other_s for other_s in hits if other_s > at_s), default=end_s)
            late_until_s, missing_until_s = disturbed_until_s(disturbed, span), disturbed_until_s(unserved, span)
            mine = late & (intended_s >= at_s - spec.slo_s) & (intended_s <= min(late_until_s, next_s))
            effect = msgspec.structs.replace(
                effect,
                slo_recovery_s=_taken_s(at_s, late_until_s, end_s),
                replicas_recovery_s=_taken_s(at_s, missing_until_s, end_s),
                late_events=int(np.count_nonzero(mine)),
                missing_replica_s=_area(steps_s, missing, at_s, min(missing_until_s, next_s)),
            )
        effects.append(effect)
    return tuple(effects)


def _late(run: RunData, events: RunEvents) -> tuple[Floats, Bools]:
    """When the acknowledged events were intended, and which had no outcome within the SLO. A rejection has come in
    time.
    """
    done, other_ns = events.completed, events.unanswered
    intended_ns = np.concatenate((done.intended_ns, other_ns[0]))
    waited_s = (np.concatenate((done.finished_ns, other_ns[1])) - intended_ns) / NANOS_PER_SECOND
    return (intended_ns - run.spec.start_ns) / NANOS_PER_SECOND, waited_s > run.spec.slo_s


def late_periods(run: RunData, events: RunEvents) -> list[Span]:
    """From the first to the last late event, in seconds of the run, of each time in which events came late. It is over
    when none did for ``QUIET_S``, or for the SLO if that is longer: such loads have few events.
    """
    return merged(late_spans(*_late(run, events)), max(QUIET_S, run.spec.slo_s))


def _spans(steps_s: Floats, wrong: Bools, end_s: float) -> list[Span]:
    """Where a step function is wrong: from each step at which it is to the next one."""
    until_s = np.append(steps_s[1:], end_s)
    return [(float(steps_s[i]), float(until_s[i])) for i in np.flatnonzero(wrong)]


def _area(steps_s: Floats, values: Ints, from_s: float, to_s: float) -> float:
    """Integral of a step function between two times."""
    begins, ends = np.clip(steps_s, from_s, to_s), np.clip(np.append(steps_s[1:], to_s), from_s, to_s)
    return round(float(np.sum((ends - begins) * values)), 3)


def _taken_s(at_s: float, until_s: float, end_s: float) -> float | None:
    return None if until_s >= end_s - LAST_S else round(until_s - at_s, 3)
