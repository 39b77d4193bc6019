"""Metrics of `penstock run` itself, as a scrape shows them."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import msgspec

from infra.local.collect import MachineSampler
from infra.local.program_cpu import ProgramCpu
from infra.runs.context import RunContext
from infra.runs.exposition import RunMetrics
from infra.runs.faults import Faults, Injected
from penstock.adapters.process_manager import ProgramStatus
from penstock.runspec import Fault
from tests.support.eventually import eventually


def test_a_scrape_has_the_machine_and_the_faults_until_the_run_ends(tmp_path: Path) -> None:
    directory = SimpleNamespace(faults_file=tmp_path / "faults.jsonl")
    faults = Faults(cast(RunContext, SimpleNamespace(directory=directory)), {"kill-worker": lambda: Injected("w-1")})
    sampler = MachineSampler()
    here = ProgramStatus("service:kafka", os.getpid(), "active")
    run_metrics = RunMetrics(sampler, faults, ProgramCpu(lambda: {here.name: here}))
    run_metrics.serve("run-1", tmp_path)
    (announced,) = msgspec.json.decode((tmp_path / "run-1-driver.json").read_bytes())
    assert announced["labels"] == {"process": "run-1-driver", "run": "run-1"}

    def scrape() -> str:
        return httpx.get(f"http://{announced['targets'][0]}/metrics", trust_env=False).text

    try:
        assert "penstock_machine" not in scrape(), "nothing was sampled yet"
        sampler.start()
        eventually(lambda: bool(sampler.newest()), within_s=30)
        faults.inject(Fault("kill-worker", 1.0))
        text = scrape()
        for use in ("busy", "niced", "stolen"):
            assert f'penstock_machine_cpu_share{{use="{use}"}} ' in text
        assert "penstock_machine_memory_available_bytes " in text
        (record,) = faults.injected
        (line,) = [line for line in text.splitlines() if line.startswith("penstock_fault_timestamp_seconds{")]
        assert line.startswith('penstock_fault_timestamp_seconds{detail="w-1",fault="kill-worker"} ')
        assert abs(float(line.split()[-1]) - record.at_ns / 1e9) < 1e-3
        assert 'penstock_program_cpu_seconds_total{program="kafka"} ' in text
        assert "penstock_run_verdict" not in text
        assert not run_metrics.judged("DEGRADED", ("late", "busy"), within_s=0.01), "nobody has asked"
        sampler.stop()
        text = scrape()
        assert 'penstock_run_verdict{reasons="late; busy",verdict="DEGRADED"} 1.0' in text
        assert run_metrics.judged("DEGRADED", ("late", "busy"), within_s=0.0), "it was scraped"
        assert "penstock_machine" not in text, "what is no longer sampled has no newest value"
    finally:
        sampler.stop()
        run_metrics.close()
        faults.close()
    assert not (tmp_path / "run-1-driver.json").exists()
