"""The measures of one run, all of them ``penstock.measures``."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from controller.journal import read_replica_events
from experiments.analysis.decisions import carried_out, holds, read_records, rebalances, tick_phases
from experiments.analysis.distribution import distribution
from experiments.analysis.outcomes import RunEvents, events_of, ints
from experiments.analysis.starts import start_steps
from experiments.analysis.summary import MeanSplit, Summary
from experiments.analysis.verdict import BUSY_CPU_SHARE, judge
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import ReplicaEvent
from penstock.errors import PenstockError
from penstock.measures import (
    Completions,
    Floats,
    bucket_upper_s,
    histogram,
    replica_seconds,
    slo_share,
)
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem

SLOWEST_SHARE = 0.01

Flags = npt.NDArray[np.bool_]

MOST_VALUES_SHOWN = 24
"""A series that is longer is told by its length among a run's conditions."""


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
    events = events_of(directory, spec, _noted_in_flight(directory) if in_flight is None else in_flight)
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


def _measure(directory: RunDirectory, spec: RunSpec, events: RunEvents, schedule: Schedule) -> Summary:
    done = events.completed
    balance = events.balance
    records = read_records(directory)
    end_ns = spec.start_ns + round(spec.duration_s * NANOS_PER_SECOND)
    replica_time_s = replica_seconds(paid_replicas(directory, spec), spec.start_ns, end_ns)
    cpu_saturation, cpu_stolen = _machine(directory, spec.start_ns, end_ns)
    phase_p50_s, phase_p99_s, phase_error_p99_s = tick_phases(records, spec)
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
        starts=start_steps(records, read_replica_events(directory), spec.start_ns),
        rebalances=rebalances(records),
        ticks=len(records),
        missed_ticks=sum(record.skipped for record in records),
        tick_phase_p50_s=phase_p50_s,
        tick_phase_p99_s=phase_p99_s,
        tick_phase_error_p99_s=phase_error_p99_s,
        holds=holds(records),
        conservation=balance,
        unsuccessful_by_reason=events.unsuccessful_by_reason,
        cpu_saturation=cpu_saturation,
        cpu_stolen=cpu_stolen,
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


def _noted_in_flight(directory: RunDirectory) -> int:
    try:
        summary = msgspec.json.decode(directory.summary_file.read_bytes())
        return int(summary["conservation"]["in_flight"])
    except (FileNotFoundError, msgspec.DecodeError, LookupError, TypeError):
        return 0


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


def _machine(directory: RunDirectory, start_ns: int, end_ns: int) -> tuple[float | None, float | None]:
    """Share of the run's seconds in which all cores together were more than 90 % busy, without the time of processes
    at a lower priority; and the mean share of their time that they were not given. None where nobody looked.
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
    stolen = shares.get("cpu_stolen_share")
    return float(np.mean(shares["cpu_busy_share"] > BUSY_CPU_SHARE)), None if stolen is None else float(stolen.mean())


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
