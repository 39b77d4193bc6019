"""What a run's journal says: its ticks, and the decisions that were carried out or held."""

import gc
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from controller.journal import AnyObservation, TickRecord, read_ticks
from penstock.contracts import Action, Decision, StreamObservation
from penstock.measures import ScaleCounts, percentiles_s, scale_counts
from penstock.plan import same_grouping
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec

NUMBER = re.compile(r"\d+(?:\.\d+)?")

KEPT_JOURNAL_BYTES = 48 * 2**20
"""Length of all journals together that stay decoded, which takes four times as much memory."""


def read_records(directory: RunDirectory) -> list[TickRecord]:
    """The journal's ticks within the time of the schedule, in order. What was read lately is not read again."""
    duration_s = directory.spec().duration_s
    return [record for record in _journals.ticks(directory) if 0 <= record.time_s <= duration_s]


class Journals:
    """Decoded journals, kept from the verdict on a run to its reports; the longest unused ones go first."""

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._kept: dict[tuple[Path, int, int, int], tuple[TickRecord, ...]] = {}

    def ticks(self, directory: RunDirectory) -> tuple[TickRecord, ...]:
        """Every tick of a run. A file that was replaced or has grown is read again."""
        directory.require(directory.decisions_file)
        state = directory.decisions_file.stat()
        journal = (directory.decisions_file.absolute(), state.st_ino, state.st_size, state.st_mtime_ns)
        found = self._kept.pop(journal, None)
        ticks = _decoded(directory) if found is None else found
        self._kept[journal] = ticks
        while sum(size_bytes for _, _, size_bytes, _ in self._kept) > self._kept_bytes:
            del self._kept[next(iter(self._kept))]
        return ticks


def _decoded(directory: RunDirectory) -> tuple[TickRecord, ...]:
    """The garbage collector rests meanwhile: decoding makes millions of objects and no cycle, and looking for one every
    few hundred objects takes longer than the decoding.
    """
    resting = gc.isenabled()
    gc.disable()
    try:
        return tuple(read_ticks(directory))
    finally:
        if resting:
            gc.enable()


_journals = Journals(KEPT_JOURNAL_BYTES)


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


def _moves_partitions(observation: AnyObservation, decision: Decision) -> bool:
    if decision.assignment is None or not isinstance(observation, StreamObservation):
        return False
    return not same_grouping(decision.assignment, observation.plan)


def carried_out(records: Iterable[TickRecord]) -> ScaleCounts:
    """Scale actions and replicas added and removed by the acting scaler; the change of one fleet is one action."""

    def actions() -> Iterator[tuple[Action, int, int]]:
        for step in steps(records):
            if step.decision.action == "reassign":
                yield "reassign", step.before, step.after
            for before, after in step.changes:
                yield ("up" if after > before else "down"), before, after

    return scale_counts(actions())


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
