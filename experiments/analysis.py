"""The numbers of one run, computed from its directory alone: latency, cost, conservation, and whether to believe them.

Every measure is one of ``penstock.measures``; the rules of the verdict are the design's measurement rules (section 5).
"""

import gc
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from controller.journal import AnyObservation, TickRecord, read_replica_events, read_ticks
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Action, Decision, ReplicaEvent, StreamObservation
from penstock.errors import PenstockError
from penstock.measures import (
    PERCENTILES,
    Completions,
    Conservation,
    Floats,
    Ints,
    ScaleCounts,
    bucket_upper_s,
    completions,
    conservation,
    histogram,
    percentiles_s,
    replica_seconds,
    scale_counts,
    slo_share,
)
from penstock.plan import same_grouping
from penstock.rundir import RunDirectory, Verdict
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem

MIN_ISSUED_SHARE = 0.999
MAX_TICK_PHASE_ERROR_S = 0.020
BUSY_CPU_SHARE = 0.90
MAX_CPU_SATURATION = 0.10
"""Share of the run's seconds in which all cores together may be busier than ``BUSY_CPU_SHARE``."""
MAX_MISSED_TICK_SHARE = 0.01
MAX_SEND_DELAY_OF_SLO = 0.10
"""Above this share of the SLO, the sender's own lateness (p99) shapes the latencies that are measured."""
SLOWEST_SHARE = 0.01

Flags = npt.NDArray[np.bool_]

NUMBER = re.compile(r"\d+(?:\.\d+)?")

MOST_VALUES_SHOWN = 24
"""A series that is longer is told by its length among a run's conditions."""

KEPT_JOURNAL_BYTES = 48 * 2**20
"""Length of all journals together that stay decoded, which takes four times as much memory."""

RESULT_TIMES = ["intended_ns", "sent_ns", "started_ns", "finished_ns"]
RESULT_NAMES = ["run", "stage", "outcome", "reason"]
"""Few different texts in many rows: read as a dictionary, in a third of the time."""
RESULT_COLUMNS = ["id", "run", "stage", "outcome", "terminal", "reason", *RESULT_TIMES]


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds: mean and nearest-rank percentiles. All None where there was nothing to measure."""

    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    p99_9_s: float | None = None
    max_s: float | None = None


class MeanSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Where time was spent on average, seconds; the three add up to the mean latency of the same events."""

    send_delay_s: float | None = None
    queueing_s: float | None = None
    service_s: float | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is measured of one run (``summary.json``).

    ``slo_share`` is the share of acknowledged events that completed within ``slo_s``: lost and failed ones are misses.
    ``replica_minutes`` run from requested to gone, within the ``duration_s`` of the schedule. ``slowest_mean`` is the
    mean split over the slowest 1 % of events. ``holds`` counts the acting scaler's holds by reason. Tick phases are
    seconds after a whole second of the run; ``tick_phase_error_p99_s`` is the p99 of their distance to the wanted one.
    ``scaler_failures`` are the ticks on which the acting scaler raised an error instead of deciding.
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
    cpu_saturation: float | None = None
    scaler_failures: int = 0
    conditions: Mapping[str, Any] = msgspec.field(default_factory=dict)


def analyse(directory: RunDirectory, *, in_flight: int | None = None) -> Summary:
    """Measure a run; writes ``summary.json``, and ``latency.parquet`` if it is not there or empty.

    ``in_flight`` is how many events were still waiting when the run was given up; unless given, it is what an earlier
    ``summary.json`` says. Raises PenstockError that names what an incomplete directory lacks.
    """
    spec = directory.spec()
    sent = () if spec.world == "sim" else (directory.delivery_file, directory.ledger_file)
    directory.require(directory.schedule_file, *sent, directory.decisions_file, directory.replicas_file)
    if spec.start_ns <= 0:
        raise PenstockError(f"{directory.path}: the run never started (start_ns is 0 in run.json); run it again")
    events = _events(directory, spec, _noted_in_flight(directory) if in_flight is None else in_flight)
    measured = _measure(directory, spec, events, Schedule.read(directory.schedule_file))
    verdict, reasons = judge(measured, spec)
    summary = msgspec.structs.replace(measured, verdict=verdict, reasons=reasons)
    directory.write(directory.summary_file, summary)
    if not directory.latency_file.exists() or pq.read_metadata(directory.latency_file).num_rows == 0:
        _write_latency(directory, events)
    return summary


def summary_of(directory: RunDirectory) -> Summary:
    """The summary of a run: as written, or measured now if it is missing or an older Penstock wrote it."""
    try:
        return msgspec.json.decode(directory.summary_file.read_bytes(), type=Summary)
    except (FileNotFoundError, msgspec.DecodeError):
        return analyse(directory)


def paid_replicas(directory: RunDirectory, spec: RunSpec) -> list[ReplicaEvent]:
    """Lives of what costs money: in a bank of queues the containers behind them, not the queues; else every replica."""
    events = read_replica_events(directory)
    if isinstance(spec.system, QueueSystem) and spec.system.scaled == "queues":
        return [event for event in events if event.fleet != spec.fleet]
    return list(events)


def _measure(directory: RunDirectory, spec: RunSpec, events: "RunEvents", schedule: Schedule) -> Summary:
    done = events.completed
    balance = events.balance
    records = read_records(directory)
    end_ns = spec.start_ns + round(spec.duration_s * NANOS_PER_SECOND)
    replica_time_s = replica_seconds(paid_replicas(directory, spec), spec.start_ns, end_ns)
    phase_p50_s, phase_p99_s, phase_error_p99_s = _tick_phases(records, spec)
    return Summary(
        run=spec.run,
        experiment=spec.experiment,
        world=spec.world,
        scaler=spec.scaler.name,
        seed=spec.seed,
        speed=spec.speed,
        slo_s=spec.slo_s,
        duration_s=spec.duration_s,
        verdict="VALID",
        scheduled_events=len(schedule),
        acknowledged_events=balance.acknowledged,
        completed_events=balance.completed,
        issued_share=events.issued / len(schedule) if len(schedule) else 1.0,
        slo_share=_known(slo_share(done.latency_s, spec.slo_s, due=balance.acknowledged)),
        latency=distribution(done.latency_s),
        send_delay=distribution(events.send_delay_s),
        queueing=distribution(done.queueing_s),
        service=distribution(done.service_s),
        mean=_mean_split(done, np.ones(len(done.event_id), dtype=np.bool_)),
        slowest_mean=_mean_split(done, _slowest(done.latency_s)),
        negative_latencies=int(np.count_nonzero(done.latency_s < 0)),
        arrival_rate_mean_per_s=len(schedule) / schedule.duration_s,
        arrival_rate_peak_per_s=float(schedule.arrivals_per_second().max(initial=0)),
        replica_minutes=replica_time_s / 60,
        replica_price_per_hour=spec.replica_price_per_hour,
        money=replica_time_s / 3600 * spec.replica_price_per_hour,
        scale=carried_out(records),
        rebalances=_rebalances(records),
        ticks=len(records),
        missed_ticks=sum(record.skipped for record in records),
        tick_phase_p50_s=phase_p50_s,
        tick_phase_p99_s=phase_p99_s,
        tick_phase_error_p99_s=phase_error_p99_s,
        holds=_holds(records),
        conservation=balance,
        unsuccessful_by_reason=events.unsuccessful_by_reason,
        cpu_saturation=_cpu_saturation(directory, spec.start_ns, end_ns),
        scaler_failures=sum(record.acting in record.errors for record in records),
        conditions=_conditions(spec),
    )


def _conditions(spec: RunSpec) -> dict[str, Any]:
    """Every setting of a run by its dotted name, without what tells repetitions apart and without the shadows."""
    fields = msgspec.json.decode(msgspec.json.encode(spec))
    for name in ("run", "seed", "start_ns", "shadows"):
        del fields[name]
    return dict(_flat("", fields))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name in sorted(value):
            yield from _flat(f"{prefix}.{name}" if prefix else name, value[name])
    elif isinstance(value, list) and len(value) > MOST_VALUES_SHOWN:
        yield prefix, f"{len(value)} values"
    else:
        yield prefix, value


# --- verdict ---------------------------------------------------------------------------------------------------------


def judge(summary: Summary, spec: RunSpec) -> tuple[Verdict, tuple[str, ...]]:
    """Whether the run may be believed, and every reason against it.

    INVALID: the count of events does not add up, the generator fell short, nothing completed, or the acting scaler
    failed. DEGRADED: measured,
    but something other than the scaler shaped the figures. With a fault injected on purpose, a generator that falls
    short is DEGRADED.
    """
    invalid: list[str] = []
    degraded: list[str] = []
    if not summary.conservation.exact:
        lost = f"{summary.conservation.lost} lost; " if summary.conservation.lost else ""
        invalid.append(f"events do not add up: {lost}{'; '.join(summary.conservation.disagreements)}")
    if summary.completed_events == 0:
        invalid.append("no event completed")
    if summary.scaler_failures:
        invalid.append(
            f"{spec.scaler.name} failed on {summary.scaler_failures} of {summary.ticks} ticks and held instead: "
            "the log and decisions.jsonl have the error"
        )
    if summary.issued_share < MIN_ISSUED_SHARE:
        (degraded if spec.faults else invalid).append(
            f"the generator issued {100 * summary.issued_share:.2f} % of the schedule, "
            f"less than {100 * MIN_ISSUED_SHARE:g} %"
        )
    late_s = summary.send_delay.p99_s
    if late_s is not None and late_s > MAX_SEND_DELAY_OF_SLO * summary.slo_s:
        degraded.append(
            f"the generator sent late: send-delay p99 {1000 * late_s:.1f} ms is more than "
            f"{100 * MAX_SEND_DELAY_OF_SLO:g} % of the SLO"
        )
    if summary.negative_latencies:
        degraded.append(f"{summary.negative_latencies} latencies are negative: the clocks of the machines disagree")
    if summary.cpu_saturation is not None and summary.cpu_saturation > MAX_CPU_SATURATION:
        degraded.append(f"all cores were more than 90 % busy in {100 * summary.cpu_saturation:.0f} % of the seconds")
    if summary.conservation.in_flight:
        degraded.append(f"{summary.conservation.in_flight} events were still waiting when the run was given up")
    degraded += _tick_reasons(summary, spec)
    return ("INVALID" if invalid else "DEGRADED" if degraded else "VALID"), (*invalid, *degraded)


def _tick_reasons(summary: Summary, spec: RunSpec) -> list[str]:
    reasons = []
    error_s = summary.tick_phase_error_p99_s
    if error_s is not None and error_s > MAX_TICK_PHASE_ERROR_S:
        reasons.append(
            f"ticks were off their phase of {1000 * spec.tick_phase_s:g} ms by {1000 * error_s:.0f} ms at p99, "
            f"more than {1000 * MAX_TICK_PHASE_ERROR_S:g} ms"
        )
    controller_was_killed = any(fault.kind == "kill-controller" for fault in spec.faults)
    due = summary.ticks + summary.missed_ticks
    if summary.missed_ticks > MAX_MISSED_TICK_SHARE * due and not controller_was_killed:
        reasons.append(f"the controller missed {summary.missed_ticks} of {due} ticks")
    return reasons


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RunEvents:
    """What became of a run's events. ``issued`` counts distinct ids the sender tried, ``stage`` is where they end."""

    stage: str
    completed: Completions
    balance: Conservation
    issued: int
    send_delay_s: Floats
    unsuccessful_by_reason: dict[str, int]


def _events(directory: RunDirectory, spec: RunSpec, in_flight: int) -> RunEvents:
    scheduled = pq.read_metadata(directory.schedule_file).num_rows
    results = _read_results(directory)
    known = _known_results(results, spec, scheduled)
    outcomes = {
        outcome: _ints(known["id"].filter(pc.equal(known["outcome"], outcome)))
        for outcome in pc.unique(known["outcome"]).to_pylist()
    }
    sending = _sending(directory) if spec.world != "sim" else _nobody_sends(scheduled, outcomes)
    terminal = int(pc.sum(results["terminal"]).as_py() or 0)
    balance = conservation(
        scheduled=scheduled,
        acknowledged=sending.acknowledged,
        booked=sending.booked,
        results=outcomes,
        result_rows=known.num_rows,
        foreign=terminal - known.num_rows,
        in_flight=in_flight,
    )
    return RunEvents(
        stage="+".join(sorted(pc.unique(known["stage"]).to_pylist())),
        completed=_completed(known),
        balance=balance,
        issued=sending.issued,
        send_delay_s=sending.delay_s,
        unsuccessful_by_reason=_unsuccessful(results),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Sending:
    """What sender and ledger say: ids, the number of ids that the sender tried, and its delays."""

    acknowledged: Ints
    booked: Ints
    issued: int
    delay_s: Floats


def _sending(directory: RunDirectory) -> Sending:
    delivery = pq.read_table(directory.delivery_file, columns=["id", "intended_ns", "sent_ns", "acked_ns", "error"])
    sent = delivery.filter(pc.is_valid(delivery["sent_ns"]))
    return Sending(
        acknowledged=_acknowledged(delivery),
        booked=_ints(pq.read_table(directory.ledger_file, columns=["id"])["id"]),
        issued=int(pc.count_distinct(sent["id"]).as_py()),
        delay_s=(_ints(sent["sent_ns"]) - _ints(sent["intended_ns"])) / NANOS_PER_SECOND,
    )


def _nobody_sends(scheduled: int, outcomes: Mapping[str, Ints]) -> Sending:
    """In virtual time every event is there when it was intended, and a ledger has what completed."""
    nothing = np.empty(0, dtype=np.int64)
    return Sending(np.arange(scheduled), outcomes.get("completed", nothing), scheduled, nothing / NANOS_PER_SECOND)


def read_completions(directory: RunDirectory) -> Completions:
    """Earliest terminal result of each completed event of a run, from the raw results."""
    return _completed(read_outcomes(directory))


def read_outcomes(directory: RunDirectory, *more: str) -> pa.Table:
    """Terminal results of a run's scheduled events, ``RESULT_COLUMNS`` and ``more`` of each; of a redelivered event
    there are several.
    """
    scheduled = pq.read_metadata(directory.schedule_file).num_rows
    return _known_results(_read_results(directory, *more), directory.spec(), scheduled)


def _read_results(directory: RunDirectory, *more: str) -> pa.Table:
    files = sorted(directory.results_folder.glob("*.parquet"))
    if not files:
        raise PenstockError(f"{directory.path}: incomplete run directory, missing results/*.parquet; run it again")
    columns = [*RESULT_COLUMNS, *more]
    parts = [pq.read_table(file, columns=columns, read_dictionary=RESULT_NAMES) for file in files]
    return pa.concat_tables(parts).unify_dictionaries()


def _known_results(results: pa.Table, spec: RunSpec, scheduled: int) -> pa.Table:
    """Terminal results of scheduled events of this run."""
    ids = results["id"]
    inside = pc.fill_null(pc.and_(pc.greater_equal(ids, 0), pc.less(ids, scheduled)), False)
    return results.filter(pc.and_(inside, pc.and_(pc.equal(results["run"], spec.run), results["terminal"])))


def _completed(known: pa.Table) -> Completions:
    rows = known.filter(pc.equal(known["outcome"], "completed"))
    return completions(
        event_id=_ints(rows["id"]),
        intended_ns=_ints(rows["intended_ns"]),
        sent_ns=_ints(rows["sent_ns"]),
        started_ns=_ints(rows["started_ns"]),
        finished_ns=_ints(rows["finished_ns"]),
    )


def _acknowledged(delivery: pa.Table) -> Ints:
    """Ids that the broker acknowledged."""
    no_error = pc.equal(pc.fill_null(delivery["error"], ""), "")
    return _ints(delivery.filter(pc.and_(pc.is_valid(delivery["acked_ns"]), no_error))["id"])


def _unsuccessful(results: pa.Table) -> dict[str, int]:
    """Terminal results that are no completions, by "outcome: reason"; those of no scheduled event are among them."""
    others = results.filter(pc.and_(results["terminal"], pc.not_equal(results["outcome"], "completed")))
    counts = Counter(
        f"{outcome}: {reason or 'no reason given'}"
        for outcome, reason in zip(others["outcome"].to_pylist(), others["reason"].to_pylist(), strict=True)
    )
    return dict(counts.most_common())


def _noted_in_flight(directory: RunDirectory) -> int:
    try:
        summary = msgspec.json.decode(directory.summary_file.read_bytes())
        return int(summary["conservation"]["in_flight"])
    except (FileNotFoundError, msgspec.DecodeError, LookupError, TypeError):
        return 0


def distribution(values_s: Floats) -> Distribution:
    """Mean and percentiles of raw durations."""
    if len(values_s) == 0:
        return Distribution()
    p50, p90, p95, p99, p99_9 = (float(value) for value in percentiles_s(values_s, PERCENTILES))
    return Distribution(
        mean_s=float(values_s.mean()),
        p50_s=p50,
        p90_s=p90,
        p95_s=p95,
        p99_s=p99,
        p99_9_s=p99_9,
        max_s=float(values_s.max()),
    )


def _slowest(latency_s: Floats) -> Flags:
    """Which events are the slowest 1 % (at least one)."""
    chosen = np.zeros(len(latency_s), dtype=np.bool_)
    count = math.ceil(SLOWEST_SHARE * len(latency_s))
    chosen[np.argsort(latency_s, kind="stable")[len(latency_s) - count :]] = True
    return chosen


def _mean_split(done: Completions, chosen: Flags) -> MeanSplit:
    if not chosen.any():
        return MeanSplit()
    return MeanSplit(
        send_delay_s=float(done.send_delay_s[chosen].mean()),
        queueing_s=float(done.queueing_s[chosen].mean()),
        service_s=float(done.service_s[chosen].mean()),
    )


def _write_latency(directory: RunDirectory, events: RunEvents) -> None:
    """The histogram as ``pipelines`` writes it."""
    buckets, counts = histogram(events.completed.latency_s)
    stage = pa.array([events.stage] * len(buckets), type=pa.string())
    table = {"stage": stage, "bucket": buckets, "upper_s": bucket_upper_s(buckets), "count": counts}
    pq.write_table(pa.table(table), directory.latency_file)


# --- decisions -------------------------------------------------------------------------------------------------------


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


def _rebalances(records: Iterable[TickRecord]) -> int:
    """Rebalances of the consumer group that the monitor saw after the start of the run; two between ticks are one."""
    observations = (record.observation for record in records)
    seen = {seen.last_rebalance_s for seen in observations if isinstance(seen, StreamObservation)}
    return sum(1 for time_s in seen if time_s is not None and time_s > 0)


def _tick_phases(records: Sequence[TickRecord], spec: RunSpec) -> tuple[float | None, float | None, float | None]:
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


def _holds(records: Iterable[TickRecord]) -> dict[str, int]:
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


# --- machine ---------------------------------------------------------------------------------------------------------


def _cpu_saturation(directory: RunDirectory, start_ns: int, end_ns: int) -> float | None:
    """Share of the run's seconds in which all cores together were more than 90 % busy, without the time of processes
    at a lower priority; None where nobody looked.
    """
    file = directory.metrics_folder / "machine.parquet"
    if not file.exists():
        return None
    table = pq.read_table(file, columns=["at_ns", "cpu_busy_share"])
    at_ns = _ints(table["at_ns"])
    busy = np.asarray(table["cpu_busy_share"].to_numpy(), dtype=np.float64)[(at_ns > start_ns) & (at_ns <= end_ns)]
    return float(np.mean(busy > BUSY_CPU_SHARE)) if len(busy) else None


# --- columns ---------------------------------------------------------------------------------------------------------


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
