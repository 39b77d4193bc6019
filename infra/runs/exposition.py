"""Metrics of ``penstock run`` itself: the machine, and the run's faults."""

from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from infra.local.collect import MachineSampler
from infra.runs.faults import Faults
from penstock import metrics
from penstock.adapters.exposition import expose
from penstock.clock import NANOS_PER_SECOND


class RunMetrics(Collector):
    """What the sampler and the record of faults hold at the moment of a scrape."""

    def __init__(self, sampler: MachineSampler, faults: Faults) -> None:
        self._sampler = sampler
        self._faults = faults
        self._close: Callable[[], None] = lambda: None

    def serve(self, run: str, folder: Path | None) -> None:
        """Announce them in ``folder``. Raises PenstockError."""
        registry = CollectorRegistry()
        registry.register(self)
        self._close = expose(f"{run}-driver", folder, {"run": run}, registry).close

    def close(self) -> None:
        """Withdraw them; idempotent."""
        close, self._close = self._close, lambda: None
        close()

    def collect(self) -> Iterator[Metric]:
        """CPU by use, free memory, and the time of each fault."""
        if row := self._sampler.newest():
            cpu = GaugeMetricFamily(metrics.MACHINE_CPU, "share of all cores", labels=["use"])
            for use in ("busy", "niced", "stolen"):
                cpu.add_metric([use], row[f"cpu_{use}_share"])
            yield cpu
            free = row["memory_available_bytes"]
            yield GaugeMetricFamily(metrics.MACHINE_MEMORY, "memory that processes can still have", value=free)
        fault = GaugeMetricFamily(metrics.FAULT, "when a fault was injected", labels=["fault", "detail"])
        for record in list(self._faults.injected):
            fault.add_metric([record.kind, record.detail], record.at_ns / NANOS_PER_SECOND)
        yield fault
