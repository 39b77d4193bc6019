"""Metrics of ``penstock run`` itself: the machine, its programs, the run's faults, and in the end its verdict."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from infra.local.collect import MachineSampler
from infra.local.program_cpu import ProgramCpu
from infra.local.service import PREFIX
from infra.runs.faults import Faults
from penstock import metrics
from penstock.adapters.exposition import expose
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import Verdict

SCRAPED_WITHIN_S: Final = 3.0
"""Prometheus asks each second."""
RANK: Final[dict[Verdict, int]] = {"VALID": 0, "DEGRADED": 1, "INVALID": 2}
"""Values of the verdict's metric."""


class RunMetrics(Collector):
    """What the sampler, the programs' CPU times and the record of faults hold at the moment of a scrape."""

    def __init__(self, sampler: MachineSampler, faults: Faults, cpu: ProgramCpu) -> None:
        self._sampler = sampler
        self._faults = faults
        self._cpu = cpu
        self._turn = threading.Lock()
        self._run = ""
        self._verdict: tuple[Verdict, str] | None = None
        self._told = threading.Event()
        self._close: Callable[[], None] = lambda: None

    def serve(self, run: str, folder: Path | None) -> None:
        """Announce them in ``folder``. Raises PenstockError."""
        self._run = run
        registry = CollectorRegistry()
        registry.register(self)
        self._close = expose(f"{run}-driver", folder, {"run": run}, registry).close

    def judged(self, verdict: Verdict, reasons: Sequence[str], within_s: float = SCRAPED_WITHIN_S) -> bool:
        """Tell the verdict, and wait until it was scraped; False if nobody asked ``within_s``."""
        self._verdict = verdict, "; ".join(reasons)
        return self._told.wait(within_s)

    def close(self) -> None:
        """Withdraw them; idempotent."""
        close, self._close = self._close, lambda: None
        close()

    def collect(self) -> Iterator[Metric]:
        """While the machine is sampled its CPU by use, its free memory and the programs' CPU; the time of each fault;
        the verdict.
        """
        if row := self._sampler.newest():
            cpu = GaugeMetricFamily(metrics.MACHINE_CPU, "share of all cores", labels=["use"])
            for use in ("busy", "niced", "stolen"):
                cpu.add_metric([use], row[f"cpu_{use}_share"])
            yield cpu
            free = row["memory_available_bytes"]
            yield GaugeMetricFamily(metrics.MACHINE_MEMORY, "memory that processes can still have", value=free)
            yield self._programs()
        fault = GaugeMetricFamily(metrics.FAULT, "when a fault was injected", labels=["fault", "detail"])
        for record in list(self._faults.injected):
            fault.add_metric([record.kind, record.detail], record.at_ns / NANOS_PER_SECOND)
        yield fault
        if self._verdict is not None:
            verdict, reasons = self._verdict
            judged = GaugeMetricFamily(
                metrics.RUN_VERDICT, "0 VALID, 1 DEGRADED, 2 INVALID", labels=["verdict", "reasons"]
            )
            judged.add_metric([verdict, reasons], RANK[verdict])
            yield judged
            self._told.set()

    def _programs(self) -> Metric:
        text = "CPU time of a program and all its descendants"
        used = CounterMetricFamily(metrics.PROGRAM_CPU.removesuffix("_total"), text, labels=["program"])
        with suppress(PenstockError), self._turn:  # without the supervisor the run ends anyway
            for name, used_s in self._cpu.read().items():
                used.add_metric([name.removeprefix(PREFIX).removeprefix(f"{self._run}:")], used_s)
        return used
