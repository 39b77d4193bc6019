"""Shows true latencies on Locust's page: from the intended time, in Penstock's log buckets.

Locust rounds response times to two digits, and its p99 of a hundred events is the largest of them. ``use_log_buckets``
replaces both by ``penstock.measures``. Histograms are merged into its statistics as a worker's report is, so that the
cost does not depend on the number of events.
"""

import math
from typing import Final

import locust.stats
import numpy as np
from locust.stats import RequestStats, StatsEntry, StatsError

from penstock.measures import bucket_of, bucket_upper_s, histogram_percentiles
from producers.locust_messages import Batch

METHOD: Final = "from intended time"
FAILED: Final = "not completed: failed, rejected or dead-lettered"


def bucket_ms(response_time_ms: float) -> float:
    """Upper bound of the log bucket of a response time, in milliseconds."""
    return float(bucket_upper_s(bucket_of(response_time_ms / 1000)) * 1000)


def percentile_ms(response_times: dict[float, int], num_requests: int, percent: float) -> float:
    """Nearest-rank percentile (``percent`` from 0 to 1) of a histogram {upper bound in ms: count}; 0 for none.

    ``num_requests`` is Locust's own count, which the histogram has too.
    """
    del num_requests
    if not response_times:
        return 0
    bounds = np.asarray(sorted(response_times))
    counts = np.asarray([response_times[bound] for bound in bounds.tolist()], dtype=np.int64)
    positions = np.arange(len(bounds))
    rank = round(100 * percent, 6)  # 0.07 · 100 is a little above 7
    return rounded_up(float(bounds[histogram_percentiles(positions, counts, (rank,))[0]]))


def rounded_up(value: float) -> float:
    """To four significant digits, upwards as the bound of a bucket is: what people can read."""
    if value <= 0:
        return 0.0
    digits = 3 - math.floor(math.log10(value))
    scale = 10.0**digits
    return math.ceil(round(value * scale, 6)) / scale


def use_log_buckets() -> None:
    """Replace Locust's rounding and percentiles in this process."""
    locust.stats.bucket_response_time = bucket_ms  # type: ignore[assignment]
    locust.stats.calculate_response_time_percentile = percentile_ms  # type: ignore[assignment]


class Bridge:
    """Adds batches to Locust's statistics. An event that completed late is no failure: ``results`` and ``within`` count
    all results and those within the SLO.
    """

    def __init__(self, stats: RequestStats) -> None:
        self._stats = stats
        self.results = self.within = 0

    def add(self, batch: Batch) -> None:
        """Count a batch in the total and in the row of its stage."""
        entry = stats_entry(batch)
        for into in (self._stats.total, self._stats.get(batch.stage, METHOD)):
            into.extend(entry)
        self.results += entry.num_requests
        self.within += entry.num_requests - batch.missed - batch.failed
        self._fail(batch.stage, FAILED, batch.failed)

    def _fail(self, stage: str, reason: str, count: int) -> None:
        if not count:
            return
        key = StatsError.create_key(METHOD, stage, reason)
        error = self._stats.errors.setdefault(key, StatsError(METHOD, stage, reason))
        error.occurrences += count


def stats_entry(batch: Batch) -> StatsEntry:
    """A batch as if Locust had counted its events one by one."""
    entry = StatsEntry(RequestStats(), batch.stage, METHOD)
    completed = sum(batch.counts)
    bounds_ms = (bucket_upper_s(batch.buckets) * 1000).tolist()
    entry.start_time = float(batch.second)
    entry.num_requests = completed + batch.failed
    entry.num_none_requests = batch.failed  # they have no latency
    entry.num_failures = batch.failed
    entry.last_request_timestamp = float(batch.second)
    entry.num_reqs_per_sec[batch.second] = entry.num_requests
    entry.num_fail_per_sec[batch.second] = entry.num_failures
    if completed:
        entry.total_response_time = 1000 * batch.sum_s  # type: ignore[assignment]  # Locust's own are floats, too
        entry.min_response_time, entry.max_response_time = 1000 * batch.least_s, 1000 * batch.most_s  # type: ignore[assignment]
        entry.response_times.update(zip(bounds_ms, batch.counts, strict=True))
    return entry
