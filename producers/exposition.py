"""The sender's Prometheus metrics, computed from its log when scraped: sending itself pays nothing for them."""

from collections.abc import Iterator

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from penstock import metrics
from producers.delivery import DeliveryLog

SEND_DELAY_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30),
)


class SenderMetrics(Collector):
    """Events sent, acknowledged and failed, and the histogram of send delay, of one run."""

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log
        self._counted = 0
        self._delay_counts = np.zeros(len(SEND_DELAY_BOUNDS_S) + 1, dtype=np.int64)
        self._delay_sum_s = 0.0

    def collect(self) -> Iterator[Metric]:
        """Figures as of now."""
        run = (self._log.run,)
        for name, text, value in (
            (metrics.EVENTS_SENT, "Events handed to the client library", self._log.issued),
            (metrics.EVENTS_ACKNOWLEDGED, "Events with a positive delivery report", self._log.acknowledged),
            (metrics.EVENTS_SEND_FAILED, "Events that ended in an error", len(self._log.errors)),
        ):
            counter = CounterMetricFamily(name, text, labels=("run",))
            counter.add_metric(run, value)
            yield counter
        # Take in the events that were reached since the last time; they are reached in the order of their ids.
        reached = self._log.reached
        delay_s = self._log.send_delay_s(self._counted, reached)
        self._counted = reached
        buckets = np.searchsorted(SEND_DELAY_BOUNDS_S, delay_s, side="left")  # a bucket holds what is at most its bound
        self._delay_counts += np.bincount(buckets, minlength=len(self._delay_counts))
        self._delay_sum_s += float(delay_s.sum())
        cumulative = np.cumsum(self._delay_counts).tolist()
        bounds = [*map(floatToGoString, SEND_DELAY_BOUNDS_S), "+Inf"]
        delay = HistogramMetricFamily(metrics.SEND_DELAY, "Intended send time to hand-over", labels=("run",))
        delay.add_metric(run, list(zip(bounds, cumulative, strict=True)), self._delay_sum_s)
        yield delay
