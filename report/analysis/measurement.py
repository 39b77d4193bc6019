"""The measures of one run, all of them ``penstock.measures``."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.measures import (
    Bools,
    Completions,
    Floats,
    Part,
    bucket_upper_s,
    distribution,
    histogram,
    replica_seconds,
    slo_share,
)
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from report.analysis.decisions import (
    carried_out,
    decided,
    due_decisions,
    guarded_ticks,
    holds,
    missed_ticks,
    rebalances,
    start_steps,
    tick_phases,
)
from report.analysis.outcomes import RunEvents, events_of
from report.analysis.recovery import fault_effects, late_periods
from report.analysis.run_data import RunData, ints
from report.analysis.summary import MeanSplit, RunSummary
from report.analysis.verdict import BUSY_CPU_SHARE, judge

SLOWEST_SHARE = 0.01

MOST_VALUES_SHOWN = 24
"""Longer series are replaced by their length among a run's conditions."""
UNFINISHED = "the run did not come to its end: without manifest.json its files cannot be verified"


def analyse(run: RunData, *, in_flight: int | None = None) -> RunSummary:
    """Measure a run; writes ``summary.json``, and ``latency.parquet`` if it is not there or empty.

    ``in_flight`` is how many events were still waiting when the run was given up; unless given, it is what an earlier
    ``summary.json`` says. Raises PenstockError that names what an incomplete directory lacks.
    """
    directory, spec = run.directory, run.spec
    sent = () if spec.world == "sim" else (directory.delivery_file, directory.ledger_file)
    directory.require(directory.schedule_file, *sent, directory.decisions_file, directory.replicas_file)
    if spec.start_ns <= 0:
        raise PenstockError(f"{directory.path}: the run never started (start_ns is 0 in run.json); run it again")
    schedule = run.schedule()
    events = events_of(run, schedule, _noted_in_flight(directory) if in_flight is None else in_flight)
    measured = _measure(run, events, schedule)
    verdict, reasons = judge(measured, spec)
    summary = msgspec.structs.replace(measured, verdict=verdict, reasons=reasons)
    directory.write(directory.summary_file, summary)
    if not directory.latency_file.exists() or pq.read_metadata(directory.latency_file).num_rows == 0:
        buckets, counts = histogram(events.completed.latency_s)  # as ``pipelines`` writes it
        stage = pa.array([events.stage] * len(buckets), type=pa.string())
        table = {"stage": stage, "bucket": buckets, "upper_s": bucket_upper_s(buckets), "count": counts}
        pq.write_table(pa.table(table), directory.latency_file)
    return summary


def summary_of(run: RunData) -> RunSummary:
    """The summary of a run: as written, or measured now if it is missing or an older Penstock wrote it. Raises
    ChangedRunError if the files of a finished run are not those of its manifest. A run without one is INVALID: it did
    not come to its end, or its files are not known to be its own.
    """
    run.verify()
    try:
        summary = msgspec.json.decode(run.directory.summary_file.read_bytes(), type=RunSummary)
    except (FileNotFoundError, msgspec.DecodeError):
        summary = analyse(run)
        if run.manifest is not None and run.manifest.files is not None:
            manifest = msgspec.structs.replace(run.manifest, files=run.directory.file_sums())
            run.directory.write(run.directory.manifest_file, manifest)
    if run.manifest is None:
        return msgspec.structs.replace(summary, verdict="INVALID", reasons=(UNFINISHED, *summary.reasons))
    return summary


def _measure(run: RunData, events: RunEvents, schedule: Schedule) -> RunSummary:
    spec, records = run.spec, run.ticks
    done, balance = events.completed, events.balance
    end_ns = spec.start_ns + round(spec.duration_s * NANOS_PER_SECOND)
    replica_time_s = replica_seconds(run.paid_replicas, spec.start_ns, end_ns)
    cpu_saturation, cpu_stolen = _machine(run.directory, spec.start_ns, end_ns)
    periods, needed = late_periods(run, events), run.needed_replicas
    failures = [record.errors[record.acting] for record in records if record.acting in record.errors]
    phase_p50_s, phase_p99_s, phase_error_p99_s = tick_phases(records, spec)
    return RunSummary(
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
        missed_seconds=int(np.count_nonzero(events.missed_seconds)),
        issued_share=events.issued / len(schedule) if len(schedule) else 1.0,
        slo_share=slo_share(done.latency_s, spec.slo_s, due=balance.acknowledged) if balance.acknowledged else None,
        latency=distribution(done.latency_s),
        send_delay=distribution(events.send_delay_s),
        queueing=distribution(done.part_s("queueing")),
        service=distribution(done.part_s("service")),
        mean=_mean_split(done, np.ones(len(done.event_id), dtype=np.bool_)),
        slowest_mean=_mean_split(done, _slowest(done.latency_s)),
        negative_latencies=int(np.count_nonzero(done.latency_s < 0)),
        arrival_rate_mean_per_s=len(schedule) / schedule.duration_s,
        arrival_rate_peak_per_s=float(schedule.arrivals_per_second().max(initial=0)),
        replica_minutes=replica_time_s / 60,
        replica_price_per_hour=spec.replica_price_per_hour,
        money=replica_time_s / 3600 * spec.replica_price_per_hour,
        scale=carried_out(run.steps),
        starts=start_steps(records, run.replica_events, spec.start_ns),
        rebalances=rebalances(records),
        ticks=len(records),
        missed_ticks=missed_ticks(records, spec),
        tick_phase_p50_s=phase_p50_s,
        tick_phase_p99_s=phase_p99_s,
        tick_phase_error_p99_s=phase_error_p99_s,
        holds=holds(records),
        conservation=balance,
        unsuccessful_by_reason=events.unsuccessful_by_reason,
        cpu_saturation=cpu_saturation,
        cpu_stolen=cpu_stolen,
        decisions=sum(decided(record) for record in records),
        due_decisions=due_decisions(records, spec),
        scaler_failures=len(failures),
        first_failure=failures[0] if failures else "",
        guarded=guarded_ticks(records),
        decisions_of=Counter(name for record in records for name in record.decisions),
        slow_decisions=Counter(name for record in records for name in record.slow),
        failed_actions=sum("actuator" in record.errors for record in records),
        faults=fault_effects(run, events),
        record_from_s=_record_from_s(run),
        late_periods=len(periods),
        longest_recovery_s=max((to_s - from_s for from_s, to_s in periods), default=0.0),
        needed_replica_minutes=float(needed.sum()) / 60 if len(needed) else None,
        conditions=_conditions(spec),
    )


def _record_from_s(run: RunData) -> float | None:
    replicas = [(event.at_ns - run.spec.start_ns) / NANOS_PER_SECOND for event in run.replica_events]
    return min((*replicas, *(tick.time_s for tick in run.ticks)), default=None)


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


def _noted_in_flight(directory: RunDirectory) -> int:
    try:
        summary = msgspec.json.decode(directory.summary_file.read_bytes())
        return int(summary["conservation"]["in_flight"])
    except (FileNotFoundError, msgspec.DecodeError, LookupError, TypeError):
        return 0


def _slowest(latency_s: Floats) -> Bools:
    """Which events are the slowest 1 % (at least one)."""
    chosen = np.zeros(len(latency_s), dtype=np.bool_)
    count = math.ceil(SLOWEST_SHARE * len(latency_s))
    chosen[np.argsort(latency_s, kind="stable")[len(latency_s) - count :]] = True
    return chosen


def _mean_split(done: Completions, chosen: Bools) -> MeanSplit:
    if not chosen.any():
        return MeanSplit()
    parts: tuple[Part, ...] = ("send_delay", "queueing", "service")
    return MeanSplit(**{f"{part}_s": float(done.part_s(part)[chosen].mean()) for part in parts})


def _machine(directory: RunDirectory, start_ns: int, end_ns: int) -> tuple[float | None, float | None]:
    """Share of the run's seconds in which all cores together were more than 90 % busy, also with processes at a lower
    priority, and the mean share of their time that the cores were not given. None without samples.
    """
    file = directory.metrics_folder / "machine.parquet"
    if not file.exists():
        return None, None
    table = pq.read_table(file)
    at_ns = ints(table["at_ns"])
    during = (at_ns > start_ns) & (at_ns <= end_ns)
    if not during.any():
        return None, None
    shares = {name: np.asarray(table[name].to_numpy(), dtype=np.float64)[during] for name in table.column_names}
    busy, stolen = shares["cpu_busy_share"] + shares.get("cpu_niced_share", 0.0), shares.get("cpu_stolen_share")
    return float(np.mean(busy > BUSY_CPU_SHARE)), None if stolen is None else float(stolen.mean())
