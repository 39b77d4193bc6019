"""Prometheus meters of one worker; names in ``penstock.metrics``.

Counts are plain numbers that become metrics at a scrape: at thousands of events per second the client library's locks
would cost more than the payment.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from penstock import metrics
from penstock.records import Outcome, Result

SERVICE_BUCKETS_NS = tuple(
    round(seconds * 1e9)
    for seconds in (0.001, 0.002, 0.004, 0.005, 0.0055, 0.006, 0.008, 0.01, 0.02, 0.05, 0.1, 0.5, 1)
)

NAMES = ("fleet", "replica")


class ServiceMeters(Collector):
    """Counters of a worker on any broker. The worker's threads write, the metrics server's reads; they only grow."""

    def __init__(self, fleet: str, replica: str) -> None:
        self._labels = (fleet, replica)
        self._processed: dict[Outcome, int] = {"completed": 0, "failed": 0}
        self._service_counts = [0] * (len(SERVICE_BUCKETS_NS) + 1)
        self._service_sum_ns = 0

    def served(self, results: Sequence[Result]) -> None:
        """Count these results."""
        for result in results:
            service_ns = result.finished_ns - result.started_ns
            self._processed[result.outcome] += 1
            self._service_counts[bisect_left(SERVICE_BUCKETS_NS, service_ns)] += 1
            self._service_sum_ns += service_ns

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        processed = CounterMetricFamily(metrics.EVENTS_PROCESSED, "Events by outcome.", labels=(*NAMES, "outcome"))
        for outcome, events in self._processed.items():
            processed.add_metric((*self._labels, outcome), events)
        yield processed
        family = HistogramMetricFamily(metrics.SERVICE_TIME, "Service time of an event.", labels=NAMES)
        bounds = [*(str(bound / 1e9) for bound in SERVICE_BUCKETS_NS), "+Inf"]
        cumulative = accumulate(tuple(self._service_counts))
        family.add_metric(self._labels, list(zip(bounds, cumulative, strict=True)), self._service_sum_ns / 1e9)
        yield family


class Meters(ServiceMeters):
    """Counters of one member of a consumer group. ``finished``, and of those ``late``: events with a result, and those
    with a latency above the SLO; ``busy_ns``: the time spent on them.
    """

    def __init__(self, fleet: str, replica: str, slo_s: float) -> None:
        super().__init__(fleet, replica)
        self._slo_ns = round(slo_s * 1e9)
        self.finished = 0
        self.late = 0
        self._assigned = 0
        self._rebalances = 0
        self._range_fallbacks = 0

    def served(self, results: Sequence[Result]) -> None:
        """Count these results."""
        super().served(results)
        self.finished += len(results)
        self.late += sum(
            1 for each in results if each.intended_ns is None or each.finished_ns - each.intended_ns > self._slo_ns
        )

    @property
    def busy_ns(self) -> int:
        """Service time of the finished events."""
        return self._service_sum_ns

    def rebalanced(self, partitions: int) -> None:
        """A new assignment of that many partitions."""
        self._rebalances += 1
        self._assigned = partitions

    def fell_back_to_range(self) -> None:
        """This member had to assign by range."""
        self._range_fallbacks += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        yield from super().collect()
        for kind, name, help_text, value in (
            (GaugeMetricFamily, metrics.ASSIGNED_PARTITIONS, "Partitions held.", self._assigned),
            (CounterMetricFamily, metrics.REBALANCES, "Assignments received.", self._rebalances),
            (CounterMetricFamily, metrics.RANGE_FALLBACKS, "Times it had to assign by range.", self._range_fallbacks),
        ):
            family = kind(name, help_text, labels=NAMES)
            family.add_metric(self._labels, value)
            yield family
