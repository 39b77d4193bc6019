"""Test-only: complete run directories from a toy queue model, to test analysis and report without services.

The model plays seconds 420–530 of the bin-pack paper's workload 1 (events in bursts at the start of each second, 5 ms
deterministic service) under a toy policy of ours. Its figures mean nothing outside these tests.
"""

import math
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from controller.journal import DecisionsFile, ReplicasFile, TickRecord
from penstock.contracts import (
    Accepted,
    Action,
    Decision,
    Groups,
    PartitionObservation,
    Phase,
    ReplicaCounts,
    ReplicaEvent,
    StreamObservation,
)
from penstock.measures import percentiles_s
from penstock.plan import range_groups
from penstock.rundir import Manifest, RunDirectory
from penstock.runspec import Fault, RunSpec, ScalerSpec
from penstock.schedule import Schedule

START_NS = 1_767_225_600_000_000_000
SERVICE_NS = 5_000_000
PAUSE_NS = 60_000_000
PARTITIONS = 5
KNOTS = (212, 247, 283, 314, 337, 349, 348, 337, 315, 285, 248, 206)
FLEET = "payments"


@dataclass(frozen=True)
class Toy:
    """A run of the toy: ``per_replica`` events/s are given to each replica, ``hold_s`` lies between scale actions."""

    scaler: str = "linear"
    per_replica: float = 90.0
    hold_s: float = 10.0
    seconds: int = 110
    seed: int = 1
    shadows: tuple[str, ...] = ("binpack-tail",)
    faults: tuple[Fault, ...] = ()
    lose: tuple[int, ...] = ()
    unsigned: int = 0
    spark: bool = True
    experiment: str = "binpack-workload-1"
    name: str = ""


@dataclass
class _Fleet:
    """Replicas with the partitions and the busy time of each."""

    groups: Groups
    free_ns: list[int]
    events: list[ReplicaEvent] = field(default_factory=list)

    def say(self, number: int, phase: Phase, at_ns: int) -> None:
        self.events.append(ReplicaEvent(fleet=FLEET, replica=f"payments-{number}", phase=phase, at_ns=at_ns))

    def resize(self, replicas: int, at_ns: int) -> None:
        before = len(self.free_ns)
        for number in range(before, replicas):
            for phase, after_ms in (("requested", 0), ("started", 400), ("joined", 900), ("first-event", 1000)):
                self.say(number, phase, at_ns + after_ms * 1_000_000)  # type: ignore[arg-type]
        for number in range(replicas, before):
            self.say(number, "draining", at_ns)
            self.say(number, "gone", at_ns + 600_000_000)
        self.groups = range_groups(range(PARTITIONS), replicas)
        self.free_ns = [max(at_ns, *self.free_ns) + PAUSE_NS if self.free_ns else at_ns] * replicas


def write_run(runs: Path, toy: Toy) -> RunDirectory:
    """One finished run under ``runs``. The files of a toy are always the same: it is played once in a process."""
    directory = RunDirectory(runs / (toy.name or f"20260101T000000Z-workload-{_plain(toy.scaler)}-{toy.seed}"))
    for name, content in _files(toy, directory.name).items():
        file = directory.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    directory.logs_folder.mkdir(exist_ok=True)
    return directory


@cache
def _files(toy: Toy, name: str) -> dict[str, bytes]:
    """Content of each file of a run."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = _write(Path(folder) / name, toy).path
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def _write(path: Path, toy: Toy) -> RunDirectory:
    directory = RunDirectory(path)
    for folder in (directory.path, directory.results_folder, directory.metrics_folder, directory.logs_folder):
        folder.mkdir(parents=True, exist_ok=True)
    spec = RunSpec(
        run=directory.name,
        experiment=toy.experiment,
        world="local",
        scaler=ScalerSpec(name=toy.scaler, parameters={"service_rate_per_s": 200.0, "slo_s": 0.5}),
        shadows=tuple(ScalerSpec(name=name) for name in toy.shadows),
        seed=toy.seed,
        duration_s=float(toy.seconds),
        start_ns=START_NS,
        faults=toy.faults,
        workload={"workload": "binpack-workload-1", "from_s": 420.0, "seconds": toy.seconds, "arrivals": "burst"},
    )
    directory.write(directory.spec_file, spec)
    schedule = _schedule(toy)
    schedule.write(directory.schedule_file)
    _play(directory, spec, schedule, toy)
    directory.write(directory.manifest_file, _manifest(directory))
    return directory


def _schedule(toy: Toy) -> Schedule:
    rng = np.random.default_rng(toy.seed)
    seconds = np.arange(toy.seconds)
    rates = np.ceil(np.interp(seconds, 10 * np.arange(len(KNOTS)), KNOTS)).astype(np.int64)
    offsets = np.repeat(seconds, rates).astype(np.int64) * 1_000_000_000
    partitions = rng.integers(0, PARTITIONS, len(offsets)).astype(np.int16)
    return Schedule(offsets, partitions, float(toy.seconds), {"workload": "toy", "seed": toy.seed})


def _play(directory: RunDirectory, spec: RunSpec, schedule: Schedule, toy: Toy) -> None:
    rng = np.random.default_rng(toy.seed + 100)
    intended = START_NS + schedule.intended_offset_ns
    in_burst = np.arange(len(schedule)) - np.searchsorted(schedule.intended_offset_ns, schedule.intended_offset_ns)
    sent = intended + in_burst * 12_000 + rng.integers(20_000, 400_000, len(schedule))
    started = np.zeros(len(schedule), dtype=np.int64)
    finished = np.zeros(len(schedule), dtype=np.int64)
    fleet = _Fleet((), [])
    fleet.resize(1, START_NS - 4_000_000_000)
    journal = DecisionsFile(directory)
    last_scale_s = last_rebalance_s = None
    epoch = 1
    second = schedule.intended_offset_ns // 1_000_000_000
    for tick in range(toy.seconds):
        for row in np.flatnonzero(second == tick):
            member = next(n for n, group in enumerate(fleet.groups) if schedule.partition[row] in group)
            started[row] = max(fleet.free_ns[member], sent[row] + 1_500_000)
            fleet.free_ns[member] = finished[row] = started[row] + SERVICE_NS + int(rng.integers(0, 90_000))
        time_s = tick + spec.tick_phase_s
        now_ns = START_NS + round(time_s * 1e9) + int(rng.integers(200_000, 2_500_000))
        observation = _observe(schedule, sent, finished, fleet, tick, now_ns, last_scale_s, last_rebalance_s, epoch)
        decision = _decide(observation, toy)
        accepted = Accepted(decision.targets) if decision.action in ("up", "down") else None
        journal.tick(
            TickRecord(
                tick=tick,
                time_s=time_s,
                at_ns=now_ns,
                phase_s=(now_ns - START_NS) / 1e9 - tick,
                decide_us=float(rng.integers(60, 190)),
                observation=observation,
                decisions={toy.scaler: decision, **{name: _shadow(observation) for name in toy.shadows}},
                acting=toy.scaler,
                accepted=accepted,
                plan_epoch=epoch,
            )
        )
        if accepted is not None:
            fleet.resize(accepted.targets[FLEET], now_ns)
            last_scale_s, last_rebalance_s, epoch = time_s, time_s + 0.9, epoch + 1
    for number in range(len(fleet.free_ns)):
        fleet.say(number, "gone", max(int(finished.max()), START_NS + toy.seconds * 1_000_000_000) + 1)
    journal.close()
    replicas = ReplicasFile(directory)
    replicas.append(sorted(fleet.events, key=lambda event: event.at_ns))
    replicas.close()
    _write_tables(directory, schedule, toy, intended, sent, started, finished)


def _observe(
    schedule: Schedule,
    sent: npt.NDArray[np.int64],
    finished: npt.NDArray[np.int64],
    fleet: _Fleet,
    tick: int,
    now_ns: int,
    last_scale_s: float | None,
    last_rebalance_s: float | None,
    epoch: int,
) -> StreamObservation:
    out = (sent <= now_ns) & (schedule.intended_offset_ns <= now_ns - START_NS)
    done = out & (finished > 0) & (finished <= now_ns)
    ends = np.bincount(schedule.partition[out], minlength=PARTITIONS)
    committed = np.bincount(schedule.partition[done], minlength=PARTITIONS)
    this_second = schedule.intended_offset_ns // 1_000_000_000 == tick
    rates = np.bincount(schedule.partition[this_second & out], minlength=PARTITIONS)
    return StreamObservation(
        time_s=now_ns / 1e9 - START_NS / 1e9,
        fleet=FLEET,
        replicas=ReplicaCounts(joined=len(fleet.free_ns)),
        arrived=int(ends.sum()),
        completed=int(committed.sum()),
        backlog=int(ends.sum() - committed.sum()),
        last_scale_s=last_scale_s,
        partitions=tuple(
            PartitionObservation(p, int(ends[p]), int(committed[p]), float(rates[p])) for p in range(PARTITIONS)
        ),
        plan=fleet.groups,
        plan_epoch=epoch,
        last_rebalance_s=last_rebalance_s,
    )


def _decide(observation: StreamObservation, toy: Toy) -> Decision:
    rate = sum(partition.arrival_rate_per_s or 0.0 for partition in observation.partitions)
    wanted = min(PARTITIONS, max(1, math.ceil(rate / toy.per_replica)))
    current = observation.replicas.current
    why = {FLEET: {"arrival_rate_per_s": rate, "capacity_per_s": toy.per_replica, "wanted": wanted}}
    if observation.last_scale_s is not None and observation.time_s - observation.last_scale_s <= toy.hold_s:
        since_s = round(observation.time_s - observation.last_scale_s, 1)
        return Decision(action="hold", why={FLEET: {"reason": "within hold time", "since_last_scale_s": since_s}})
    action: Action = "up" if wanted > current else "down" if wanted < current else "none"
    return Decision(action=action, targets={FLEET: wanted} if action != "none" else {}, why=why)


def _shadow(observation: StreamObservation) -> Decision:
    rate = sum(partition.arrival_rate_per_s or 0.0 for partition in observation.partitions)
    wanted = min(PARTITIONS, max(1, math.ceil(rate / 75)))
    current = observation.replicas.current
    action: Action = "up" if wanted > current else "down" if wanted < current else "none"
    return Decision(action=action, targets={FLEET: wanted}, why={FLEET: {"bins_up": wanted}})


def _write_tables(
    directory: RunDirectory,
    schedule: Schedule,
    toy: Toy,
    intended: npt.NDArray[np.int64],
    sent: npt.NDArray[np.int64],
    started: npt.NDArray[np.int64],
    finished: npt.NDArray[np.int64],
) -> None:
    events = len(schedule)
    ids = np.arange(events)
    kept = np.setdiff1d(ids, np.asarray(toy.lose, dtype=np.int64))
    write_delivery(directory, ids, intended, sent)
    write_ledger(directory, kept)
    write_results(directory, kept, intended[kept], sent[kept], started[kept], finished[kept], unsigned=toy.unsigned)
    if toy.spark:
        write_spark(directory, intended[kept], finished[kept])
    seconds = np.arange(1, toy.seconds + 1)
    busy = 0.45 + 0.3 * np.sin(seconds / 17)
    at_ns = START_NS + seconds * 1_000_000_000
    machine = pa.table({"at_ns": at_ns, "cpu_busy_share": busy, "cpu_stolen_share": 0.01 * busy})
    pq.write_table(machine, directory.metrics_folder / "machine.parquet")


def write_delivery(
    directory: RunDirectory,
    ids: npt.NDArray[np.int64],
    intended: npt.NDArray[np.int64],
    sent: npt.NDArray[np.int64],
) -> None:
    """delivery.parquet in which the broker acknowledged everything 2 ms after it was sent."""
    pq.write_table(
        pa.table(
            {
                "id": ids,
                "intended_ns": intended,
                "sent_ns": sent,
                "acked_ns": sent + 2_000_000,
                "partition": np.zeros(len(ids), dtype=np.int32),
                "offset": ids,
                "error": pa.nulls(len(ids), pa.string()),
            }
        ),
        directory.delivery_file,
    )


def write_ledger(directory: RunDirectory, ids: npt.NDArray[np.int64]) -> None:
    """ledger.parquet with these bookings."""
    pq.write_table(pa.table({"id": ids}), directory.ledger_file)


def write_results(
    directory: RunDirectory,
    ids: npt.NDArray[np.int64],
    intended: npt.NDArray[np.int64],
    sent: npt.NDArray[np.int64],
    started: npt.NDArray[np.int64],
    finished: npt.NDArray[np.int64],
    *,
    unsigned: int = 0,
) -> None:
    """results/part-0.parquet: one completed result an event, and ``unsigned`` failed ones that belong to none."""
    rows = len(ids) + unsigned
    pad = np.full(unsigned, START_NS)
    missing = pa.nulls(unsigned, pa.int64())

    def column(values: npt.NDArray[np.int64]) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(values, pa.int64()), missing])

    pq.write_table(
        pa.table(
            {
                "id": column(ids),
                "run": [directory.name] * rows,
                "pipeline": ["payments"] * rows,
                "stage": ["payment"] * rows,
                "outcome": ["completed"] * len(ids) + ["failed"] * unsigned,
                "queue": ["events-0"] * rows,
                "intended_ns": column(intended),
                "sent_ns": column(sent),
                "received_ns": np.concatenate([started, pad]),
                "started_ns": np.concatenate([started, pad]),
                "finished_ns": np.concatenate([finished, pad]),
                "worker": ["payments-0"] * rows,
                "attempt": np.ones(rows, dtype=np.int32),
                "terminal": [True] * rows,
                "reason": [""] * len(ids) + ["signature does not match"] * unsigned,
            }
        ),
        directory.results_folder / "part-0.parquet",
    )


def write_spark(directory: RunDirectory, intended: npt.NDArray[np.int64], finished: npt.NDArray[np.int64]) -> None:
    """metrics/latency-per-second.parquet with the columns that the report reads, each second published 1.5 s late."""
    second = finished // 1_000_000_000
    rows = []
    for value in np.unique(second).tolist():
        latency_s = (finished - intended)[second == value] / 1e9
        p50_s, p99_s = percentiles_s(latency_s, (50.0, 99.0)).tolist()
        published_ns = (value + 1) * 1_000_000_000 + 1_500_000_000
        rows.append(
            {
                "stage": "payment",
                "second": value,
                "count": len(latency_s),
                "p50_s": p50_s,
                "p99_s": p99_s,
                "published_ns": published_ns,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), directory.per_second_file)


def _manifest(directory: RunDirectory) -> Manifest:
    return Manifest(
        run=directory.name,
        finished_at="2026-01-01T00:02:00+00:00",
        git_revision="0" * 40,
        versions={"penstock": "0.1.0", "python": "3.11.2", "numpy": "2.4.6"},
        machine={"system": "Linux", "cores": 2, "memory_gib": 7.8},
        verdict="VALID",
    )


def _plain(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)
