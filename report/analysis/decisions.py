"""The decisions of a run that were carried out, how long they took, and the ticks on which the acting scaler held."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.journal import TickRecord
from penstock.contracts import Action, Decision, FleetObservation, Phase, ReplicaEvent, StreamObservation
from penstock.measures import Distribution, ScaleCounts, distribution, percentiles_s, scale_counts
from penstock.plan import same_grouping
from penstock.runspec import RunSpec

STEPS: Final[tuple[Phase, ...]] = ("requested", "created", "scheduled", "started", "joined", "first-event")
"""A step takes from the one before it that is on record to itself; ``requested`` from when its tick was due. Only
replicas that are pods are created and scheduled.
"""
WHOLE: Final = "in all"
TOLERANCE: Final = 1e-6
"""Of a number of intervals: times of ticks are sums of doubles."""
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of the acting scaler that changed something: replicas before and after (of all its fleets together),
    its tick, and (before, after) of each fleet that changed.
    """

    record: TickRecord
    decision: Decision
    before: int
    after: int
    changes: tuple[tuple[int, int], ...] = ()


def steps(records: Iterable[TickRecord]) -> list[Step]:
    """The carried-out decisions, in order.

    Scaled: the actuator took on another number of replicas. Reassigned: the grouping was another one than before
    (reading B18: the same grouping again is nothing).
    """
    found = []
    for record in records:
        decision = record.decisions.get(record.acting)
        if decision is None or record.accepted is None:
            continue
        targets = record.accepted.targets
        current = {part.fleet: part.replicas.current for part in record.observation.parts()}
        wanted = {fleet: targets.get(fleet, replicas) for fleet, replicas in current.items()}
        changes = tuple((current[fleet], wanted[fleet]) for fleet in current if current[fleet] != wanted[fleet])
        scaled = decision.action in ("up", "down") and bool(changes)
        if scaled or (decision.action == "reassign" and _moves_partitions(record.observation, decision)):
            found.append(Step(record, decision, sum(current.values()), sum(wanted.values()), changes))
    return found


def _moves_partitions(observation: FleetObservation, decision: Decision) -> bool:
    if decision.assignment is None or not isinstance(observation, StreamObservation):
        return False
    return not same_grouping(decision.assignment, observation.plan)


def carried_out(steps: Iterable[Step]) -> ScaleCounts:
    """Scale actions and replicas added and removed by the acting scaler; the change of one fleet is one action."""

    def actions() -> Iterator[tuple[Action, int, int]]:
        for step in steps:
            if step.decision.action == "reassign":
                yield "reassign", step.before, step.after
            for before, after in step.changes:
                yield ("up" if after > before else "down"), before, after

    return scale_counts(actions())


def guarded_ticks(records: Iterable[TickRecord]) -> int:
    """Ticks on which the guards changed the acting scaler's decision, or remarked on it."""
    decisions = (record.decisions.get(record.acting) for record in records)
    return sum(1 for each in decisions if each is not None and any("guard" in terms for terms in each.why.values()))


def start_steps(
    records: Sequence[TickRecord], events: Iterable[ReplicaEvent], start_ns: int
) -> dict[str, Distribution]:
    """How long each step took, over all replicas that a tick of the run asked for, and all together for those that had
    an event. Respawned replicas were not asked for by a tick.
    """
    asked = [record for record in records if record.accepted is not None]
    asked_ns = [record.at_ns for record in asked]
    lives: dict[str, dict[Phase, int]] = {}
    for event in events:
        if event.phase == "requested" and event.at_ns >= start_ns and not event.reason:
            lives[event.replica] = {}
        if event.replica in lives and event.phase in STEPS:
            lives[event.replica].setdefault(event.phase, event.at_ns)
    took_s: dict[str, list[float]] = {}
    for life in lives.values():
        tick = int(np.searchsorted(asked_ns, life["requested"], side="right")) - 1
        if tick < 0:
            continue
        due_ns = start_ns + round(asked[tick].time_s * 1e9)
        before_ns = due_ns
        for step in STEPS:
            if step in life:
                took_s.setdefault(step, []).append((life[step] - before_ns) / 1e9)
                before_ns = life[step]
        if "first-event" in life:
            took_s.setdefault(WHOLE, []).append((life["first-event"] - due_ns) / 1e9)
    return {step: distribution(np.asarray(took_s[step])) for step in sorted(took_s)}  # as they are written down


def rebalances(records: Iterable[TickRecord]) -> int:
    """Rebalances of the consumer group that the monitor saw after the start of the run; two between ticks are one."""
    observations = (record.observation for record in records)
    seen = {seen.last_rebalance_s for seen in observations if isinstance(seen, StreamObservation)}
    return sum(1 for time_s in seen if time_s is not None and time_s > 0)


def tick_phases(records: Sequence[TickRecord], spec: RunSpec) -> tuple[float | None, float | None, float | None]:
    """(p50, p99) of the achieved phases and the p99 of their distance to the wanted one, seconds."""
    if not records:
        return None, None, None
    phases_s = np.array([record.phase_s for record in records], dtype=np.float64)
    p50, p99 = percentiles_s(phases_s, (50.0, 99.0))
    return float(p50), float(p99), float(percentiles_s(np.abs(phases_s - spec.tick_phase_s), (99.0,))[0])


def decided(record: TickRecord) -> bool:
    """Whether the acting scaler saw an observation on this tick and gave a valid answer."""
    return record.acting in record.decisions and record.errors.keys().isdisjoint((record.acting, "monitor"))


def due_decisions(records: Sequence[TickRecord], spec: RunSpec) -> int:
    """Ticks within the schedule on which the acting scaler was due; those in the journal if its interval is unknown."""
    interval_s = spec.scaler.parameters.get("decision_interval_s")
    if not isinstance(interval_s, float | int):
        return sum(record.acting in record.decisions for record in records)
    return max(0, math.ceil((spec.duration_s - spec.tick_phase_s) / interval_s - TOLERANCE))


def missed_ticks(records: Sequence[TickRecord], spec: RunSpec) -> int:
    """Ticks that were due and did not take place: skipped ones, and those of the acting scaler after the last one."""
    skipped = sum(record.skipped for record in records)
    interval_s = spec.scaler.parameters.get("decision_interval_s")
    acted_s = [record.time_s for record in records if record.acting in record.decisions]
    if not acted_s or not isinstance(interval_s, float | int):
        return skipped
    return skipped + max(0, math.ceil((spec.duration_s - acted_s[-1]) / interval_s - TOLERANCE) - 1)


def hold_reason(record: TickRecord) -> str | None:
    """Why the acting scaler held on this tick; None if it did not hold."""
    decision = record.decisions.get(record.acting)
    if decision is None or decision.action != "hold":
        return None
    return str(decision.why.get(record.observation.fleet, {}).get("reason") or "no reason given")


def holds(records: Iterable[TickRecord]) -> dict[str, int]:
    """Ticks by reason, most frequent first. Reasons that differ in numbers only are one, with "…" for those numbers."""
    alike: dict[str, Counter[str]] = {}
    for record in records:
        reason = hold_reason(record)
        if reason is not None:
            alike.setdefault(NUMBER.sub("", reason), Counter())[reason] += 1
    merged = {_common(tuple(reasons)): reasons.total() for reasons in alike.values()}
    return dict(sorted(merged.items(), key=lambda item: (-item[1], item[0])))


def _common(reasons: Sequence[str]) -> str:
    """The text of reasons that are alike but for their numbers."""
    numbers = zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)
    shown = iter(["…" if len(set(values)) > 1 else values[0] for values in numbers])
    return NUMBER.sub(lambda _: next(shown), reasons[0])
