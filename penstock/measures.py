"""Measures, defined once (numpy, exact). Spark computes the same ones on what outgrows one machine.

Latency runs from an event's *intended* send time to the earliest terminal Result. Percentiles are nearest-rank on
raw values (exact ranks), so that a percentile taken from the log-bucket histogram lies in the very bucket of the
exact one. Negative values are kept and counted, never dropped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.contracts import Action, ReplicaEvent

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)

# --- log buckets -----------------------------------------------------------------------------------------------------

BUCKET_FLOOR_S = 1e-6
"""Values at or below this (also negative ones) are in bucket 0."""
BUCKET_RATIO = 1.01
"""Each bucket is 1 % wide: bucket b > 0 holds (floor · ratio^(b-1), floor · ratio^b]."""


def bucket_of(latency_s: npt.ArrayLike) -> Ints:
    """Log bucket of each latency in seconds; same shape."""
    values = np.asarray(latency_s, dtype=np.float64)
    above = np.maximum(values, BUCKET_FLOOR_S) / BUCKET_FLOOR_S
    return np.ceil(np.log(above) / math.log(BUCKET_RATIO) - 1e-9).astype(np.int64)


def bucket_upper_s(bucket: npt.ArrayLike) -> Floats:
    """Upper bound of each bucket in seconds; what a histogram reports as the value."""
    return np.asarray(BUCKET_FLOOR_S * np.power(BUCKET_RATIO, np.asarray(bucket, dtype=np.float64)))


def histogram(latency_s: npt.ArrayLike) -> tuple[Ints, Ints]:
    """(buckets ascending, counts), without empty ones."""
    buckets, counts = np.unique(bucket_of(latency_s), return_counts=True)
    return buckets, counts.astype(np.int64)


def nearest_ranks(count: int, percentiles: Sequence[float] = PERCENTILES) -> Ints:
    """Rank (1 … ``count``) of each percentile, rounded up exactly: in doubles 99.9 % of 1000 is a little above 999."""
    shares = (_share(percentile) for percentile in percentiles)
    return np.asarray([max(1, -(-above * int(count) // below)) for above, below in shares], dtype=np.int64)


@lru_cache
def _share(percentile: float) -> tuple[int, int]:
    """A percentile as a reduced fraction; found once, for ranks are asked for every second of a run."""
    return (Fraction(str(percentile)) / 100).as_integer_ratio()


def histogram_percentiles(buckets: Ints, counts: Ints, percentiles: Sequence[float] = PERCENTILES) -> Ints:
    """Bucket in which each percentile lies (nearest rank). ``buckets`` ascending. Empty histogram: ValueError."""
    cumulative = np.cumsum(counts)
    if len(cumulative) == 0 or cumulative[-1] == 0:
        raise ValueError("percentiles of nothing")
    found: Ints = buckets[np.searchsorted(cumulative, nearest_ranks(cumulative[-1], percentiles))]
    return found


def percentiles_s(latency_s: Floats, percentiles: Sequence[float] = PERCENTILES) -> Floats:
    """Nearest-rank percentiles of raw latencies in seconds; NaN for no values."""
    if len(latency_s) == 0:
        return np.full(len(percentiles), np.nan)
    ordered: Floats = np.sort(latency_s)
    return ordered[nearest_ranks(len(ordered), percentiles) - 1]


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds: mean, nearest-rank ``PERCENTILES`` and maximum. All None without values."""

    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    p99_9_s: float | None = None
    max_s: float | None = None


PERCENTILE_FIELDS = Distribution.__struct_fields__[1:-1]
"""The field of each of ``PERCENTILES``."""
RANKED = (*PERCENTILES, 100.0)
"""Percentiles of which a distribution consists: the last one is the maximum."""


def ranked_distribution(mean_s: float, ranked_s: Floats) -> Distribution:
    """A distribution from its mean and its values at the ranks of ``RANKED``."""
    return Distribution(mean_s=mean_s, **dict(zip((*PERCENTILE_FIELDS, "max_s"), ranked_s.tolist(), strict=True)))


def distribution(values_s: Floats) -> Distribution:
    """Mean and percentiles of raw durations."""
    if len(values_s) == 0:
        return Distribution()
    return ranked_distribution(float(values_s.mean()), percentiles_s(values_s, RANKED))


# --- latency ---------------------------------------------------------------------------------------------------------

Part = Literal["latency", "send_delay", "queueing", "service"]
PARTS: Final[Mapping[Part, tuple[str, str]]] = {
    "latency": ("intended_ns", "finished_ns"),
    "send_delay": ("intended_ns", "sent_ns"),
    "queueing": ("sent_ns", "started_ns"),
    "service": ("started_ns", "finished_ns"),
}
"""The latency and the parts that add up to it: from, to."""


@dataclass(frozen=True, slots=True, eq=False)
class Completions:
    """Earliest terminal result of each event that completed, one row an event, ascending id. Times: ns since the epoch.

    ``redelivered`` counts result rows beyond the first of their id.
    """

    event_id: Ints
    intended_ns: Ints
    sent_ns: Ints
    started_ns: Ints
    finished_ns: Ints
    redelivered: int

    def part_ns(self, part: Part) -> Ints:
        """The latency of each event or a part of it, nanoseconds, shape (events,)."""
        begin, end = PARTS[part]
        taken_ns: Ints = getattr(self, end) - getattr(self, begin)
        return taken_ns

    def part_s(self, part: Part) -> Floats:
        """The same in seconds."""
        return self.part_ns(part) / 1e9

    @property
    def latency_s(self) -> Floats:
        """Intended send time → finished, seconds, shape (events,)."""
        return self.part_s("latency")


def completions(event_id: Ints, intended_ns: Ints, sent_ns: Ints, started_ns: Ints, finished_ns: Ints) -> Completions:
    """Keep the earliest-finished row of each id. Arrays of one length, rows of terminal completed results only."""
    order = np.lexsort((finished_ns, event_id))
    ids = event_id[order]
    first = np.ones(len(ids), dtype=bool)
    first[1:] = ids[1:] != ids[:-1]
    rows = order[first]
    return Completions(
        event_id=event_id[rows],
        intended_ns=intended_ns[rows],
        sent_ns=sent_ns[rows],
        started_ns=started_ns[rows],
        finished_ns=finished_ns[rows],
        redelivered=len(event_id) - len(rows),
    )


def slo_share(latency_s: Floats, slo_s: float, due: int | None = None) -> float:
    """Share of events with latency ≤ ``slo_s`` among ``due`` (default: those that completed). NaN for none."""
    total = len(latency_s) if due is None else due
    return float(np.count_nonzero(latency_s <= slo_s)) / total if total else math.nan


NEVER: Final = np.iinfo(np.int64).max
"""When an event ended that has no result."""


def missed_seconds(done: Completions, unfinished_ns: Ints, *, slo_s: float, start_ns: int, duration_s: float) -> Bools:
    """Which seconds of a run missed the SLO, shape (⌈duration⌉,). ``unfinished_ns``: (intended, ended) of the events
    that did not complete, shape (2, events).

    Second k is from k to k + 1 s after the start. It missed the SLO if p99 of the events that completed in it is above
    the SLO, or if none completed in it although an event was there, intended by its end and not ended before it, that
    did not complete within the SLO later either.
    """
    seconds = math.ceil(duration_s)

    def second(at_ns: Ints) -> Ints:
        found: Ints = np.clip((at_ns - start_ns) // 10**9, -1, seconds)
        return found

    late = done.latency_s > slo_s
    ended = second(done.finished_ns)
    of_run = (ended >= 0) & (ended < seconds)
    completed = np.bincount(ended[of_run], minlength=seconds)
    too_late = np.bincount(ended[of_run & late], minlength=seconds)
    begin = second(np.concatenate([done.intended_ns[late], unfinished_ns[0]]))
    end = second(np.concatenate([done.finished_ns[late], unfinished_ns[1]]))
    change = np.bincount(np.maximum(begin, 0), minlength=seconds + 2) - np.bincount(end + 1, minlength=seconds + 2)
    waiting = np.cumsum(change)[:seconds]
    # By nearest rank p99 is above the SLO if more than 1 % of the events are late.
    missed: Bools = np.where(completed == 0, waiting > 0, too_late > completed // 100)
    return missed


# --- faults ----------------------------------------------------------------------------------------------------------

LATE_SHARE: Final = 0.01
"""A second is disturbed if a greater share of its events is late."""
QUIET_S: Final = 3.0
"""A disturbance is over when nothing was wrong for this long."""
Span = tuple[float, float]
"""From, to: seconds from the start of the run."""


def late_spans(intended_s: Floats, late: Bools) -> list[Span]:
    """When events were intended that came late: from the first to the last late one of each second of which more than
    ``LATE_SHARE`` of the events are late, ascending.
    """
    seconds, row = np.unique(np.floor(intended_s).astype(np.int64), return_inverse=True)
    late_row, late_s = row[late], intended_s[late]
    events, late_events = (np.bincount(each, minlength=len(seconds)) for each in (row, late_row))
    first_s, last_s = np.full(len(seconds), np.inf), np.full(len(seconds), -np.inf)
    np.minimum.at(first_s, late_row, late_s)
    np.maximum.at(last_s, late_row, late_s)
    disturbed = late_events > LATE_SHARE * events
    return list(zip(first_s[disturbed].tolist(), last_s[disturbed].tolist(), strict=True))


def merged(spans: Iterable[Span], quiet_s: float = QUIET_S) -> list[Span]:
    """Spans (ascending) that follow each other by at most ``quiet_s`` as one: the periods in which events came late."""
    periods: list[Span] = []
    for from_s, to_s in spans:
        if periods and from_s <= periods[-1][1] + quiet_s:
            periods[-1] = (periods[-1][0], max(periods[-1][1], to_s))
        else:
            periods.append((from_s, to_s))
    return periods


def missing_replicas(events: Iterable[ReplicaEvent]) -> tuple[Ints, Ints]:
    """(at_ns, replicas that are wanted and do not serve from then on), a step function."""
    serves: dict[tuple[str, str], bool] = {}
    times: list[int] = []
    counts: list[int] = []
    for event in sorted(events, key=lambda event: event.at_ns):
        replica = event.fleet, event.replica
        if event.phase in ("draining", "gone", "pooled"):
            serves.pop(replica, None)
        else:
            serves[replica] = event.phase in ("joined", "first-event")
        times.append(event.at_ns)
        counts.append(sum(not serving for serving in serves.values()))
    return np.asarray(times, dtype=np.int64), np.asarray(counts, dtype=np.int64)


def disturbed_until_s(spans: Iterable[Span], fault: Span) -> float:
    """When the disturbance of a fault ends: the end of the last of ``spans`` (ascending) that follow the fault, or each
    other, by at most ``QUIET_S``; the fault's beginning if there is none.
    """
    began_s, reach_s = fault
    ended_s = began_s
    for from_s, to_s in spans:
        if to_s < began_s:
            continue
        if from_s > reach_s + QUIET_S:
            break
        ended_s, reach_s = max(ended_s, to_s), max(reach_s, to_s)
    return ended_s


# --- cost ------------------------------------------------------------------------------------------------------------


def replica_seconds(events: Iterable[ReplicaEvent], start_ns: int, end_ns: int) -> float:
    """Replica time between two instants: each replica counts from ``requested`` to ``gone`` (or to the end)."""
    since: dict[str, int] = {}
    total_ns = 0
    for event in events:
        at_ns = min(max(event.at_ns, start_ns), end_ns)
        if event.phase == "requested":
            since.setdefault(event.replica, at_ns)
        elif event.phase == "gone" and event.replica in since:
            total_ns += at_ns - since.pop(event.replica)
    total_ns += sum(end_ns - began for began in since.values())
    return total_ns / 1e9


def replicas_over_time(events: Iterable[ReplicaEvent]) -> tuple[Ints, Ints]:
    """(at_ns, replicas that exist from then on), a step function."""
    times: list[int] = []
    counts: list[int] = []
    alive: set[str] = set()
    for event in sorted(events, key=lambda event: event.at_ns):
        before = len(alive)
        if event.phase == "requested":
            alive.add(event.replica)
        elif event.phase == "gone":
            alive.discard(event.replica)
        if len(alive) != before:
            times.append(event.at_ns)
            counts.append(len(alive))
    return np.asarray(times, dtype=np.int64), np.asarray(counts, dtype=np.int64)


class ScaleCounts(msgspec.Struct, frozen=True):
    """Scale actions and the replicas they added or removed (reading B17: both are reported)."""

    up_actions: int = 0
    down_actions: int = 0
    replicas_added: int = 0
    replicas_removed: int = 0
    reassignments: int = 0


def scale_counts(actions: Iterable[tuple[Action, int, int]]) -> ScaleCounts:
    """From (action, replicas before, replicas after) of each decision that was carried out."""
    up = down = added = removed = reassigned = 0
    for action, before, after in actions:
        if action == "up" and after > before:
            up += 1
            added += after - before
        elif action == "down" and after < before:
            down += 1
            removed += before - after
        elif action == "reassign":
            reassigned += 1
    return ScaleCounts(up, down, added, removed, reassigned)


# --- conservation ----------------------------------------------------------------------------------------------------


class Conservation(msgspec.Struct, frozen=True, kw_only=True):
    """Counts by distinct id (measurement rule 3).

    scheduled = acknowledged + never_sent;
    acknowledged = completed + failed + rejected + dead_lettered + in_flight + lost.
    ``agree``: delivery reports, ledger and result ids name the same events. ``foreign`` results belong to no
    scheduled event.
    """

    scheduled: int
    acknowledged: int
    never_sent: int
    completed: int
    failed: int
    rejected: int
    dead_lettered: int
    in_flight: int
    lost: int
    booked: int
    redelivered: int
    foreign: int
    agree: bool
    disagreements: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Nothing lost and all three counts agree."""
        return self.agree and self.lost == 0


NO_IDS: Final = np.array([], dtype=np.int64)


def conservation(
    *,
    scheduled: int,
    acknowledged: Ints,
    booked: Ints,
    results: Mapping[str, Ints],
    result_rows: int,
    foreign: int = 0,
    in_flight: int = 0,
) -> Conservation:
    """Balance of a run.

    ``acknowledged``, ``booked``: ids from delivery reports and from the ledger. ``results``: ids of terminal results by
    outcome; an id with several outcomes counts under the first of completed, failed, rejected, dead-lettered.
    ``in_flight``: acknowledged events known to be still waiting (a run that was stopped, not drained), at most those
    without a result. Ids outside 0…scheduled-1 are foreign.
    """

    def among(ids: Ints) -> Bools:
        """Which of the scheduled events are in ``ids``."""
        mask = np.zeros(scheduled, dtype=np.bool_)
        mask[ids[(ids >= 0) & (ids < scheduled)]] = True
        return mask

    acked, ledger = among(acknowledged), among(booked)
    seen = np.zeros(scheduled, dtype=np.bool_)
    outside = _outside(booked, scheduled)
    counts: dict[str, int] = {}
    for outcome in ("completed", "failed", "rejected", "dead-lettered"):
        ids = among(results.get(outcome, NO_IDS)) & ~seen
        counts[outcome] = int(ids.sum())
        seen |= ids
    completed = among(results.get("completed", NO_IDS))
    unanswered = acked & ~seen
    in_flight = min(in_flight, int(unanswered.sum()))  # one that has a result waits no more: its commit failed
    disagreements = [
        f"{text}: {len(found)} (first ids {', '.join(map(str, found[:5]))})"
        for text, found in (
            ("acknowledged without a result", _ids(unanswered) if unanswered.sum() != in_flight else []),
            ("result without acknowledgement", _ids(seen & ~acked)),
            ("completed but not in the ledger", _ids(completed & ~ledger)),
            ("in the ledger without a completed result", _ids(ledger & ~completed)),
            ("in the ledger but not in the schedule", outside),
        )
        if found
    ]
    return Conservation(
        scheduled=scheduled,
        acknowledged=int(acked.sum()),
        never_sent=scheduled - int(acked.sum()),
        completed=counts["completed"],
        failed=counts["failed"],
        rejected=counts["rejected"],
        dead_lettered=counts["dead-lettered"],
        in_flight=in_flight,
        lost=max(0, int(unanswered.sum()) - in_flight),
        booked=int(ledger.sum()) + len(outside),  # by the mask: np.unique over all ids takes many times as long
        redelivered=result_rows - int(seen.sum()),
        foreign=foreign,
        agree=not disagreements,
        disagreements=tuple(disagreements),
    )


def _ids(mask: Bools) -> list[int]:
    return [int(index) for index in np.flatnonzero(mask)]


def _outside(ids: Ints, scheduled: int) -> list[int]:
    return [int(event_id) for event_id in np.unique(ids[(ids < 0) | (ids >= scheduled)])]


# --- claims ----------------------------------------------------------------------------------------------------------


def bootstrap_interval(
    values: Sequence[float], *, seed: int = 1, level: float = 0.95, draws: int = 10_000
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean over repetitions. One value: (value, value)."""
    sample = np.asarray(values, dtype=np.float64)
    if len(sample) == 0:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    means = rng.choice(sample, size=(draws, len(sample)), replace=True).mean(axis=1)
    low, high = np.percentile(means, [50 * (1 - level), 100 - 50 * (1 - level)])
    return float(low), float(high)
